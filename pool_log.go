package weir

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"time"

	"github.com/weirmq/weir/backend"
)

const (
	// failureLines is how many failed deliveries are logged per second, and how many
	// expired messages; the next line says how many were not.
	failureLines = 10
	// maxStackBytes bounds the stacks that are searched for a stuck handler's.
	maxStackBytes = 8 << 20
)

// trouble is a set of calls that the backend does not answer.
type trouble uint8

const (
	claimCalls trouble = 1 << iota
	settleCalls
	extendCalls
)

// answered learns how a call ended. An outage is logged once when it begins and once
// when it is over, but see seldom. After it, the server may have forgotten the leases, and what begins
// under a forgotten lease is done twice: nothing begins until the heartbeat has
// confirmed them.
func (p *Pool) answered(call trouble, err error) {
	p.mu.Lock()
	switch {
	case err != nil:
		p.mu.away |= call
		if leasesInDoubt(err) {
			p.mu.doubts++
			p.mu.doubted = true
		}
	case call == claimCalls:
		p.mu.away &^= claimCalls | extendCalls
	default:
		p.mu.away &^= call
	}
	is, doubted := p.mu.away, p.mu.doubted
	p.mu.Unlock()
	if doubted && call != extendCalls {
		kick(p.extend)
	}
	switch {
	case err != nil && p.outage.begins():
		p.log.Warn("weir: waiting for the backend", "stream", p.name.Stream, "consumer", p.cfg.Consumer, "error", err)
	case isMadeAgain(err): // an outage is how that happens
		p.logMadeAgain(err)
	case is == 0 && p.outage.ends():
		p.log.Info("weir: the backend is back", "stream", p.name.Stream, "consumer", p.cfg.Consumer)
	}
}

// partly learns whether a part of a claim failed, be it that a shard did not answer or
// that a dead letter was refused. That is logged once when it begins and once when it is
// over.
func (p *Pool) partly(err error) {
	switch {
	case err != nil && p.parts.begins():
		p.log.Warn("weir: claims fail in part; the rest is worked off", "stream", p.name.Stream, "consumer", p.cfg.Consumer, "error", err)
	case isMadeAgain(err):
		p.logMadeAgain(err)
	case err == nil && p.parts.ends():
		p.log.Info("weir: claims succeed in all parts again", "stream", p.name.Stream, "consumer", p.cfg.Consumer)
	}
}

// isMadeAgain reports whether err says that the group was gone, with all that it knew, and has been
// created again.
func isMadeAgain(err error) bool {
	return errors.Is(err, ErrUnavailable) && errors.Is(err, ErrGroupNotFound)
}

func (p *Pool) logMadeAgain(err error) {
	p.mu.Lock()
	_, log := p.mu.remakes.line(time.Now())
	p.mu.Unlock()
	if log {
		p.log.Warn("weir: messages may be lost: the group was gone", "stream", p.name.Stream, "consumer", p.cfg.Consumer, "error", err)
	}
}

// leasesInDoubt reports whether err may mean that the server has restarted.
func leasesInDoubt(err error) bool {
	return errors.Is(err, ErrUnavailable) || errors.Is(err, ErrOutcomeUnknown) || errors.Is(err, context.DeadlineExceeded)
}

// gaveUp learns that a settling call was not answered while the leases held.
func (p *Pool) gaveUp(err error, messages int) {
	p.mu.Lock()
	p.mu.away &^= settleCalls
	p.mu.Unlock()
	p.log.Error("weir: messages could not be settled", "stream", p.name.Stream, "consumer", p.cfg.Consumer, "messages", messages, "error", err)
}

// about are the attributes of every line about one message.
func (p *Pool) about(j *job) []any {
	return p.attributes(j.lease.ID, j.lease.Attempt, p.cfg.Consumer, j.parent)
}

func (p *Pool) attributes(id string, attempt int, consumer, parent string) []any {
	line := []any{"stream", p.name.Stream, "message_id", id, "attempt", attempt, "consumer", consumer}
	if trace := traceID(parent); trace != "" {
		line = append(line, "trace_id", trace)
	}
	return line
}

// traceID is the trace of a W3C traceparent header; empty if there is none.
func traceID(parent string) string {
	parts := strings.Split(parent, "-")
	if len(parts) < 4 || len(parts[1]) != 32 {
		return ""
	}
	return parts[1]
}

func (p *Pool) logFailed(j *job, delay time.Duration) {
	p.logLimited(&p.mu.failures, "weir: delivery failed", j, "error", j.err, "retry_in", delay)
}

