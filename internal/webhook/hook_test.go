package webhook

import (
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/tests/bubble"
)

// around reports whether a delay is what want is scattered to.
func around(got, want time.Duration) bool { return got <= want && got >= want*4/5-time.Millisecond }

// pass lets time go by, and whatever is due in it happen.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func TestAJobThatFailsIsDeliveredAgainEachTimeLater(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		tries := 0
		to := &receiver{answer: func(*http.Request) (int, error) {
			if tries++; tries <= 4 {
				return 500, nil
			}
			return 204, nil
		}}
		s, q := newSet(t, to), newFakeQueue(1)
		s.Start(q)
		put(t, s, "w", config())
		pass(time.Minute)
		for i, want := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second} {
			if !around(q.nacks[i], want) {
				t.Errorf("after delivery %d the job waits %v, want about %v", i+1, q.nacks[i], want)
			}
		}
		st := get(t, s, "w")
		if left, _ := q.left(); left != 0 || st.Deliveries != 1 || st.Failures != 4 || st.LastStatus != 204 || st.LastError != "" {
			t.Errorf("left %d, state %+v", left, st)
		}
		s.Stop(time.Second)
	})
}

func TestRetryAfterIsHonouredUpToACap(t *testing.T) {
	const begin = 946684800 // when virtual time begins
	date := func(after time.Duration) string { return time.Unix(begin, 0).Add(after).UTC().Format(http.TimeFormat) }
	for field, want := range map[string]time.Duration{
		"30": 30 * time.Second, "9999999": maxAfter, "99999999999999999999": 0, "soon": 0, "-5": 0,
		date(time.Minute): time.Minute, date(time.Hour): maxAfter, date(-time.Hour): 0,
	} {
		status := 503
		if want == maxAfter {
			status = 429
		}
		bubble.Run(t, func(t *testing.T) {
			to := &receiver{header: http.Header{"Retry-After": {field}}, answer: func(*http.Request) (int, error) { return status, nil }}
			s, q := newSet(t, to), newFakeQueue(2)
			s.Start(q)
			cfg := config()
			cfg.Concurrency = 1
			put(t, s, "w", cfg)
			pass(want / 2)
			// The other job waits, too: a receiver that is overloaded is left alone.
			if n := len(to.times()); want > 0 && n != 1 {
				t.Errorf("Retry-After %s: %d deliveries in half of the time", field, n)
			}
			if got := q.nacks[0]; want > 0 && got != want || want == 0 && !around(got, time.Second) {
				t.Errorf("Retry-After %s: the job waits %v, want %v", field, got, want)
			}
			s.Stop(time.Second)
		})
	}
}

func TestConcurrencyHoldsUnderLoad(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		to := &receiver{answer: func(*http.Request) (int, error) { time.Sleep(time.Second); return 200, nil }}
		s, q := newSet(t, to), newFakeQueue(100)
		s.Start(q)
		begin := time.Now()
		put(t, s, "w", config())
		pass(20 * time.Second)
		cfg := config()
		cfg.Concurrency = 1
		put(t, s, "w", cfg)
		pass(1500 * time.Millisecond)
		if st := get(t, s, "w"); st.InFlight != 1 {
			t.Errorf("%d deliveries at once after the concurrency became 1", st.InFlight)
		}
		pass(30 * time.Second)
		if left, _ := q.left(); left != 0 || to.most != 4 {
			t.Errorf("%d jobs left after %v, up to %d at once", left, time.Since(begin), to.most)
		}
		s.Stop(time.Second)
	})
}

func TestTheRateHoldsUnderLoad(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		to := &receiver{answer: func(*http.Request) (int, error) { time.Sleep(300 * time.Millisecond); return 200, nil }}
		s, q := newSet(t, to), newFakeQueue(100)
		s.Start(q)
		cfg := config()
		cfg.Rate, cfg.Concurrency = 10, 64
		put(t, s, "w", cfg)
		pass(15 * time.Second)
		if left, _ := q.left(); left != 0 {
			t.Errorf("%d jobs left", left)
		}
		at := to.times()
		for i := 10; i < len(at); i++ {
			if within := at[i].Sub(at[i-10]); within < time.Second {
				t.Fatalf("11 deliveries began within %v", within)
			}
		}
		s.Stop(time.Second)
	})
}

