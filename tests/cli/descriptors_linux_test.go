package cli

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"github.com/weirmq/weir/tests/weirtest"
)

// Connections take no descriptor that the log needs for its next file: while there are as many
// as the process may have, what is connected goes on, and who comes waits.
func TestConnectionsLeaveDescriptorsForTheLog(t *testing.T) {
	t.Parallel()
	s := weirtest.Start(t, weirtest.Options{})
	const most = 128
	setMost := func(n uint64) {
		t.Helper()
		limit := syscall.Rlimit{Cur: n, Max: most}
		if _, _, errno := syscall.RawSyscall6(syscall.SYS_PRLIMIT64, uintptr(s.PID()), syscall.RLIMIT_NOFILE, uintptr(unsafe.Pointer(&limit)), 0, 0, 0); errno != 0 {
			t.Fatalf("prlimit: %v", errno)
		}
	}
	setMost(most)
	connected := &http.Client{Transport: &http.Transport{MaxConnsPerHost: 1}}
	defer connected.CloseIdleConnections()
	record := bytes.Repeat([]byte("x"), 1_000_000)
	write := func() {
		t.Helper()
		resp, err := connected.Post(s.URL+"/v0/topics/t", "text/plain", bytes.NewReader(record))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if text, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode >= 300 {
			t.Fatalf("a write is answered %d %s, %v", resp.StatusCode, text, err)
		}
	}
	write()
	var crowd []net.Conn
	leave := func() {
		for _, c := range crowd {
			c.Close()
		}
	}
	defer leave()
	for range 2 * most {
		c, err := net.Dial("tcp", s.Addr)
		if err != nil {
			t.Fatal(err)
		}
		crowd = append(crowd, c)
		fmt.Fprint(c, "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
	}
	isFull := func() {
		t.Helper()
		before := strings.Count(s.Stderr(), "too many open files")
		weirtest.Eventually(t, "a connection to wait", func() bool { return strings.Count(s.Stderr(), "too many open files") > before })
	}
	isFull()
	for range 140 { // to the third file of the log
		write()
	}
	setMost(8) // there is none at all
	isFull()
	setMost(most)
	leave()
	if resp, err := http.Get(s.URL + "/readyz"); err != nil || resp.StatusCode != http.StatusOK {
		t.Errorf("who comes then gets %v, %v", resp, err)
	} else {
		resp.Body.Close()
	}
	if code := s.Stop(); code != 0 {
		t.Errorf("the server ended with %d", code)
	}
}

// The same holds if the engine has many tables: those that it keeps open are part of what connections
// leave to it.
func TestTablesLeaveDescriptorsForTheLog(t *testing.T) {
	t.Parallel()
	const most, tables = 160, 90
	s := weirtest.Start(t, weirtest.Options{Files: most, Args: []string{"--disk-reserve", "3MiB"}}) // segments of 1 MiB
	connected := &http.Client{Transport: &http.Transport{MaxConnsPerHost: 1}}
	defer connected.CloseIdleConnections()
	call := func(path, kind, body string) string {
		t.Helper()
		resp, err := connected.Post(s.URL+path, kind, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode >= 300 {
			t.Fatalf("%s is answered %d %.300s, %v", path, resp.StatusCode, text, err)
		}
		return string(text)
	}
	for range 200 {
		call("/v0/topics/t", "text/plain", strings.Repeat("x", 500_000))
	}
	weirtest.Eventually(t, "the records to be in tables", func() bool {
		names, err := filepath.Glob(filepath.Join(s.Dir, "kv", "*.sst"))
		return err == nil && len(names) >= tables
	})
	for range 2 * most {
		c, err := net.Dial("tcp", s.Addr)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		fmt.Fprint(c, "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
	}
	weirtest.Eventually(t, "a connection to wait", func() bool { return strings.Contains(s.Stderr(), "too many open files") })
	for seq := range 200 {
		call("/v0/topics/t/diff", "application/json", fmt.Sprintf(`{"from_seq":%d,"limit":1}`, seq))
	}
	for range 20 { // to files of the log that are not there yet
		call("/v0/topics/t", "text/plain", strings.Repeat("x", 500_000))
	}
	if code := s.Stop(); code != 0 {
		t.Fatalf("the server ended with %d", code)
	}
	out, err := exec.Command("prlimit", "--nofile=64", weirtest.Binary(t), "repair", s.Dir).Output() // fewer than tables; on standard error it says how far it is
	if err != nil || string(out) != "nothing is damaged\n" {
		t.Errorf("repair: %v, %s", err, out)
	}
}
