package weir

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"time"

	"github.com/weirmq/weir/backend"
)

// RedriveConfig says which dead letters are sent back, and how fast. A zero field
// means its default, given in its comment.
type RedriveConfig struct {
	Filter LetterFilter // all

	// Delay is how long a letter stays dead before it is sent back: 1s, doubled for
	// each time it has been sent back before; -1 = no delay.
	Delay time.Duration
	// MaxDelay is the longest delay: 1h.
	MaxDelay time.Duration
	// Rate is the most messages per second; 0 = no limit.
	Rate float64
	// Wait waits for letters whose delay is not over instead of leaving them. It does
	// not wait for letters that die after the start.
	Wait bool
	// ToOthers sends messages back even if others besides the group in which they
	// failed will handle them: readers that are not weir's, or all groups if that one is
	// gone. Without it, Redrive returns an OtherReadersError before it sends anything.
	ToOthers bool
	// Follow runs until ctx ends and also sends back what dies later. Once it has begun, it
	// waits for a backend that is not available.
	Follow bool
	// DryRun sends nothing.
	DryRun bool

	Tracing Tracing
	// Progress is called for each letter that was sent back, or would be with DryRun,
	// and with an error for each that could not be.
	Progress func(l *DeadLetter, err error)
	// Waiting is called before the redrive waits for letters that are not due yet.
	Waiting func(letters int, next time.Time)
	// Lost is called when a redrive that follows begins to wait for the backend.
	Lost func(err error)
}

// WithDefaults returns a copy of c in which every zero field has its default.
func (c RedriveConfig) WithDefaults() RedriveConfig {
	or(&c.Delay, time.Second)
	or(&c.MaxDelay, time.Hour)
	if c.Progress == nil {
		c.Progress = func(*DeadLetter, error) {}
	}
	if c.Waiting == nil {
		c.Waiting = func(int, time.Time) {}
	}
	if c.Lost == nil {
		c.Lost = func(error) {}
	}
	return c
}

// Validate returns an error that names the first invalid field and its valid values.
// Call it on a configuration WithDefaults.
func (c RedriveConfig) Validate() error {
	err := firstError(
		offOrBetween("Delay", c.Delay, -1, time.Millisecond, 30*24*time.Hour),
		between("MaxDelay", c.MaxDelay, time.Millisecond, 30*24*time.Hour),
		between("Rate", c.Rate, 0, 1e6),
	)
	if err == nil && c.DryRun && c.Follow {
		return errors.New("a redrive cannot both Follow and DryRun: a dry run only sees what is there now")
	}
	return err
}

// delay is how long a letter with that many redrives stays dead.
func (c *RedriveConfig) delay(redrives int) time.Duration {
	d := max(c.Delay, 0)
	for range redrives {
		if d >= c.MaxDelay || d == 0 {
			break
		}
		d *= 2
	}
	return min(d, c.MaxDelay)
}

// Redriven is what a redrive did.
type Redriven struct {
	Sent   int       // sent back, or would be with DryRun
	Early  int       // left because their delay is not over
	Failed int       // could not be sent back
	Next   time.Time // when the first of Early is due, by the server's clock; zero if there is none
}

const (
	// followPoll is how often a redrive that follows looks for new letters.
	followPoll = 2 * time.Second
	// redriveTries and redriveBackoff are how often and how fast a letter is retried
	// while the backend is unavailable: about 13 s in all.
	redriveTries   = 8
	redriveBackoff = 100 * time.Millisecond
	// slowest is the longest time between two letters, however low the rate.
	slowest = 100 * 365 * 24 * time.Hour
	// maxRedriveFailures is how many letters may fail before the redrive gives up.
	maxRedriveFailures = 100
)

