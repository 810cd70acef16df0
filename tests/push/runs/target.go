// Package runs holds the loads of the push half that are watched over time:
// Saturate, more work than the machine can do, and SlowReader, one reader that
// stalls beside others that do not. Each drives a running server over HTTP
// alone and checks afterwards what it promised: nothing acknowledged is
// missing, and what every reader got is gap-free except for announced gaps.
package runs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirmq/weir/bench/load"
)

// Target is the server under load.
type Target struct {
	Addr string // host:port
	PID  int    // its process, for the resident set
}

// callLimit bounds one request.
const callLimit = 30 * time.Second

// dial opens a connection for the calls of one goroutine; it is closed when ctx
// ends at the latest.
func (t Target) dial(ctx context.Context) (*caller, error) {
	c, err := load.Dial(ctx, t.Addr)
	if err != nil {
		return nil, err
	}
	return &caller{conn: c, stop: context.AfterFunc(ctx, func() { c.Close() })}, nil
}

// caller makes requests one after the other.
type caller struct {
	conn *load.Conn
	stop func() bool
}

func (c *caller) close() {
	c.stop()
	c.conn.Close()
}

// call makes a request; the body is valid until the next.
func (c *caller) call(method, path string, body []byte) (int, []byte, error) {
	c.conn.SetDeadline(time.Now().Add(callLimit))
	return c.conn.Fetch(load.Request(method, path, body))
}

// do makes a request that has to succeed.
func (c *caller) do(method, path string, body []byte) ([]byte, error) {
	status, answer, err := c.call(method, path, body)
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", method, path, err)
	}
	if status >= 300 {
		return nil, fmt.Errorf("%s %s: status %d: %.200s", method, path, status, answer)
	}
	return answer, nil
}

// number reads a number of a topic's state.
func (c *caller) number(topic, field string) (uint64, error) {
	answer, err := c.do("GET", "/v0/topics/"+topic, nil)
	if err != nil {
		return 0, err
	}
	v, _, ok := load.Number(answer, field)
	if !ok {
		return 0, fmt.Errorf("state of %s has no %s: %.200s", topic, field, answer)
	}
	return v, nil
}

// memory is a field of /proc/PID/status in MiB, 0 if there is none.
func (t Target) memory(field string) float64 {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(t.PID) + "/status")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, field+":"); ok {
			kib, _ := strconv.ParseFloat(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 64)
			return kib / 1024
		}
	}
	return 0
}

// given is what one topic was given and what was acknowledged of it.
type given struct {
	name    string
	config  string // body of its PUT
	cap     uint64 // cap_records, 0: none
	pad     string // more data in every record
	next    atomic.Uint64
	mu      sync.Mutex
	batches []batch
}

// batch is one acknowledged write: the records numbered n and on have the
// sequence numbers first and on.
type batch struct {
	first, n uint64
	count    int
}

func (g *given) total() (sum uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, b := range g.batches {
		sum += uint64(b.count)
	}
	return sum
}

// write sends one batch and remembers its acknowledgement. wait is the server's
// advice if it refused the write, which then has appended nothing.
func (g *given) write(c *caller, buf []byte, count int) (_ []byte, wait time.Duration, err error) {
	n := g.next.Add(uint64(count)) - uint64(count)
	buf = append(buf[:0], `{"records":[`...)
	now := time.Now().UnixNano()
	for i := range count {
		if i > 0 {
			buf = append(buf, ',')
		}
		buf = append(buf, `{"data":{"n":`...)
		buf = strconv.AppendUint(buf, n+uint64(i), 10)
		buf = append(buf, `,"t":`...)
		buf = strconv.AppendInt(buf, now, 10)
		buf = append(buf, `,"pad":"`...)
		buf = append(buf, g.pad...)
		buf = append(buf, `"}}`...)
	}
	buf = append(buf, "]}"...)
	status, answer, err := c.call("POST", "/v0/topics/"+g.name+"?return_seqs=false", buf)
	switch {
	case err != nil:
		return buf, 0, fmt.Errorf("write to %s: %w", g.name, err)
	case status == 429:
		ms, _, ok := load.Number(answer, "retry_after_ms")
		if !ok {
			return buf, 0, fmt.Errorf("a 429 without retry_after_ms: %.200s", answer)
		}
		return buf, time.Duration(ms) * time.Millisecond, nil
	case status != 200 && status != 201:
		return buf, 0, fmt.Errorf("write to %s: status %d: %.200s", g.name, status, answer)
	}
	first, _, ok := load.Number(answer, "first_seq")
	if !ok {
		return buf, 0, fmt.Errorf("write to %s: no first_seq in %.200s", g.name, answer)
	}
	g.mu.Lock()
	g.batches = append(g.batches, batch{first: first, n: n, count: count})
	g.mu.Unlock()
	return buf, 0, nil
}

// pause waits for d or for the end of ctx.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// firstOf keeps the first errors of many goroutines.
type firstOf struct {
	mu   sync.Mutex
	errs []error
}

const keptErrors = 20

func (f *firstOf) add(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err != nil && len(f.errs) < keptErrors {
		f.errs = append(f.errs, err)
	}
}

func (f *firstOf) err() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return errors.Join(f.errs...)
}
