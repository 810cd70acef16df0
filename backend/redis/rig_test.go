package redis_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/weirmq/weir"
	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/backend/redis"
	"github.com/weirmq/weir/tests/capture"
	"github.com/weirmq/weir/tests/stall"
)

const (
	rigReclaim  = 500 * time.Millisecond
	rigDeadline = 300 * time.Millisecond // of one publish
	rigPatience = 90 * time.Second       // until a workload goes on; Sentinels of a machine that stood still for 2 s do nothing for 30 s
	rigWriters  = 4                      // every other one with idempotency keys
)

// rig is producers and a pool at work on one stream while something goes wrong,
// and what each of them was told.
type rig struct {
	t       *testing.T
	url     string // of the stream, as the workload sees the server
	pool    *weir.Pool
	log     lines
	stop    context.CancelFunc // of the pool
	stopped chan error
	quit    chan struct{} // of the producers
	writers sync.WaitGroup

	mu      sync.Mutex
	stored  map[string]time.Time // payload → when the producer was told that it is stored
	unknown map[string]bool      // payload → nobody knows
	refused map[string]bool      // payload → not stored
	handled map[string]time.Time // payload → when it was handled first
	errs    []error
	lost    int           // acknowledged and not there in the end
	undone  int           // of these, never handled
	latest  time.Duration // by how much the slowest call outlasted its context, if too long
}

