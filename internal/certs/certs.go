// Package certs reads the certificates of servers and clients from PEM files, which may
// be replaced while they are used.
package certs

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"
)

// Client are the files of a client: CA holds the authorities that it trusts instead of
// the system's, Cert and Key are what it shows to a server that asks. Each may be empty.
type Client struct{ CA, Cert, Key string }

// Config returns the configuration of connections. CA is read now; Cert and Key by each
// connection anew. An error names the file that cannot be used.
func (c Client) Config() (*tls.Config, error) {
	conf := &tls.Config{MinVersion: tls.VersionTLS12} // for the name dialed
	if c.CA != "" {
		pool, err := readPool(c.CA)
		if err != nil {
			return nil, fmt.Errorf("ca: %w", err)
		}
		conf.RootCAs = pool
	}
	switch {
	case c.Cert == "" && c.Key == "":
		return conf, nil
	case c.Cert == "", c.Key == "":
		return nil, errors.New("cert and key belong together; give the files of the client's certificate and of its key")
	}
	conf.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		pair, err := tls.LoadX509KeyPair(c.Cert, c.Key)
		if err != nil {
			return nil, fmt.Errorf("cert, key: %w", err)
		}
		return &pair, nil
	}
	_, err := conf.GetClientCertificate(nil)
	return conf, err
}

func readPool(file string) (*x509.CertPool, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("%s holds no certificate in PEM form", file)
	}
	return pool, nil
}

// Files are those of a server: its certificate, with those between it and the authority
// behind it, its key and, if clients have to show certificates, the authorities
// of those.
type Files struct{ Cert, Key, ClientCA string }

// lookEvery is how often a handshake looks whether the files have changed.
const lookEvery = time.Second

// Server are the certificates of a server that runs.
type Server struct {
	files Files
	news  func(ends time.Time, err error)

	mu      sync.Mutex
	looked  time.Time
	seen    stamps
	told    string // the trouble that news was told of last; empty: there is none
	current *tls.Config
	expires time.Time
}

// stamps say whether the files are those that were read; of a file that there is none it is nil.
type stamps [3]os.FileInfo

func (s *stamps) same(other *stamps) bool {
	for i, a := range s {
		b := other[i]
		if a == nil || b == nil {
			if a != b {
				return false
			}
			continue
		}
		// A file that replaced another within the clock's step is another one.
		if !os.SameFile(a, b) || !a.ModTime().Equal(b.ModTime()) || a.Size() != b.Size() {
			return false
		}
	}
	return true
}

// NewServer reads the files. When they change, news is told when the certificate ends that is in
// use from then on, or, once, why they cannot be used; until they can, the ones before stay.
func NewServer(f Files, news func(ends time.Time, err error)) (*Server, error) {
	if f.Cert == "" && f.Key == "" {
		return nil, errors.New("tls_client_ca asks for certificates over TLS, which needs the server's own; give tls_cert and tls_key too")
	}
	if f.Cert == "" || f.Key == "" {
		return nil, errors.New("tls_cert and tls_key belong together; give both")
	}
	s := &Server{files: f, news: news, looked: time.Now()}
	seen, err := s.look()
	if err != nil {
		return nil, err
	}
	s.seen = seen
	return s, s.read()
}

// Config returns the configuration of a listener that speaks HTTP/2 and HTTP/1.1.
func (s *Server) Config() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			return s.now(), nil
		},
		NextProtos: protocols,
	}
}

var protocols = []string{"h2", "http/1.1"}

// Expires returns when the certificate in use ends.
func (s *Server) Expires() time.Time {
	s.now()
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.expires
}

// now returns the configuration by the files as they are now.
func (s *Server) now() *tls.Config {
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Since(s.looked) < lookEvery {
		return s.current
	}
	s.looked = time.Now()
	seen, err := s.look()
	if err == nil && seen.same(&s.seen) {
		if s.told != "" { // those before are back in place
			s.told = ""
			s.news(s.expires, nil)
		}
		return s.current
	}
	if err == nil {
		err = s.read()
	}
	if err != nil {
		// Certificate and key are two files: between the two renamings they do not match.
		if s.told != err.Error() {
			s.told = err.Error()
			s.news(s.expires, fmt.Errorf("the certificate cannot be read again, the one before stays: %w", err))
		}
		return s.current
	}
	s.seen, s.told = seen, ""
	s.news(s.expires, nil)
	return s.current
}

func (s *Server) look() (seen stamps, err error) {
	names := [...]string{"tls_cert", "tls_key", "tls_client_ca"}
	for i, file := range []string{s.files.Cert, s.files.Key, s.files.ClientCA} {
		if file == "" {
			continue
		}
		if seen[i], err = os.Stat(file); err != nil {
			return seen, fmt.Errorf("%s: %w", names[i], err)
		}
	}
	return seen, nil
}

// read reads the files; mu is held, or nobody else knows s.
func (s *Server) read() error {
	pair, err := tls.LoadX509KeyPair(s.files.Cert, s.files.Key)
	if err != nil {
		return fmt.Errorf("tls_cert %s, tls_key %s: %w", s.files.Cert, s.files.Key, err)
	}
	conf := &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}, NextProtos: protocols}
	if s.files.ClientCA != "" {
		if conf.ClientCAs, err = readPool(s.files.ClientCA); err != nil {
			return fmt.Errorf("tls_client_ca: %w", err)
		}
		conf.ClientAuth = tls.RequireAndVerifyClientCert
	}
	s.current, s.expires = conf, pair.Leaf.NotAfter
	return nil
}
