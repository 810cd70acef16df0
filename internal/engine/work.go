package engine

import (
	"cmp"
	"context"
	"time"

	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/internal/engine/queue"
)

const (
	// workRetry is how long a claimable job may lie while workers wait: the
	// worker woken for it may be busy writing, or its dead letter could not be
	// moved.
	workRetry = 250 * time.Millisecond
	// workPiece is about the most bytes pushed at once.
	workPiece = 1 << 20
)

// Work is the jobs that are leased to one connection. Next is for one
// goroutine; Close may come at any time.
type Work struct {
	waiter
	e      *Engine
	t      *entry
	req    api.ClaimRequest
	forget func() bool            // stops watching the connection's context
	limit  func(most int64) int64 // see LimitReads

	// Under the topic's lock:
	held   *queue.Holder
	closed bool
}

// OpenWork begins to push jobs of a queue to a connection, up to req.Max at a
// time. The leases end with ctx or Close. The errors are the contract's, for an
// absent topic, a log or an invalid node.
func (e *Engine) OpenWork(ctx context.Context, name string, req *api.ClaimRequest) (*Work, error) {
	defer guard()
	t, _, err := e.lockQueue(name)
	if err != nil {
		return nil, err
	}
	defer t.mu.Unlock()
	if err := api.CheckClaim(req, &e.opt.Limits); err != nil {
		return nil, err
	}
	w := &Work{waiter: waiter{ready: make(chan struct{}, 1)}, e: e, t: t, req: *req}
	w.waiter.room = w.room
	w.held = queue.NewHolder(w.lineUp)
	e.joinWorkers(t, &w.waiter)
	w.forget = context.AfterFunc(ctx, w.release)
	return w, nil
}

// LimitReads has limit called before jobs are leased, with about how many bytes of data and
// meta they would have; limit returns how many they may.
func (w *Work) LimitReads(limit func(most int64) int64) {
	defer guard()
	w.limit = limit
}

// Ready receives when Next may have something.
func (w *Work) Ready() <-chan struct{} { return w.ready }

// Next leases what the connection has room for and calls visit for each job in
// ascending order of seq; the job is valid only during the call. n is 0 if
// nothing is claimable: Ready tells when to call again. After the queue's end
// the error is topic_not_found.
func (w *Work) Next(ctx context.Context, visit func(*api.Job)) (n int, err error) {
	defer guard()
	for {
		t, now, err := w.e.lockQueue(w.t.Name)
		if err != nil {
			return 0, err
		}
		if t != w.t {
			t.mu.Unlock()
			return 0, api.TopicNotFound(w.t.Name)
		}
		req := w.req
		req.Max = w.room()
		if req.Max <= 0 || w.closed {
			t.mu.Unlock()
			return 0, ctx.Err()
		}
		c := &claim{e: w.e, t: t, req: &req, work: w, asked: cmp.Or(w.since, now)}
		if t.Config.ClaimJitterMS > 0 {
			err = c.joinWindow(t.Name, now)
		} else {
			req.Max = min(req.Max, t.fitting(uint64(w.piece())))
			err = c.take(ctx, t.Name, now)
		}
		if err != nil {
			return 0, err
		}
		res, err := c.deliver(ctx, visit)
		if err != nil || res.Count > 0 || len(c.picks) == 0 {
			return res.Count, err
		}
	}
}

// Close gives back everything that the connection still holds. Jobs that its
// node claimed elsewhere stay claimed.
func (w *Work) Close() {
	defer guard()
	w.forget()
	w.release()
}

func (w *Work) release() {
	e, t := w.e, w.t
	t.mu.Lock()
	if w.closed {
		t.mu.Unlock()
		return
	}
	w.closed = true
	seqs := t.jobs.q.Drop(w.held)
	t.leaveWorkers(&w.waiter)
	tk, err := e.stageReleases(t, seqs)
	e.wakeWorkers(t)
	t.mu.Unlock()
	e.commitReleases(t, tk, err, len(seqs))
}

// piece is about how many bytes may be pushed at once.
func (w *Work) piece() int64 {
	if w.limit == nil {
		return workPiece
	}
	return w.limit(workPiece)
}

// room is how many jobs the connection can take. The topic's lock is held.
func (w *Work) room() int { return w.req.Max - w.held.Len() }

// lineUp puts the connection last in line for jobs. The topic's lock is held.
func (w *Work) lineUp() {
	if !w.closed {
		w.t.lineUp(&w.waiter, w.e.leaseClock())
	}
}

// book books the picks of a claim to its work stream, before they are logged; a stream
// that still has room waits for more, and so does a claim that waits and got none. The
// topic's lock is held.
func (c *claim) book() {
	w := c.work
	switch {
	case c.wait != nil:
		c.bookWaiting()
	case w == nil:
	case w.closed:
		c.t.jobs.q.Unclaim(c.picks)
		c.picks = nil
	default:
		c.t.jobs.q.Hold(w.held, c.picks)
		if len(c.picks) < c.req.Max {
			w.lineUp()
		}
	}
	if len(c.picks) > 0 {
		c.t.lastRead.Store(c.e.clock())
	}
}

// fitting is how many of the topic's records take about that many bytes, at
// least one. The topic's lock is held.
func (t *entry) fitting(bytes uint64) int {
	if t.Bytes <= bytes {
		return int(max(t.Count, 1))
	}
	return int(max(1, bytes*t.Count/t.Bytes))
}

// watchLeases sets the timer for what time alone will make claimable, and for
// jobs that lie claimable though somebody waits. The topic's lock is held.
func (e *Engine) watchLeases(t *entry) {
	ws := t.jobs.workers
	if ws == nil {
		return
	}
	now := e.leaseClock()
	at, ok := t.jobs.q.NextEvent()
	e.awaitExpiry(t) // behind that, for it may end leases
	if len(ws.line) > 0 && t.claimable(now) > 0 {
		at, ok = min(at, now+workRetry.Milliseconds()), true
	}
	if !ok || ws.at != 0 && ws.at <= at {
		return
	}
	ws.at = at
	ws.wake.Reset(time.Duration(max(at-now, 1)) * time.Millisecond)
}

// workDue is what the timer of a queue's work streams does.
func (e *Engine) workDue(t *entry) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.jobs.workers == nil {
		return
	}
	t.jobs.workers.at = 0
	e.wakeWorkers(t)
}
