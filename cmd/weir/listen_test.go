package main

import (
	"crypto/x509"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/weirmq/weir/internal/certs"
	"github.com/weirmq/weir/internal/server"
	"github.com/weirmq/weir/tests/certtest"
)

// Clients refuse a certificate that has ended, and only they see that: the log says so at the start.
func TestAServerSaysThatItsCertificateHasEnded(t *testing.T) {
	for _, c := range []struct {
		ends time.Time
		want bool
	}{{time.Now().Add(-time.Hour), true}, {time.Now().Add(time.Hour), false}} {
		d := certtest.New(t)
		d.Issue("server", &x509.Certificate{NotBefore: time.Now().Add(-48 * time.Hour), NotAfter: c.ends})
		var log strings.Builder
		l, _, err := listen(&server.Config{Addr: "127.0.0.1:0", TLS: certs.Files{Cert: d.File("server.pem"), Key: d.File("server.key")}},
			&server.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		if err != nil {
			t.Fatal(err)
		}
		l.Close()
		if got := strings.Contains(log.String(), "level=WARN") && strings.Contains(log.String(), "has ended"); got != c.want {
			t.Errorf("of a certificate that ends %s the log says:\n%s", c.ends, &log)
		}
	}
}
