package webhook

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"github.com/weirmq/weir/internal/api"
)

// How failures are met. The delays of a job double with its deliveries, the pauses of a
// webhook with its failures in a row.
const (
	retryBase = time.Second
	retryMax  = 5 * time.Minute
	maxAfter  = 10 * time.Minute // of a Retry-After

	tripAfter = 5 // failures in a row after which jobs are taken one at a time
	pauseMax  = time.Minute

	claimWait     = 10 * time.Second // of one claim
	claimRetry    = time.Second      // after a claim that failed; doubles
	claimRetryMax = 15 * time.Second

	// A lease is as long as a delivery may take and this, so that it never has to be
	// extended: by then it is settled.
	settleTime  = 15 * time.Second
	settleRetry = time.Second
)

var (
	errStopped = errors.New("the server stopped before the answer came")
	errChanged = errors.New("the webhook has changed")
)

// hook delivers the jobs of one webhook. One goroutine claims, as many as there is room
// for; each job that it gets has one of its own.
type hook struct {
	set   *Set
	name  string
	wake  chan struct{} // something has changed that run waits for; holds one
	done  context.Context
	leave context.CancelFunc

	mu struct {
		sync.Mutex
		sender *sender
		idle   func()          // closes connections that nobody uses
		same   context.Context // ends when sender is replaced
		change context.CancelCauseFunc

		inFlight int
		streak   int       // failures in a row
		unheard  int       // claims that failed in a row
		until    time.Time // nothing is claimed before
		asked    time.Time // nor before, by the receiver
		paused   time.Time // since when, because of the streak
		next     time.Time // nor before, by the rate
		state    api.WebhookState
	}
}

// turn is a chance to claim.
type turn struct {
	sender *sender
	same   context.Context
	max    int
}

func newHook(set *Set, name string) *hook {
	h := &hook{set: set, name: name, wake: make(chan struct{}, 1)}
	h.done, h.leave = context.WithCancel(set.taking)
	return h
}

// configure replaces what is delivered where; deliveries under way go on as they began.
func (h *hook) configure(cfg *api.WebhookConfig, on bool, trip http.RoundTripper, idle func()) {
	h.mu.Lock()
	if h.mu.change != nil {
		h.mu.change(errChanged)
		h.mu.idle()
	}
	h.mu.sender = &sender{name: h.name, cfg: *cfg, trip: trip}
	h.mu.idle = idle
	h.mu.same, h.mu.change = context.WithCancelCause(h.done)
	h.mu.streak, h.mu.unheard = 0, 0
	h.mu.until, h.mu.asked, h.mu.next = time.Time{}, time.Time{}, time.Time{}
	h.mu.state.On, h.mu.state.LastError = on, ""
	h.mu.Unlock()
	h.poke()
}

func (h *hook) poke() {
	select {
	case h.wake <- struct{}{}:
	default:
	}
}

// run delivers until the webhook is deleted or the server stops, and then until what has
// begun is settled.
func (h *hook) run() {
	var deliveries sync.WaitGroup
	defer func() {
		deliveries.Wait()
		h.mu.Lock()
		defer h.mu.Unlock()
		h.mu.change(errChanged)
		h.mu.idle()
	}()
	for {
		t, ok := h.turn()
		if !ok {
			return
		}
		for _, j := range h.claim(&t) {
			deliveries.Go(func() { h.deliver(t.sender, &j) })
		}
	}
}

// turn waits until there is room for a delivery, and for what holds it up.
func (h *hook) turn() (turn, bool) {
	for {
		t, wait := h.room(time.Now())
		if t.max > 0 && wait <= 0 {
			return t, h.done.Err() == nil
		}
		var later <-chan time.Time
		if t.max > 0 {
			later = time.After(wait)
		}
		select {
		case <-later:
		case <-h.wake:
		case <-h.done.Done():
			return turn{}, false
		}
	}
}

