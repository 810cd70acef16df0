package server

import (
	"net"
	"testing"
)

func TestABindBeyondLoopbackNeedsKeys(t *testing.T) {
	keys, err := ParseKeys("k")
	if err != nil {
		t.Fatal(err)
	}
	for host, ok := range map[string]bool{
		"127.0.0.1": true, "localhost": true, "::1": true, "127.9.9.9": true,
		"0.0.0.0": false, "::": false, "": false, "10.1.2.3": false, "no.such.host.invalid": false,
	} {
		c := Config{Addr: net.JoinHostPort(host, "4000")}
		check := func(want bool) {
			t.Helper()
			if err := c.CheckBind(); (err == nil) != want {
				t.Errorf("%+v: got %v, want accepted %v", c, err, want)
			}
		}
		check(ok)
		c.AllowInsecure = true
		check(true)
		c.AllowInsecure, c.Keys = false, keys
		check(true)
	}
}
