package backendtest

import (
	"time"

	"github.com/weirmq/weir/backend"
)

// pauseReach is within what time a pause reaches handles of other processes.
const pauseReach = time.Second

func (s *suite) pauseCases() []testCase {
	_, pauses := s.offered.(backend.Pauser)
	return only(pauses,
		testCase{"a paused group is given nothing, and goes on", paused},
		testCase{"a stream is paused before it exists", pausedInAdvance},
		testCase{"a pause holds orphans and what was given back", pausedOrphans},
		testCase{"a claim that waits when a pause begins gets nothing", pausedWaiting})
}

func (f *fixture) pause(b backend.Backend, paused bool) {
	f.Helper()
	if err := b.(backend.Pauser).Pause(f.ctx(), paused); err != nil {
		f.Fatalf("pause %v: %v", paused, err)
	}
}

// pausedStats checks how the group reads.
func (f *fixture) pausedStats(b backend.Backend, paused bool, pending, waiting int64) {
	f.Helper()
	stats := f.statsWhen(b, func(s backend.Stats) bool { return s.Pending == pending && s.Paused == paused })
	if n := value(stats.Lag); stats.Lag != nil && n != waiting || stats.Paused != paused || stats.Pending != pending {
		f.Errorf("paused %v, %d pending, lag %s; want %v, %d and %d", stats.Paused, stats.Pending, number(stats.Lag), paused, pending, waiting)
	}
	if signaler, can := b.(backend.Signaler); can {
		if sig, err := signaler.Signal(f.ctx(), 100); err != nil || sig.Paused != paused {
			f.Errorf("the signal says paused %v, %v; want %v", sig.Paused, err, paused)
		}
	}
}

func paused(f *fixture) {
	b, other := f.two()
	f.publish(b, numbered(0, 3)...)
	held := f.claim(b, "a", 1)
	f.pausedStats(b, false, 1, 2)
	f.pause(b, true)
	f.pause(b, true) // again changes nothing
	f.nothing(b, request("a", 10), "the group was paused by this handle")
	f.publish(b, numbered(3, 5)...)
	f.nothing(b, request("a", 10), "the group is paused, though messages were published")
	time.Sleep(pauseReach)
	for range 3 {
		f.nothing(other, request("b", 10), "the group was paused a second ago")
	}
	f.nothing(f.open(), request("c", 10), "the group was paused before the handle was opened")
	if lost, err := b.Extend(f.ctx(), []backend.Lease{held[0].Lease}, time.Minute); err != nil || len(lost) > 0 {
		f.Errorf("extend of what was held before the pause: lost %v, %v", lost, err)
	}
	f.pausedStats(other, true, 1, 4)
	f.ack(b, held...)
	f.pausedStats(other, true, 0, 4)
	f.pause(other, false)
	f.pause(other, false)
	got := f.gather(b, request("a", 10), 4)
	for _, d := range got.Deliveries {
		if d.Attempt != 1 {
			f.Errorf("%q was kept back by a pause and comes with attempt %d", d.Data, d.Attempt)
		}
	}
	f.ack(b, got.Deliveries...)
	f.pausedStats(b, false, 0, 0)
}

func pausedOrphans(f *fixture) {
	b := f.open()
	f.pause(b, false) // there is nothing yet
	f.publish(b, numbered(0, 2)...)
	returned := f.claim(b, "a", 1)[0] // first: the other one may be an orphan by the next claim
	req := f.shortRequest("gone", 1)
	orphan := f.gather(b, req, 1).Deliveries[0]
	f.pause(b, true)
	if lost, err := b.Nack(f.ctx(), []backend.Return{{Lease: returned.Lease, Error: "no"}}); err != nil || len(lost) > 0 {
		f.Fatalf("nack in a pause: lost %v, %v", lost, err)
	}
	time.Sleep(2 * f.short)
	req.Consumer = "b"
	f.nothing(b, req, "the group is paused, and an orphan waits")
	f.pause(b, false)
	got := f.gather(b, request("b", 1), 2)
	for _, d := range got.Deliveries {
		if d.ID != orphan.ID && d.ID != returned.ID || d.Attempt != 2 {
			f.Errorf("after the pause %s comes with attempt %d", d.ID, d.Attempt)
		}
	}
	f.ack(b, got.Deliveries...)
}

func pausedInAdvance(f *fixture) {
	b := f.open()
	f.pause(b, true)
	f.publish(b, numbered(0, 2)...)
	f.nothing(b, request("a", 10), "the group was paused before anything was published")
	f.pause(b, false)
	f.ack(b, f.claim(b, "a", 2)...)
}

func pausedWaiting(f *fixture) {
	b, other := f.two()
	f.nothing(b, request("a", 1), "the stream is new")
	type answer struct {
		got backend.Claimed
		err error
	}
	waited := make(chan answer, 1)
	req := request("b", 10)
	req.Block = pauseReach + 500*time.Millisecond
	go func() {
		got, err := other.Claim(f.ctx(), req)
		waited <- answer{got, err}
	}()
	time.Sleep(100 * time.Millisecond) // it may have begun to wait; if not, it begins in the pause
	f.pause(b, true)
	time.Sleep(pauseReach)
	f.publish(b, numbered(0, 3)...)
	if a := <-waited; a.err != nil || len(a.got.Deliveries) > 0 {
		f.Errorf("a claim that waited got %d messages of a paused group, %v", len(a.got.Deliveries), a.err)
	}
	f.pause(b, false)
	got := f.gather(b, request("a", 10), 3)
	for _, d := range got.Deliveries {
		if d.Attempt != 1 && !f.h.CountsUnstarted {
			f.Errorf("%q has never been given to a worker and comes with attempt %d", d.Data, d.Attempt)
		}
	}
	f.ack(b, got.Deliveries...)
}