// room returns how many jobs may be taken, and how long to wait before that.
func (h *hook) room(now time.Time) (turn, time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	t := turn{sender: h.mu.sender, same: h.mu.same, max: h.mu.sender.cfg.Concurrency}
	if !h.mu.state.On {
		return turn{}, 0
	}
	if h.mu.streak >= tripAfter {
		t.max = 1
	}
	t.max = max(t.max-h.mu.inFlight, 0)
	if t.sender.cfg.Rate > 0 {
		t.max = min(t.max, 1)
	}
	wait := max(h.mu.until.Sub(now), h.mu.asked.Sub(now), h.mu.next.Sub(now))
	if !h.set.leads() {
		wait = max(wait, claimRetry)
	}
	return t, wait
}

// claim takes jobs, and counts them as deliveries under way.
func (h *hook) claim(t *turn) []job {
	cfg := &t.sender.cfg
	req := api.ClaimRequest{Node: h.node(), Max: t.max, HasLease: true, WaitMS: uint32(claimWait.Milliseconds()),
		LeaseMS: uint64(cfg.TimeoutMS) + uint64(settleTime.Milliseconds())}
	begin := time.Now()
	var jobs []job
	_, err := h.set.queue.Claim(t.same, cfg.Topic, &req, func(j *api.Job) {
		jobs = append(jobs, job{seq: j.Seq, lease: j.LeaseID, deliveries: j.Deliveries, data: append([]byte(nil), j.Data...)})
	})
	if err != nil || len(jobs) == 0 {
		h.gotNone(t, err, time.Since(begin) < claimWait/2)
		return nil // of a claim that has failed nothing is leased
	}
	begun := 0
	if now, wait := h.room(time.Now()); wait <= 0 && t.same.Err() == nil { // it may have changed while the claim waited
		begun = min(now.max, len(jobs))
	}
	if begun < len(jobs) {
		h.giveBack(cfg.Topic, jobs[begun:])
	}
	if jobs = jobs[:begun]; begun == 0 {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.mu.unheard > 0 {
		h.mu.unheard, h.mu.state.LastError = 0, ""
	}
	h.mu.inFlight += len(jobs)
	if cfg.Rate > 0 {
		h.mu.next = time.Now().Add(time.Second / time.Duration(cfg.Rate))
	}
	return jobs
}

// gotNone says when to claim again.
func (h *hook) gotNone(t *turn, err error, atOnce bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case t.same.Err() != nil: // changed, or over
	case err != nil:
		h.mu.unheard++
		hold(&h.mu.until, time.Now().Add(doubled(claimRetry, h.mu.unheard-1, claimRetryMax)))
		h.mu.state.LastError = "no jobs could be taken: " + api.Sentence(err)
	case atOnce: // so answers an engine that drains
		hold(&h.mu.until, time.Now().Add(claimRetry))
	case h.mu.unheard > 0:
		h.mu.unheard, h.mu.state.LastError = 0, ""
	}
}

// node is who claims.
func (h *hook) node() string {
	node := "webhook:" + h.name
	return node[:min(len(node), h.set.opt.MaxNodeBytes)]
}

// deliver sends a job and settles it.
func (h *hook) deliver(s *sender, j *job) {
	ctx, cancel := context.WithTimeout(h.set.cut, time.Duration(s.cfg.TimeoutMS)*time.Millisecond)
	began := time.Now()
	res := s.send(ctx, j)
	cancel()
	req := api.SettleRequest{Node: h.node(), Seqs: []uint64{j.seq}, LeaseIDs: []uint64{j.lease}}
	switch {
	case res.err == nil:
		h.settle(s.cfg.Topic, h.set.queue.Ack, &req)
	default:
		if !errors.Is(res.err, errStopped) {
			req.DelayMS = uint64(max(scattered(doubled(retryBase, int(min(j.deliveries, 64))-1, retryMax)), res.after).Milliseconds())
		}
		h.settle(s.cfg.Topic, h.set.queue.Nack, &req)
	}
	h.ended(s, began, &res)
}

