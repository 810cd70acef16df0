package dash

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"time"
)

// maxHistory is what the history may hold of the memory with 1,000 streams.
const maxHistory = 64 << 20

// The history of as many streams as there can be is bounded, however many come and go.
func TestTheHistoryFitsIntoItsMemory(t *testing.T) {
	d := New(func(context.Context) (Reading, error) { return Reading{}, nil }, Config{LagWarn: 50, LagPause: 200})
	reading := func(prefix string) Reading {
		r := Reading{Server: &Server{Ready: true, Writable: true}}
		for i := range maxStreams {
			n := int64(i)
			r.Streams = append(r.Streams, Stream{ID: fmt.Sprint(prefix, i), Name: fmt.Sprint(prefix, i), Kind: "queue", Lag: &n, Pending: &n, Signal: &n, In: float64(i)})
		}
		return r
	}
	before := heap()
	now := time.Now()
	for _, prefix := range []string{"a", "a", "b", "c"} {
		now = now.Add(Step)
		d.took(reading(prefix), now)
	}
	held := heap() - before
	t.Logf("an hour of %d streams holds %.1f MB", maxStreams, float64(held)/(1<<20))
	if held < 10<<20 || held > maxHistory {
		t.Errorf("an hour of %d streams holds %d bytes, want at most %d", maxStreams, held, maxHistory)
	}
	if _, ok := d.StreamHistory("a7"); !ok {
		t.Error("the first streams have no history")
	}
	runtime.KeepAlive(d)
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
