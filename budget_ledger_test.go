package weir

import (
	"reflect"
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

// A sum has every number of its streams, so a new one cannot be forgotten. What is known of the lag
// of one counts for the depth where that of another is not known.
func TestASumHasEveryNumberOfItsStreams(t *testing.T) {
	one := backend.Signal{Workers: known(1), Lag: known(2), Finished: known(3)}
	v := reflect.ValueOf(&one).Elem()
	for i := range v.NumField() {
		if v.Field(i).Kind() == reflect.Int64 {
			v.Field(i).SetInt(int64(10 + i))
		}
	}
	sum := backend.Signal{Workers: known(0), Lag: known(0), Finished: known(0)}
	addSignal(&sum, &one)
	addSignal(&sum, &one)
	want := backend.Signal{Workers: known(2), Lag: known(4), Finished: known(6)}
	w := reflect.ValueOf(&want).Elem()
	for i := range v.NumField() {
		if v.Field(i).Kind() == reflect.Int64 {
			w.Field(i).SetInt(2 * v.Field(i).Int())
		}
	}
	want.Behind += 4
	if !reflect.DeepEqual(sum, want) {
		t.Errorf("%+v, want %+v", sum, want)
	}
	addSignal(&sum, &backend.Signal{Behind: 7})
	if sum.Lag != nil || sum.Workers != nil || sum.Finished != nil || sum.Behind != want.Behind+7 {
		t.Errorf("with a stream of which nothing is known: %+v", sum)
	}
}

// What waits in a stream on which nobody works takes room, and is no wait.
func TestAStreamThatIsLaidAsideTakesItsRoomAndNoTime(t *testing.T) {
	s := backend.Signal{Pending: 1, Lag: known(5), Delayed: 2, Retrying: 3}
	aside := laidAside(s)
	r := reading{sig: aside}
	c := r.forControl(newSettings(ProducerConfig{}.WithDefaults()))
	if depthOf(&aside) != depthOf(&s) || c.Waiting != 0 {
		t.Errorf("depth %d, want %d; %d wait", depthOf(&aside), depthOf(&s), c.Waiting)
	}
}
