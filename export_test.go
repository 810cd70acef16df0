package weir

import "github.com/weirmq/weir/backend"

// NewLedger makes what keeps the budgets of a process.
func NewLedger() backend.Budgeter { return &ledger{} }