// Redrive sends dead letters back to their stream, each after a delay that doubles
// every time it comes back. Messages keep their payload and headers, but not their
// deadline: they might expire again at once. The header weir-redrives counts their
// redrives. Guards do not delay them; Rate limits them. If a
// stream has several groups, a message goes to the one in which it failed: weir's
// workers of the others acknowledge it unseen.
//
// Redrive can be stopped at any time and run again, and several can run at once: a
// letter is sent back and removed in one step or, if the backend has no such step, so
// that a repeat stores nothing twice. The result counts what was done, also with an
// error.
func (d *DeadLetters) Redrive(ctx context.Context, cfg RedriveConfig) (Redriven, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return Redriven{}, fmt.Errorf("redrive: %w", err)
	}
	r := &redrive{letters: d, cfg: cfg, clock: d.clock(ctx)}
	if err := r.count(ctx); err != nil {
		return Redriven{}, fmt.Errorf("redrive: %w", err)
	}
	for {
		err := r.pass(ctx)
		switch {
		case cfg.Follow && backend.Retryable(err) && ctx.Err() == nil:
			err = r.outage(ctx, err)
		case err == nil && !cfg.Follow && (!cfg.Wait || r.done.Early == 0 || cfg.DryRun):
			return r.done, r.failure()
		case err == nil:
			r.lost = false
			err = r.rest(ctx)
		}
		if err != nil {
			return r.done, err
		}
	}
}

// redrive is one run of Redrive.
type redrive struct {
	letters *DeadLetters
	cfg     RedriveConfig
	clock   serverClock
	there   map[uint64]struct{} // hashes of the IDs of the letters of the start that have not been sent; nil with Follow
	seed    maphash.Seed
	next    time.Time // when the rate lets the next message go
	done    Redriven
	asked   map[origin]bool // for whose letters it is known that nobody else handles them
	failed  map[string]bool // letters that could not be sent back are tried once
	first   error           // why the first of them could not
	lost    bool            // the last look has found the backend away
}

// count notes the letters. What dies from now on may come anywhere in the list, as behind
// the others of its shard: a letter that a handler sends here again and again must neither
// keep the redrive running nor take the place of another.
func (r *redrive) count(ctx context.Context) error {
	r.there, r.seed = map[uint64]struct{}{}, maphash.MakeSeed()
	for letter, err := range r.letters.List(ctx, LetterFilter{}) {
		if err != nil {
			return err
		}
		r.there[r.hash(&letter)] = struct{}{}
		if r.cfg.Filter.matches(&letter, r.clock.now()) {
			if err := r.ask(ctx, &letter); err != nil {
				return err
			}
		}
	}
	if r.cfg.Follow {
		r.there = nil
	}
	return nil
}

func (r *redrive) hash(l *DeadLetter) uint64 { return maphash.String(r.seed, l.ID) }

// origin is where letters failed.
type origin struct{ stream, group string }

// ask returns an OtherReadersError if others than its group would handle a letter too.
func (r *redrive) ask(ctx context.Context, letter *DeadLetter) error {
	shared, can := r.letters.stream.backend.(backend.Shared)
	from := origin{letter.Stream, letter.Group}
	if !can || r.cfg.ToOthers || r.cfg.DryRun || r.asked[from] {
		return nil
	}
	others, err := shared.Others(ctx, letter.Stream, letter.Group)
	if err != nil {
		return fmt.Errorf("who reads stream %q: %w", letter.Stream, err)
	}
	if len(others) > 0 {
		return &OtherReadersError{Stream: letter.Stream, Group: letter.Group, Others: others}
	}
	if r.asked == nil {
		r.asked = map[origin]bool{}
	}
	r.asked[from] = true
	return nil
}

// pass sends back what is due.
func (r *redrive) pass(ctx context.Context) error {
	r.done.Early, r.done.Next = 0, time.Time{}
	clear(r.asked) // others may have come
	left := len(r.there)
	for letter, err := range r.letters.List(ctx, LetterFilter{}) {
		if err != nil {
			return err
		}
		if _, is := r.there[r.hash(&letter)]; !is && !r.cfg.Follow {
			continue
		}
		if err := r.judge(ctx, &letter); err != nil {
			return err
		}
		if left--; left == 0 {
			break
		}
	}
	return nil
}

// judge sends a letter back if it is one of those to be sent, and due.
func (r *redrive) judge(ctx context.Context, letter *DeadLetter) error {
	if r.failed[letter.ID] || !r.cfg.Filter.matches(letter, r.clock.now()) {
		return nil
	}
	if due := letter.DeadAt.Add(r.cfg.delay(letter.Redrives)); due.After(r.clock.now()) {
		r.early(due)
		return nil
	}
	if err := r.ask(ctx, letter); err != nil {
		return err
	}
	return r.send(ctx, letter)
}

// early notes a letter whose delay is not over.
func (r *redrive) early(due time.Time) {
	r.done.Early++
	if r.done.Next.IsZero() || due.Before(r.done.Next) {
		r.done.Next = due
	}
}

