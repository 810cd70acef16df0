package weir

import (
	"context"
	"errors"
	"time"

	"github.com/weirmq/weir/backend"
)

const (
	// trimSoon is how long after its start a pool first trims.
	trimSoon = time.Second
	// trimKeep is how long messages stay under TrimAuto, so that a group that starts a
	// little later than the others gets them, too.
	trimKeep = time.Minute
	// retentionEvery is how often a pool looks at what the backend removes by itself.
	retentionEvery = 5 * time.Second
)

// trimLoop removes what every group has acknowledged. Under TrimAuto the first answer
// says whether that applies to this stream.
func (p *Pool) trimLoop(ctx context.Context, t backend.Trimmer) {
	var req backend.TrimRequest
	if p.cfg.Trim == TrimAuto {
		req = backend.TrimRequest{OwnOnly: true, KeepFor: trimKeep}
	}
	told := !req.OwnOnly
	for wait := min(trimSoon, p.cfg.TrimEvery); pause(ctx, wait) == nil; wait = p.cfg.TrimEvery {
		call, cancel := context.WithTimeout(ctx, callTimeout)
		trimmed, err := t.Trim(call, req)
		cancel()
		if err != nil && !backend.Retryable(err) && !errors.Is(err, ErrClosed) && ctx.Err() == nil {
			p.log.Warn("weir: acknowledged messages cannot be removed", "stream", p.name.Stream, "error", err)
		}
		if !told && err == nil && trimmed.Owner != backend.OwnerUnknown {
			p.tellTrim(trimmed.Owner)
			told = true
		}
	}
}

func (p *Pool) tellTrim(owner backend.Owner) {
	text := "weir: acknowledged messages stay in the stream, which weir did not create; trim=on removes them, trim=off silences this line"
	if owner == backend.OwnerWeir {
		text = "weir: what every group has acknowledged is removed from the stream, which weir created; trim=off keeps it"
	}
	p.log.Info(text, "stream", p.name.Stream, "consumer", p.cfg.Consumer)
}

// retentionLoop looks at once, and is not ended in that by a short run: what was lost may be noted already as what
// this pool tells. Then it looks from time to time.
func (p *Pool) retentionLoop(ctx context.Context, r backend.Retainer) {
	first, cancel := context.WithTimeout(p.calls, callTimeout)
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(claimGrace, cancel) })
	told := p.checkRetention(first, r, false)
	stop()
	cancel()
	p.every(ctx, retentionEvery, func(ctx context.Context) { told = p.checkRetention(ctx, r, told) })
}

// checkRetention counts and logs what the backend has removed before the group had finished
// it, or lost, and warns once of what it will remove. told says that it has.
func (p *Pool) checkRetention(ctx context.Context, r backend.Retainer, told bool) bool {
	got, err := r.Retained(ctx, true)
	if err != nil {
		return told // the claimer reports an outage
	}
	lost := 0
	for _, gap := range got.Gaps {
		text := "weir: messages lost: the stream's retention removed them before the group had finished them"
		switch gap.Reason {
		case backend.GapLost:
			text = "weir: messages lost: the server has lost them, which it had acknowledged"
		case backend.GapRecreated:
			text = "weir: messages lost: the stream was deleted and made again before the group had finished them"
		}
		p.log.Error(text, "stream", p.name.Stream, "group", p.name.Group, "messages", *gap.Missed, "from", gap.From, "to", gap.To)
		lost += int(*gap.Missed)
	}
	if lost > 0 {
		p.mu.Lock()
		p.mu.stats.add(Lost, lost)
		p.mu.Unlock()
		p.countHook(Lost, lost)
	}
	if got.Limit != "" && !told {
		line := []any{"stream", p.name.Stream, "group", p.name.Group, "limit", got.Limit}
		if !got.Due.IsZero() {
			line = append(line, "from", got.Due.UTC())
		}
		p.log.Warn("weir: unfinished messages will soon be removed by the stream's retention", line...)
	}
	return got.Limit != ""
}
