package scenario

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"os"
	"path/filepath"

	"github.com/weirmq/weir/tests/certtest"
)

// Rows of what TLS costs.
var tlsRatios = []ratio{
	{name: "write-tls", title: "1 record, 64 conns, disk, TLS", unit: "records", weirName: "with TLS",
		peer: "without", goal: 0.7, setup: overTLS(manyConns, 1)},
	{name: "bulk-tls", title: "100 records, 16 conns, disk, TLS", unit: "records", weirName: "with TLS",
		peer: "without", goal: 0.7, setup: overTLS(bulkConns, bulkBatch)},
}

// overTLS compares a server that speaks TLS with one that does not, on connections that stay open.
func overTLS(conns, n int) func(context.Context, *session) (measure, measure, error) {
	return func(ctx context.Context, s *session) (measure, measure, error) {
		trust, settings, err := s.certificate()
		if err != nil {
			return nil, nil, err
		}
		secured, err := s.weirTLS(ctx, "secured", trust, settings...)
		if err != nil {
			return nil, nil, err
		}
		plain, err := s.freshTopic(ctx, writeTopic, "log", "disk")
		if err != nil {
			return nil, nil, err
		}
		if err := secured.createTopic(ctx, writeTopic, "log", "disk"); err != nil {
			return nil, nil, err
		}
		plan := s.writers(secured.addr, writeTopic, conns, n)
		plan.TLS = trust
		return over(secured.proc, plan), over(plain.proc, s.writers(plain.addr, writeTopic, conns, n)), nil
	}
}

// certificate makes a certificate for this machine, the settings of a server that has it, and the
// configuration of clients that trust it.
func (s *session) certificate() (trust *tls.Config, settings []string, err error) {
	authority, err := certtest.NewAuthority()
	if err != nil {
		return nil, nil, err
	}
	cert, key, err := authority.Sign(certtest.Loopback())
	if err != nil {
		return nil, nil, err
	}
	certFile, keyFile := filepath.Join(s.dir, "server.pem"), filepath.Join(s.dir, "server.key")
	if err := errors.Join(os.WriteFile(certFile, cert, 0o600), os.WriteFile(keyFile, key, 0o600)); err != nil {
		return nil, nil, err
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(authority.PEM)
	return &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS13, NextProtos: []string{"http/1.1"}}, []string{"WEIR_TLS_CERT=" + certFile, "WEIR_TLS_KEY=" + keyFile}, nil
}
