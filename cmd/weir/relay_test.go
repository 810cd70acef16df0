package main

import (
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The authorities that commands trust count for the server behind a relay, too, unless its URL names others.
func TestARelayTrustsTheAuthoritiesOfTheCommands(t *testing.T) {
	load := func(args ...string) (*serveOptions, error) {
		cmd := newServeCmd()
		if err := cmd.ParseFlags(args); err != nil {
			t.Fatal(err)
		}
		var o serveOptions
		_, err := o.load(cmd)
		return &o, err
	}
	if _, err := load("--ca", "ca.pem"); err == nil || !isUsage(err) || !strings.Contains(err.Error(), "--upstream") {
		t.Errorf("--ca of a server that is no relay: %v", err)
	}
	t.Setenv("WEIR_CA", "env.pem")
	for _, c := range []struct{ args, ca string }{
		{"", ""},
		{"--upstream https://h:4000", "env.pem"},
		{"--upstream https://h:4000 --ca flag.pem", "flag.pem"},
		{"--upstream https://h:4000?ca=url.pem", "url.pem"},
		{"--upstream http://h:4000", ""},
	} {
		if o, err := load(strings.Fields(c.args)...); err != nil || o.upstream.Certs.CA != c.ca {
			t.Errorf("serve %s trusts %q, %v; want %q", c.args, o.upstream.Certs.CA, err, c.ca)
		}
	}
}

// What doctor says of a server it finds out with the certificates and the key that it was given.
func TestDoctorSeesARelayBehindTLSAndAKey(t *testing.T) {
	fake := newFakeServer(t)
	fake.add("jobs", `"x"`)
	relay := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Header.Get("Authorization") != "Bearer secret":
			answerError(w, http.StatusUnauthorized, "unauthorized", nil)
		case r.URL.Path == "/v0/health":
			fmt.Fprint(w, `{"status":"ok","relay":{"upstream":"http://central:4000"}}`)
		default:
			fake.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(relay.Close)
	authority := filepath.Join(t.TempDir(), "ca.pem")
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: relay.Certificate().Raw})
	if err := os.WriteFile(authority, text, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("WEIR_API_KEY", "secret")
	res := runWeir(t, "", "doctor", "--interval=0", "--ca="+authority, relay.URL+"/jobs")
	if !strings.Contains(res.stdout, "this is a relay in front of http://central:4000") {
		t.Errorf("%v\n%s%s", res.err, res.stdout, res.stderr)
	}
}
