package embedded_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/backend/embedded"
	"github.com/weirmq/weir/backend/internal/queue"
)

// holdVar makes this test binary hold the directory it names until its standard
// input ends.
const holdVar = "WEIR_TEST_HOLD"

func TestMain(m *testing.M) {
	if raw := os.Getenv(holdVar); raw != "" {
		os.Exit(hold(raw))
	}
	os.Exit(m.Run())
}

func hold(raw string) int {
	u, err := url.Parse(raw)
	if err != nil {
		return 2
	}
	b, err := embedded.Open(context.Background(), u)
	if err != nil {
		fmt.Println(err)
		return 1
	}
	if _, err := b.Append(context.Background(), []backend.Message{{Data: []byte("poison")}}); err != nil {
		fmt.Println(err)
		return 1
	}
	got, err := b.Claim(context.Background(), backend.ClaimRequest{Consumer: "w", Max: 1, ReclaimAfter: 100 * time.Millisecond})
	fmt.Println("held", len(got.Deliveries), err)
	bufio.NewReader(os.Stdin).ReadByte()
	return 3 // without Close, as a crash
}

func open(t *testing.T, raw string) *queue.Backend {
	t.Helper()
	b, err := try(raw)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	return b
}

func try(raw string) (*queue.Backend, error) {
	u, err := url.Parse(raw)
	if err != nil {
		return nil, err
	}
	b, err := embedded.Open(context.Background(), u)
	if err != nil {
		return nil, err
	}
	return b.(*queue.Backend), nil
}

func publish(t *testing.T, b backend.Backend, body string) {
	t.Helper()
	if _, err := b.Append(t.Context(), []backend.Message{{Data: []byte(body)}}); err != nil {
		t.Fatal(err)
	}
}

func stored(t *testing.T, b backend.Backend) int64 {
	t.Helper()
	s, err := b.Stats(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return s.XLen
}

func TestAMemoryQueueLivesAsLongAsSomebodyHasItOpen(t *testing.T) {
	a, b := open(t, "mem://shared"), open(t, "mem://shared?group=weir")
	publish(t, a, "x")
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	if n := stored(t, b); n != 1 {
		t.Errorf("the other handle sees %d messages", n)
	}
	if n := stored(t, open(t, "mem://other")); n != 0 {
		t.Errorf("another name sees %d messages", n)
	}
	if err := errors.Join(b.Close(), b.Close()); err != nil {
		t.Fatal(err)
	}
	if n := stored(t, open(t, "mem://shared")); n != 0 {
		t.Errorf("a new life begins with %d messages", n)
	}
}

func TestADirectoryIsOneEngineUnderAllItsNames(t *testing.T) {
	dir := t.TempDir()
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	t.Chdir(dir)
	a := open(t, "file://"+dir+"/data?topic=a")
	publish(t, a, "x")
	for _, raw := range []string{"file:./data?topic=a", "file:data?topic=a", "file://" + link + "/data?topic=a&durability=fsync", "file://localhost" + dir + "/data/?topic=a"} {
		if n := stored(t, open(t, raw)); n != 1 {
			t.Errorf("%s sees %d messages", raw, n)
		}
	}
	if n := stored(t, open(t, "file:data?topic=b")); n != 0 {
		t.Errorf("another topic sees %d messages", n)
	}
}

func TestADirectoryKeepsItsMessages(t *testing.T) {
	raw := "file://" + t.TempDir() + "?topic=a&durability=fsync"
	a := open(t, raw)
	publish(t, a, "x")
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	b := open(t, raw)
	if n := stored(t, b); n != 1 || b.Info().Durability != "fsync" {
		t.Errorf("%d messages of class %s after the directory was opened again", n, b.Info().Durability)
	}
}

func TestManyOpenAndCloseAtOnce(t *testing.T) {
	var all sync.WaitGroup
	raw := "file://" + t.TempDir() + "?topic=a"
	for range 8 {
		all.Go(func() {
			for range 3 {
				b, err := try(raw)
				if err != nil {
					t.Error(err)
					return
				}
				if _, err := b.Append(t.Context(), []backend.Message{{Data: []byte("x")}}); err != nil {
					t.Error(err)
				}
				if err := b.Close(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	if n := stored(t, open(t, raw)); n != 24 {
		t.Errorf("%d of 24 messages are there", n)
	}
}

func TestADirectoryOfAnotherProcessIsRefusedWithItsPID(t *testing.T) {
	raw := "file://" + t.TempDir() + "?topic=a"
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), holdVar+"="+raw)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(stdout).ReadString('\n'); err != nil || line != "held 1 <nil>\n" {
		t.Fatalf("the other process said %q, %v", line, err)
	}
	_, err = try(raw)
	if err == nil || !errors.Is(err, backend.ErrUnavailable) || !strings.Contains(err.Error(), fmt.Sprintf("pid %d", cmd.Process.Pid)) || !strings.Contains(err.Error(), "weir serve") {
		t.Errorf("a directory that pid %d holds: %v", cmd.Process.Pid, err)
	}
	stdin.Close()
	if err := cmd.Wait(); err == nil || cmd.ProcessState.ExitCode() != 3 {
		t.Fatalf("the other process ended with %v", err)
	}
	// The crash took the engine with it, and yet the delivery counts.
	b := open(t, raw)
	got, err := b.Claim(t.Context(), backend.ClaimRequest{Consumer: "w2", Max: 1, Block: 10 * time.Second, ReclaimAfter: time.Minute})
	if err != nil || len(got.Deliveries) != 1 || got.Deliveries[0].Attempt != 2 || got.Reclaimed != 1 {
		t.Errorf("after the crash: %+v, %v", got, err)
	}
}

func TestWhatAURLMayNotBe(t *testing.T) {
	for raw, want := range map[string]string{
		"mem://":                         "mem://NAME",
		"mem:x":                          "mem://NAME",
		"mem://a/b":                      "mem://NAME",
		"mem://a?topic=b":                `unknown key "topic" in the mem URL; known: group`,
		"mem://a?group=billing":          `one group, "weir"`,
		"mem://-a":                       "not a topic name",
		"mem://u:secret@a":               "neither user",
		"file:///tmp/x":                  "names no topic",
		"file://data?topic=a":            `names a host, "data"`,
		"file:?topic=a":                  "names no directory",
		"file:///?topic=a":               "names no directory",
		"file:///tmp/x?topic=a&stream=b": `unknown key "stream" in the file URL; known: topic, group, durability`,
		"file:///tmp/x?topic=a&topic=b":  "appears twice",
		"file:///tmp/x?topic=a&durability=strong": "known: fsync, disk, memory, ephemeral",
		"file:///tmp/x?topic=a#f":                 "fragment",
		"file:///tmp/x?topic=%zz":                 "cannot be read",
	} {
		b, err := try(raw)
		if err == nil {
			b.Close()
			t.Errorf("%s was opened", raw)
		} else if !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v, want %q", raw, err, want)
		}
	}
}
