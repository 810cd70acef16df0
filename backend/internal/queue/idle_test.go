package queue_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/backend/internal/queue"
	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/tests/bubble"
)

// held is a service with one job, which another worker has until it is done or its lease
// ends.
type held struct {
	queue.Service
	done     time.Time // zero: never
	requests int

	mu     sync.Mutex
	lapses time.Time // zero: never
}

func (h *held) Topic(context.Context, string) (api.TopicState, error) {
	h.requests++
	st := api.TopicState{TopicCounters: api.TopicCounters{HeadSeq: 1, Count: 1}}
	if !h.done.IsZero() && !time.Now().Before(h.done) {
		st.Count = 0
	}
	return st, nil
}

func (h *held) Claim(context.Context, string, *api.ClaimRequest) ([]api.HeldJob, time.Duration, error) {
	h.requests++
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.lapses.IsZero() || time.Now().Before(h.lapses) {
		return nil, 0, nil
	}
	return []api.HeldJob{{Record: api.Record{Seq: 1, Data: []byte("1")}, Lease: "7", Deliveries: 2}}, 0, nil
}

func (h *held) Settle(_ context.Context, _ string, req *api.Settlement) ([]uint64, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if at := time.Now().Add(req.Delay); h.lapses.IsZero() || at.Before(h.lapses) {
		h.lapses = at
	}
	return nil, nil
}

func (h *held) Diff(ctx context.Context, _ string, req *api.DiffRequest) ([]api.Record, api.DiffResult, error) {
	h.requests++
	select {
	case <-time.After(time.Duration(req.WaitMS) * time.Millisecond):
	case <-ctx.Done():
		return nil, api.DiffResult{}, ctx.Err()
	}
	return nil, api.DiffResult{HeadSeq: req.FromSeq, NextFromSeq: req.FromSeq}, nil
}

func (h *held) open(t *testing.T) *queue.Backend {
	b, err := queue.New(t.Context(), h, queue.Options{Topic: "q", Limits: api.DefaultLimits()})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// A claim that may have enough at any time cannot wait at the service, and looks again
// and again while somebody holds a job. It is quiet again once the job is done.
func TestAWaitingClaimIsQuietWhenTheQueueIsEmpty(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		h := &held{done: time.Now().Add(5 * time.Second)}
		b := h.open(t)
		defer b.Close()
		claim := func(d time.Duration) int {
			h.requests = 0
			got, err := b.Claim(t.Context(), backend.ClaimRequest{Consumer: "w", Max: 1, Block: d, ReclaimAfter: time.Minute, Enough: make(chan struct{})})
			if err != nil || len(got.Deliveries) > 0 {
				t.Fatalf("%+v, %v", got, err)
			}
			return h.requests
		}
		if busy := claim(5 * time.Second); busy < 20 {
			t.Errorf("while a job was out it looked %d times in 5s; a lease may end at any time", busy)
		}
		claim(5 * time.Second)
		if quiet := claim(time.Minute); quiet > 8 {
			t.Errorf("%d requests in a minute, with nothing in the queue", quiet)
		}
	})
}

func TestAWaitingClaimFindsALeaseThatEndsMuchLater(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		h := &held{lapses: time.Now().Add(20 * time.Second)}
		b := h.open(t)
		defer b.Close()
		got, err := b.Claim(t.Context(), backend.ClaimRequest{Consumer: "w", Max: 1, Block: time.Minute, ReclaimAfter: time.Minute, Enough: make(chan struct{})})
		if late := time.Since(h.lapses); err != nil || len(got.Deliveries) != 1 || late > 300*time.Millisecond {
			t.Errorf("%+v, %v, %v after the lease ended", got, err, late)
		}
	})
}

// What this process gives back wakes its own waiting claim when it is due.
func TestAWaitingClaimFindsWhatItsProcessGivesBack(t *testing.T) {
	for _, delay := range []time.Duration{0, 100 * time.Millisecond, 1100 * time.Millisecond} {
		bubble.Run(t, func(t *testing.T) {
			h := &held{}
			b := h.open(t)
			defer b.Close()
			var worker sync.WaitGroup
			worker.Go(func() {
				for _, d := range []time.Duration{time.Minute, delay, time.Hour} { // the first that is due counts
					time.Sleep(70 * time.Millisecond)
					if _, err := b.Nack(t.Context(), []backend.Return{{Lease: backend.Lease{ID: "1"}, Delay: d}}); err != nil {
						t.Error(err)
					}
				}
			})
			got, err := b.Claim(t.Context(), backend.ClaimRequest{Consumer: "w", Max: 1, Block: time.Minute, ReclaimAfter: time.Minute, Enough: make(chan struct{})})
			found := time.Now()
			worker.Wait()
			if late := found.Sub(h.lapses); err != nil || len(got.Deliveries) != 1 || late > 5*time.Millisecond {
				t.Errorf("%+v, %v, %v after it was due in %v", got, err, late, delay)
			}
		})
	}
}

// empty is a service without jobs that does not wait for one, and says nothing else.
type empty struct {
	queue.Service
	away   bool
	claims []api.ClaimRequest
}

func (e *empty) Topic(context.Context, string) (api.TopicState, error) {
	if e.away {
		return api.TopicState{}, backend.ErrUnavailable
	}
	return api.TopicState{}, nil
}

func (e *empty) Claim(_ context.Context, _ string, req *api.ClaimRequest) ([]api.HeldJob, time.Duration, error) {
	e.claims = append(e.claims, *req)
	return nil, 0, nil
}

