package relay_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/internal/relay"
	"github.com/weirmq/weir/internal/server"
	"github.com/weirmq/weir/tests/bubble"
)

// A relay that stands in front of itself, at once or by way of another, says so instead of
// sending each request around until there are no connections left.
func TestARelayInFrontOfItselfSaysSo(t *testing.T) {
	for name, relays := range map[string]int{"itself": 1, "by way of another": 2} {
		t.Run(name, func(t *testing.T) {
			bubble.Run(t, func(t *testing.T) {
				var log bytes.Buffer
				front := make([]*wire, relays)
				for i := range front {
					front[i] = newWire()
				}
				dials := make(chan struct{}, 100)
				for i := range front {
					opt := relay.Options{
						Upstream: "http://127.0.0.1:4000", BufferBytes: 1 << 20, OpenToAll: true, Limits: api.DefaultLimits(),
						MinHeartbeatMS: api.MinHeartbeatMS, Logger: slog.New(slog.DiscardHandler),
					}
					if i == 0 {
						opt.Logger = slog.New(slog.NewTextHandler(&log, nil))
					}
					r, err := relay.New(opt)
					if err != nil {
						t.Fatal(err)
					}
					next := front[(i+1)%relays]
					r.DialWith(func(ctx context.Context, network, addr string) (net.Conn, error) {
						select {
						case dials <- struct{}{}:
							return next.dial(ctx, network, addr)
						default:
							return nil, errors.New("too many connections")
						}
					})
					s := server.New(server.Config{Limits: opt.Limits}, server.Options{Version: "test", Relay: r})
					served := make(chan error, 1)
					l := front[i].listen()
					go func() { served <- s.Serve(l) }()
					defer func() {
						s.Stop()
						if err := <-served; err != nil {
							t.Error(err)
						}
						front[i].cut()
					}()
				}
				client := &http.Client{Transport: &http.Transport{DialContext: front[0].dial}}
				defer client.CloseIdleConnections()
				for _, path := range []string{"/v0/topics", "/v0/topics/jobs/records"} {
					resp, err := client.Get("http://127.0.0.1:4000" + path)
					if err != nil {
						t.Fatal(err)
					}
					text, _ := io.ReadAll(resp.Body)
					resp.Body.Close()
					if resp.StatusCode != http.StatusServiceUnavailable || !strings.Contains(string(text), "in front of itself") {
						t.Errorf("%s: %d %s", path, resp.StatusCode, text)
					}
				}
				synctest.Wait()
				if n := len(dials); n > 20 {
					t.Errorf("%d connections", n)
				}
				if !strings.Contains(log.String(), "comes back to this relay") {
					t.Errorf("the log: %s", log.String())
				}
			})
		})
	}
}
