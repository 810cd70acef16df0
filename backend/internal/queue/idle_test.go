package queue_test

import (
	"context"
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
	done, lapses time.Time // zero: never
	requests     int
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
	if h.lapses.IsZero() || time.Now().Before(h.lapses) {
		return nil, 0, nil
	}
	return []api.HeldJob{{Record: api.Record{Seq: 1, Data: []byte("1")}, Lease: "7", Deliveries: 2}}, 0, nil
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
