package queue_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/backend/internal/queue"
	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/tests/stall"
)

func TestPayloadsComeBackByteForByte(t *testing.T) {
	bodies := []string{
		"", "plain", `"a JSON string"`, `{"a":1}`, `{"a": 1}`, "{\"a\":1}\n", "{\"a\":1}\n\n", "7", "7.50", "null", "-0", "1e999",
		`{"a":1,"a":2}`, `1},{"data":2`, `1,"tag":"x"`, "\xff\xfe\x00", "\x00", "ümläut   <>&", strings.Repeat("[", 300), "\n", `[1,2]`, `"\ud800"`,
	}
	everywhere(t, func(t *testing.T, h *host) {
		b := h.open(fresh())
		publish(t, b, bodies...)
		got := take(t, b, func(r *backend.ClaimRequest) { r.Max = 100 })
		if len(got.Deliveries) != len(bodies) {
			t.Fatalf("claimed %d of %d", len(got.Deliveries), len(bodies))
		}
		for i, d := range got.Deliveries {
			if string(d.Data) != bodies[i] || d.Headers != nil {
				t.Errorf("%q came back as %q with headers %v", bodies[i], d.Data, d.Headers)
			}
		}
	})
}

func TestHeadersPriorityFairKeyAndTagTravel(t *testing.T) {
	everywhere(t, func(t *testing.T, h *host) {
		b := h.open(fresh())
		before := time.Now().Add(-time.Second)
		_, err := b.Append(t.Context(), []backend.Message{{
			Data: []byte("x"), Headers: map[string]string{"traceparent": "00-1", "": "empty", backend.HeaderTag: "t1"},
			Priority: backend.Critical, FairKey: "acme",
		}})
		if err != nil {
			t.Fatal(err)
		}
		d := one(t, b)
		want := map[string]string{"traceparent": "00-1", "": "empty", "weir-tag": "t1", "weir-priority": "critical", "weir-fair-key": "acme"}
		for name, v := range want {
			if d.Headers[name] != v {
				t.Errorf("header %q is %q, want %q", name, d.Headers[name], v)
			}
		}
		if len(d.Headers) != len(want) || d.Attempt != 1 || d.Enqueued.Before(before) || d.Since.IsZero() {
			t.Errorf("delivery %+v", d)
		}
	})
}

// What a queue has no place for is a header like others, and one about how to store a message is none.
func TestALongFairKeyIsAHeader(t *testing.T) {
	everywhere(t, func(t *testing.T, h *host) {
		b := h.open(fresh())
		key := strings.Repeat("k", api.MaxFairKeyBytes+1)
		if _, err := b.Append(t.Context(), []backend.Message{{Data: []byte(`{"a":1}`), FairKey: key, Headers: map[string]string{backend.HeaderJSON: "1"}}}); err != nil {
			t.Fatal(err)
		}
		if d := one(t, b); string(d.Data) != `{"a":1}` || len(d.Headers) != 1 || d.Headers[backend.HeaderFairKey] != key {
			t.Errorf("it comes back as %q with %v", d.Data, d.Headers)
		}
	})
}

func TestAKeyStoresOnceAndTheRestOfTheBatchInOrder(t *testing.T) {
	everywhere(t, func(t *testing.T, h *host) {
		b := h.open(fresh())
		batch := []backend.Message{{Data: []byte("a")}, {Data: []byte("b"), IdempotencyKey: strings.Repeat("k", 300)}, {Data: []byte("c")}}
		first, err := b.Append(t.Context(), batch)
		if err != nil {
			t.Fatal(err)
		}
		again, err := b.Append(t.Context(), batch[1:2])
		if err != nil || !again[0].Deduped || again[0].ID != first[1].ID {
			t.Errorf("the repeat gave %+v, %v; the first was %+v", again, err, first)
		}
		var order string
		for _, d := range take(t, b, nil).Deliveries {
			order += string(d.Data)
		}
		if order != "abc" {
			t.Errorf("claimed %q", order)
		}
	})
}

