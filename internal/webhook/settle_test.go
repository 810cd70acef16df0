package webhook

import (
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/weirmq/weir/tests/bubble"
)

// A job is leased for as long as it may take to deliver and to settle it: while the engine
// refuses the ack of one that took all its time, nobody else gets it.
func TestAJobWhoseAckHasToWaitIsDeliveredOnce(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		to := &receiver{answer: func(r *http.Request) (int, error) {
			if body, err := io.ReadAll(r.Body); string(body) != payload || err != nil {
				t.Errorf("delivered %q, %v", body, err)
			}
			time.Sleep(9900 * time.Millisecond)
			return 200, nil
		}}
		s, q := newSet(t, to), newFakeQueue(1)
		q.busy = time.Now().Add(20 * time.Second)
		s.Start(q)
		put(t, s, "w", config())
		pass(time.Minute)
		if left, _ := q.left(); left != 0 || len(to.times()) != 1 {
			t.Errorf("%d deliveries, %d jobs left", len(to.times()), left)
		}
		s.Stop(time.Second)
	})
}

func TestAStopDoesNotWaitForAnAckThatIsRefused(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		to := &receiver{answer: func(*http.Request) (int, error) { return 200, nil }}
		s, q := newSet(t, to), newFakeQueue(1)
		q.busy = time.Now().Add(time.Hour)
		s.Start(q)
		put(t, s, "w", config())
		pass(time.Second)
		begin := time.Now()
		s.Stop(3 * time.Second)
		if took := time.Since(begin); took != 3*time.Second {
			t.Errorf("the stop took %v", took)
		}
	})
}

func TestAnEngineThatDrainsIsAskedOnceASecond(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		s, q := newSet(t, &receiver{}), newFakeQueue(0)
		q.drains = true
		s.Start(q)
		put(t, s, "w", config())
		pass(10 * time.Second)
		if q.claims > 11 {
			t.Errorf("%d claims in 10 s", q.claims)
		}
		s.Stop(time.Second)
	})
}

// The pause of a webhook that fails is shorter than what its receiver has asked for.
func TestAPauseDoesNotShortenARetryAfter(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		to := &receiver{header: http.Header{"Retry-After": {"300"}}, answer: func(*http.Request) (int, error) { return 503, nil }}
		s, q := newSet(t, to), newFakeQueue(tripAfter)
		s.Start(q)
		cfg := config()
		cfg.Concurrency = tripAfter
		put(t, s, "w", cfg)
		pass(time.Second)
		q.add(tripAfter + 1)
		pass(290 * time.Second)
		if n := len(to.times()); n != tripAfter {
			t.Errorf("%d deliveries before the time that the receiver asked for", n)
		}
		s.Stop(time.Second)
	})
}

// What a receiver has asked for stands when a delivery that began before succeeds.
func TestALateSuccessDoesNotShortenARetryAfter(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		to := &receiver{header: http.Header{"Retry-After": {"300"}}, answer: func(r *http.Request) (int, error) {
			if r.Header.Get("Weir-Seq") == "1" {
				time.Sleep(2 * time.Second)
				return 200, nil
			}
			return 503, nil
		}}
		s, q := newSet(t, to), newFakeQueue(tripAfter+1)
		s.Start(q)
		cfg := config()
		cfg.Concurrency = tripAfter + 1
		put(t, s, "w", cfg)
		pass(3 * time.Second)
		q.add(tripAfter + 2)
		pass(290 * time.Second)
		if n := len(to.times()); n != tripAfter+1 {
			t.Errorf("%d deliveries before the time that the receiver asked for", n-tripAfter-1)
		}
		pass(20 * time.Second)
		if n := len(to.times()); n <= tripAfter+1 {
			t.Error("no delivery after that time")
		}
		s.Stop(time.Second)
	})
}

