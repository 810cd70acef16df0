package weir

import (
	"testing"

	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/backend/backendtest"
)

func TestStreamsOfABudgetInOneProcess(t *testing.T) {
	backendtest.Budget(t, func(string) backend.Budgeter { return &ledger{} }, "jobs")
}
