package replica

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/weirmq/weir/tests/stall"
	"github.com/weirmq/weir/tests/weirtest"
)

var (
	takeovers = flag.Int("takeovers", 2, "takeovers that weir publish, work and tail go over")
	silence   = flag.Duration("failover-after", silent, "how long a standby waits for a sign of life in those")
)

// feed writes lines to weir publish until it is ended.
type feed struct {
	publish *weirtest.Process
	lines   []string
	ended   chan struct{}
}

func newFeed(t *testing.T, stop <-chan struct{}, pause time.Duration, args ...string) *feed {
	t.Helper()
	name := filepath.Join(t.TempDir(), "lines")
	if err := syscall.Mkfifo(name, 0o600); err != nil {
		t.Fatal(err)
	}
	to, err := os.OpenFile(name, os.O_RDWR, 0) // opens before there is a reader
	if err != nil {
		t.Fatal(err)
	}
	f := &feed{ended: make(chan struct{})}
	f.publish = weirtest.Go(t, nil, append(append([]string{"publish", "--guard", "off", "--batch", "1"}, args...), name)...)
	go func() {
		defer close(f.ended)
		tick := time.NewTicker(pause)
		defer tick.Stop()
		for i := 0; ; i++ {
			select {
			case <-stop:
				to.Close()
				return
			case <-tick.C:
			}
			line := fmt.Sprint("line ", i)
			if _, err := fmt.Fprintln(to, line); err != nil {
				return
			}
			f.lines = append(f.lines, line)
		}
	}()
	return f
}

// all ends the feed and returns what was published.
func (f *feed) all() []string {
	<-f.ended
	f.publish.Succeed()
	return f.lines
}

// TestClientsGoOnOverTakeovers lets publish, work and tail name two servers, of which the
// one that leads is killed and stopped in turn.
func TestClientsGoOnOverTakeovers(t *testing.T) {
	for _, synchronous := range []bool{true, false} {
		t.Run(fmt.Sprintf("sync=%t", synchronous), func(t *testing.T) {
			t.Parallel()
			overTakeovers(t, synchronous)
		})
	}
}

func overTakeovers(t *testing.T, synchronous bool) {
	options := func() weirtest.Options {
		return weirtest.Options{Stays: true, NoWait: true}
	}
	a, b := options(), options()
	copied := newBucket(t).URL
	for _, o := range []*weirtest.Options{&a, &b} {
		o.Args = []string{"--replica", copied, "--standby", "--replica-every", "100ms",
			fmt.Sprint("--replica-sync=", synchronous), "--failover-after", silence.String()}
	}
	leads := weirtest.Start(t, a)
	weirtest.Eventually(t, "the first one leads", func() bool { return ready(leads.URL) })
	stands := weirtest.Start(t, b)
	url := func(topic string) string { return fmt.Sprintf("%s/%s?standby=%s", leads.URL, topic, stands.Addr) }

	c := newClient(t)
	for topic, kind := range map[string]string{"log": "log", "jobs": "queue"} {
		if _, err := c.call(t.Context(), "PUT", leads.URL+"/v0/topics/"+topic, map[string]any{"type": kind, "durability": "fsync"}, &struct{}{}); err != nil {
			t.Fatal(err)
		}
	}
	done := filepath.Join(t.TempDir(), "done")
	stop := make(chan struct{})
	end := sync.OnceFunc(func() { close(stop) })
	defer end()
	lines := newFeed(t, stop, 10*time.Millisecond, url("log"))
	jobs := newFeed(t, stop, 50*time.Millisecond, url("jobs"))
	tail := weirtest.Go(t, nil, "tail", "--json", "--from", "0", url("log"))
	// A machine that stands still uses deliveries up: no job may be dead for that.
	weirtest.Go(t, nil, "work", "--workers", "1", "--reclaim-after", "3s", "--max-deliveries", "100", url("jobs"), "--", "sh", "-c", "{ cat; echo; } >> "+done)
	printed := func() int { return strings.Count(tail.Stdout.String(), "\n") }
	worked := func() int { b, _ := os.ReadFile(done); return strings.Count(string(b), "\n") }

	var killed, stopped time.Duration // the longest
	for round := range *takeovers {
		p, w := printed(), worked()
		weirtest.Eventually(t, "tail and work go on", func() bool { return printed() > p+50 && worked() > w+10 })
		begin, stalled := time.Now(), stall.Busy()
		if round%2 == 0 {
			leads.Kill()
		} else if err := leads.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		weirtest.Eventually(t, "the standby leads", func() bool { return ready(stands.URL) })
		took, busy := time.Since(begin), stalled()
		if round%2 == 0 {
			killed = max(killed, took)
		} else if stopped = max(stopped, took); !strings.Contains(stands.Stderr(), `why="the leader has stopped"`) {
			t.Error("the standby waited, although the leader had said that it stops")
		}
		if took > *silence+10*time.Second+busy {
			t.Errorf("the standby led after %v", took)
		}
		<-leads.Exited()
		leads.Restart()
		leads, stands = stands, leads
	}
	p, w := printed(), worked()
	weirtest.Eventually(t, "tail and work go on", func() bool { return printed() > p+50 && worked() > w+10 })
	end()
	published := lines.all()
	told := tail.Stdout.String()
	last := fmt.Sprintf("%q", published[len(published)-1])
	weirtest.Eventually(t, "tail prints the last line", func() bool { told = tail.Stdout.String(); return strings.Contains(told, last) })
	got, gaps := read(t, told)
	t.Logf("%d lines published, %d printed, %d numbers in gaps that were told; a kill took %v at most, a stop %v", len(published), len(got), gaps, killed, stopped)
	missing := len(published) - len(got)
	if synchronous && strings.Join(got, "\n") != strings.Join(published, "\n") {
		t.Errorf("tail printed %d lines that are not the %d that were published", len(got), len(published))
	} else if missing > gaps {
		t.Errorf("%d lines are missing, gaps were told of %d", missing, gaps)
	}
	if asked := jobs.all(); synchronous {
		weirtest.Eventually(t, "all jobs are done", func() bool {
			b, _ := os.ReadFile(done)
			for _, job := range asked {
				if !strings.Contains("\n"+string(b), "\n"+job+"\n") {
					return false
				}
			}
			return true
		})
	}
}

// read returns the lines that tail printed, and how many numbers it has told to be missing.
// There must be no other hole, and no number twice.
func read(t *testing.T, printed string) (lines []string, told int) {
	t.Helper()
	next := uint64(1)
	for line := range strings.Lines(printed) {
		var r struct {
			Seq       uint64 `json:"$seq"`
			Data      string `json:"data"`
			Tombstone *struct {
				From uint64 `json:"gap_from"`
				To   uint64 `json:"gap_to"`
			} `json:"tombstone"`
		}
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		if r.Tombstone != nil {
			if r.Tombstone.From > next {
				t.Errorf("numbers %d to %d are missing", next, r.Tombstone.From-1)
			}
			if r.Tombstone.To >= next {
				told += int(r.Tombstone.To - next + 1)
				next = r.Tombstone.To + 1
			}
			continue
		}
		if r.Seq != next {
			t.Errorf("number %d follows %d", r.Seq, next-1)
		}
		lines, next = append(lines, r.Data), r.Seq+1
	}
	return lines, told
}
