package relay_test

import (
	"context"
	"crypto/tls"
	"encoding/pem"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/internal/certs"
	"github.com/weirmq/weir/internal/relay"
)

// A relay has only its log to say why it is not ready; what mends that is in the same line.
func TestARelaySaysWhatItsLinkLacks(t *testing.T) {
	none := http.NotFoundHandler()
	plain, stranger := httptest.NewServer(none), httptest.NewTLSServer(none)
	asking := httptest.NewUnstartedServer(none)
	asking.TLS = &tls.Config{ClientAuth: tls.RequireAnyClientCert}
	asking.StartTLS()
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: asking.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	starting := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Header.Get("Authorization") == "" && !strings.HasPrefix(r.URL.Path, "/v0/health"):
			w.WriteHeader(http.StatusUnauthorized)
			fmt.Fprint(w, `{"error":{"code":"unauthorized","message":"a key is needed"}}`)
		case r.URL.Path == "/v0/ws":
			w.WriteHeader(http.StatusServiceUnavailable)
		default:
			fmt.Fprint(w, "{}")
		}
	}))
	for _, s := range []*httptest.Server{plain, stranger, asking, starting} {
		s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0)
		defer s.Close()
	}
	for _, c := range []struct{ url, ca, want string }{
		{strings.Replace(plain.URL, "http:", "https:", 1), "", "use http://"},
		{stranger.URL, "", "ca=FILE"},
		{asking.URL, ca, "cert=FILE"},
		{starting.URL, "", "it is not ready"},
	} {
		lines := make(chan string)
		ctx, end := context.WithCancel(t.Context())
		r, err := relay.New(relay.Options{
			Upstream: c.url, Key: "own", Certs: certs.Client{CA: c.ca}, Limits: api.DefaultLimits(), MinHeartbeatMS: api.MinHeartbeatMS,
			Logger: slog.New(slog.NewTextHandler(lineWriter{ctx, lines}, nil)),
		})
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan struct{})
		go func() { r.Run(ctx); close(ended) }()
		// On a slow machine the first attempt may end in another way, which is told first.
		for line := <-lines; !strings.Contains(line, c.want); line = <-lines {
			t.Logf("of %s the log says %q, want %q in it", c.url, line, c.want)
		}
		end()
		<-ended
	}
}

// lineWriter is a writer that passes on each line until its context ends.
type lineWriter struct {
	ctx   context.Context
	lines chan<- string
}

func (w lineWriter) Write(b []byte) (int, error) {
	select {
	case w.lines <- string(b):
	case <-w.ctx.Done():
	}
	return len(b), nil
}
