package kafka

import (
	"encoding/json"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/weirmq/weir/tests/bubble"
)

// counters are as many as the guard has: a tier and a group of keys each.
const counters = 6 * 129

// tell gives a ledger what a producer has counted, as it is read from the topic.
func tell(t *testing.T, l *ledger, name string, own []uint32, at time.Time) {
	t.Helper()
	value, err := json.Marshal(&entry{Version: entryVersion, Offered: own})
	if err != nil {
		t.Fatal(err)
	}
	l.note(&kgo.Record{Key: []byte(l.allOffers() + name), Value: value, Timestamp: at})
}

// Who publishes for months beside many who publish for a moment, such as a command every minute,
// does not keep what each of them has counted.
func TestProducersThatAreGoneTakeNoMemory(t *testing.T) {
	l := newLedger(&Backend{set: settings{group: "g"}})
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	own := make([]uint32, counters)
	own[0] = 1
	heap := func() int64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	told := uint32(0)
	day := func() {
		for range 24 * 60 {
			at, told = at.Add(time.Minute), told+1
			tell(t, l, fmt.Sprint(told), own, at)
		}
	}
	day()
	day()
	before := heap()
	for range 5 {
		day()
	}
	if grown := heap() - before; grown > 2<<20 {
		t.Errorf("five more days of commands that have ended take %d kB more", grown>>10)
	}
	if sum := l.offered(counters)[0]; sum != told {
		t.Errorf("they were offered %d, not %d: the sums fall when they are forgotten", sum, told)
	}
}

// Nor what workers of other groups had that have ended, which nobody asks for.
func TestWorkersThatAreGoneTakeNoMemory(t *testing.T) {
	l := newLedger(&Backend{set: settings{group: "g"}})
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	value, err := json.Marshal(&entry{Version: entryVersion, Topic: "t"})
	if err != nil {
		t.Fatal(err)
	}
	for n := range 5 * 24 * 60 {
		at = at.Add(time.Minute)
		l.note(&kgo.Record{Key: fmt.Append(nil, workerPrefix, "other/", n), Value: value, Timestamp: at})
	}
	if n := len(l.entries); n < 24*60 || n > 25*60+1 {
		t.Errorf("of a worker a minute, %d are remembered for a day", n)
	}
}

// A producer that has had nothing to do for days adds what it was offered since.
func TestAProducerThatWasSilentForDaysCountsNothingTwice(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		l := newLedger(&Backend{set: settings{group: "g"}})
		var o offers
		own, want := make([]uint32, counters), uint32(0)
		for _, idle := range []time.Duration{0, time.Second, 13 * time.Hour, time.Minute, 25 * time.Hour, 90 * 24 * time.Hour, time.Hour} {
			for ; idle > time.Hour; idle -= time.Hour { // others publish
				time.Sleep(time.Hour)
				tell(t, l, "other", own, time.Now())
			}
			time.Sleep(idle)
			add := make([]uint32, counters)
			add[1] = 1000
			o.add(add)
			tell(t, l, "own"+o.name, o.own, time.Now())
			if want += 1000; l.offered(counters)[1] != want {
				t.Fatalf("after %d in all, the sum is %d", want, l.offered(counters)[1])
			}
		}
	})
}
