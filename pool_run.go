package weir

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"strconv"
	"time"
)

// errGoexit is what a handler that ended its goroutine is taken to have returned.
var errGoexit = errors.New("the handler called runtime.Goexit")

// errSpent is what the handler of a message is taken to have returned that a crash used
// up: whoever had it last is gone, and its own limit is reached.
var errSpent = errors.New("delivered as often as the message allows")

// panicError is what a handler that panicked is taken to have returned.
type panicError struct{ value any }

func (e *panicError) Error() string { return fmt.Sprintf("panic: %v", e.value) }

func (e *panicError) Unwrap() error {
	err, _ := e.value.(error)
	return err
}

// wake makes sure that a worker takes what is waiting. One worker at a time is on its
// way; it wakes the next one if it finds more. The lock is held.
func (p *Pool) wake() {
	switch {
	case p.mu.waiting.len() == 0 || p.mu.waking || p.mu.doubted || p.mu.stopping:
	case p.mu.idle > 0:
		p.mu.waking = true
		p.mu.hasWork.Signal()
	case p.mu.live < p.mu.workers:
		p.mu.waking = true
		p.mu.live++
		go p.workLoop()
	}
}

// worker is one goroutine that runs handlers.
type worker struct {
	pool      *Pool
	goroutine int64
	job       *job
	delivery  *Delivery // the job's
	ended     bool      // nobody counts it any more
}

// workLoop runs handlers until the pool stops. Workers are started when there is
// work for them; Run waits for them.
func (p *Pool) workLoop() {
	w := worker{pool: p, goroutine: goroutineNumber()}
	defer w.end()
	for w.next() {
		w.handle()
	}
}

// next settles the last job and takes another one. It returns false when the
// worker has to end.
func (w *worker) next() bool {
	p := w.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	if w.job == nil { // it is new
		p.mu.waking = false
	}
	if !w.finish() {
		return false
	}
	for {
		if p.mu.stopping || p.mu.live > p.mu.workers {
			return false
		}
		if !p.mu.doubted && w.take() {
			return true
		}
		p.mu.idle++
		p.mu.hasWork.Wait()
		p.mu.idle--
		p.mu.waking = false
	}
}

// take gives the worker the first job that is still this pool's.
func (w *worker) take() bool {
	p := w.pool
	for p.mu.waiting.len() > 0 {
		j := p.mu.waiting.pop()
		p.roomMade()
		now := time.Now()
		if j.lost || now.After(j.end(p.cfg.ReclaimAfter)) {
			p.leave(j, verdictLost)
			continue
		}
		if late := j.delivery.Deadline; !late.IsZero() && !now.Before(late) {
			p.leave(j, verdictExpired)
			continue
		}
		if j.limit > 0 && j.lease.Attempt > j.limit {
			j.err = errSpent
			p.leave(j, verdictFailed)
			continue
		}
		j.state, j.started, j.goroutine = jobRunning, now, w.goroutine
		if j.timeout = timeoutOf(j.delivery, p.cfg.HandlerTimeout); j.timeout > 0 {
			j.ctx.deadline = now.Add(j.timeout)
		}
		if j.timeout != max(p.cfg.HandlerTimeout, 0) {
			kick(p.watch) // it may have to look earlier
		}
		if j.lease.Attempt > 1 {
			p.mu.stats.Redelivered++
		}
		p.mu.work.note(now, p.mu.running)
		p.mu.running++
		w.job, w.delivery, j.delivery = j, j.delivery, nil
		p.wake()
		p.busyChanged()
		return true
	}
	return false
}

// finish lets go of the worker's job. It returns false when another worker has
// taken this one's place.
func (w *worker) finish() bool {
	p, j := w.pool, w.job
	w.job = nil
	switch {
	case j == nil:
	case j.state != jobAbandoned:
		p.mu.work.finished(p.mu.running)
		p.mu.running--
		p.lasted(time.Since(j.started))
		v := p.judge(j)
		p.leave(j, v)
		p.unpark(j, v)
		p.roomMade()
		p.busyChanged()
	case j.replaced:
		p.mu.stuck--
		w.ended = true
		return false
	default:
		p.mu.blocked--
		p.roomMade()
	}
	return true
}

