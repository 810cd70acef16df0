package kafka_test

import (
	"context"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/tests/kafkatest"
	"github.com/weirmq/weir/tests/leak"
)

// TestNoCallOutlastsItsContextOnAFrozenBroker, nor does a handle that is closed then leave
// anything behind.
func TestNoCallOutlastsItsContextOnAFrozenBroker(t *testing.T) {
	broker := kafkatest.Start(t, kafkatest.Options{})
	for _, groupType := range groupTypes {
		t.Run(groupType, func(t *testing.T) {
			leak.Check(t, 10*time.Second, func() { frozen(t, broker.URL()+"/"+ofType(groupType), broker.Pause, broker.Resume) })
		})
	}
}

// Connections that are opened to a broker which does not answer are what the client's library
// waits for whatever the context.
func TestNoCallOutlastsItsContextWhileConnectionsAreOpened(t *testing.T) {
	broker := kafkatest.Start(t, kafkatest.Options{})
	for _, groupType := range groupTypes {
		t.Run(groupType, func(t *testing.T) {
			silent, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer silent.Close()
			leak.Check(t, 10*time.Second, func() {
				var mu sync.Mutex
				var conns []net.Conn
				lost := false
				dial := func(ctx context.Context, network, addr string) (net.Conn, error) {
					mu.Lock()
					defer mu.Unlock()
					if lost {
						addr = silent.Addr().String()
					}
					conn, err := new(net.Dialer).DialContext(ctx, network, addr)
					conns = append(conns, conn)
					return conn, err
				}
				lose := func() {
					mu.Lock()
					defer mu.Unlock()
					lost = true
					for _, conn := range conns {
						conn.Close()
					}
				}
				frozen(t, broker.URL()+"/"+ofType(groupType), lose, func() {}, kgo.Dialer(dial))
			})
		})
	}
}

func frozen(t *testing.T, url string, freeze, thaw func(), opts ...kgo.Opt) {
	b := open(t, url, opts...)
	if _, err := b.Append(t.Context(), messages("1", "2", "3")); err != nil {
		t.Fatal(err)
	}
	held := gather(t, b, 3)
	freeze()
	defer thaw()
	patient, stop := context.WithCancel(t.Context())
	reported := make(chan error, 1)
	go func() { reported <- b.PublishSignal(patient, time.Minute) }() // it has to create a topic
	defer func() { stop(); <-reported }()
	for name, do := range map[string]func(context.Context) error{
		"ack": func(ctx context.Context) error { _, err := b.Ack(ctx, []backend.Lease{held[0].Lease}); return err },
		"nack": func(ctx context.Context) error {
			_, err := b.Nack(ctx, []backend.Return{{Lease: held[1].Lease}})
			return err
		},
		"dead letter":    func(ctx context.Context) error { return b.DeadLetter(ctx, held[2], "", backend.Cause{}) },
		"claim":          func(ctx context.Context) error { _, err := b.Claim(ctx, claim(1)); return err },
		"append":         func(ctx context.Context) error { _, err := b.Append(ctx, messages("x")); return err },
		"stats":          func(ctx context.Context) error { _, err := b.Stats(ctx); return err },
		"signal":         func(ctx context.Context) error { _, err := b.Signal(ctx, 1); return err },
		"publish signal": func(ctx context.Context) error { return b.PublishSignal(ctx, time.Second) },
		"list":           func(ctx context.Context) error { _, err := b.List(ctx, "", "", 1); return err },
		"examine":        func(ctx context.Context) error { _, err := b.Examine(ctx); return err },
		"observe":        func(ctx context.Context) error { _, err := b.Observe(ctx, 1); return err },
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		watch := stopwatch()
		err := do(ctx)
		cancel()
		// In a classic group these are the handle's business; what it has acknowledged, the
		// next commit says.
		local := strings.Contains(url, "group_type=classic") && (name == "claim" || name == "ack" || name == "nack")
		if took := watch(); err == nil && !local || took > 2*time.Second {
			t.Errorf("%s on a frozen broker: %v after %s", name, err, took)
		}
	}
	watch := stopwatch()
	err := b.Close()
	if took := watch(); err != nil || took > 10*time.Second {
		t.Errorf("close on a frozen broker: %v after %s", err, took)
	}
}

// TestNoCallWaitsForAnotherBeyondItsContext, which has more time and the same frozen broker.
func TestNoCallWaitsForAnotherBeyondItsContext(t *testing.T) {
	broker := kafkatest.Start(t, kafkatest.Options{})
	for _, groupType := range groupTypes {
		b := open(t, broker.URL()+"/"+ofType(groupType))
		if _, err := b.Append(t.Context(), messages("x")); err != nil {
			t.Fatal(err)
		}
		broker.Pause()
		for name, do := range map[string]func(context.Context) error{
			"claim":   func(ctx context.Context) error { _, err := b.Claim(ctx, claim(1)); return err },
			"stats":   func(ctx context.Context) error { _, err := b.Stats(ctx); return err },
			"tally":   func(ctx context.Context) error { _, _, err := b.Tally(ctx, []uint32{1}); return err },
			"purge":   func(ctx context.Context) error { _, err := b.Purge(ctx, "", []string{"0:0"}); return err },
			"redrive": func(ctx context.Context) error { return b.Redrive(ctx, "", backend.DeadLetter{ID: "0:0"}) },
			"share": func(ctx context.Context) error {
				_, _, err := b.Share(ctx, backend.RoomRequest{Limit: 1, Need: 1, Want: 1, Lifetime: time.Second})
				return err
			},
		} {
			long, stop := context.WithCancel(t.Context())
			other := make(chan error, 1)
			go func() { other <- do(long) }()
			time.Sleep(100 * time.Millisecond)
			short, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			watch := stopwatch()
			err := do(short)
			if took := watch(); err == nil || took > 2*time.Second {
				t.Errorf("%s beside another in a %s group: %v after %s", name, groupType, err, took)
			}
			cancel()
			stop()
			<-other
		}
		broker.Resume()
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}
}
