package dash

import (
	"testing"
	"time"
)

// Dead letters in a queue wait for nobody: workers would take them away.
func TestDeadLettersAreNotSaidToWaitForWorkers(t *testing.T) {
	n, none := int64(3), int64(0)
	r := Reading{Streams: []Stream{
		{ID: "q", Kind: "queue", Lag: &none, Dead: &n},
		{ID: "q.dlq", Kind: "queue", Lag: &n, Dead: &none, Letters: "q"},
	}}
	if got := findings(&r, Config{}); len(got) != 1 || got[0].Stream != "q" || got[0].What != "3 dead letters." {
		t.Errorf("%+v", got)
	}
	d := New(nil, Config{})
	d.took(r, time.Now())
	if got := d.ServerHistory().Series["backlog"][Points-1]; *got != 0 {
		t.Errorf("%v messages are said to wait", *got)
	}
}