func (p *Pool) logExpired(j *job, why string) {
	p.logLimited(&p.mu.expiries, "weir: message expired", j, "then", string(p.cfg.Expired), "why", why)
}

// logLimited logs a warning about j unless its limit holds it back.
func (p *Pool) logLimited(limit *lineLimit, text string, j *job, attrs ...any) {
	now := time.Now()
	p.mu.Lock()
	suppressed, log := limit.line(now)
	p.mu.Unlock()
	if !log {
		return
	}
	line := append(p.about(j), attrs...)
	if suppressed > 0 {
		line = append(line, "not_logged", suppressed)
	}
	p.log.Warn(text, line...)
}

func (p *Pool) logDead(j *job, cause backend.Cause) {
	p.log.Error("weir: message moved to the dead letters", append(p.about(j),
		"delivery_limit", cmp.Or(j.limit, p.cfg.MaxDeliveries), "reason", cause.Reason, "error", cause.Error)...)
}

func (p *Pool) logLost(j *job, text string, err error) {
	line := p.about(j)
	if err != nil {
		line = append(line, "error", err)
	}
	p.log.Warn(text, line...)
}

// noteClaimed counts and logs what a claim did besides handing out messages.
func (p *Pool) noteClaimed(got *backend.Claimed, reclaimed int) {
	if reclaimed > 0 && p.cfg.Hooks.Reclaimed != nil {
		p.cfg.Hooks.Reclaimed(p.name, reclaimed)
	}
	if len(got.Dead)+len(got.Lost) == 0 {
		return
	}
	for i := range got.Dead {
		d := &got.Dead[i]
		line := append(p.attributes(d.OriginID, d.Attempts, p.cfg.Consumer, d.Headers[backend.HeaderTrace]),
			"delivery_limit", p.cfg.MaxDeliveries, "reason", d.Reason, "error", d.Error)
		if d.Consumer != "" {
			line = append(line, "last_consumer", d.Consumer)
		}
		p.log.Error("weir: message moved to the dead letters", line...)
		if p.cfg.Tracing.Buried != nil {
			p.cfg.Tracing.Buried(p.work, p.name, d)
		}
	}
	for _, id := range got.Lost {
		p.log.Error("weir: message lost: it was removed from the stream before it was acknowledged",
			"stream", p.name.Stream, "message_id", id, "consumer", p.cfg.Consumer)
	}
	p.mu.Lock()
	p.mu.stats.add(Dead, len(got.Dead))
	p.mu.stats.add(Lost, len(got.Lost))
	p.mu.Unlock()
	p.countHook(Dead, len(got.Dead))
	p.countHook(Lost, len(got.Lost))
}

// logStuck logs handlers that ignore their context, each with its stack.
func (p *Pool) logStuck(stuck []stuckHandler) {
	if len(stuck) == 0 {
		return
	}
	stacks := allStacks()
	for _, s := range stuck {
		p.log.Error("weir: handler ignores its context and was given up", append(p.attributes(s.lease.ID, s.lease.Attempt, p.cfg.Consumer, s.parent),
			"running", s.running, "replaced", s.replaced, "stack", stackOf(stacks, s.goroutine))...)
	}
}

// allStacks are the stacks of all goroutines, cut at maxStackBytes.
func allStacks() []byte {
	for size := 64 << 10; ; size *= 4 {
		buf := make([]byte, min(size, maxStackBytes))
		if n := runtime.Stack(buf, true); n < len(buf) || len(buf) == maxStackBytes {
			return buf[:n]
		}
	}
}

// stackOf finds the stack of one goroutine.
func stackOf(stacks []byte, goroutine int64) string {
	for _, stack := range bytes.Split(stacks, []byte("\n\n")) {
		if bytes.HasPrefix(stack, fmt.Appendf(nil, "goroutine %d ", goroutine)) {
			return string(stack)
		}
	}
	return "not found"
}

// lineLimit lets a number of lines through in each second.
type lineLimit struct {
	second     time.Time
	lines      int
	suppressed int
}

// line reports whether to log now, and how many lines were left out before.
func (l *lineLimit) line(now time.Time) (suppressed int, log bool) {
	if now.Sub(l.second) >= time.Second {
		l.second, l.lines = now, 0
	}
	if l.lines >= failureLines {
		l.suppressed++
		return 0, false
	}
	l.lines++
	suppressed, l.suppressed = l.suppressed, 0
	return suppressed, true
}
