package backendtest

import (
	"context"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/tests/bubble"
	"github.com/weirmq/weir/tests/stall"
)

// The suite itself is tested on the fake: with it every case has to pass, and
// with a fault planted in it the cases that are there for the fault have to fail.
func TestFakePassesTheSuite(t *testing.T) {
	Run(t, fakeHarness(os.Getenv(plantedVar)))
}

// shelf holds the streams of one run.
type shelf struct {
	mu      sync.Mutex
	streams map[string]*Fake
}

func (s *shelf) open(stream string) *Fake {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f, known := s.streams[stream]; known {
		return f.Again()
	}
	s.streams[stream] = NewFake(FakeOptions{Stream: stream})
	return s.streams[stream]
}

func fakeHarness(planted string) Harness {
	s := &shelf{streams: map[string]*Fake{}}
	inject := func(fault Fault) func(t testing.TB, stream string) (backend.Backend, func() func()) {
		return func(t testing.TB, stream string) (backend.Backend, func() func()) {
			f := s.open(stream)
			return plant(f, planted), func() func() { return injectAll(f, fault) }
		}
	}
	return Harness{
		Name: "the fake", CreatesStream: true, KeepsErrors: true,
		Open:        func(_ testing.TB, stream string) backend.Backend { return plant(s.open(stream), planted) },
		Faulty:      inject(Fault{LoseAnswer: true, Hang: true}),
		Unreachable: inject(Fault{Err: backend.ErrUnavailable}),
	}
}

func injectAll(f *Fake, fault Fault) (heal func()) {
	var removes []func()
	for _, op := range []Op{OpAppend, OpClaim, OpExtend, OpAck, OpNack, OpDeadLetter, OpStats, OpSignal, OpPublishSignal, OpRead, OpList, OpRedrive, OpPurge, OpTrim, OpPause} {
		removes = append(removes, f.Inject(op, fault))
	}
	return func() {
		for _, remove := range removes {
			remove()
		}
	}
}

// TestAMachineThatStandsStillIsNoFault: the lease of a message has run out before the next one comes.
func TestAMachineThatStandsStillIsNoFault(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		h := fakeHarness("")
		open := h.Open
		h.Open = func(t testing.TB, stream string) backend.Backend { return &stalled{Backend: open(t, stream)} }
		h.ReclaimAfter = 300 * time.Millisecond
		s := &suite{h: h, stalled: stall.Meter(t)}
		nackDelaysOne(s.fixture(t))
	})
}

// stalled hands out one message for a short time, and the next ones when that is over.
type stalled struct {
	backend.Backend
	claims int // with short leases
}

func (s *stalled) Claim(ctx context.Context, req backend.ClaimRequest) (backend.Claimed, error) {
	if req.ReclaimAfter < held {
		if s.claims++; s.claims == 1 {
			req.Max = 1
		} else {
			time.Sleep(req.ReclaimAfter)
		}
	}
	return s.Backend.Claim(ctx, req)
}
