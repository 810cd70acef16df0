package engine

import (
	"context"
	"slices"
	"time"

	"github.com/weirmq/weir/internal/api"
)

// waiter stands in line for the jobs of a queue: a work stream that has room, or a
// claim that waits. Under the topic's lock, but for ready.
type waiter struct {
	ready   chan struct{} // holds one signal: there may be something
	since   int64         // when it began to wait, by the lease clock
	room    func() int    // how many jobs it can take
	inLine  bool
	claim   *claim // nil: a work stream
	dealing bool   // a claim that another one is dealing to
	leaving bool   // a claim that waits for the end of that, to go
}

// workers are those who wait for the jobs of one queue, or may. The topic's lock guards
// them.
type workers struct {
	all    map[*waiter]struct{}
	claims int         // how many of them are claims
	line   []*waiter   // those that have room, longest waiting first
	wake   *time.Timer // looks again when time alone makes a job claimable
	at     int64       // when it does, by the lease clock; 0: it rests
}

// streams is how many of the workers are work streams. The topic's lock is held.
func (l *leased) streams() int {
	if l.workers == nil {
		return 0
	}
	return len(l.workers.all) - l.workers.claims
}

// joinWorkers makes w one of the queue's workers. The topic's lock is held.
func (e *Engine) joinWorkers(t *entry, w *waiter) {
	ws := t.jobs.workers
	if ws == nil {
		ws = &workers{all: make(map[*waiter]struct{})}
		ws.wake = time.AfterFunc(time.Hour, func() { e.workDue(t) })
		ws.wake.Stop()
		t.jobs.workers = ws
	}
	ws.all[w] = struct{}{}
	if w.claim != nil {
		ws.claims++
	}
}

// leaveWorkers takes joinWorkers back. The topic's lock is held.
func (t *entry) leaveWorkers(w *waiter) {
	ws := t.jobs.workers
	delete(ws.all, w)
	if w.claim != nil {
		ws.claims--
	}
	if w.inLine {
		w.inLine = false
		ws.line = slices.DeleteFunc(ws.line, func(o *waiter) bool { return o == w })
	}
	if len(ws.all) == 0 {
		ws.wake.Stop()
		t.jobs.workers = nil
	}
}

// lineUp puts w last in line for jobs. The topic's lock is held.
func (t *entry) lineUp(w *waiter, now int64) {
	if !w.inLine {
		w.inLine = true
		if w.claim == nil {
			w.since = now
		}
		t.jobs.workers.line = append(t.jobs.workers.line, w)
	}
}

// wakeWorkers wakes as many waiting connections as there are claimable jobs,
// the longest waiting first. Claims keep their place until they are dealt something;
// the first one woken deals to all of them, unless the queue gathers claims: then each
// joins the window. The topic's lock is held.
func (e *Engine) wakeWorkers(t *entry) {
	ws := t.jobs.workers
	if ws == nil {
		return
	}
	ready := t.claimable(e.leaseClock())
	gathers := t.Config.ClaimJitterMS > 0
	kept, n, told := 0, 0, false
	for ; n < len(ws.line) && ready > 0; n++ {
		w := ws.line[n]
		room := w.room()
		if w.claim != nil {
			ws.line[kept] = w
			kept++
			if gathers || !told {
				signal(w.ready)
			}
			told = true
		} else {
			w.inLine = false
			if room <= 0 {
				continue
			}
			signal(w.ready)
		}
		if gathers {
			ready-- // the window shares the jobs out one by one
		} else {
			ready -= min(ready, uint64(room))
		}
	}
	ws.line = slices.Delete(ws.line, kept, n)
	e.watchLeases(t)
}

// claimWaiting is Claim for one that waits.
func (e *Engine) claimWaiting(ctx context.Context, name string, req *api.ClaimRequest, visit func(*api.Job)) (api.ClaimResult, error) {
	timer := time.NewTimer(time.Duration(req.WaitMS) * time.Millisecond)
	defer timer.Stop()
	begin := e.leaseClock()
	w := &waiter{ready: make(chan struct{}, 1), since: begin, room: func() int { return req.Max }}
	for over := false; ; {
		c, err := e.claimNow(ctx, name, req, w)
		if err == nil && c.lined { // its picks are not its own before leaveLine: others deal to it
			over, err = c.await(ctx, name, timer.C)
		}
		if err != nil {
			return api.ClaimResult{}, err
		}
		res, err := c.deliver(ctx, visit)
		if err != nil && err == ctx.Err() {
			res, err, over = api.ClaimResult{Ready: c.ready}, nil, true // nobody is there to be told of an error
		}
		if err != nil || res.Count > 0 || over {
			res.Waits, res.Waited = true, time.Duration(c.since-begin)*time.Millisecond
			return res, err
		}
	}
}

