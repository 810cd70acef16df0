package certs_test

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirmq/weir/internal/certs"
	"github.com/weirmq/weir/tests/bubble"
	"github.com/weirmq/weir/tests/certtest"
)

// shake connects to a server as a client of those files and returns the certificate that
// it was shown. Both ends see whether the other one was content.
func shake(t *testing.T, s *certs.Server, c certs.Client) (*x509.Certificate, error) {
	t.Helper()
	conf, err := c.Config()
	if err != nil {
		t.Fatal(err)
	}
	conf.ServerName = "localhost"
	here, there := net.Pipe()
	client, server := tls.Client(here, conf), tls.Server(there, s.Config())
	var refused error
	var serving sync.WaitGroup
	serving.Go(func() {
		defer there.Close()
		if refused = server.Handshake(); refused == nil {
			_, refused = server.Write([]byte("x"))
		}
	})
	_, err = io.ReadFull(client, make([]byte, 1))
	here.Close()
	serving.Wait()
	if err != nil || refused != nil {
		return nil, errors.Join(err, refused)
	}
	return client.ConnectionState().PeerCertificates[0], nil
}

func about(name string, ends time.Time) *x509.Certificate {
	c := certtest.Loopback()
	c.Subject, c.NotAfter = pkix.Name{CommonName: name}, ends
	return c
}

func TestCertificateIsReadAgainWhenItsFilesChange(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		ends := time.Now().Add(48 * time.Hour).Truncate(time.Second)
		d := certtest.New(t)
		var trouble []error
		var read []time.Time
		s, err := certs.NewServer(certs.Files{Cert: d.File("server.pem"), Key: d.File("server.key")}, func(ends time.Time, err error) {
			if err != nil {
				trouble = append(trouble, err)
				return
			}
			read = append(read, ends)
		})
		if err != nil {
			t.Fatal(err)
		}
		shown := func() string {
			t.Helper()
			c, err := shake(t, s, certs.Client{CA: d.File("ca.pem")})
			if err != nil {
				t.Fatal(err)
			}
			return c.Subject.CommonName
		}
		if got := shown(); got != "localhost" {
			t.Errorf("shown %q", got)
		}
		d.Issue("server", about("second", ends))
		time.Sleep(2 * time.Second)
		if got := shown(); got != "second" {
			t.Errorf("after the change, %q is shown", got)
		}
		if got := s.Expires(); !got.Equal(ends) {
			t.Errorf("it ends %s, want %s", got, ends)
		}
		if len(read) != 1 || !read[0].Equal(ends) {
			t.Errorf("told of certificates that end %s, want %s", read, ends)
		}

		d.Issue("other", about("third", ends))
		if err := os.Rename(d.File("other.pem"), d.File("server.pem")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		if got := shown(); got != "second" {
			t.Errorf("with a key that does not belong to it, %q is shown", got)
		}
		if len(trouble) == 0 || !strings.Contains(trouble[0].Error(), "the one before stays") {
			t.Errorf("told %v", trouble)
		}
		if err := os.Rename(d.File("other.key"), d.File("server.key")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		if got := shown(); got != "third" {
			t.Errorf("once both are there, %q is shown", got)
		}
	})
}