func TestAMessageTheServerCannotTakeIsRefusedAlone(t *testing.T) {
	everywhere(t, func(t *testing.T, h *host) {
		b := h.open(fresh())
		out, err := b.Append(t.Context(), []backend.Message{
			{Data: []byte("a")}, {Data: []byte("b"), Headers: map[string]string{"h": "\xff"}}, {Data: []byte("c"), Priority: 9}, {Data: []byte("d")},
		})
		if err == nil || out[0].ID == "" || out[1].Err == nil || out[2].Err == nil || out[3].ID == "" {
			t.Errorf("%+v, %v", out, err)
		}
		if backend.Retryable(err) {
			t.Errorf("%v counts as one that a repeat helps", err)
		}
	})
}

// A claim waits on one handle while another one, as another process would, makes a
// job claimable. The waiter may be the quicker of the two and have it at once.
func TestAWaitingClaimWakes(t *testing.T) {
	const soon = 5 * time.Second // far below the block of the claim
	wakes := map[string]struct {
		before int // jobs there are when the claim begins
		wake   func(t *testing.T, b, other *queue.Backend)
	}{
		"for a new job": {0, func(t *testing.T, b, other *queue.Backend) { publish(t, other, "x") }},
		"for a job put off elsewhere": {1, func(t *testing.T, b, other *queue.Backend) {
			for _, d := range take(t, other, nil).Deliveries {
				giveBack(t, other, d, 300*time.Millisecond)
			}
		}},
		"for a job given back here": {1, func(t *testing.T, b, other *queue.Backend) {
			for _, d := range take(t, other, nil).Deliveries {
				giveBack(t, b, d, 300*time.Millisecond)
			}
		}},
		"for a lease that ends": {1, func(t *testing.T, b, other *queue.Backend) {
			take(t, other, func(r *backend.ClaimRequest) { r.Consumer, r.ReclaimAfter = "crashed", 300*time.Millisecond })
		}},
	}
	for name, w := range wakes {
		t.Run(name, func(t *testing.T) {
			everywhere(t, func(t *testing.T, h *host) {
				queue := fresh()
				b, other := h.open(queue), h.open(queue)
				take(t, b, nil) // creates it
				for range w.before {
					publish(t, b, "x")
				}
				done := make(chan time.Duration, 1)
				begin, stalled := time.Now(), stall.Watch()
				go func() {
					got, err := b.Claim(t.Context(), backend.ClaimRequest{Consumer: "waiter", Max: 1, Block: 20 * time.Second, ReclaimAfter: 30 * time.Second})
					if err != nil || len(got.Deliveries) != 1 {
						t.Errorf("claimed %+v, %v", got, err)
					}
					done <- time.Since(begin)
				}()
				w.wake(t, b, other)
				if took := <-done; took > soon+stalled() {
					t.Errorf("the claim waited %v", took)
				}
			})
		})
	}
}

// A server of before wait_ms answers every claim at once.
func TestAnOlderServerIsNotAskedWithoutPause(t *testing.T) {
	h := &host{t: t, kind: "http"}
	h.serve("")
	var claims atomic.Int64
	to := &url.URL{Scheme: "http", Host: h.addr}
	older := httptest.NewServer(&httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(to)
		if !strings.HasSuffix(r.In.URL.Path, "/claim") {
			return
		}
		claims.Add(1)
		body, err := io.ReadAll(r.In.Body)
		if err != nil {
			t.Error(err)
		}
		body = regexp.MustCompile(`,"wait_ms":\d+`).ReplaceAll(body, nil)
		r.Out.Body, r.Out.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	}})
	t.Cleanup(older.Close)
	other := h.open("q")
	h.addr = strings.TrimPrefix(older.URL, "http://")
	b := h.open("q")
	take(t, b, func(r *backend.ClaimRequest) { r.Block = 300 * time.Millisecond })
	if n := claims.Load(); n > 6 {
		t.Errorf("an empty claim of 300 ms asked %d times", n)
	}
	publish(t, other, "x")
	if got := take(t, b, func(r *backend.ClaimRequest) { r.Block = 20 * time.Second }); len(got.Deliveries) != 1 {
		t.Errorf("%+v", got)
	}
}

