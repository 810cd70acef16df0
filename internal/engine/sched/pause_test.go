package sched

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

func TestAWindowHoldsATopicAfterItsVisit(t *testing.T) {
	r, a := newRoom(t), newTopic("a", 0)
	r.SetWindow(20 * ms)
	r.mark(a)
	r.expect("a") // was quiet before
	r.now += 5 * ms
	r.mark(a)
	r.expect("-")
	if s := r.Sample(r.now); s.Depth != 0 || s.OldestWait != 0 {
		t.Errorf("time held counts as load: %+v", s)
	}
	if due, ok := r.NextDue(0, r.now); !ok || due != 20*ms {
		t.Errorf("due at %v, %v", due, ok)
	}
	r.now += 14 * ms
	r.mark(a)
	r.expect("-")
	r.now += 3 * ms // 2 ms late
	r.expect("a", "-")
	if s := r.Sample(r.now); s.MeanWait != 2*ms || s.PickUps != 1 {
		t.Errorf("%d pick-ups waited %v", s.PickUps, s.MeanWait)
	}
	r.now += 20 * ms
	r.mark(a)
	r.expect("a")
}

func TestWindowsThatShrinkLetGoEarlier(t *testing.T) {
	r, a := newRoom(t), newTopic("a", 0)
	r.SetWindow(20 * ms)
	r.mark(a)
	r.expect("a")
	r.now += ms
	r.mark(a)
	r.expect("-")
	r.SetWindow(0)
	r.expect("a")
}

func TestANegativePriorityWaitsTenSeconds(t *testing.T) {
	r, low := newRoom(t), newTopic("low", -1)
	r.SetDefer(true, r.now)
	r.mark(low)
	if !r.Deferred(&low.Task) {
		t.Error("not known as deferred")
	}
	if s := r.Sample(r.now); s.Depth != 0 || s.Deferred != 1 || s.OldestWait != 0 {
		t.Errorf("a deferred topic counts as load: %+v", s)
	}
	for r.now < 9950*ms {
		r.pass(50 * ms)
		r.expect("-")
	}
	r.pass(50 * ms)
	if r.Deferred(&low.Task) {
		t.Error("known as deferred after ten seconds")
	}
	r.expect("low", "-")

	r.mark(low)
	r.pass(time.Second)
	r.expect("-")
	r.SetDefer(false, r.now)
	if s := r.Sample(r.now); s.OldestWait != 0 {
		t.Errorf("time without credit counts as waiting: %v", s.OldestWait)
	}
	r.expect("low", "-")
}

func TestTopicsInTheBandsArePausedToo(t *testing.T) {
	r, low := newRoom(t), newTopic("low", -100)
	r.mark(low)
	r.pass(9 * time.Second) // 800 points
	if r.band(low) != top {
		t.Fatalf("in B%d", r.band(low))
	}
	r.SetDefer(true, r.now)
	r.expect("-")
	r.pass(time.Second)
	r.expect("low", "-")
}

func TestAPriorityOfZeroEndsThePause(t *testing.T) {
	r, low := newRoom(t), newTopic("low", -1)
	r.SetDefer(true, r.now)
	r.mark(low)
	low.base = 0
	r.pass(50 * ms)
	r.expect("low", "-")
}

func TestReleasedTopicsAreServedOldestFirst(t *testing.T) {
	r := newRoom(t)
	r.SetDefer(true, r.now)
	var want []string
	for i := range 20 {
		tp := newTopic(fmt.Sprint(i), -1-i)
		want = append(want, tp.name)
		r.mark(tp)
		r.now += 10 * ms
	}
	r.pass(time.Second) // all in B1 from their age
	r.SetDefer(false, r.now)
	if got := r.names(100); !slices.Equal(got, want) {
		t.Errorf("order %v", got)
	}
}

func TestRoutersFollowOneBandLower(t *testing.T) {
	r, a := newRoom(t), newTopic("a", 600)
	a.SetRouted(true)
	r.mark(a)
	if _, kind := r.visit(); kind != All {
		t.Fatalf("at rest a visit is for %b", kind)
	}
	r.SetDefer(true, r.now)
	r.mark(a)
	before := r.Stats().Visits
	if _, kind := r.visit(); kind != Streams {
		t.Fatalf("the first visit is for %b", kind)
	}
	if _, queued := r.Age(&a.Task, r.now); !queued {
		t.Error("the topic does not count as waiting while its routers do")
	}
	if _, kind := r.visit(); kind != Routers {
		t.Fatalf("the second visit is for %b", kind)
	}
	r.expect("-")
	after := r.Stats().Visits
	if after[3]-before[3] != 1 || after[2]-before[2] != 1 {
		t.Errorf("visits by band %v, then %v", before, after)
	}
}

func TestRouterWorkKeepsTheEnqueueTimeOfItsTopic(t *testing.T) {
	r, a, b := newRoom(t), newTopic("a", 600), newTopic("b", 300)
	a.SetRouted(true)
	r.SetDefer(true, r.now)
	r.mark(a)
	r.now += ms
	r.mark(b)
	r.expect("a", "a", "b", "-") // in B2 its routers are before the younger b
}