// ended books what a delivery has come to and frees its place.
func (h *hook) ended(s *sender, began time.Time, res *result) {
	h.mu.Lock()
	h.mu.inFlight--
	st, now := &h.mu.state, time.Now()
	st.LastStatus, st.LastTS = res.status, now.UnixMilli()
	was, same := h.mu.streak, s == h.mu.sender
	switch {
	case res.err == nil:
		st.Deliveries++
		st.LastError = ""
		if same && was >= tripAfter {
			h.mu.until = time.Time{}
		}
		if same {
			h.mu.streak = 0
		}
	default:
		st.Failures++
		st.LastError = res.err.Error()
		if !same {
			break // what has failed is not there any more
		}
		if res.status == http.StatusTooManyRequests || res.status == http.StatusServiceUnavailable {
			hold(&h.mu.asked, now.Add(res.after)) // it speaks for all jobs, also if one succeeds
		}
		if began.Before(h.mu.paused) {
			break // it failed with those that the pause is for
		}
		if h.mu.streak++; h.mu.streak >= tripAfter {
			hold(&h.mu.until, now.Add(scattered(doubled(retryBase, h.mu.streak-tripAfter, pauseMax))))
			h.mu.paused = now
		}
	}
	tripped, closed := was < tripAfter && h.mu.streak >= tripAfter, was >= tripAfter && h.mu.streak == 0
	h.mu.Unlock()
	if tripped {
		h.set.opt.Logger.Warn("a webhook fails; its jobs are taken one at a time", "webhook", h.name, "error", res.err)
	}
	if closed {
		h.set.opt.Logger.Info("a webhook delivers again", "webhook", h.name)
	}
	h.poke()
}

// hold lets until be at, if that is later.
func hold(until *time.Time, at time.Time) {
	if at.After(*until) {
		*until = at
	}
}

// settle acks or nacks; what the engine refuses for longer than a lease lasts comes again.
func (h *hook) settle(topic string, verb settleVerb, req *api.SettleRequest) {
	ctx, cancel := context.WithTimeout(context.Background(), settleTime)
	defer cancel()
	for {
		_, err := verb(ctx, topic, req)
		if e, ok := errors.AsType[*api.Error](err); err == nil || ok && !e.Retryable() {
			return
		}
		select {
		case <-ctx.Done():
		case <-h.set.cut.Done():
		case <-time.After(settleRetry):
			continue
		}
		h.set.opt.Logger.Warn("a delivery could not be settled; the job is delivered again after its lease", "webhook", h.name, "seq", req.Seqs[0], "error", err)
		return
	}
}

// giveBack returns jobs that were not begun.
func (h *hook) giveBack(topic string, jobs []job) {
	req := api.SettleRequest{Node: h.node(), NotStarted: true}
	for _, j := range jobs {
		req.Seqs, req.LeaseIDs = append(req.Seqs, j.seq), append(req.LeaseIDs, j.lease)
	}
	h.settle(topic, h.set.queue.Nack, &req)
}

// stateNow returns the state as it is shown.
func (h *hook) stateNow() api.WebhookState {
	h.mu.Lock()
	defer h.mu.Unlock()
	st := h.mu.state
	st.Webhook, st.Config = h.name, h.mu.sender.cfg
	st.InFlight, st.Failing = h.mu.inFlight, h.mu.streak >= tripAfter || h.mu.unheard >= tripAfter
	return st
}

// doubled returns base, doubled n times, up to most.
func doubled(base time.Duration, n int, most time.Duration) time.Duration {
	for ; n > 0 && base < most; n-- {
		base *= 2
	}
	return min(base, most)
}

// scattered takes up to a fifth off d, so that not all come back at once.
func scattered(d time.Duration) time.Duration { return d - rand.N(d/5+1) }
