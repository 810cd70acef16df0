// Package certtest makes certificates for tests.
package certtest

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Authority signs certificates.
type Authority struct {
	PEM  []byte // its own certificate
	cert *x509.Certificate
	key  crypto.Signer
}

// NewAuthority returns one that nobody knows.
func NewAuthority() (*Authority, error) {
	about := &x509.Certificate{Subject: pkix.Name{CommonName: "authority"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	a := &Authority{cert: about, key: key}
	der, err := a.issue(about, key.Public())
	if err != nil {
		return nil, err
	}
	a.PEM = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	a.cert, err = x509.ParseCertificate(der)
	return a, err
}

func (a *Authority) issue(about *x509.Certificate, key crypto.PublicKey) ([]byte, error) {
	about.SerialNumber = big.NewInt(time.Now().UnixNano())
	about.NotBefore = time.Now().Add(-time.Hour)
	if about.NotAfter.IsZero() {
		about.NotAfter = time.Now().Add(time.Hour)
	}
	return x509.CreateCertificate(rand.Reader, about, a.cert, key, a.key)
}

// Sign returns a certificate and its key in PEM form. It lasts for an hour unless about
// says otherwise.
func (a *Authority) Sign(about *x509.Certificate) (cert, key []byte, err error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	about.KeyUsage = x509.KeyUsageDigitalSignature
	about.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	der, err := a.issue(about, private.Public())
	if err != nil {
		return nil, nil, err
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return nil, nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}), nil
}

// Loopback is what a server on this machine has a certificate about.
func Loopback() *x509.Certificate {
	return &x509.Certificate{DNSNames: []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}, Subject: pkix.Name{CommonName: "localhost"}}
}

// Dir is a folder with an authority's certificate in ca.pem and those of a server and a
// client in server.pem, server.key, client.pem and client.key.
type Dir struct {
	*Authority
	t    testing.TB
	path string
}

// New makes a Dir that ends with the test.
func New(t testing.TB) *Dir {
	t.Helper()
	a, err := NewAuthority()
	if err != nil {
		t.Fatal(err)
	}
	d := &Dir{a, t, t.TempDir()}
	d.write("ca.pem", a.PEM)
	d.Issue("server", Loopback())
	d.Issue("client", &x509.Certificate{Subject: pkix.Name{CommonName: "client"}})
	return d
}

// File returns the path of a file.
func (d *Dir) File(name string) string { return filepath.Join(d.path, name) }

// Issue makes NAME.pem and NAME.key, or replaces them, each at once.
func (d *Dir) Issue(name string, about *x509.Certificate) {
	d.t.Helper()
	cert, key, err := d.Sign(about)
	if err != nil {
		d.t.Fatal(err)
	}
	d.write(name+".pem", cert)
	d.write(name+".key", key)
}

func (d *Dir) write(name string, text []byte) {
	d.t.Helper()
	if err := os.WriteFile(d.File(name+".new"), text, 0o600); err != nil {
		d.t.Fatal(err)
	}
	if err := os.Rename(d.File(name+".new"), d.File(name)); err != nil {
		d.t.Fatal(err)
	}
}