func TestATopicHasAtMostTwoEntries(t *testing.T) {
	r, a := newRoom(t), newTopic("a", 0)
	a.SetRouted(true)
	r.SetDefer(true, r.now)
	for range 9 { // streams of B1 first, routers in B0 share the visits
		r.mark(a)
		if r.visit(); len(r.shards[0].all) > 2 {
			t.Fatal("more than two entries")
		}
	}
	r.mark(a)
	r.SetDefer(false, r.now)
	if got := r.names(10); len(got) > 2 {
		t.Errorf("%d visits after the pause", len(got))
	}
}

func TestAVisitOfEverythingIncludesRouterWorkThatWaits(t *testing.T) {
	r, a := newRoom(t), newTopic("a", 900)
	a.SetRouted(true)
	r.SetDefer(true, r.now)
	r.mark(a)
	r.visit()
	r.mark(a)
	r.SetDefer(false, r.now)
	for range 2 {
		if _, kind := r.visit(); kind == All {
			r.expect("-")
			return
		}
	}
	t.Error("no visit did everything")
}

func TestRouterWorkAgesAndIsReleased(t *testing.T) {
	r, a := newRoom(t), newTopic("a", 600)
	a.SetRouted(true)
	r.SetDefer(true, r.now)
	r.mark(a)
	r.visit()
	band := func() int { return int(a.router.band) }
	if band() != 2 {
		t.Fatalf("queued in B%d", band())
	}
	if r.SetDefer(false, r.now); band() != 3 {
		t.Errorf("after the pause in B%d", band())
	}
	r.SetDefer(true, r.now)
	if r.pass(1500 * ms); band() != 3 {
		t.Errorf("with 750 points in B%d", band())
	}
	if r.pass(8500 * ms); band() != 4 {
		t.Errorf("after ten seconds in B%d", band())
	}
}

func TestRouterWorkOfAPausedTopicIsPausedToo(t *testing.T) {
	r, low := newRoom(t), newTopic("low", -1)
	low.SetRouted(true)
	r.SetDefer(true, r.now)
	r.mark(low)
	r.pass(10 * time.Second)
	r.expect("low", "low", "-") // both after ten seconds
}

func TestAtMostEveryEighthVisitGoesToAPausedTopic(t *testing.T) {
	r := newRoom(t)
	r.SetDefer(true, r.now)
	for range 1000 {
		r.mark(newTopic("paused", -1))
	}
	r.pass(10 * time.Second)
	r.backlog(50, 4)
	paused := 0
	for n := 1; n <= 800; n++ {
		tp, _ := r.visit()
		if tp.name == "paused" {
			paused++
		} else {
			r.now += ms
			r.mark(tp)
		}
		if most := (n + 7) / 8; paused > most {
			t.Fatalf("%d of %d visits went to paused topics", paused, n)
		}
	}
	if paused != 100 {
		t.Errorf("%d of 800 visits went to paused topics that were older", paused)
	}
	r.names(5) // the busy ones are not marked again
	for range 45 {
		r.visit()
	}
	for range 800 {
		if tp, _ := r.visit(); tp == nil {
			t.Fatal("idle with paused topics due")
		}
	}
}

func TestTopicsThatHangShowAsWaiting(t *testing.T) {
	r, a, b := newRoom(t), newTopic("a", 0), newTopic("b", 0)
	r.mark(a)
	r.expect("a") // and the visit hangs
	r.mark(b)
	for last := time.Duration(-1); r.now < time.Second; r.now += 100 * ms {
		s := r.Sample(r.now)
		if s.OldestWait <= last || s.Depth != 1 {
			t.Fatalf("at %v: %+v", r.now, s)
		}
		last = s.OldestWait
	}
	r.expect("b")
	if s := r.Sample(r.now); s.OldestWait != 0 || s.PickUps != 1 || s.MeanWait != r.now {
		t.Errorf("after the pick-up: %+v", s)
	}
	if s := r.Sample(r.now); s.PickUps != 0 || s.MeanWait != 0 {
		t.Errorf("counted twice: %+v", s)
	}
	r.mark(a)
	r.now += 3 * ms
	r.expect("a")
	if s := r.Sample(r.now); s.PickUps != 1 || s.MeanWait != 3*ms {
		t.Errorf("the wait of a second before is counted again: %+v", s)
	}
}

func TestAThousandPausedTopicsAreNoLoad(t *testing.T) {
	r := newRoom(t)
	for range 1000 {
		r.mark(newTopic("", -1))
	}
	r.SetDefer(true, r.now)
	r.pass(time.Second)
	if s := r.Sample(r.now); s.Depth != 0 || s.OldestWait != 0 || s.PickUps != 0 || s.Deferred != 1000 {
		t.Errorf("%+v", s)
	}
}

func TestPickUpsAreCountedByTheirWait(t *testing.T) {
	r, a := newRoom(t), newTopic("a", 0)
	for _, wait := range []time.Duration{0, 5 * ms, 6 * ms, time.Minute} {
		r.mark(a)
		r.now += wait
		r.expect("a")
	}
	st := r.Stats()
	want := map[time.Duration]int64{WaitBounds[0]: 1, 5 * ms: 1, 10 * ms: 1}
	for i, bound := range WaitBounds {
		if st.Waits[i] != want[bound] {
			t.Errorf("%d pick-ups up to %v", st.Waits[i], bound)
		}
	}
	if st.Waits[len(WaitBounds)] != 1 || st.WaitSum != time.Minute+11*ms {
		t.Errorf("%+v", st)
	}
}