// Whoever replaces the URL of a dead receiver does not wait for the end of a pause, and what is
// still under way to the old one does not count against the new one.
func TestAChangedWebhookHasNotFailed(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		to := &receiver{answer: func(r *http.Request) (int, error) {
			if r.URL.Host == "other.example" {
				return 200, nil
			}
			time.Sleep(time.Second)
			return 0, errDead
		}}
		s, q := newSet(t, to), newFakeQueue(20)
		s.Start(q)
		cfg := config()
		cfg.Concurrency = 2 * tripAfter
		put(t, s, "w", cfg)
		pass(10 * time.Minute) // a minute between two deliveries
		cfg.URL = "https://other.example/"
		if st := put(t, s, "w", cfg); st.Failing || st.LastError != "" {
			t.Errorf("a webhook that was changed: %+v", st)
		}
		q.add(21)
		pass(time.Millisecond)
		if st := get(t, s, "w"); st.Deliveries == 0 || st.Failing {
			t.Errorf("right after the change of a webhook that failed: %+v", st)
		}
		pass(10 * time.Minute)

		cfg.URL = config().URL
		put(t, s, "w", cfg)
		q.add(31, 32, 33, 34, 35, 36)
		pass(time.Millisecond)
		cfg.URL = "https://other.example/"
		put(t, s, "w", cfg)
		pass(time.Second)
		q.add(37)
		pass(time.Millisecond)
		st := get(t, s, "w")
		if left, _ := q.left(); left != 6 || st.Failing {
			t.Errorf("%d jobs left right after the last failure of the old receiver: %+v", left, st)
		}
		s.Stop(time.Second)
	})
}

// What another receiver has asked for is not the new one's wish.
func TestAChangedWebhookDoesNotWaitForTheOldReceiver(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		to := &receiver{header: http.Header{"Retry-After": {"600"}}, answer: func(r *http.Request) (int, error) {
			if r.URL.Host == "other.example" {
				return 200, nil
			}
			return 503, nil
		}}
		s, q := newSet(t, to), newFakeQueue(1)
		s.Start(q)
		cfg := config()
		put(t, s, "w", cfg)
		pass(time.Second)
		cfg.URL = "https://other.example/"
		put(t, s, "w", cfg)
		q.add(2)
		pass(time.Second)
		if st := get(t, s, "w"); st.Deliveries != 1 {
			t.Errorf("a second after the change: %+v", st)
		}
		s.Stop(time.Second)
	})
}

// A claim may have got jobs when its webhook is changed: they go where it says now.
func TestJobsThatWereTakenBeforeAChangeGoToTheNewReceiver(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		var hosts []string
		to := &receiver{answer: func(r *http.Request) (int, error) { hosts = append(hosts, r.URL.Host); return 200, nil }}
		s, q := newSet(t, to), newFakeQueue(0)
		s.Start(q)
		cfg := config()
		put(t, s, "w", cfg)
		pass(time.Second)
		cfg.URL = "https://other.example/"
		q.taken = func() { put(t, s, "w", cfg) }
		q.add(1)
		pass(time.Second)
		if left, _ := q.left(); left != 0 || len(hosts) != 1 || hosts[0] != "other.example" {
			t.Errorf("%d jobs left, delivered to %v", left, hosts)
		}
		s.Stop(time.Second)
	})
}

// The longest time that a receiver has asked for counts, whichever of its answers comes last.
func TestAShorterRetryAfterDoesNotShortenALongerOne(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		to := &receiver{header: http.Header{"Retry-After": {"300"}}}
		to.answer = func(r *http.Request) (int, error) {
			if r.Header.Get("Weir-Seq") == "2" {
				time.Sleep(time.Second)
				to.retryAfter("1")
			}
			return 503, nil
		}
		s, q := newSet(t, to), newFakeQueue(2)
		s.Start(q)
		put(t, s, "w", config())
		pass(5 * time.Second)
		q.add(3)
		pass(280 * time.Second)
		if n := len(to.times()); n != 2 {
			t.Errorf("%d deliveries before the time that the receiver asked for", n-2)
		}
		s.Stop(time.Second)
	})
}

// Who claims is named after the webhook, as far as the server takes names.
func TestALongNameOfAWebhookFits(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		s, q := newSet(t, &receiver{}), newFakeQueue(0)
		s.opt.MaxNodeBytes = 12
		s.Start(q)
		put(t, s, "orders", config())
		pass(time.Second)
		if q.node != "webhook:orde" {
			t.Errorf("claims are %q's", q.node)
		}
		s.Stop(time.Second)
	})
}

// A claim that has begun before the failures asked for more than one job.
func TestAWebhookThatFailsSendsOneJobThoughAClaimWaited(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		to := &receiver{header: http.Header{"Retry-After": {"600"}}, answer: func(*http.Request) (int, error) { time.Sleep(time.Second); return 500, nil }}
		s, q := newSet(t, to), newFakeQueue(tripAfter)
		s.Start(q)
		cfg := config()
		cfg.Concurrency = 2 * tripAfter
		put(t, s, "w", cfg)
		pass(5 * time.Second)
		q.add(11, 12, 13)
		pass(time.Millisecond)
		if n := len(to.times()); n != tripAfter+1 {
			t.Errorf("%d deliveries after %d have failed, want one", n-tripAfter, tripAfter)
		}
		s.Stop(time.Second)
	})
}
