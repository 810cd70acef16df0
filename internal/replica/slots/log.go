package slots

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/weirmq/weir/internal/replica"
)

// Options are those of a Log.
type Options struct {
	// Grace is how long an entry stays after it was written, whatever Trim is told;
	// a day if it is 0. Below a minute it is for tests.
	Grace time.Duration
	// Keep is how many of the newest entries stay, at least 8; 1,000 if it is 0.
	Keep int
	// Trouble is told the errors after which something is tried again.
	Trouble func(error)
}

// Log is a replica.Log.
type Log struct {
	objects Objects
	opt     Options
	closed  context.Context // ends with Close
	close   context.CancelFunc
	running sync.WaitGroup

	mu     sync.Mutex
	read   position        // where the last Read ended
	streak int             // how many Reads in a row have found an entry
	ahead  map[uint64]slot // read already, by position
	lead   *session
	probed bool
	format []byte // what FORMAT holds; set once, by Probe
}

// position is a place in the log.
type position struct {
	place
	sure  time.Time // when it was known not to be trimmed
	whole time.Time // when it was known that nothing behind it is missing
}

// New returns the log in objects.
func New(objects Objects, opt Options) *Log {
	if opt.Grace == 0 {
		opt.Grace = 24 * time.Hour
	}
	if opt.Keep == 0 {
		opt.Keep = 1000
	}
	opt.Keep = max(opt.Keep, 2*replica.Window)
	if opt.Trouble == nil {
		opt.Trouble = func(error) {}
	}
	closed, cancel := context.WithCancel(context.Background())
	return &Log{objects: objects, opt: opt, closed: closed, close: cancel}
}

// Close ends everything that waits.
func (l *Log) Close() error {
	l.close()
	l.running.Wait()
	return nil
}

// until returns a context that ends with ctx, and with the log.
func (l *Log) until(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(l.closed, cancel)
	if l.closed.Err() != nil { // AfterFunc takes its time
		cancel()
	}
	return ctx, func() { stop(); cancel() }
}

// outOfTouch returns whether so much time may have passed since then that positions
// have been trimmed. The monotonic clock stands still while a machine sleeps.
func (l *Log) outOfTouch(since time.Time) bool {
	now := time.Now()
	passed := max(now.Sub(since), time.Duration(now.UnixNano()-since.UnixNano()))
	return passed > l.touch()
}

// touch is how long after it was looked at nothing can have been trimmed: young
// entries stay.
func (l *Log) touch() time.Duration { return min(5*time.Second, l.opt.Grace/10) }

// holder is what a term object holds.
type holder struct {
	Node    string    `json:"node"`
	Started time.Time `json:"started"`
	ID      string    `json:"id"` // makes it differ from what others write
}

// Newest returns the newest term. That its object is damaged is told and does not matter: what
// decides is its name.
func (l *Log) Newest(ctx context.Context) (replica.Term, error) {
	ctx, cancel := l.until(ctx)
	defer cancel()
	numbers, err := l.terms(ctx)
	if err != nil || len(numbers) == 0 {
		return replica.Term{}, err
	}
	newest := numbers[len(numbers)-1]
	t, err := l.term(ctx, newest)
	if errors.Is(err, replica.ErrDamaged) {
		l.opt.Trouble(err)
		return replica.Term{Number: newest}, nil
	}
	return t, err
}

// ID tells this copy from others; empty if there is none yet.
func (l *Log) ID(ctx context.Context) (string, error) {
	ctx, cancel := l.until(ctx)
	defer cancel()
	data, err := l.get(ctx, formatName)
	if errors.Is(err, replica.ErrNotFound) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	f, err := decodeFormat(data)
	return f.LogID, err
}

// Terms returns all terms.
func (l *Log) Terms(ctx context.Context) (all []replica.Term, err error) {
	ctx, cancel := l.until(ctx)
	defer cancel()
	numbers, err := l.terms(ctx)
	for _, n := range numbers {
		t, err := l.term(ctx, n)
		if err != nil {
			return nil, err
		}
		all = append(all, t)
	}
	return all, err
}

// terms returns the numbers of all terms.
func (l *Log) terms(ctx context.Context) (all []uint64, err error) {
	for last := ""; ; {
		page, err := l.list(ctx, terms, last, 1000)
		if err != nil || len(page) == 0 {
			return all, err
		}
		for _, f := range page {
			n, err := number(terms, f.Name)
			if err != nil {
				return nil, err
			}
			all, last = append(all, n), f.Name
		}
	}
}

// term reads a term object.
func (l *Log) term(ctx context.Context, number uint64) (replica.Term, error) {
	var h holder
	data, err := l.get(ctx, termName(number))
	if err != nil {
		return replica.Term{}, err
	}
	if err := json.Unmarshal(data, &h); err != nil {
		return replica.Term{}, fmt.Errorf("%w: %s: %v", replica.ErrDamaged, termName(number), err)
	}
	return replica.Term{Number: number, Node: h.Node, Started: h.Started}, nil
}

// marker returns the place up to which entries may be gone; start if none is.
func (l *Log) marker(ctx context.Context) (place, error) {
	last := start
	for after := ""; ; {
		page, err := l.list(ctx, trims, after, 1000)
		if err != nil || len(page) == 0 {
			return last, err
		}
		after = page[len(page)-1].Name
		if last, err = trimmed(after); err != nil {
			return start, err
		}
	}
}
