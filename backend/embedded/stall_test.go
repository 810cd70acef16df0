package embedded

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/backend/internal/queue"
	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/internal/engine"
	"github.com/weirmq/weir/tests/bubble"
)

// stallingFS is a file system in memory whose writes wait while it is stalled.
type stallingFS struct {
	vfs.FS
	gate atomic.Pointer[chan struct{}]
}

func newStallingFS() *stallingFS {
	s := &stallingFS{}
	s.FS = errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(o errorfs.Op) error {
		if gate := s.gate.Load(); gate != nil && o.Kind.ReadOrWrite() == errorfs.OpIsWrite {
			<-*gate
		}
		return nil
	}))
	return s
}

func (s *stallingFS) stall() (release func()) {
	gate := make(chan struct{})
	s.gate.Store(&gate)
	return func() { s.gate.Store(nil); close(gate) }
}

func TestACallEndsWithItsContextThoughTheDiskHangs(t *testing.T) {
	bubble.Run(t, callsEndThoughTheDiskHangs)
}

func callsEndThoughTheDiskHangs(t *testing.T) {
	fs := newStallingFS()
	s, err := share(t.Context(), "test:stall", engine.Options{Dir: "/data", FS: fs, SegmentBytes: memSegment})
	if err != nil {
		t.Fatal(err)
	}
	cfg := api.DefaultConfig()
	cfg.Type, cfg.Durability, cfg.LeasesDurable = api.TypeQueue, api.Fsync, true
	b, err := queue.New(t.Context(), service{e: s.engine, late: &s.late}, queue.Options{
		Topic: "jobs", Config: cfg, Limits: api.DefaultLimits(), Kind: "embedded", Release: s.release,
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.Append(t.Context(), []backend.Message{{Data: []byte("a")}, {Data: []byte("b")}}); err != nil {
		t.Fatal(err)
	}
	claim := backend.ClaimRequest{Consumer: "w", Max: 1, ReclaimAfter: time.Minute}
	got, err := b.Claim(t.Context(), claim)
	if err != nil {
		t.Fatal(err)
	}
	release := fs.stall()
	for name, call := range map[string]func(context.Context) error{
		"append": func(ctx context.Context) error {
			_, err := b.Append(ctx, []backend.Message{{Data: []byte("late"), IdempotencyKey: "k"}})
			return err
		},
		"ack": func(ctx context.Context) error {
			_, err := b.Ack(ctx, []backend.Lease{got.Deliveries[0].Lease})
			return err
		},
		"claim": func(ctx context.Context) error { _, err := b.Claim(ctx, claim); return err },
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		begin := time.Now()
		err := call(ctx)
		cancel()
		if took := time.Since(begin); !errors.Is(err, context.DeadlineExceeded) || took > time.Second {
			t.Errorf("%s: %v after %v", name, err, took)
		}
		if name != "claim" && !errors.Is(err, backend.ErrOutcomeUnknown) {
			t.Errorf("%s: %v, want ErrOutcomeUnknown", name, err)
		}
	}
	release()
	again, err := b.Append(t.Context(), []backend.Message{{Data: []byte("late"), IdempotencyKey: "k"}})
	if err != nil || !again[0].Deduped {
		t.Errorf("the repeat: %+v, %v", again, err)
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
}

// There is nobody else who could hold a message until the log goes on, so an append is not
// refused for it, as a request to a server is.
func TestAppendsWaitWhileTheLogIsBehind(t *testing.T) {
	bubble.Run(t, appendsWaitWhileTheLogIsBehind)
}

func appendsWaitWhileTheLogIsBehind(t *testing.T) {
	fs := newStallingFS()
	s, err := share(t.Context(), "test:behind", engine.Options{
		Dir: "/data", FS: fs, SegmentBytes: memSegment, IngestSlots: 2, IngestTimeout: 20 * time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	b, err := queue.New(t.Context(), service{e: s.engine, late: &s.late}, queue.Options{
		Topic: "jobs", Config: created(api.Fsync), Limits: api.DefaultLimits(), Kind: "embedded", Release: s.release,
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.Append(t.Context(), []backend.Message{{Data: []byte("first")}}); err != nil {
		t.Fatal(err)
	}
	release := fs.stall()
	var all sync.WaitGroup
	for i := range 10 {
		msgs := []backend.Message{{Data: []byte("a")}, {Data: []byte("b")}}
		if i%2 == 0 {
			msgs[0].IdempotencyKey, msgs[1].IdempotencyKey = fmt.Sprint("a", i), fmt.Sprint("b", i)
		}
		all.Go(func() {
			if _, err := b.Append(t.Context(), msgs); err != nil {
				t.Error(err)
			}
		})
	}
	time.Sleep(300 * time.Millisecond)
	release()
	all.Wait()
	st, err := b.Stats(t.Context())
	if err != nil || st.XLen != 21 {
		t.Errorf("%d of 21 messages are there, %v", st.XLen, err)
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
}
