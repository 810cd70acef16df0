package dash

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirmq/weir/tests/bubble"
)

func TestWhatWasNotReadIsAGap(t *testing.T) {
	r := newRing(1)
	r.put(1000, []float64{1})
	r.put(1001, []float64{math.NaN()})
	r.put(1004, []float64{4})
	got := r.series(0, 1005)
	for i, want := range map[int]float32{1000: 1, 1004: 4} {
		if v := got[Points-1-(1005-i)]; v == nil || *v != want {
			t.Errorf("at %d: %v, want %v", i, v, want)
		}
	}
	for _, i := range []int{999, 1001, 1002, 1003, 1005} {
		if v := got[Points-1-(1005-i)]; v != nil {
			t.Errorf("at %d: %v, want a gap", i, *v)
		}
	}
	r.put(1004+int64(Points)*3, []float64{7})
	for i, v := range r.series(0, 1004+int64(Points)*3)[:Points-1] {
		if v != nil {
			t.Errorf("%d points before the newest: %v, want a gap after three hours", Points-1-i, *v)
		}
	}
}

// While nobody looks the numbers are read as often as the history needs them. A source that
// fails leaves a gap, and a rate is that of the time that really passed.
func TestReadingsFollowTheViewers(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		var readings atomic.Int64
		var failing atomic.Bool
		began := time.Now()
		d := New(func(context.Context) (Reading, error) {
			if readings.Add(1); failing.Load() {
				return Reading{}, errors.New("no answer")
			}
			waiting := int64(3)
			return Reading{Streams: []Stream{{ID: "q", Name: "q", Kind: "queue", Lag: &waiting, In: 10 * time.Since(began).Seconds()}}}, nil
		}, Config{LagWarn: 50, LagPause: 200})
		ctx, end := context.WithCancel(t.Context())
		go d.Run(ctx)
		time.Sleep(time.Minute)
		if n := readings.Load(); n > 14 {
			t.Errorf("%d readings in a minute without a viewer, want one each 5 s", n)
		}
		failing.Store(true)
		time.Sleep(time.Minute)
		failing.Store(false)
		readings.Store(0)
		v := d.Open("", nil)
		time.Sleep(10*time.Second + time.Millisecond)
		if n := readings.Load(); n < 10 || n > 12 {
			t.Errorf("%d readings in 10 s with a viewer, want one a second", n)
		}
		v.Close()
		if s := d.State(nil); len(s.Streams) != 1 || s.Streams[0].InRate == nil || math.Abs(*s.Streams[0].InRate-10) > 0.1 || len(s.Findings) != 1 {
			t.Errorf("state %+v", s)
		}
		if s := d.State(func(string) bool { return false }); len(s.Streams) != 0 || len(s.Findings) != 0 {
			t.Errorf("whoever may see nothing sees %+v", s)
		}
		h, ok := d.StreamHistory("q")
		if !ok {
			t.Fatal("the stream has no history")
		}
		points := 0
		for _, v := range h.Series["lag"] {
			if v != nil {
				points++
			}
		}
		if points < 13 || points > 16 {
			t.Errorf("%d points of 70 s read, want about 14", points)
		}
		end()
		synctest.Wait()
	})
}

// Trouble that many streams have does not hide what only one has.
func TestEveryKindOfTroubleIsNamedFirst(t *testing.T) {
	waiting, dead, disk := int64(9), int64(1), int64(100)
	r := Reading{Server: &Server{Ready: true, Writable: true, DiskFree: &disk, DiskReserve: 90}}
	for i := range 40 {
		r.Streams = append(r.Streams, Stream{ID: fmt.Sprint("q", i), Kind: "queue", Lag: &waiting})
	}
	signal := int64(1)
	r.Streams = append(r.Streams, Stream{ID: "last", Kind: "queue", Signal: &signal, Dead: &dead})
	got := findings(&r, Config{LagWarn: 50, LagPause: 200})
	if len(got) != 42 || got[0].Severity != isError || got[3].Stream != "" || got[4].Stream != "last" || got[5].Severity != isError {
		t.Errorf("%d findings, first %+v", len(got), got[:6])
	}
}

// What is held without a sign of its worker is named before its leases end.
func TestASilentWorkerIsNamed(t *testing.T) {
	held, silent := int64(3), int64(17_200)
	r := Reading{Streams: []Stream{{ID: "q", Kind: "queue", Signal: &held, Pending: &held, SilentMS: &silent}}}
	got := findings(&r, Config{LagWarn: 50, LagPause: 200})
	if len(got) != 1 || got[0].Stream != "q" || !strings.HasPrefix(got[0].What, "No sign of a worker for 17 s, and 3 messages are held") {
		t.Errorf("%+v", got)
	}
}

// A limit that is off is never reached.
func TestNoLimitIsNoTrouble(t *testing.T) {
	held := int64(300)
	r := Reading{Streams: []Stream{{ID: "q", Kind: "queue", Signal: &held, Pending: &held}}}
	for limit, want := range map[int64]int{-1: 0, 300: 1, 301: 0} {
		if got := findings(&r, Config{LagWarn: -1, LagPause: limit}); len(got) != want {
			t.Errorf("lag_pause %d: %+v", limit, got)
		}
	}
}

// A clock that is set back does not end the history.
func TestTheHistoryGoesOnThoughTheClockIsSetBack(t *testing.T) {
	for _, back := range []time.Duration{time.Minute, 30 * time.Minute, 10 * 365 * 24 * time.Hour} {
		d := New(nil, Config{})
		now := time.UnixMilli(1_800_000_000_000)
		for i := range 20 {
			if i == 10 {
				now = now.Add(-back)
			}
			d.took(Reading{Server: &Server{Connections: int64(i) + 1}}, now)
			now = now.Add(Step)
		}
		h := d.server.history(serverSeries, d.slot(now), now)
		var got []float32
		for _, v := range h.Series["connections"] {
			if v != nil {
				got = append(got, *v)
			}
		}
		if n := len(got); n < 18 || got[n-1] != 20 || got[0] != 1 {
			t.Errorf("set back by %v, the history is %v", back, got)
		}
		if off := now.Sub(time.UnixMilli(h.EndMS)); off < 0 || off > Step {
			t.Errorf("set back by %v, the history ends %v ago", back, off)
		}
	}
}

// A stream can be looked at as soon as it is on the page, before its first point.
func TestANewStreamHasAHistory(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		streams := []Stream{{ID: "old", Name: "old", Kind: "log"}, {ID: "new", Name: "new", Kind: "log"}}
		var there atomic.Int64
		there.Store(1)
		d := New(func(context.Context) (Reading, error) {
			return Reading{Streams: slices.Clone(streams[:there.Load()])}, nil
		}, Config{})
		go d.Run(t.Context())
		v := d.Open("", nil)
		defer v.Close()
		time.Sleep(Step + time.Millisecond)
		there.Store(2)
		time.Sleep(time.Second)
		h, ok := d.StreamHistory("new")
		if !ok || len(h.Series["lag"]) != Points {
			t.Errorf("a stream of this second: %v, %d points", ok, len(h.Series["lag"]))
		}
		if _, ok := d.StreamHistory("none"); ok {
			t.Error("a stream that is not there has a history")
		}
	})
}
