package replica

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
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
	zombies = flag.Int("zombies", 2, "rounds in which a leader is suspended while another may take over")
	nap     = flag.Duration("nap", 0, "longest time that a leader is suspended, at least a second; 0: until another one leads")
)

// exitFenced is the exit code of a server that another one has replaced as leader.
const exitFenced = 3

// pair is a leader and a standby of one copy, each on a directory of its own.
type pair struct {
	t    *testing.T
	dir  string
	url  string // of the copy
	sync bool
}

// silent is how long a standby waits for a sign of life. A leader answers nothing after
// two thirds of it without one, and on a busy machine a server that lives may get no
// processor for a second or two.
const silent = 5 * time.Second

type server struct {
	*weirtest.Process
	ports, data string
}

// newPair has its copy in a directory, or in a bucket.
func newPair(t *testing.T, synchronous, inBucket bool) *pair {
	p := &pair{t: t, dir: t.TempDir(), sync: synchronous}
	if inBucket {
		p.url = newBucket(t).URL
		return p
	}
	at := filepath.Join(p.dir, "copy")
	if err := os.Mkdir(at, 0o700); err != nil {
		t.Fatal(err)
	}
	p.url = "file://" + at
	return p
}

func (p *pair) start(name string, args ...string) *server {
	s := &server{ports: filepath.Join(p.dir, name+".port"), data: filepath.Join(p.dir, name)}
	os.Remove(s.ports)
	s.Process = weirtest.Go(p.t, nil, append([]string{"serve", "--port", "0", "--port-file", s.ports, "--data-dir", s.data,
		"--replica", p.url, "--replica-every", "100ms", fmt.Sprint("--replica-sync=", p.sync), "--failover-after", silent.String()}, args...)...)
	return s
}

// base is the server's address, empty before it listens.
func (s *server) base() string {
	b, _ := os.ReadFile(s.ports)
	if len(b) == 0 {
		return ""
	}
	return "http://" + strings.TrimSpace(string(b))
}

func (s *server) ready() bool { return ready(s.base()) }

func ready(base string) bool {
	client := http.Client{Timeout: time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	res, err := client.Get(base + "/v0/ready")
	if err != nil {
		return false
	}
	res.Body.Close()
	return res.StatusCode == http.StatusOK
}

// ended reports whether the server has ended within d.
func (s *server) ended(d time.Duration) bool {
	select {
	case <-s.Exited():
		return true
	case <-time.After(d):
		return false
	}
}

// zombiesAtOnce is how many rounds a pair has, while others have theirs.
const zombiesAtOnce = 10

// TestSuspendedLeaderIsNotHeard suspends leaders and wakes them, when the standby leads or
// when it does not.
func TestSuspendedLeaderIsNotHeard(t *testing.T) {
	for i := 0; i < *zombies || i < 2; i += zombiesAtOnce {
		for _, synchronous := range []bool{true, false} {
			half := min(zombiesAtOnce, *zombies-i+1) / 2
			t.Run(fmt.Sprintf("%d sync=%t", i, synchronous), func(t *testing.T) {
				t.Parallel()
				suspend(t, newPair(t, synchronous, synchronous == (i%20 == 0)), half)
			})
		}
	}
}

func suspend(t *testing.T, p *pair, n int) {
	c := newClient(t, "f", "d")
	leads, stands := p.start("0", "--failover"), (*server)(nil)
	weirtest.Eventually(t, "the first leader is ready", leads.ready)
	for topic, class := range map[string]string{"f": "fsync", "d": "disk"} {
		if _, err := c.call(t.Context(), "PUT", leads.base()+"/v0/topics/"+topic, map[string]any{"durability": class}, &struct{}{}); err != nil {
			t.Fatal(err)
		}
	}
	lost, replaced := 0, 0
	for round := range n {
		if stands == nil {
			stands = p.start(fmt.Sprint(round+1), "--standby")
			weirtest.Eventually(t, "the standby listens", func() bool { return stands.base() != "" })
		}
		ctx, stop := context.WithCancel(t.Context())
		stalled := stall.Watch()
		var writers sync.WaitGroup
		for _, topic := range []string{"f", "d"} {
			for i := range 3 {
				writers.Go(func() { c.write(ctx, leads.base(), topic, fmt.Sprintf("%d.%d", round, i)) })
			}
		}
		time.Sleep(silent/2 + time.Duration(rand.IntN(500))*time.Millisecond)
		stood := stalled()
		switch {
		case !stands.ready():
			if p.nap(leads, stands, c, round) {
				leads, stands, replaced = stands, nil, replaced+1
			}
		case stood < silent/2:
			t.Fatalf("the standby took over from a leader that lives; the machine stood still for %v", stood)
		default: // with the machine, the leader stood still, too
			if code := leads.Wait(); code != exitFenced {
				t.Errorf("the old leader ended with code %d, want %d", code, exitFenced)
			}
			leads, stands = stands, nil
		}
		stop()
		writers.Wait()
		for _, topic := range []string{"f", "d"} {
			n, _ := c.judge(t.Context(), leads.base(), topic, time.Now())
			if lost += n; p.sync && topic == "f" && n > 0 {
				t.Errorf("%d acknowledged fsync writes are lost", n)
			}
		}
		weirtest.Eventually(t, "the leader leads", leads.ready)
	}
	t.Logf("%d of %d suspended leaders were replaced; %d acknowledged and there, %d lost and announced", replaced, n, c.there(), lost)
}

// nap suspends the leader and reports whether the standby leads then. If it does, the old
// leader must answer nothing any more, not even what it was asked before it woke.
func (p *pair) nap(leads, stands *server, c *client, round int) (replaced bool) {
	d := time.Second + rand.N(max(1, *nap-time.Second))
	until := time.After(d)
	leads.Signal(syscall.SIGSTOP)
	if *nap == 0 || d > 2*silent {
		weirtest.Eventually(p.t, "the standby leads", stands.ready)
		for _, topic := range []string{"f", "d"} {
			before, cancel := context.WithTimeout(p.t.Context(), 100*time.Millisecond)
			c.write(before, stands.base(), topic, fmt.Sprintf("%d.new", round))
			cancel()
		}
		answered := make(chan error, 1)
		go func() {
			var all struct{}
			_, err := c.call(p.t.Context(), "POST", leads.base()+"/v0/topics/f/diff", map[string]any{"from_seq": 0, "limit": 1}, &all)
			answered <- err
		}()
		if *nap > 0 {
			<-until
		} else {
			time.Sleep(50 * time.Millisecond) // the question is there when it wakes
		}
		leads.Signal(syscall.SIGCONT)
		if leads.ready() {
			p.t.Error("a leader that was suspended for longer than its lease says that it is ready")
		}
		if err := <-answered; err == nil {
			p.t.Error("a leader that was suspended for longer than its lease answers a read")
		}
	} else {
		<-until
		leads.Signal(syscall.SIGCONT)
		if !leads.ended(2 * silent) {
			weirtest.Eventually(p.t, "the leader goes on", leads.ready)
			return false
		}
	}
	if code := leads.Wait(); code != exitFenced {
		p.t.Errorf("the old leader ended with code %d, want %d", code, exitFenced)
	}
	weirtest.Eventually(p.t, "the standby leads", stands.ready)
	return true
}