func TestADeadReceiverIsTriedRarelyAndDisturbsNobody(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		var alive atomic.Bool
		dead := &receiver{answer: func(*http.Request) (int, error) {
			if alive.Load() {
				time.Sleep(100 * time.Millisecond)
				return 200, nil
			}
			return 0, errDead
		}}
		s, q := newSet(t, dead), newFakeQueue(1000)
		s.Start(q)
		put(t, s, "w", config())
		pass(30 * time.Minute)
		if n := len(dead.times()); n > 50 {
			t.Errorf("a dead receiver was tried %d times in half an hour", n)
		}
		if st := get(t, s, "w"); !st.Failing || st.LastError != errDead.Error() {
			t.Errorf("state %+v", st)
		}
		alive.Store(true)
		dead.mu.Lock()
		dead.most = 0
		dead.mu.Unlock()
		pass(10 * time.Minute)
		st := get(t, s, "w")
		if left, _ := q.left(); left != 0 || st.Failing || dead.most != 4 {
			t.Errorf("ten minutes after it came back %d jobs are left, %d at once, state %+v", left, dead.most, st)
		}
		s.Stop(time.Second)
	})
}

// A claim may wait while the receiver asks to be left alone: what it gets goes back.
func TestAHoldIsKeptByAClaimThatWaits(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		to := &receiver{header: http.Header{"Retry-After": {"60"}}, answer: func(r *http.Request) (int, error) {
			if seq, n := r.Header.Get("Weir-Seq"), r.Header.Get("Weir-Delivery"); seq != "1" && n != "1" {
				t.Errorf("job %s, which went back unsent, has delivery %s", seq, n)
			}
			time.Sleep(time.Second) // in which the next claim begins
			return 503, nil
		}}
		s, q := newSet(t, to), newFakeQueue(1)
		s.Start(q)
		put(t, s, "w", config())
		pass(2 * time.Second)
		q.add(2, 3, 4)
		pass(50 * time.Second)
		if n := len(to.times()); n != 1 {
			t.Errorf("%d deliveries to a receiver that has asked for a minute", n)
		}
		if all, leased := q.left(); all != 4 || leased != 0 {
			t.Errorf("%d jobs left, %d leased", all, leased)
		}
		pass(20 * time.Second)
		if n := len(to.times()); n != 5 {
			t.Errorf("%d deliveries after the minute, want 5", n)
		}
		s.Stop(time.Second)
	})
}

// Deliveries that fail at the same moment are one failure for the pause that follows.
func TestTheFirstPauseIsASecondHoweverManyDeliveriesFail(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		var alive atomic.Bool
		to := &receiver{answer: func(*http.Request) (int, error) {
			if alive.Load() {
				return 200, nil
			}
			time.Sleep(100 * time.Millisecond)
			return 0, errDead
		}}
		s, q := newSet(t, to), newFakeQueue(64)
		s.Start(q)
		cfg := config()
		cfg.Concurrency = 64
		put(t, s, "w", cfg)
		pass(200 * time.Millisecond)
		alive.Store(true) // it was restarted
		pass(5 * time.Second)
		if st := get(t, s, "w"); st.Deliveries != 64 || st.Failing {
			t.Errorf("5 s after it is back: %+v", st)
		}
		s.Stop(time.Second)
	})
}

func TestADeliveryHasItsTimeAndNoMore(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		to := &receiver{answer: func(*http.Request) (int, error) { return 0, nil }}
		s, q := newSet(t, to), newFakeQueue(1)
		s.Start(q)
		put(t, s, "w", config())
		pass(10*time.Second + time.Millisecond)
		if st := get(t, s, "w"); st.Failures != 1 || st.LastError != "no whole answer within 10000 ms" || len(q.nacks) != 1 {
			t.Errorf("state %+v", st)
		}
		s.Stop(0)
	})
}

