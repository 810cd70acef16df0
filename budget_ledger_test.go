package weir

import (
	"testing"
	"time"

	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/backend/backendtest"
	"github.com/weirmq/weir/tests/bubble"
)

func TestStreamsOfABudgetInOneProcess(t *testing.T) {
	backendtest.Budget(t, func(string) backend.Budgeter { return &ledger{} }, "jobs")
}

func TestABudgetCountsWhatIsFinishedNow(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		backendtest.BudgetCounts(t, &ledger{}, "jobs", func() { time.Sleep(accountLasts + time.Second) })
	})
}