// outage waits with the next look while the backend is away.
func (r *redrive) outage(ctx context.Context, err error) error {
	if !r.lost {
		r.cfg.Lost(err)
	}
	r.lost = true
	return pause(ctx, followPoll)
}

// rest waits until a letter is due, or until the next check.
func (r *redrive) rest(ctx context.Context) error {
	wait := followPoll
	if r.done.Early > 0 {
		r.cfg.Waiting(r.done.Early, r.done.Next)
		due := r.done.Next.Sub(r.clock.now())
		if !r.cfg.Follow || due < wait {
			wait = due
		}
	}
	return pause(ctx, wait)
}

// send sends one letter back. An error ends the redrive.
func (r *redrive) send(ctx context.Context, letter *DeadLetter) error {
	if r.cfg.DryRun {
		r.done.Sent++
		r.cfg.Progress(letter, nil)
		return nil
	}
	if err := r.throttle(ctx); err != nil {
		return err
	}
	began := time.Now()
	err := r.try(ctx, letter)
	r.trace(ctx, letter, began, err)
	switch {
	case err == nil:
		delete(r.there, r.hash(letter))
		r.done.Sent++
		r.cfg.Progress(letter, nil)
		return nil
	case errors.Is(err, backend.ErrNotFound): // somebody else was quicker
		delete(r.there, r.hash(letter))
		return nil
	case ctx.Err() != nil, errors.Is(err, ErrClosed), backend.Retryable(err):
		return fmt.Errorf("dead letter %s of %q: %w", letter.ID, r.letters.name, err)
	}
	r.cfg.Progress(letter, err)
	if r.failed == nil {
		r.failed, r.first = map[string]bool{}, fmt.Errorf("ID %s: %w", letter.ID, err)
	}
	r.failed[letter.ID] = true
	r.done.Failed = len(r.failed)
	if r.done.Failed >= maxRedriveFailures {
		return r.failure()
	}
	return nil
}

// trace reports a letter that was sent back, or not.
func (r *redrive) trace(ctx context.Context, letter *DeadLetter, began time.Time, err error) {
	if r.cfg.Tracing.Redriven == nil || errors.Is(err, backend.ErrNotFound) {
		return
	}
	name := StreamName{Kind: r.letters.stream.info.Kind, Stream: letter.Stream, Group: letter.Group}
	r.cfg.Tracing.Redriven(ctx, name, letter, began, err)
}

// try sends one letter back and retries while that may help. A letter that is gone
// after an answer was lost has been sent.
func (r *redrive) try(ctx context.Context, letter *DeadLetter) error {
	lost := false
	for try := 1; ; try++ {
		err := r.letters.letters.Redrive(ctx, r.letters.name, *letter)
		if r.cfg.ToOthers && letter.Group != "" && errors.Is(err, ErrGroupNotFound) {
			letter.Group = "" // all of them
			continue
		}
		switch {
		case lost && errors.Is(err, backend.ErrNotFound):
			return nil
		case !backend.Retryable(err), try == redriveTries, ctx.Err() != nil:
			return err
		}
		lost = lost || errors.Is(err, ErrOutcomeUnknown)
		wait := redriveBackoff << (try - 1)
		var full *backend.FullError
		if errors.As(err, &full) {
			wait = max(wait, full.RetryAfter)
		}
		if pause(ctx, wait) != nil {
			return err
		}
	}
}

// throttle waits until the rate lets one message go.
func (r *redrive) throttle(ctx context.Context) error {
	if r.cfg.Rate == 0 {
		return ctx.Err()
	}
	if err := pause(ctx, time.Until(r.next)); err != nil {
		return err
	}
	gap := time.Duration(min(float64(time.Second)/r.cfg.Rate, float64(slowest)))
	if now := time.Now(); r.next.Before(now.Add(-gap)) {
		r.next = now // unused time is not made up for
	}
	r.next = r.next.Add(gap)
	return nil
}

// failure is the error of a redrive that could not send some letters back.
func (r *redrive) failure() error {
	switch r.done.Failed {
	case 0:
		return nil
	case 1:
		return fmt.Errorf("1 dead letter could not be sent back: %w", r.first)
	}
	return fmt.Errorf("%d dead letters could not be sent back; the first: %w", r.done.Failed, r.first)
}

// pause waits for d, or returns the context's error as soon as it has ended.
func pause(ctx context.Context, d time.Duration) error {
	if d <= 0 || ctx.Err() != nil {
		return ctx.Err()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
