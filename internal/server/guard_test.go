package server

import (
	"bytes"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/internal/engine"
)

// net/http recovers what a handler panics with. A server whose engine panicked
// must not go on all the same: the topic's lock is held for ever.
func TestAPanicOfTheEngineInAHandlerEndsTheServer(t *testing.T) {
	if dir := os.Getenv("WEIR_TEST_PANIC_IN"); dir != "" {
		panicInAHandler(t, dir)
		return
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestAPanicOfTheEngineInAHandlerEndsTheServer$", "-test.timeout=60s")
	cmd.Env = append(os.Environ(), "WEIR_TEST_PANIC_IN="+t.TempDir())
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); cmd.ProcessState == nil {
		t.Fatal(err)
	}
	if code := cmd.ProcessState.ExitCode(); code != 2 || !strings.Contains(out.String(), "the clock has stopped") || !strings.Contains(out.String(), "server.(*request)") {
		t.Fatalf("the server ends with %d and says:\n%s", code, out.String())
	}
}

func panicInAHandler(t *testing.T, dir string) {
	var broken atomic.Bool
	e, err := engine.Open(t.Context(), engine.Options{Dir: dir, Now: func() time.Time {
		// The engine's own goroutines look at the clock too; there a panic needs no guard.
		if broken.Load() && bytes.Contains(debug.Stack(), []byte("server.(*request)")) {
			panic("the clock has stopped")
		}
		return time.Now()
	}})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := New(Config{DataDir: dir, Limits: api.DefaultLimits()}, Options{Version: "test"})
	s.SetEngine(e)
	go s.Serve(l)
	broken.Store(true)
	for range 2 {
		res, err := http.Post("http://"+l.Addr().String()+"/v0/topics/t", "application/json", strings.NewReader(`{"records":[{"data":1}]}`))
		if err == nil {
			os.Stdout.WriteString("answered " + res.Status + "\n")
			res.Body.Close()
		}
	}
	os.Exit(0)
}
