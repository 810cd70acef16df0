package main_test

import (
	"bufio"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weirmq/weir"
	"github.com/weirmq/weir/tests/capture"
	"github.com/weirmq/weir/tests/redistest"
)

// breaksOff sends the beginning of an order and hangs up.
func breaksOff(t *testing.T, addr string) {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, _ = io.WriteString(conn, "POST /orders HTTP/1.1\r\nHost: orders\r\nContent-Length: 100\r\n\r\n{\"ID\":\"half")
	_ = conn.(*net.TCPConn).CloseWrite()
	if res, err := http.ReadResponse(bufio.NewReader(conn), nil); err != nil || res.StatusCode != http.StatusBadRequest {
		t.Errorf("half an order: %v, %v", res, err)
	}
}

// The program takes an order, tells a repeat apart, works on it once, buries what no
// retry can help, and ends with its signal.
func TestOrdersAreTakenAndDelivered(t *testing.T) {
	redis := redistest.Start(t, redistest.Options{})
	program := filepath.Join(t.TempDir(), "orders")
	build := exec.Command("go", "build", "-o", program, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0") // as users do who deploy it
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := free.Addr().String()
	_ = free.Close()
	var said capture.Buffer
	run := exec.Command(program)
	run.Env = append(os.Environ(), "ADDR="+addr, "REDIS="+redis.Addr())
	run.Stderr = &said
	if err := run.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = run.Process.Kill() })
	order := func(key, body string) (r weir.Receipt) {
		t.Helper()
		for until := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+addr+"/orders", strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Idempotency-Key", key)
			res, err := http.DefaultClient.Do(req)
			if err != nil { // it does not listen yet
				if time.Now().After(until) {
					t.Fatalf("%v\n%s", err, &said)
				}
				continue
			}
			defer res.Body.Close()
			text, _ := io.ReadAll(res.Body)
			if _, has := res.Header["Retry-After"]; has {
				t.Errorf("a success says when to come again: %q", res.Header)
			}
			if err := json.Unmarshal(text, &r); err != nil || res.StatusCode != 200 {
				t.Fatalf("%d, %q, %v\n%s", res.StatusCode, text, err, &said)
			}
			return r
		}
	}
	first := order("7", `{"ID":"7","Item":"tea"}`)
	if first.ID == "" || first.Duplicate {
		t.Errorf("the first: %+v", first)
	}
	if again := order("7", `{"ID":"7","Item":"tea"}`); again != (weir.Receipt{ID: first.ID, Duplicate: true}) {
		t.Errorf("the same again: %+v, want %s as a duplicate", again, first.ID)
	}
	breaksOff(t, addr)
	order("8", `no order`)
	client := redis.Client()
	for until := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		if client.XLen(t.Context(), "{orders}:dlq").Val() == 1 && strings.Contains(said.String(), "delivered order 7: tea") {
			break
		}
		if time.Now().After(until) {
			t.Fatalf("not done:\n%s", &said)
		}
	}
	says := func(what string) {
		t.Helper()
		for until := time.Now().Add(30 * time.Second); !strings.Contains(said.String(), what); time.Sleep(10 * time.Millisecond) {
			if time.Now().After(until) {
				t.Fatalf("not said: %s\n%s", what, &said)
			}
		}
	}
	redis.Kill()
	says("weir: waiting for the backend")
	redis.Restart()
	says("weir: the backend is back")
	if strings.Contains(said.String(), "redis: 20") || strings.Contains(said.String(), "pool.go") {
		t.Errorf("the client's own lines are in the log:\n%s", &said)
	}
	_ = run.Process.Signal(syscall.SIGTERM)
	if err := run.Wait(); err != nil || !strings.Contains(said.String(), "stopped: <nil>") || strings.Count(said.String(), "delivered order 7") != 1 {
		t.Errorf("%v\n%s", err, &said)
	}
}
