package queue_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/backend/internal/queue"
	"github.com/weirmq/weir/internal/api"
)

// settles is a service that notes what it is asked to settle.
type settles struct {
	queue.Service
	fails map[int]error // by call, from 1
	most  int           // in one call; 0: any number
	calls []api.Settlement

	refused int // calls that named more
}

func (s *settles) Topic(context.Context, string) (api.TopicState, error) {
	return api.TopicState{}, nil
}

func (s *settles) Settle(_ context.Context, _ string, req *api.Settlement) (skipped []uint64, _ error) {
	if s.most > 0 && len(req.Seqs) > s.most {
		s.refused++
		return nil, api.Errorf(api.CodeBatchTooLarge, "too many")
	}
	s.calls = append(s.calls, *req)
	if err := s.fails[len(s.calls)]; err != nil {
		return nil, err
	}
	for _, seq := range req.Seqs {
		if seq%100 == 0 {
			skipped = append(skipped, seq)
		}
	}
	return skipped, nil
}

func (s *settles) Claim(context.Context, string, *api.ClaimRequest) ([]api.HeldJob, time.Duration, error) {
	return nil, 0, nil
}

func (s *settles) open(t *testing.T) *queue.Backend {
	t.Helper()
	b, err := queue.New(t.Context(), s, queue.Options{Topic: "q", Limits: api.DefaultLimits()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	return b
}

func leasesOf(consumer string, from, to int) (all []backend.Lease) {
	for i := from; i <= to; i++ {
		all = append(all, backend.Lease{ID: fmt.Sprint(i), Token: fmt.Sprint("t", i), Consumer: consumer})
	}
	return all
}

// A server takes so many leases in one call, and those of one worker.
func TestManyLeasesAreSettledInSeveralCalls(t *testing.T) {
	s := &settles{}
	all := append(leasesOf("a", 1, 2500), leasesOf("b", 2501, 2510)...)
	lost, err := s.open(t).Ack(t.Context(), all)
	if err != nil || len(lost) != 25 || lost[0] != "100" || lost[24] != "2500" {
		t.Errorf("lost %v, %v", lost, err)
	}
	n := 0
	for _, call := range s.calls {
		if len(call.Seqs) > 1000 || len(call.Leases) != len(call.Seqs) {
			t.Fatalf("a call with %d jobs and %d leases", len(call.Seqs), len(call.Leases))
		}
		for i := range call.Seqs {
			if of := all[n]; fmt.Sprint(call.Seqs[i]) != of.ID || call.Leases[i] != of.Token || call.Node != of.Consumer {
				t.Fatalf("job %d of %s with %s is settled as %s", call.Seqs[i], call.Node, call.Leases[i], of.ID)
			}
			n++
		}
	}
	if n != len(all) || len(s.calls) != 4 {
		t.Errorf("%d of %d leases in %d calls", n, len(all), len(s.calls))
	}
}

// A server may be set to take fewer than a worker holds.
func TestLeasesAreSettledInCallsAsSmallAsTheServerTakes(t *testing.T) {
	s := &settles{most: 3}
	b := s.open(t)
	for round := range 2 {
		s.calls = nil
		if lost, err := b.Ack(t.Context(), leasesOf("a", 1, 20)); err != nil || len(lost) > 0 {
			t.Fatalf("lost %v, %v", lost, err)
		}
		var seqs []uint64
		for _, call := range s.calls {
			seqs = append(seqs, call.Seqs...)
		}
		if len(seqs) != 20 || !slices.IsSorted(seqs) || len(slices.Compact(seqs)) != 20 {
			t.Errorf("round %d settled %v", round, seqs)
		}
	}
	if s.refused > 5 {
		t.Errorf("%d calls were refused, though the first ones say what is too much", s.refused)
	}
	s = &settles{most: 3, fails: map[int]error{2: api.Errorf(api.CodeShuttingDown, "going")}}
	if _, err := s.open(t).Ack(t.Context(), leasesOf("a", 1, 20)); !errors.Is(err, backend.ErrOutcomeUnknown) || !backend.Retryable(err) {
		t.Errorf("one that fails when some are acknowledged: %v", err)
	}
}

// The jobs of a queue that is deleted are nobody's any more.
func TestTheLeasesOfADeletedQueueAreLost(t *testing.T) {
	s := &settles{fails: map[int]error{1: api.Errorf(api.CodeTopicNotFound, "gone")}}
	lost, err := s.open(t).Extend(t.Context(), leasesOf("a", 1, 3), time.Minute)
	if err != nil || !slices.Equal(lost, []string{"1", "2", "3"}) {
		t.Errorf("lost %v, %v", lost, err)
	}
}

// If some were given back before a call failed, a repeat finds their leases gone: that must not
// look as if somebody else had them.
func TestANackThatFailsHalfwayIsUnknown(t *testing.T) {
	away := api.Errorf(api.CodeShuttingDown, "going")
	for failing, unknown := range map[int]bool{1: false, 2: true} {
		s := &settles{fails: map[int]error{failing: away}}
		var returns []backend.Return
		for i, l := range leasesOf("a", 1, 4) {
			returns = append(returns, backend.Return{Lease: l, Delay: time.Duration(i/2) * time.Second})
		}
		_, err := s.open(t).Nack(t.Context(), returns)
		if !errors.Is(err, away) || errors.Is(err, backend.ErrOutcomeUnknown) != unknown || !backend.Retryable(err) {
			t.Errorf("call %d fails: %v", failing, err)
		}
		if len(s.calls) != failing || len(s.calls[0].Seqs) != 2 {
			t.Errorf("call %d fails, and there are %d", failing, len(s.calls))
		}
	}
}

// A message that becomes a dead letter stays leased for as long as the pool's leases are, and long enough
// for a slow server.
func TestTheMoveToTheLettersHasTime(t *testing.T) {
	for lease, want := range map[time.Duration]time.Duration{0: 30 * time.Second, time.Second: 10 * time.Second, time.Minute: time.Minute} {
		s := &settles{fails: map[int]error{1: backend.ErrUnavailable}}
		b := s.open(t)
		if lease > 0 {
			if _, err := b.Claim(t.Context(), backend.ClaimRequest{Consumer: "w", Max: 1, ReclaimAfter: lease}); err != nil {
				t.Fatal(err)
			}
		}
		err := b.DeadLetter(t.Context(), &backend.Delivery{Lease: leasesOf("w", 1, 1)[0]}, "", backend.Cause{})
		if !errors.Is(err, backend.ErrUnavailable) || len(s.calls) != 1 || s.calls[0].Kind != api.SettleExtend || s.calls[0].Lease != want {
			t.Errorf("leases of %v: %+v, %v; want one for %v", lease, s.calls, err, want)
		}
	}
}
