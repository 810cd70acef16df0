package sched

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// reaches lets time pass until the topic is in the band, and checks when.
func (r *room) reaches(tp *topic, band int, at time.Duration) {
	r.Helper()
	for r.band(tp) != band {
		if r.now > at+50*ms {
			r.Fatalf("after %v the topic is in B%d, not in B%d", r.now, r.band(tp), band)
		}
		r.pass(50 * ms)
	}
	if r.now < at {
		r.Fatalf("in B%d after %v already, want %v", band, r.now, at)
	}
}

func TestAWaitingTopicClimbs(t *testing.T) {
	r, a := newRoom(t), newTopic("a", 0)
	r.now = 10 * ms // between two ticks
	r.mark(a)
	r.reaches(a, 2, 2510*ms)
	r.reaches(a, 3, 5010*ms)
	r.reaches(a, 4, 7510*ms)
	if n := r.Stats().Promotions; n != 3 {
		t.Errorf("%d promotions counted", n)
	}
}

func TestTenSecondsBringTheLeastTopicToTheTop(t *testing.T) {
	r, least := newRoom(t), newTopic("least", -1000)
	r.mark(least)
	r.pass(9 * time.Second)
	r.mark(newTopic("younger", 1000))
	if got := r.band(least); got != 0 {
		t.Errorf("in B%d after 9 s", got)
	}
	r.reaches(least, 4, 10*time.Second)
	r.expect("least", "younger", "-")
	r.mark(least)
	if got := r.band(least); got != 0 {
		t.Errorf("after its visit it begins in B%d", got)
	}
}

func TestAPromotedTopicKeepsItsAge(t *testing.T) {
	r := newRoom(t)
	old, between, young := newTopic("old", 0), newTopic("between", 260), newTopic("young", 251)
	r.mark(old)
	r.pass(200 * ms)
	r.mark(between)
	r.pass(2250 * ms)
	r.mark(young)
	r.pass(50 * ms) // old has 250 points
	if r.band(old) != 2 || r.band(young) != 2 {
		t.Fatalf("bands %d and %d", r.band(old), r.band(young))
	}
	between.base = 0
	r.pass(50 * ms)
	r.expect("old", "young", "between", "-")
}

func TestTheLeastTopicIsPushedWithinTenSecondsUnderLoad(t *testing.T) {
	for _, deferring := range []bool{false, true} {
		t.Run(fmt.Sprint("deferring ", deferring), func(t *testing.T) {
			r, least := newRoom(t), newTopic("least", -1000)
			r.SetDefer(deferring, 0)
			for range 200 {
				r.mark(newTopic("busy", 1000))
			}
			var since, visits time.Duration // since when least is dirty
			since = -1
			for r.now < 60*time.Second {
				if r.now%time.Second == 0 {
					r.mark(least)
					if since < 0 {
						since = r.now
					}
				}
				if r.now%(50*ms) == 0 {
					r.Tick(r.now)
				}
				tp, _ := r.visit()
				r.now += 5 * ms // the visit
				if tp != least {
					r.mark(tp)
					continue
				}
				visits++
				if delay := r.now - since; delay > 10100*ms {
					t.Fatalf("pushed after %v", delay)
				}
				since = -1
			}
			if visits < 5 {
				t.Errorf("pushed %d times in a minute", visits)
			}
		})
	}
}

func TestANewPriorityTakesEffectAtTheNextTick(t *testing.T) {
	r, a := newRoom(t), newTopic("a", 600)
	r.mark(a)
	for _, c := range []struct{ base, band int }{{100, 1}, {800, 4}, {-1000, 0}} {
		a.base = c.base
		if r.pass(50 * ms); r.band(a) != c.band {
			t.Errorf("with priority %d it waits in B%d", c.base, r.band(a))
		}
	}
}

func TestAgeShowsOnlyWhileATopicWaits(t *testing.T) {
	r, a := newRoom(t), newTopic("a", 0)
	if _, queued := r.Age(&a.Task, r.now); queued {
		t.Error("a clean topic has an age")
	}
	r.mark(a)
	for wait, want := range map[time.Duration]int{0: 0, 19 * ms: 1, time.Second: 100, 10 * time.Second: 1000, time.Hour: 1000} {
		if got, queued := r.Age(&a.Task, wait); !queued || got != want {
			t.Errorf("after %v: %d points, queued %v", wait, got, queued)
		}
	}
	r.expect("a")
	if _, queued := r.Age(&a.Task, r.now); queued {
		t.Error("a topic that was visited has an age")
	}
}

func TestATickGoesThroughMoreThanOneChunk(t *testing.T) {
	r := newRoom(t)
	const topics = 3*chunk + 7
	for range topics {
		r.mark(newTopic("", 0))
	}
	r.pass(2500 * ms)
	if n := r.Stats().Ready; n[2] != topics {
		t.Errorf("after 2.5 s: %v", n)
	}
}

// Between two chunks of a tick the worker takes entries and marks bring others.
func TestATickMissesNoneWhenTheSetChangesMeanwhile(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		r := newRoom(t)
		n := rapid.IntRange(1, 3*chunk).Draw(rt, "topics")
		var all []*topic
		for range n {
			all = append(all, newTopic("", 0))
			r.mark(all[len(all)-1])
		}
		r.now = 3 * time.Second
		sh := r.shards[0]
		for next := -1; next != 0; {
			next = sh.tickChunk(next, r.now)
			for range rapid.IntRange(0, chunk).Draw(rt, "visits") {
				r.visit()
			}
			for range rapid.IntRange(0, 3).Draw(rt, "marks") {
				r.mark(newTopic("", 0))
			}
		}
		for i, tp := range all {
			if b := r.band(tp); b == 1 {
				rt.Fatalf("topic %d of %d was passed over", i, n)
			}
		}
	})
}

func TestNoTopicWaitsMuchLongerThanTenSeconds(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		r := newRoom(t)
		n := rapid.IntRange(1, 60).Draw(rt, "topics")
		topics, since := make([]*topic, n), map[*topic]time.Duration{}
		for i := range topics {
			topics[i] = newTopic("", rapid.IntRange(-1000, 1000).Draw(rt, "base"))
		}
		r.SetDefer(rapid.Bool().Draw(rt, "defer"), 0)
		length := time.Duration(rapid.IntRange(1, 50).Draw(rt, "visit")) * ms
		for step := range 600 {
			for range 3 {
				tp := topics[(step*7+len(since))%n]
				if _, dirty := since[tp]; !dirty {
					since[tp] = r.now
				}
				r.mark(tp)
			}
			r.Tick(r.now)
			if tp, _ := r.visit(); tp != nil {
				delete(since, tp)
			}
			r.now += length
			// All that are dirty may be older, and each takes eight visits at most.
			bound := starvation + 50*ms + length*time.Duration(8*n+16)
			for tp, at := range since {
				if r.now-at > bound {
					rt.Fatalf("a topic of priority %d waits for %v, %d topics, visits of %v", tp.base, r.now-at, n, length)
				}
			}
		}
	})
}