// lasted learns how long a handler took. The lock is held.
func (p *Pool) lasted(d time.Duration) {
	d = max(d, time.Nanosecond)
	if p.mu.took == 0 {
		p.mu.took = d
	}
	p.mu.took = max(p.mu.took+(d-p.mu.took)/8, time.Nanosecond)
}

// judge decides what becomes of a job whose handler has returned.
func (p *Pool) judge(j *job) verdict {
	switch {
	case j.err == nil && !j.timedOut:
		return verdictAck // though the lease may be lost: what is done is done
	case j.lost:
		return verdictLost
	case j.timedOut:
		j.err = timeoutError(j.timeout, j.err)
		return verdictFailed
	case !p.mu.killed.IsZero() && !isPoison(j.err):
		return verdictStopped
	}
	return verdictFailed
}

// timeoutError says that a handler ran too long, and what it returned after that.
func timeoutError(after time.Duration, err error) error {
	if err == nil || errors.Is(err, ErrHandlerTimeout) || errors.Is(err, context.Canceled) {
		return fmt.Errorf("%w after %s", ErrHandlerTimeout, after)
	}
	return fmt.Errorf("%w after %s: %w", ErrHandlerTimeout, after, err)
}

// end is the last thing that a worker does, whether it returns or its handler
// ended its goroutine.
func (w *worker) end() {
	p := w.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	w.finish()
	if w.ended {
		return
	}
	p.mu.live--
	p.mu.waking = false
	p.wake()
	p.mu.ended.Broadcast()
}

// handle runs the handler for the worker's job.
func (w *worker) handle() {
	p, j := w.pool, w.job
	handled := p.cfg.Hooks.Handled
	ctx, end := context.Context(j.ctx), noEnd
	if j.trace != nil {
		ctx, end = p.attempt(j, w.delivery)
	}
	j.err = errGoexit // unless it returns
	defer func() {
		j.ctx.cancel(context.Canceled)
		end(j.err)
		if handled != nil {
			handled(p.name, time.Since(j.started), j.err)
		}
	}()
	j.err = p.call(ctx, j, w.delivery)
}

func noEnd(error) {}

// call turns a panic of the handler into its error.
func (p *Pool) call(ctx context.Context, j *job, d *Delivery) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &panicError{v}
			p.log.Error("weir: handler panicked", append(p.about(j), "panic", fmt.Sprint(v), "stack", string(debug.Stack()))...)
		}
		if err != nil && !sound(err) {
			err = fmt.Errorf("%v, a %T whose methods panic", err, err)
		}
	}()
	return p.handler(ctx, d)
}

// sound tries what the pool will call of an error. A nil pointer is an error, too, and its
// methods may not expect it.
func sound(err error) (ok bool) {
	defer func() {
		if recover() != nil {
			ok = false
		}
	}()
	var retry *RetryError
	_ = err.Error()
	_ = errors.Is(err, ErrHandlerTimeout) || isPoison(err) || errors.As(err, &retry)
	return true
}

// leave hands a job to the lane that settles it; the lock is held.
func (p *Pool) leave(j *job, v verdict) {
	j.verdict, j.state = v, jobSettling
	p.mu.settling++
	switch v {
	case verdictAck:
		p.acks.add(j)
	case verdictExpired:
		p.expired.add(j)
	default:
		p.mu.returning++
		p.returns.add(j)
	}
}

// goroutineNumber is the number that stack traces give the calling goroutine.
func goroutineNumber() int64 {
	var buf [64]byte
	text, _ := bytes.CutPrefix(buf[:runtime.Stack(buf[:], false)], []byte("goroutine "))
	number, _, _ := bytes.Cut(text, []byte(" "))
	n, _ := strconv.ParseInt(string(number), 10, 64)
	return n
}
