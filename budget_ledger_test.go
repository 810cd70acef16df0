package weir

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/backend/backendtest"
)

func TestStreamsOfABudgetInOneProcess(t *testing.T) {
	backendtest.Budget(t, func(string) backend.Budgeter { return &ledger{} }, "jobs")
}

func TestABudgetCountsWhatIsFinishedNow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		backendtest.BudgetCounts(t, &ledger{}, "jobs", func() { time.Sleep(accountLasts + time.Second) })
	})
}