// What is left of a lease is counted from when it began, not from when its claim did.
func TestALeaseBeginsWhenTheJobComes(t *testing.T) {
	everywhere(t, func(t *testing.T, h *host) {
		name := fresh()
		b, other := h.open(name), h.open(name)
		take(t, b, nil) // creates it
		begin, stalled := time.Now(), stall.Watch()
		written := make(chan time.Time, 1)
		time.AfterFunc(300*time.Millisecond, func() {
			publish(t, other, "x")
			written <- time.Now()
		})
		got := take(t, b, func(r *backend.ClaimRequest) { r.Block = 20 * time.Second })
		now := <-written
		if since := got.Deliveries[0].Since; since.Before(begin.Add(250*time.Millisecond)) || since.After(now.Add(time.Second+stalled())) {
			t.Errorf("the lease began %v after the claim; the job came after about 300ms", since.Sub(begin))
		}
	})
}

// A lease is as old as it is, however late its answer: the holder would otherwise go on
// though somebody else has the message.
func TestALeaseIsNoYoungerThoughItsAnswerIsLate(t *testing.T) {
	const late = 400 * time.Millisecond
	h := &host{t: t, kind: "http"}
	h.serve("")
	to := &url.URL{Scheme: "http", Host: h.addr}
	slow := httptest.NewServer(&httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(to) },
		ModifyResponse: func(r *http.Response) error {
			if strings.HasSuffix(r.Request.URL.Path, "/claim") {
				time.Sleep(late)
			}
			return nil
		},
	})
	t.Cleanup(slow.Close)
	other := h.open("q")
	h.addr = strings.TrimPrefix(slow.URL, "http://")
	b := h.open("q")
	publish(t, other, "there before the claim")
	time.AfterFunc(2*late, func() { publish(t, other, "waited for") })
	for range 2 {
		got := take(t, b, func(r *backend.ClaimRequest) { r.Max, r.Block = 1, 20*time.Second })
		if age := time.Since(got.Deliveries[0].Since); age < late-10*time.Millisecond { // the server counts whole milliseconds
			t.Errorf("%s: the lease is %v old by its holder's account; its answer alone took %v", got.Deliveries[0].Data, age, late)
		}
	}
}

func giveBack(t *testing.T, b backend.Backend, d *backend.Delivery, delay time.Duration) {
	t.Helper()
	if lost, err := b.Nack(t.Context(), []backend.Return{{Lease: d.Lease, Delay: delay, Error: "not today"}}); err != nil || len(lost) > 0 {
		t.Fatalf("nack: lost %v, %v", lost, err)
	}
}