// await waits until the claim has been dealt jobs, or should be made again. over says
// that the time is up, the server drains or the claimer is gone.
func (c *claim) await(ctx context.Context, name string, timeUp <-chan time.Time) (over bool, err error) {
	for done := false; !done && !over && err == nil; {
		select {
		case <-c.wait.ready:
			done, err = c.look(name)
		case <-timeUp:
			over = true
		case <-c.e.drain:
			over = true
		case <-ctx.Done():
			over = true
		}
	}
	c.leaveLine()
	if err == nil {
		err = c.err // of its last deal, if it was over before it was told
	}
	if err != nil {
		c.giveBack(c.picks)
	}
	return over, err
}

// look deals out what has become claimable. done says that the claim has its share, or
// should be made again.
func (c *claim) look(name string) (done bool, err error) {
	t, now, err := c.e.lockQueue(name)
	if err != nil {
		return false, err
	}
	if t == c.t && c.wait.inLine && t.Config.ClaimJitterMS == 0 {
		c.dealToLine(name, now)
		return false, nil // who got something is told so
	}
	defer t.mu.Unlock()
	if t != c.t {
		return false, api.TopicNotFound(name)
	}
	return !c.wait.dealing, c.err
}

// dealToLine shares what is claimable out among the claims in line, as a window does.
// The topic's lock is held and released.
func (c *claim) dealToLine(name string, now int64) {
	t := c.t
	claims := t.takeFromLine(now)
	if len(claims) == 0 {
		t.mu.Unlock()
		return
	}
	if err := c.e.share(t, name, now, claims); err != nil {
		t.notDealt(claims, err)
	}
}

// takeFromLine takes as many claims out of the line as there are claimable jobs, the longest
// waiting first, to be dealt to. The topic's lock is held.
func (t *entry) takeFromLine(now int64) (claims []*claim) {
	ws := t.jobs.workers
	if ws == nil {
		return nil
	}
	ready := t.claimable(now)
	ws.line = slices.DeleteFunc(ws.line, func(o *waiter) bool {
		if o.claim == nil || uint64(len(claims)) == ready {
			return false
		}
		o.inLine, o.dealing = false, true
		claims = append(claims, o.claim)
		return true
	})
	return claims
}

// notDealt ends with an error the waits of claims that were taken from the line. The topic's
// lock is free.
func (t *entry) notDealt(claims []*claim, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, c := range claims {
		c.err = err
		c.wait.dealt()
	}
}

// dealt tells a claim that nobody deals to it any longer. The topic's lock is held.
func (w *waiter) dealt() {
	if w.dealing {
		w.dealing = false
		signal(w.ready)
	}
}

// bookWaiting ends the dealing to a claim that waits; if it got nothing it goes on
// waiting, and is not told: there may be jobs that count as claimable and are not to be
// had, for which it would look again and again. The topic's lock is held.
func (c *claim) bookWaiting() {
	w, t := c.wait, c.t
	if len(c.picks) == 0 {
		if !c.lined {
			c.lined, w.claim = true, c
			c.e.joinWorkers(t, w)
		}
		t.lineUp(w, c.e.leaseClock())
		if !w.leaving {
			w.dealing = false
			return
		}
	}
	w.dealt()
}

// leaveLine ends the wait of a claim. If somebody is dealing to it, it keeps what it
// gets.
func (c *claim) leaveLine() {
	w, t := c.wait, c.t
	t.mu.Lock()
	w.leaving = true
	for w.dealing {
		t.mu.Unlock()
		<-w.ready
		t.mu.Lock()
	}
	defer t.mu.Unlock()
	t.leaveWorkers(w)
	w.claim, w.leaving = nil, false
	now := c.e.leaseClock()
	t.jobs.claimed = now
	if len(c.picks) == 0 {
		c.since = now
	}
	c.ready = t.jobCounters(now).Ready
	c.e.wakeWorkers(t) // it may be the one that was to deal
}