func TestAStopLetsDeliveriesEndAndGivesBackTheRest(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		var n atomic.Int32
		to := &receiver{answer: func(*http.Request) (int, error) {
			if n.Add(1) == 1 {
				time.Sleep(5 * time.Second)
				return 200, nil
			}
			return 0, nil
		}}
		s, q := newSet(t, to), newFakeQueue(10)
		s.Start(q)
		cfg := config()
		cfg.Concurrency, cfg.TimeoutMS = 2, 60_000
		put(t, s, "w", cfg)
		pass(time.Second)
		begin := time.Now()
		s.Stop(9 * time.Second)
		if took := time.Since(begin); took != 9*time.Second {
			t.Errorf("the stop took %v", took)
		}
		all, leased := q.left()
		if all != 9 || leased != 0 || len(q.nacks) != 1 || q.nacks[0] != 0 || len(to.times()) != 2 {
			t.Errorf("%d jobs left, %d of them leased; nacks %v, %d deliveries", all, leased, q.nacks, len(to.times()))
		}
	})
}

func TestADeletedWebhookTakesNoMoreAndEndsWhatItHasBegun(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		to := &receiver{answer: func(*http.Request) (int, error) { time.Sleep(time.Second); return 200, nil }}
		s, q := newSet(t, to), newFakeQueue(10)
		s.Start(q)
		put(t, s, "w", config())
		pass(500 * time.Millisecond)
		if ok, err := s.Delete("w"); !ok || err != nil {
			t.Fatal(ok, err)
		}
		pass(time.Minute)
		if all, leased := q.left(); all != 6 || leased != 0 {
			t.Errorf("%d jobs left, %d leased, want 6 and 0", all, leased)
		}
		s.Stop(time.Second)
	})
}

func TestAQueueThatIsGoneIsAskedForNowAndThen(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		to := &receiver{answer: func(*http.Request) (int, error) { return 200, nil }}
		s, q := newSet(t, to), newFakeQueue(1)
		q.closed = api.TopicNotFound("orders")
		s.Start(q)
		put(t, s, "w", config())
		pass(time.Hour)
		if st := get(t, s, "w"); st.LastError == "" || st.Failures != 0 || !st.Failing {
			t.Errorf("state %+v", st)
		}
		q.mu.Lock()
		q.closed = nil
		q.mu.Unlock()
		pass(claimRetryMax + time.Second)
		if st := get(t, s, "w"); st.LastError != "" || st.Deliveries != 1 || st.Failing {
			t.Errorf("once it is back: %+v", st)
		}
		q.mu.Lock()
		q.torn = true
		q.mu.Unlock()
		q.add(2)
		pass(time.Minute)
		if n := len(to.times()); n != 2 {
			t.Errorf("%d deliveries, one of them of a claim that has failed", n)
		}
		q.mu.Lock()
		q.closed = api.TopicNotFound("orders")
		q.mu.Unlock()
		pass(time.Minute)
		q.mu.Lock()
		q.closed = nil // and empty
		q.mu.Unlock()
		pass(claimRetryMax + claimWait + time.Second)
		if st := get(t, s, "w"); st.LastError != "" || st.Failing {
			t.Errorf("once it is back and empty: %+v", st)
		}
		s.Stop(time.Second)
	})
}

func TestAServerThatMayNotLeadTakesNoJobs(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		to := &receiver{answer: func(*http.Request) (int, error) { return 200, nil }}
		s, q := newSet(t, to), newFakeQueue(3)
		var leads atomic.Bool
		s.opt.Leads = leads.Load
		s.Start(q)
		put(t, s, "w", config())
		pass(time.Minute)
		if n := len(to.times()); n != 0 {
			t.Errorf("%d deliveries without a lead", n)
		}
		leads.Store(true)
		pass(time.Minute)
		if n := len(to.times()); n != 3 {
			t.Errorf("%d deliveries with a lead", n)
		}
		s.Stop(time.Second)
	})
}

func TestWhatChangesTakesEffectAtOnce(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		var hosts []string
		to := &receiver{answer: func(r *http.Request) (int, error) { hosts = append(hosts, r.URL.Host); return 200, nil }}
		s, q := newSet(t, to), newFakeQueue(0)
		s.Start(q)
		put(t, s, "w", config())
		pass(time.Second) // a claim waits
		cfg := config()
		cfg.URL = "https://other.example/"
		put(t, s, "w", cfg)
		q.add(1)
		pass(time.Second)
		if len(hosts) != 1 || hosts[0] != "other.example" {
			t.Errorf("delivered to %v", hosts)
		}
		s.Stop(time.Second)
	})
}
