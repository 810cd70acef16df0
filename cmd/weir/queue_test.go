package main

import (
	"errors"
	"strings"
	"testing"

	"github.com/weirmq/weir"
)

// A pause keeps the messages of a directory from its workers until it is resumed, from
// one process to the next.
func TestQueueIsPausedAndResumed(t *testing.T) {
	url := "file://" + t.TempDir() + "/data?topic=orders"
	for _, verb := range []string{"pause", "resume"} {
		if res := runWeir(t, "", "queue", verb, url); !errors.Is(res.err, weir.ErrStreamNotFound) || exitCode(res.err) != exitFailed {
			t.Fatalf("%s where there is nothing: %v", verb, res.err)
		}
	}
	run := func(want string, args ...string) {
		t.Helper()
		if res := runWeir(t, "1\n2\n", args...); res.err != nil || res.stdout != want {
			t.Fatalf("weir %v: %v\n%s\nwant %s", args, res.err, res.stdout, want)
		}
	}
	if res := runWeir(t, "1\n2\n", "publish", url); res.err != nil {
		t.Fatal(res.err)
	}
	run("orders (group weir): paused; 2 waiting, 0 with workers\n", "queue", "pause", url)
	run(`{"stream":"orders","group":"weir","paused":true,"waiting":2,"pending":0}`+"\n", "queue", "pause", "--json", url)
	if res := runWeir(t, "", "doctor", "--interval", "0", url); res.err != nil || !strings.Contains(res.stdout, "the group is paused") {
		t.Errorf("doctor of a paused queue: %v\n%s", res.err, res.stdout)
	}
	s, err := openStream(t.Context(), &keyOptions{}, url)
	if err != nil {
		t.Fatal(err)
	}
	p, err := s.Pressure(t.Context())
	if err != nil || !p.Paused || *p.Lag != 2 {
		t.Errorf("%+v %v", p, err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	run(`{"stream":"orders","group":"weir","paused":false,"waiting":2,"pending":0}`+"\n", "queue", "resume", "--json", url)
	run("orders (group weir): not paused; 2 waiting, 0 with workers\n", "queue", "resume", url)
}