// A file system's clock may be coarse, and one certificate is as long as another.
func TestFilesOfTheSameSizeAndTimeAreOthers(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		d, when := certtest.New(t), time.Now()
		same := func(name string) {
			t.Helper()
			for _, file := range []string{d.File(name + ".pem"), d.File(name + ".key")} {
				text, err := os.ReadFile(file)
				if err != nil {
					t.Fatal(err)
				}
				text = append(text, bytes.Repeat([]byte("\n"), 8<<10-len(text))...)
				if err := errors.Join(os.WriteFile(file, text, 0o600), os.Chtimes(file, when, when)); err != nil {
					t.Fatal(err)
				}
			}
		}
		same("server")
		s, err := certs.NewServer(certs.Files{Cert: d.File("server.pem"), Key: d.File("server.key")}, func(_ time.Time, err error) {
			if err != nil {
				t.Error(err)
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		d.Issue("next", about("second", when.Add(48*time.Hour)))
		same("next")
		for _, kind := range []string{".pem", ".key"} {
			if err := os.Rename(d.File("next"+kind), d.File("server"+kind)); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(2 * time.Second)
		if c, err := shake(t, s, certs.Client{CA: d.File("ca.pem")}); err != nil || c.Subject.CommonName != "second" {
			t.Errorf("%v, %v", c, err)
		}
	})
}

// Files that do not fit together may stay so for weeks: that is said once, and again when it is
// another trouble, or comes back.
func TestTroubleWithFilesIsToldOnce(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		d := certtest.New(t)
		told, over := 0, 0
		s, err := certs.NewServer(certs.Files{Cert: d.File("server.pem"), Key: d.File("server.key")}, func(_ time.Time, err error) {
			if err != nil {
				told++
			} else {
				over++
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		key, err := os.ReadFile(d.File("server.key"))
		if err != nil {
			t.Fatal(err)
		}
		for _, step := range []struct {
			key        []byte
			told, over int
		}{{[]byte("no key"), 1, 0}, {key, 1, 1}, {[]byte("no key"), 2, 1}} {
			if err := os.WriteFile(d.File("server.key"), step.key, 0o600); err != nil {
				t.Fatal(err)
			}
			for range 100 {
				time.Sleep(2 * time.Second)
				s.Expires()
			}
			if told != step.told || over != step.over {
				t.Errorf("with the key %.6q: told %d times, and %d times that it is over; want %d and %d", step.key, told, over, step.told, step.over)
			}
		}
		if err := os.WriteFile(d.File("server.key"), key, 0o600); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		s.Expires()
		// A file that is away for a while, and comes back as it was.
		away := func(from, to string) {
			if err := os.Rename(d.File(from), d.File(to)); err != nil {
				t.Fatal(err)
			}
			time.Sleep(2 * time.Second)
			s.Expires()
		}
		away("server.key", "aside.key")
		away("aside.key", "server.key")
		time.Sleep(2 * time.Second)
		s.Expires()
		if told != 3 || over != 3 {
			t.Errorf("with a file that was away: told %d times, and %d times that it is over; want 3 and 3", told, over)
		}
	})
}

func TestClientsHaveToShowACertificateOfTheAuthority(t *testing.T) {
	d, stranger := certtest.New(t), certtest.New(t)
	s, err := certs.NewServer(certs.Files{Cert: d.File("server.pem"), Key: d.File("server.key"), ClientCA: d.File("ca.pem")}, func(_ time.Time, err error) { t.Error(err) })
	if err != nil {
		t.Fatal(err)
	}
	own := certs.Client{CA: d.File("ca.pem"), Cert: d.File("client.pem"), Key: d.File("client.key")}
	if _, err := shake(t, s, own); err != nil {
		t.Error(err)
	}
	if _, err := shake(t, s, certs.Client{CA: own.CA}); err == nil {
		t.Error("a client without a certificate was let in")
	}
	if _, err := shake(t, s, certs.Client{CA: own.CA, Cert: stranger.File("client.pem"), Key: stranger.File("client.key")}); err == nil {
		t.Error("a client with another authority's certificate was let in")
	}
	if _, err := shake(t, s, certs.Client{CA: stranger.File("ca.pem"), Cert: own.Cert, Key: own.Key}); err == nil {
		t.Error("a client trusted a server of another authority")
	}
}

func TestFilesThatCannotBeUsedAreNamed(t *testing.T) {
	d := certtest.New(t)
	for name, c := range map[string]struct {
		files certs.Files
		want  string
	}{
		"no key":          {certs.Files{Cert: d.File("server.pem")}, "tls_cert and tls_key belong together"},
		"authority alone": {certs.Files{ClientCA: d.File("ca.pem")}, "tls_client_ca"},
		"no file":         {certs.Files{Cert: d.File("none.pem"), Key: d.File("server.key")}, "tls_cert: stat " + d.File("none.pem")},
		"not the key":     {certs.Files{Cert: d.File("server.pem"), Key: d.File("client.key")}, "client.key"},
		"no certificates": {certs.Files{Cert: d.File("server.pem"), Key: d.File("server.key"), ClientCA: d.File("client.key")}, "tls_client_ca"},
	} {
		if _, err := certs.NewServer(c.files, nil); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q in it", name, err, c.want)
		}
	}
	for name, c := range map[string]struct {
		files certs.Client
		want  string
	}{
		"no authority": {certs.Client{CA: d.File("none.pem")}, "none.pem"},
		"a key as CA":  {certs.Client{CA: d.File("client.key")}, "holds no certificate"},
		"half a pair":  {certs.Client{Cert: d.File("client.pem")}, "belong together"},
		"not the key":  {certs.Client{Cert: d.File("client.pem"), Key: d.File("server.key")}, "cert, key"},
	} {
		if _, err := c.files.Config(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q in it", name, err, c.want)
		}
	}
}
