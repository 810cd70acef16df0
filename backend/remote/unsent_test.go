package remote_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/weirmq/weir/backend"
)

// What no connection could be made for was not sent, whatever the reason.
func TestWhatWasNeverSentIsNotOfUnknownOutcome(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0") // nobody accepts, so no handshake is answered
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { silent.Close() })
	untrusted := httptest.NewTLSServer(http.NotFoundHandler())
	t.Cleanup(untrusted.Close)
	plain := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(plain.Close)
	for name, c := range map[string]struct {
		address string
		want    error
	}{
		"a server that does not greet":        {"https://" + silent.Addr().String(), context.DeadlineExceeded},
		"a certificate that is not trusted":   {untrusted.URL, backend.ErrUnavailable},
		"a server that does not speak TLS":    {strings.Replace(plain.URL, "http:", "https:", 1), backend.ErrUnavailable},
		"a standby that is not there, either": {"http://127.0.0.1:1/jobs?standby=127.0.0.1:1", backend.ErrUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if !strings.Contains(c.address, "?") {
				c.address += "/jobs"
			}
			b := open(t, c.address)
			within := 30 * time.Second
			if c.want == context.DeadlineExceeded {
				within = 300 * time.Millisecond
			}
			ctx, cancel := context.WithTimeout(t.Context(), within)
			defer cancel()
			if _, err := b.Append(ctx, message); !errors.Is(err, c.want) || errors.Is(err, backend.ErrOutcomeUnknown) {
				t.Errorf("%v; want %v", err, c.want)
			}
		})
	}
}