// startRig opens the stream twice, as producers and workers in different programs do.
func startRig(t *testing.T, rawURL string) *rig {
	t.Helper()
	r := &rig{
		t: t, url: rawURL, quit: make(chan struct{}), stopped: make(chan error, 1),
		stored: map[string]time.Time{}, unknown: map[string]bool{}, refused: map[string]bool{}, handled: map[string]time.Time{},
	}
	producer, worker := r.open(), r.open()
	pool, err := weir.NewPool(weir.New(worker), r.handle, weir.PoolConfig{
		Workers: 4, Batch: 20, Block: 200 * time.Millisecond, ReclaimAfter: rigReclaim, MaxDeliveries: -1,
		RetryBase: 20 * time.Millisecond, RetryMax: 100 * time.Millisecond, DrainTimeout: 5 * time.Second,
		Logger: slog.New(slog.NewTextHandler(&r.log, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	r.pool = pool
	ctx, stop := context.WithCancel(context.Background())
	r.stop = stop
	go func() { r.stopped <- pool.Run(ctx) }()
	for i := range rigWriters {
		r.writers.Go(func() { r.write(producer, i) })
	}
	t.Cleanup(func() {
		r.stopWriters()
		stop()
	})
	return r
}

func (r *rig) open() *redis.Backend {
	r.t.Helper()
	u, err := url.Parse(r.url)
	if err != nil {
		r.t.Fatal(err)
	}
	b, err := redis.Open(r.t.Context(), u)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = b.Close() })
	return b
}

// handle fails the first delivery of some messages, so that retries are part of the load.
func (r *rig) handle(_ context.Context, d *weir.Delivery) error {
	if d.Attempt == 1 && bytes.HasSuffix(d.Data, []byte("7")) {
		return errors.New("not at the first try")
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, again := r.handled[string(d.Data)]; !again {
		r.handled[string(d.Data)] = time.Now()
	}
	return nil
}

// write publishes until told to stop, one message after the other. A writer with
// keys repeats a message whose fate is not known; the others go on.
func (r *rig) write(b *redis.Backend, writer int) {
	keyed := writer%2 == 0
	for i := 0; ; i++ {
		payload := fmt.Sprintf("%d-%d", writer, i)
		msg := backend.Message{Data: []byte(payload)}
		if keyed {
			msg.IdempotencyKey = payload
		}
		for r.publish(b, msg) != nil && keyed {
			if !r.rest(20 * time.Millisecond) {
				return
			}
		}
		if !r.rest(2 * time.Millisecond) {
			return
		}
	}
}

func (r *rig) rest(d time.Duration) bool {
	select {
	case <-r.quit:
		return false
	case <-time.After(d):
		return true
	}
}

func (r *rig) publish(b *redis.Backend, msg backend.Message) error {
	ctx, cancel := context.WithTimeout(context.Background(), rigDeadline)
	defer cancel()
	ended := make(chan time.Time, 1)
	defer context.AfterFunc(ctx, func() { ended <- time.Now() })()
	tooLong := outlasts()
	results, err := b.Append(ctx, []backend.Message{msg})
	now, over := time.Now(), time.Duration(0)
	select {
	case at := <-ended:
		over = tooLong(at)
	default:
		tooLong(time.Now())
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.latest = max(r.latest, over)
	payload := string(msg.Data)
	delete(r.unknown, payload)
	switch {
	case err == nil:
		delete(r.refused, payload)
		r.stored[payload] = now
		if results[0].ID == "" {
			r.t.Errorf("%s is stored without an ID", payload)
		}
		return nil
	case errors.Is(err, backend.ErrOutcomeUnknown):
		r.unknown[payload] = true
		delete(r.refused, payload)
	case msg.IdempotencyKey == "":
		r.refused[payload] = true
	}
	r.errs = append(r.errs, err)
	return err
}

// told reports whether a publish has been told an error like this.
func (r *rig) told(like func(error) bool) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.ContainsFunc(r.errs, like)
}

// until waits until the workload has done n more messages from end to end.
func (r *rig) until(n int) {
	r.t.Helper()
	begin := time.Now()
	if !stall.Until(rigPatience, func() bool { return r.doneSince(begin) >= n }) {
		r.mu.Lock()
		told := r.kinds()
		r.mu.Unlock()
		r.t.Fatalf("within %v only %d of %d more messages were published and handled; told: %v\n%s",
			rigPatience, r.doneSince(begin), n, told, r.log.String())
	}
}

func (r *rig) doneSince(begin time.Time) (count int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for payload, at := range r.stored {
		if done, ok := r.handled[payload]; ok && at.After(begin) && done.After(begin) {
			count++
		}
	}
	return count
}

// storedSince is how many messages were stored after begin.
func (r *rig) storedSince(begin time.Time) (count int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, at := range r.stored {
		if at.After(begin) {
			count++
		}
	}
	return count
}

// pauses returns the longest times since begin without a message being stored and handled.
func (r *rig) pauses(begin time.Time) (stored, handled time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return longestPause(r.stored, begin), longestPause(r.handled, begin)
}

func longestPause(events map[string]time.Time, begin time.Time) (longest time.Duration) {
	times := slices.SortedFunc(maps.Values(events), time.Time.Compare)
	for _, at := range times {
		if at.After(begin) {
			longest = max(longest, at.Sub(begin))
			begin = at
		}
	}
	return longest
}

func (r *rig) stopWriters() {
	select {
	case <-r.quit:
	default:
		close(r.quit)
	}
	r.writers.Wait()
}

// verdict is what is asked of a run.
type verdict struct {
	proxied bool     // the fault is in the network
	fails   bool     // some publish must have been told an error
	sees    error    // an error that some publish must have been told; nil: any or none
	full    bool     // some publish must have been refused by a backend.FullError
	logs    []string // what the pool's log must say
	loses   bool     // the fault itself destroys data
}

// finish lets everything come to rest and judges the run.
func (r *rig) finish(server goredis.UniversalClient, v verdict) {
	r.t.Helper()
	r.until(20) // everything works again
	r.stopWriters()
	r.awaitHandled(v.loses)
	r.awaitSettled(server)
	r.stop()
	if err := <-r.stopped; err != nil && !errors.Is(err, context.Canceled) {
		r.t.Errorf("the pool ended with %v", err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.judgeStream(server, v)
	if r.latest > 0 {
		r.t.Errorf("a publish returned %v after its context had ended, beside what this machine stalled", r.latest)
	}
	if v.fails && len(r.errs) == 0 {
		r.t.Error("no publish failed: the fault did nothing")
	}
	if v.sees != nil && !slices.ContainsFunc(r.errs, is(v.sees)) {
		r.t.Errorf("no publish was told %q; told: %v", v.sees, r.kinds())
	}
	if v.full && !slices.ContainsFunc(r.errs, isFull) {
		r.t.Errorf("no publish was refused as full; told: %v", r.kinds())
	}
	for _, text := range v.logs {
		if !r.log.tells(text) {
			r.t.Errorf("the pool's log does not say %q:\n%s", text, r.log.String())
		}
	}
	r.t.Logf("stored %d, not known %d, refused %d, handled %d; slowest return %v after its context; told: %v",
		len(r.stored), len(r.unknown), len(r.refused), len(r.handled), r.latest.Round(time.Millisecond), r.kinds())
}

// awaitHandled waits until all that producers were told is stored has been handled.
func (r *rig) awaitHandled(loses bool) {
	r.t.Helper()
	if loses {
		return
	}
	var lost []string
	if !stall.Until(rigPatience, func() bool {
		lost = nil
		r.mu.Lock()
		defer r.mu.Unlock()
		for payload := range r.stored {
			if _, ok := r.handled[payload]; !ok {
				lost = append(lost, payload)
			}
		}
		return len(lost) == 0
	}) {
		r.t.Fatalf("%d acknowledged messages were never handled: %.10v\n%s", len(lost), lost, r.log.String())
	}
}

// awaitSettled waits until nothing is stuck in the group's pending list.
func (r *rig) awaitSettled(server goredis.UniversalClient) {
	r.t.Helper()
	var groups []goredis.XInfoGroup
	var err error
	if !stall.Until(rigPatience, func() bool {
		groups, err = server.XInfoGroups(context.Background(), "jobs").Result()
		return err == nil && len(groups) == 1 && groups[0].Pending == 0 && groups[0].Lag <= 0
	}) {
		r.t.Fatalf("work is left: %+v, %v", groups, err)
	}
}

// judgeStream compares what is stored with what the producers were told.
func (r *rig) judgeStream(server goredis.UniversalClient, v verdict) {
	r.t.Helper()
	entries, err := server.XRange(context.Background(), "jobs", "-", "+").Result()
	if err != nil {
		r.t.Fatal(err)
	}
	there := map[string]int{}
	for _, e := range entries {
		there[e.Values["data"].(string)]++
	}
	for payload := range r.stored {
		if there[payload] > 0 {
			continue
		}
		r.lost++
		if _, done := r.handled[payload]; !done {
			r.undone++
		}
	}
	if r.lost > 0 && !v.loses {
		r.t.Errorf("%d messages were acknowledged and are not there", r.lost)
	}
	for payload, n := range there {
		if r.refused[payload] {
			r.t.Errorf("%s was said to be not stored, and is", payload)
		}
		if n > 1 {
			r.t.Errorf("%s is stored %d times", payload, n)
		}
	}
	if len(r.stored) < 50 {
		r.t.Errorf("only %d messages were stored: no load, no verdict", len(r.stored))
	}
}

// kinds counts the errors by their kind.
func (r *rig) kinds() map[string]int {
	kinds := map[string]int{}
	for _, err := range r.errs {
		var full *backend.FullError
		switch {
		case errors.As(err, &full):
			kinds[full.Reason]++
		case errors.Is(err, backend.ErrOutcomeUnknown):
			kinds["outcome unknown"]++
		case errors.Is(err, backend.ErrUnavailable):
			kinds["not available"]++
		case errors.Is(err, context.DeadlineExceeded):
			kinds["not sent in time"]++
		default:
			kinds[err.Error()]++
		}
	}
	return kinds
}

// lines is a log that is read while it is written.
type lines struct{ capture.Buffer }

// tells reports whether the log says text. Of an outage the pool tells the first error only:
// that may be of a settlement that met the group's absence before a claim did, or of a call
// that got no answer in time because the machine stalled.
func (l *lines) tells(text string) bool {
	for line := range strings.Lines(l.String()) {
		outage := strings.Contains(line, "waiting for the backend")
		if strings.Contains(line, text) || outage && (strings.Contains(line, "NOGROUP") || strings.Contains(line, "i/o timeout")) {
			return true
		}
	}
	return false
}
