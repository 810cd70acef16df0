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

func TestAClosedStreamLeavesItsBudgets(t *testing.T) {
	before, after := t.Name()+"-before", t.Name()+"-after"
	s := New(backendtest.NewFake(backendtest.FakeOptions{}))
	for _, name := range []string{before, after} {
		if name == after {
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
		}
		p, err := NewProducer(s, ProducerConfig{Budget: name})
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
	}
	budgets.mu.Lock()
	defer budgets.mu.Unlock()
	for _, name := range []string{before, after} {
		if budgets.all[name] != nil {
			t.Errorf("the process keeps budget %s", name)
		}
	}
}
