package open_test

import (
	"context"
	"errors"
	"io"
	"net"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/weirmq/weir/open"
	"github.com/weirmq/weir/tests/stall"
)

// silent accepts connections, reads and says nothing.
func silent(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var served sync.WaitGroup
	served.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			served.Go(func() {
				defer conn.Close()
				defer context.AfterFunc(t.Context(), func() { _ = conn.SetDeadline(time.Now()) })()
				_, _ = io.Copy(io.Discard, conn)
			})
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		served.Wait()
	})
	return l.Addr().String()
}

// Whoever opens a stream waits no longer for a server that says nothing than the context
// allows, whatever the opening still wants to find out about it.
func TestOpeningEndsWithItsContext(t *testing.T) {
	t.Parallel()
	addr := silent(t)
	for name, rawURL := range map[string]string{
		"redis":          "redis://" + addr + "/0?stream=jobs",
		"rediss":         "rediss://" + addr + "/0?stream=jobs",
		"redis Cluster":  "redis://" + addr + "," + silent(t) + "/?stream=jobs",
		"redis Sentinel": "redis://" + addr + "/0?stream=jobs&master=main",
		"redis shards":   "redis://" + addr + "/0?stream=jobs&shards=3",
		"kafka":          "kafka://" + addr + "/jobs",
		"kafkas":         "kafkas://" + addr + "," + silent(t) + "/jobs",
		"http":           "http://" + addr + "/jobs",
		"http shards":    "http://" + addr + "/jobs?shards=2",
		"https":          "https://" + addr + "/jobs?shards=2",
		"file":           "file://" + filepath.ToSlash(t.TempDir()) + "?topic=jobs",
	} {
		for how, begin := range map[string]func(context.Context) (context.Context, context.CancelFunc){
			"its deadline": func(ctx context.Context) (context.Context, context.CancelFunc) {
				return context.WithTimeout(ctx, 300*time.Millisecond)
			},
			"its cancellation": func(ctx context.Context) (context.Context, context.CancelFunc) {
				ctx, cancel := context.WithCancel(ctx)
				time.AfterFunc(300*time.Millisecond, cancel)
				return ctx, cancel
			},
		} {
			t.Run(name+"/"+how, func(t *testing.T) {
				t.Parallel()
				ctx, cancel := begin(t.Context())
				defer cancel()
				ended := make(chan time.Time, 1)
				context.AfterFunc(ctx, func() { ended <- time.Now() })
				stalled := stall.Watch()
				s, err := open.URL(ctx, rawURL)
				slow := stalled()
				if err == nil { // nothing is asked of the server yet, or there is none
					_ = s.Close()
					return
				}
				// What is waited for is silent for ever, or closes a directory on a busy disk.
				if late := time.Since(<-ended); late > 2*time.Second+slow {
					t.Errorf("%s: the context has ended, and the opening goes on for %s: %v", rawURL, late, err)
				}
				if !errors.Is(err, ctx.Err()) {
					t.Errorf("%s: %v; want it to wrap %v", rawURL, err, ctx.Err())
				}
			})
		}
	}
}
