package kafka_test

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/tests/link"
)

// TestABrokerThatHangsUp, as what stands in front of one does while it is away: whoever had it
// open waits for it.
func TestABrokerThatHangsUp(t *testing.T) {
	t.Parallel()
	for _, kind := range groupTypes {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			f := newFake(t)
			proxy := link.NewProxy(t, f.ListenAddrs()[0])
			b := f.open(kind, through(proxy))
			crew := startCrew(f, b)
			f.publish(b, 0, 5)
			crew.handled(5)
			proxy.Refuse()
			for what, do := range map[string]func(context.Context) error{
				"append":  func(ctx context.Context) error { _, err := b.Append(ctx, messages("unknown")); return err },
				"stats":   func(ctx context.Context) error { _, err := b.Stats(ctx); return err },
				"examine": func(ctx context.Context) error { _, err := b.Examine(ctx); return err },
				"list":    func(ctx context.Context) error { _, err := b.List(ctx, "", "", 1); return err },
			} {
				ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
				if err := do(ctx); !backend.Retryable(err) {
					t.Errorf("%s: %v; want one that says to try again", what, err)
				}
				cancel()
			}
			proxy.Heal()
			f.publish(b, 5, 10)
			crew.handled(10)
			crew.end()
		})
	}
}

// TestAnswersThatBreakOff in the middle, of whatever request: what was stored is stored once, and
// handled.
func TestAnswersThatBreakOff(t *testing.T) {
	t.Parallel()
	for _, kind := range groupTypes {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			f, cuts := newFake(t), &cutter{}
			b := f.open(kind, kgo.Dialer(cuts.dial))
			crew := startCrew(f, b)
			f.publish(b, 0, 5)
			crew.handled(5)
			const all, most = 40, 20
			for i := 5; i < all; i++ {
				if i%2 == 0 {
					cuts.left.Store(1)
				}
				f.publish(b, i, i+1)
			}
			crew.handled(all)
			if n := f.stored(); n != all || cuts.done.Load() < most/2 {
				t.Errorf("%d messages were stored as %d records, %d answers broke off", all, n, cuts.done.Load())
			}
			crew.end()
		})
	}
}

// cutter breaks off answers.
type cutter struct{ left, done atomic.Int64 }

func (c *cutter) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, network, addr)
	return &cutConn{conn, c}, err
}

type cutConn struct {
	net.Conn
	*cutter
}

func (c *cutConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 4 && c.left.Add(-1) == 0 { // more than the length
		c.done.Add(1)
		_ = c.Close()
		return n - 1, err
	}
	return n, err
}

// TestAnAnswerThatComesTooLate: the append is of unknown outcome when its context ends, and is
// stored once; its key finds it.
func TestAnAnswerThatComesTooLate(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	b := f.open(groupClassic)
	f.publish(b, 0, 1)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	goOn := make(chan struct{})
	f.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		f.DropControl()
		f.SleepControl(func() { cancel(); <-goOn })
		return nil, nil, false
	})
	msg := []backend.Message{{Data: []byte("late"), IdempotencyKey: "late"}}
	if _, err := b.Append(ctx, msg); !errors.Is(err, backend.ErrOutcomeUnknown) {
		t.Error(err)
	}
	close(goOn)
	got, err := b.Append(t.Context(), msg)
	if err != nil || !got[0].Deduped || f.stored() != 2 {
		t.Errorf("the repeat: %+v, %v; 2 messages were stored as %d records", got, err, f.stored())
	}
}

// TestAProducerWhoseNumbersAreRefused: it may say that it does not know what became of a
// message, but what it says is stored is, once, and it goes on.
func TestAProducerWhoseNumbersAreRefused(t *testing.T) {
	t.Parallel()
	for _, refusal := range []*kerr.Error{kerr.OutOfOrderSequenceNumber, kerr.InvalidProducerEpoch, kerr.UnknownProducerID, kerr.InvalidProducerIDMapping} {
		t.Run(refusal.Message, func(t *testing.T) {
			t.Parallel()
			f := newFake(t)
			b := f.open(groupClassic)
			f.publish(b, 0, 3)
			f.Fault(trouble{key: kmsg.Produce, err: refusal}.fault(1))
			stored := int64(3)
			watch := stopwatch()
			_, err := b.Append(t.Context(), messages("refused"))
			switch took := watch(); {
			case err == nil:
				stored++
			case !errors.Is(err, backend.ErrOutcomeUnknown) && backend.Retryable(err), took > 4*time.Second:
				t.Errorf("%v after %s", err, took)
			default:
				t.Log(err)
			}
			f.publish(b, 3, 6)
			if n := f.stored(); n != stored+3 {
				t.Errorf("%d messages were stored as %d records", stored+3, n)
			}
		})
	}
}

// through makes a handle dial a proxy, whatever the brokers' addresses.
func through(p *link.Proxy) kgo.Opt {
	return kgo.Dialer(func(ctx context.Context, network, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, network, p.Addr())
	})
}

// TestAKeyOfWhatWasRefusedIsNew: a message that the brokers have refused was not stored, and its repeat is.
func TestAKeyOfWhatWasRefusedIsNew(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	b := f.open(groupClassic)
	f.publish(b, 0, 1)
	f.Fault(trouble{key: kmsg.Produce, err: kerr.PolicyViolation}.fault(1))
	msg := []backend.Message{{Data: []byte("refused"), IdempotencyKey: "k"}}
	if got, err := b.Append(t.Context(), msg); !errors.Is(err, kerr.PolicyViolation) || got[0].Deduped {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err := b.Append(t.Context(), msg); err != nil || got[0].Deduped || f.stored() != 2 {
		t.Errorf("the repeat: %+v, %v; 2 messages were stored as %d records", got, err, f.stored())
	}
}

// TestABatchOfWhichSomethingMayBeStored says so, though another message of it was refused before.
func TestABatchOfWhichSomethingMayBeStored(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	b := f.open(groupClassic)
	f.publish(b, 0, 1)
	refused := f.Fault(trouble{key: kmsg.Produce, err: kerr.NotEnoughReplicas}.fault(-1))
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		defer cancel()
		_ = refused.Wait(ctx, 1)
	}()
	got, err := b.Append(ctx, []backend.Message{{Data: make([]byte, 2<<20)}, {Data: []byte("x")}})
	if !errors.Is(err, backend.ErrOutcomeUnknown) || !errors.Is(got[0].Err, backend.ErrTooLarge) || !errors.Is(got[1].Err, backend.ErrOutcomeUnknown) {
		t.Errorf("%+v, %v", got, err)
	}
}