func (e *empty) open(t *testing.T) *queue.Backend {
	b, err := queue.New(t.Context(), e, queue.Options{Topic: "q", Limits: api.DefaultLimits()})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// Who claims again and again asks a server that answers claims alone now and then, not without pause.
func TestClaimsOfAServerThatIsGoingAwayPause(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		e := &empty{}
		b := e.open(t)
		defer b.Close()
		e.away = true
		for end := time.Now().Add(10 * time.Second); time.Now().Before(end) && len(e.claims) < 1000; {
			if _, err := b.Claim(t.Context(), backend.ClaimRequest{Consumer: "w", Max: 1, Block: time.Second, ReclaimAfter: time.Minute}); err != nil {
				t.Fatal(err)
			}
		}
		if len(e.claims) > 50 {
			t.Errorf("%d claims in 10 s", len(e.claims))
		}
	})
}

// A server is asked for no more, and for no other leases, than it gives; and for nothing at all by a claim
// that makes no sense.
func TestAClaimAsksForWhatAServerGives(t *testing.T) {
	e := &empty{}
	b := e.open(t)
	defer b.Close()
	for _, c := range []struct {
		most    int
		lease   time.Duration
		asks    int
		leaseMS uint64
	}{
		{1, 100 * time.Millisecond, 1, 100}, {1000, time.Millisecond, 200, 100}, {200, 48 * time.Hour, 200, 86_400_000}, {0, time.Minute, 0, 0}, {1, 0, 0, 0},
	} {
		e.claims = nil
		_, err := b.Claim(t.Context(), backend.ClaimRequest{Consumer: "w", Max: c.most, ReclaimAfter: c.lease})
		if c.asks == 0 {
			if err == nil || len(e.claims) > 0 {
				t.Errorf("%d jobs for %v: %v after %d calls", c.most, c.lease, err, len(e.claims))
			}
		} else if err != nil || len(e.claims) != 1 || e.claims[0].Max != c.asks || e.claims[0].LeaseMS != c.leaseMS {
			t.Errorf("%d jobs for %v: it asks for %+v, %v", c.most, c.lease, e.claims, err)
		}
	}
}

// closing is an empty service that ends the caller's context once it is asked.
type closing struct {
	empty
	cancel context.CancelFunc
}

func (c *closing) Claim(ctx context.Context, name string, req *api.ClaimRequest) ([]api.HeldJob, time.Duration, error) {
	defer c.cancel()
	_, _, _ = c.empty.Claim(ctx, name, req)
	return nil, 0, ctx.Err()
}

// A server waits for as long as the claim may, but not longer than it can, nor than a caller who may have
// enough at any time lets it: what it leases then is nobody's.
func TestAServerWaitsNoLongerThanTheCaller(t *testing.T) {
	open, closed := make(chan struct{}), make(chan struct{})
	close(closed)
	for _, c := range []struct {
		block, slack time.Duration
		enough       chan struct{}
		waits        uint32
	}{
		{block: 10 * time.Second, waits: 10_000},
		{block: 1500 * time.Microsecond, waits: 2},
		{block: time.Hour, waits: api.MaxWaitMS},
		{block: -time.Second, waits: 0},
		{block: 10 * time.Second, slack: 50 * time.Millisecond, waits: 10_000},
		{block: 10 * time.Second, slack: 50 * time.Millisecond, enough: open, waits: 50},
		{block: 20 * time.Millisecond, slack: 50 * time.Millisecond, enough: open, waits: 20},
		{block: 10 * time.Second, enough: open, waits: 0},
		{block: 10 * time.Second, slack: 50 * time.Millisecond, enough: closed, waits: 0},
	} {
		bubble.Run(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			s := &closing{cancel: cancel}
			b, err := queue.New(t.Context(), s, queue.Options{Topic: "q", Limits: api.DefaultLimits()})
			if err != nil {
				t.Fatal(err)
			}
			defer b.Close()
			_, err = b.Claim(ctx, backend.ClaimRequest{Consumer: "w", Max: 1, ReclaimAfter: time.Minute, Block: c.block, Slack: c.slack, Enough: c.enough})
			if err != nil && !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
			if len(s.claims) == 0 || s.claims[0].WaitMS != c.waits {
				t.Errorf("%+v: it asks for %+v, want to wait for %d ms", c, s.claims, c.waits)
			}
		})
	}
}

// lines is a service whose records lie in one piece of memory.
type lines struct{ queue.Service }

func (lines) Topic(context.Context, string) (api.TopicState, error) { return api.TopicState{}, nil }

func (lines) Diff(context.Context, string, *api.DiffRequest) ([]api.Record, api.DiffResult, error) {
	text := []byte("12")
	return []api.Record{{Seq: 1, Data: text[:1], Meta: fmt.Appendf(nil, `{%q:%q}`, api.MetaEncoding, api.EncodingLine)}, {Seq: 2, Data: text[1:]}}, api.DiffResult{NextFromSeq: 2, HeadSeq: 2}, nil
}

// A message gets the end of line that it had, and the one behind it nothing.
func TestALineBesideAnotherMessage(t *testing.T) {
	b, err := queue.New(t.Context(), lines{}, queue.Options{Topic: "q", Limits: api.DefaultLimits()})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	got, err := b.Read(t.Context(), backend.ReadRequest{Max: 2})
	if err != nil || len(got.Records) != 2 || string(got.Records[0].Data) != "1\n" || string(got.Records[1].Data) != "2" {
		t.Errorf("%q, %v", got.Records, err)
	}
}