func TestAnEmptyClaimWaitsItsTimeAndNoLonger(t *testing.T) {
	everywhere(t, func(t *testing.T, h *host) {
		b := h.open(fresh())
		begin, stalled := time.Now(), stall.Watch()
		got := take(t, b, func(r *backend.ClaimRequest) { r.Block = 300 * time.Millisecond })
		if took := time.Since(begin); len(got.Deliveries) > 0 || took < 300*time.Millisecond || took > 5*time.Second+stalled() {
			t.Errorf("claimed %+v after %v", got, took)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		begin, stalled = time.Now(), stall.Watch()
		_, err := b.Claim(ctx, backend.ClaimRequest{Consumer: "w", Max: 1, Block: time.Minute, ReclaimAfter: time.Second})
		if took := time.Since(begin); !errors.Is(err, context.DeadlineExceeded) || took > 5*time.Second+stalled() {
			t.Errorf("%v after %v", err, took)
		}
	})
}

func TestCloseEndsAWaitingClaim(t *testing.T) {
	everywhere(t, func(t *testing.T, h *host) {
		b := h.open(fresh())
		ended := make(chan error, 1)
		go func() {
			_, err := b.Claim(context.Background(), backend.ClaimRequest{Consumer: "w", Max: 1, Block: time.Minute, ReclaimAfter: time.Second})
			ended <- err
		}()
		for { // until the claim has created the queue
			if _, err := b.Stats(t.Context()); err == nil {
				break
			}
			time.Sleep(time.Millisecond)
		}
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
		if err := <-ended; !errors.Is(err, backend.ErrClosed) {
			t.Errorf("the claim ended with %v", err)
		}
		if _, err := b.Append(context.Background(), []backend.Message{{}}); !errors.Is(err, backend.ErrClosed) {
			t.Errorf("append after close: %v", err)
		}
	})
}

func TestAnUnstartedDeliveryDoesNotCount(t *testing.T) {
	everywhere(t, func(t *testing.T, h *host) {
		b := h.open(fresh())
		publish(t, b, "x")
		d := one(t, b)
		if _, err := b.Nack(t.Context(), []backend.Return{{Lease: d.Lease, NotStarted: true}}); err != nil {
			t.Fatal(err)
		}
		if again := one(t, b); again.Attempt != 1 {
			t.Errorf("attempt %d", again.Attempt)
		}
	})
}

func TestALeaseThatIsLostIsNamed(t *testing.T) {
	everywhere(t, func(t *testing.T, h *host) {
		b := h.open(fresh())
		publish(t, b, "x")
		old := take(t, b, func(r *backend.ClaimRequest) { r.ReclaimAfter = 100 * time.Millisecond }).Deliveries[0]
		d := one(t, b) // once the first lease has ended
		if d.Attempt != 2 {
			t.Errorf("attempt %d", d.Attempt)
		}
		for what, do := range map[string]func() ([]string, error){
			"ack":    func() ([]string, error) { return b.Ack(t.Context(), leases(old)) },
			"extend": func() ([]string, error) { return b.Extend(t.Context(), leases(old), time.Minute) },
			"nack":   func() ([]string, error) { return b.Nack(t.Context(), []backend.Return{{Lease: old.Lease}}) },
		} {
			if lost, err := do(); err != nil || len(lost) != 1 || lost[0] != old.ID {
				t.Errorf("%s: lost %v, %v", what, lost, err)
			}
		}
		if err := b.DeadLetter(t.Context(), old, "", backend.Cause{Reason: backend.ReasonPoison}); !errors.Is(err, backend.ErrLeaseLost) {
			t.Errorf("dead letter: %v", err)
		}
		if list, err := b.List(t.Context(), "", "", 10); err != nil || len(list) > 0 {
			t.Errorf("dead letters %+v, %v", list, err)
		}
		mustAck(t, b, d)
	})
}

func TestExtendKeepsALease(t *testing.T) {
	everywhere(t, func(t *testing.T, h *host) {
		b := h.open(fresh())
		publish(t, b, "x")
		var d *backend.Delivery
		for extended := false; !extended; {
			const lease = 400 * time.Millisecond
			d = take(t, b, func(r *backend.ClaimRequest) { r.Block, r.ReclaimAfter = 5*time.Second, lease }).Deliveries[0]
			lost, err := b.Extend(t.Context(), leases(d), time.Minute)
			if extended = len(lost) == 0; err != nil || !extended && time.Since(d.Since) < lease {
				t.Fatalf("lost %v, %v", lost, err)
			}
		}
		if got := take(t, b, func(r *backend.ClaimRequest) { r.Block = 800 * time.Millisecond }); len(got.Deliveries) > 0 {
			t.Errorf("an extended job was handed out: %+v", got)
		}
		mustAck(t, b, d)
	})
}
