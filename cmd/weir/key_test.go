package main

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirmq/weir/internal/keyfile"
	"github.com/weirmq/weir/tests/certtest"
)

// What a URL says of TLS is added to by the flags, whichever half it says.
func TestFlagsAddTheCertificatesThatAURLDoesNotName(t *testing.T) {
	dir := certtest.New(t)
	own, err := tls.LoadX509KeyPair(dir.File("server.pem"), dir.File("server.key"))
	if err != nil {
		t.Fatal(err)
	}
	known := x509.NewCertPool()
	known.AppendCertsFromPEM(dir.PEM)
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"topics":[],"topic":"a","records":[],"head_seq":0,"next_from_seq":0}`))
	}))
	srv.TLS = &tls.Config{Certificates: []tls.Certificate{own}, ClientCAs: known, ClientAuth: tls.RequireAndVerifyClientCert}
	srv.StartTLS()
	t.Cleanup(srv.Close)
	ca, cert, key := dir.File("ca.pem"), dir.File("client.pem"), dir.File("client.key")
	for query, flags := range map[string][]string{
		"?ca=" + ca:                                   {"--tls-cert", cert, "--tls-key", key},
		"?cert=" + cert + "&key=" + key:               {"--ca", ca},
		"?ca=" + ca + "&cert=" + cert + "&key=" + key: {"--ca", "nowhere", "--tls-cert", "nowhere", "--tls-key", "nowhere"},
	} {
		for _, args := range [][]string{
			{"topic", "ls", srv.URL + query},
			{"tail", "--no-follow", "--from", "0", srv.URL + "/a" + query},
		} {
			if res := runWeir(t, "", append(args, flags...)...); res.err != nil {
				t.Errorf("weir %v %v: %v", args, flags, res.err)
			}
		}
	}
}

func TestTheListOfKeysHasAHead(t *testing.T) {
	file := filepath.Join(t.TempDir(), "keys.json")
	past, future := time.Now().Add(-time.Hour).UTC(), time.Now().Add(time.Hour).UTC()
	keys := []keyfile.Key{
		{Name: "ops", Scopes: []string{"admin"}},
		{Name: "orders-worker", Scopes: []string{"read", "write"}, Prefixes: []string{"orders", "mails"}, Expires: future},
		{Name: "old", Scopes: []string{"read"}, Expires: past},
	}
	for i := range keys {
		_, made := keyfile.New(keys[i].Name, past)
		keys[i].SHA256 = made.SHA256
	}
	want := []string{
		"NAME SCOPES PREFIXES EXPIRES",
		"ops admin any name never",
		"orders-worker read,write orders,mails " + future.Format(time.RFC3339),
		"old read any name " + past.Format(time.RFC3339) + " (expired)",
	}
	for n := range len(keys) + 1 {
		if err := keyfile.Write(file, keys[:n]); err != nil {
			t.Fatal(err)
		}
		res := runWeir(t, "", "key", "ls", "--keys-file", file)
		if res.err != nil {
			t.Fatal(res.err)
		}
		got := strings.Split(strings.TrimSuffix(res.stdout, "\n"), "\n")
		for i := range got {
			got[i] = strings.Join(strings.Fields(got[i]), " ")
		}
		if !slices.Equal(got, want[:n+1]) {
			t.Errorf("of %d keys: %q", n, got)
		}
	}
}

// A key is of use to who has read it, and its name stands for one.
func TestAKeyThatNobodyHasReadIsNotKept(t *testing.T) {
	file := filepath.Join(t.TempDir(), "keys.json")
	args := []string{"key", "new", "worker", "--keys-file", file}
	root := newRoot()
	root.SetArgs(args)
	root.SetOut(full{})
	root.SetErr(io.Discard)
	if err := root.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), "not kept") {
		t.Errorf("a key that cannot be printed: %v", err)
	}
	if keys, err := keyfile.Read(file); err != nil || len(keys) != 0 {
		t.Errorf("%d keys, %v", len(keys), err)
	}
	if res := runWeir(t, "", args...); res.err != nil {
		t.Fatal(res.err)
	}
	first, err := keyfile.Read(file)
	if err != nil {
		t.Fatal(err)
	}
	if res := runWeir(t, "", args...); !isUsage(res.err) {
		t.Errorf("the same name again: %v", res.err)
	}
	if keys, err := keyfile.Read(file); err != nil || len(keys) != 1 || keys[0].SHA256 != first[0].SHA256 {
		t.Errorf("%d keys, %v", len(keys), err)
	}
}
