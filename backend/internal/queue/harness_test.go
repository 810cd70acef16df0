package queue_test

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/backend/embedded"
	"github.com/weirmq/weir/backend/internal/queue"
	"github.com/weirmq/weir/backend/remote"
	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/internal/engine"
	"github.com/weirmq/weir/internal/server"
)

// host is one kind of place for queues.
type host struct {
	t    *testing.T
	kind string // "mem", "file" or "http"
	addr string // http: of the server
	dir  string // file
	eng  *engine.Engine
}

var names atomic.Int64

// fresh is a queue's name that no other test uses.
func fresh() string { return fmt.Sprintf("q%d", names.Add(1)) }

// everywhere runs a test on each kind of host.
func everywhere(t *testing.T, test func(t *testing.T, h *host)) {
	for _, kind := range []string{"mem", "file", "http"} {
		t.Run(kind, func(t *testing.T) {
			h := &host{t: t, kind: kind, dir: t.TempDir()}
			if kind == "http" {
				h.serve("")
			}
			test(t, h)
		})
	}
}

// serve starts a server in this process; keys is its WEIR_API_KEYS.
func (h *host) serve(keys string) {
	t := h.t
	t.Helper()
	e, err := engine.Open(t.Context(), engine.Options{Dir: "/data", FS: vfs.NewMem(), SegmentBytes: 1 << 20, IngestTimeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	cfg := server.Config{DataDir: "/data", Limits: api.DefaultLimits()}
	if keys != "" {
		if cfg.Keys, err = server.ParseKeys(keys); err != nil {
			t.Fatal(err)
		}
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := server.New(cfg, server.Options{Version: "test"})
	s.SetEngine(e)
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	t.Cleanup(func() {
		s.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	h.addr, h.eng = l.Addr().String(), e
}

// url is that of a queue.
func (h *host) url(name string) string {
	switch h.kind {
	case "mem":
		return "mem://" + name
	case "file":
		return "file://" + h.dir + "?topic=" + name
	}
	return "http://" + h.addr + "/" + name
}

// open opens a queue; it is closed when the test ends.
func (h *host) open(name string) *queue.Backend {
	h.t.Helper()
	b, err := openURL(h.t.Context(), h.url(name))
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { b.Close() })
	return b
}

func openURL(ctx context.Context, raw string) (*queue.Backend, error) {
	u, err := url.Parse(raw)
	if err != nil {
		return nil, err
	}
	open := embedded.Open
	if u.Scheme == "http" {
		open = remote.Open
	}
	b, err := open(ctx, u)
	if err != nil {
		return nil, err
	}
	return b.(*queue.Backend), nil
}

// request is a claim as most tests make it.
var request = backend.ClaimRequest{Consumer: "w1", Max: 10, ReclaimAfter: 30 * time.Second, MaxDeliveries: 3}

func publish(t *testing.T, b backend.Backend, bodies ...string) []string {
	t.Helper()
	msgs := make([]backend.Message, len(bodies))
	for i, body := range bodies {
		msgs[i].Data = []byte(body)
	}
	out, err := b.Append(t.Context(), msgs)
	if err != nil {
		t.Fatal(err)
	}
	ids := make([]string, len(out))
	for i := range out {
		ids[i] = out[i].ID
	}
	return ids
}

// take claims with changes to request.
func take(t *testing.T, b backend.Backend, change func(*backend.ClaimRequest)) backend.Claimed {
	t.Helper()
	req := request
	if change != nil {
		change(&req)
	}
	got, err := b.Claim(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// one claims exactly one delivery.
func one(t *testing.T, b backend.Backend) *backend.Delivery {
	t.Helper()
	got := take(t, b, func(r *backend.ClaimRequest) { r.Block = 5 * time.Second })
	if len(got.Deliveries) != 1 {
		t.Fatalf("claimed %d deliveries, want 1", len(got.Deliveries))
	}
	return got.Deliveries[0]
}

func leases(ds ...*backend.Delivery) []backend.Lease {
	out := make([]backend.Lease, len(ds))
	for i, d := range ds {
		out[i] = d.Lease
	}
	return out
}

func mustAck(t *testing.T, b backend.Backend, ds ...*backend.Delivery) {
	t.Helper()
	if lost, err := b.Ack(t.Context(), leases(ds...)); err != nil || len(lost) > 0 {
		t.Fatalf("ack: lost %v, %v", lost, err)
	}
}
