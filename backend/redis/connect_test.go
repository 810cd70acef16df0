package redis_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/backend/redis"
	"github.com/weirmq/weir/tests/redistest"
)

func TestTLSTrustsTheSystemsAuthoritiesAndChecksTheName(t *testing.T) {
	dir := t.TempDir()
	certificate, key := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	selfSigned(t, certificate, key)
	t.Setenv("SSL_CERT_FILE", certificate) // nothing before this test has asked for the authorities
	_, addr := redistest.StartTLS(t, certificate, key, certificate, "--tls-auth-clients", "no")
	_, port, _ := net.SplitHostPort(addr)
	b := openOn(t, "rediss://localhost:"+port+"/0?stream=jobs")
	publish(t, b, 1)
	if got := claim(t, b, backend.ClaimRequest{Max: 1, Block: time.Second}); len(got.Deliveries) != 1 {
		t.Errorf("claimed %d over TLS", len(got.Deliveries))
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	u, _ := url.Parse("rediss://127.0.0.1:" + port + "/0?stream=jobs")
	if _, err := redis.Open(t.Context(), u); err == nil || !strings.Contains(err.Error(), "certificate") ||
		errors.Is(err, backend.ErrUnavailable) || errors.Is(err, backend.ErrOutcomeUnknown) {
		t.Errorf("a server with a certificate for another name, for which no wait helps: %v", err)
	}
}

// Whoever copies the command line of a finding reaches the server as the URL does.
func TestTheCommandOfAFindingReachesAServerWithTLS(t *testing.T) {
	dir := t.TempDir()
	certificate, key := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	selfSigned(t, certificate, key)
	_, addr := redistest.StartTLS(t, certificate, key, certificate)
	_, port, _ := net.SplitHostPort(addr)
	b := openOn(t, "rediss://localhost:"+port+"/0?stream=jobs&ca="+certificate+"&cert="+certificate+"&key="+key)
	line := b.Command("durability")
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, "sh", "-c", line).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "appendfsync") {
		t.Errorf("%s\nprints %q: %v", line, out, err)
	}
}

// selfSigned writes a certificate for localhost that is its own authority.
func selfSigned(t *testing.T, certificate, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	about := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "localhost"}, DNSNames: []string{"localhost"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	der, err := x509.CreateCertificate(rand.Reader, about, about, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalECPrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	for file, block := range map[string]*pem.Block{certificate: {Type: "CERTIFICATE", Bytes: der}, key: {Type: "EC PRIVATE KEY", Bytes: secret}} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// Behind new connections may be another server: what it can and keeps is found out again.
func TestServerIsLookedAtAgainAfterReconnecting(t *testing.T) {
	addr, s := startServer(t)
	b := open(t, addr, "stream=jobs")
	claim(t, b, backend.ClaimRequest{Max: 1})
	if got := b.Info().Durability; got != "ephemeral" {
		t.Fatalf("durability is %s", got)
	}
	s.SetArgs("--appendonly", "yes")
	s.Restart()
	wait(t, "the new server is known", func() bool {
		_, _ = b.Claim(t.Context(), backend.ClaimRequest{Consumer: "c", Max: 1, ReclaimAfter: time.Minute})
		return b.Info().Durability == "disk"
	})
}
