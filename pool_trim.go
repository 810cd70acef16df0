package weir

import (
	"context"
	"time"

	"github.com/weirmq/weir/backend"
)

const (
	// trimSoon is when a pool that has started trims first.
	trimSoon = time.Second
	// trimKeep is how long a message stays that nobody asked to remove, so that a group
	// which begins a little later than the others has it too.
	trimKeep = time.Minute
)

// trimLoop removes what every group has acknowledged. The first answer tells
// whether that is done where nobody asked for it.
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
		if err != nil && !backend.Retryable(err) && ctx.Err() == nil {
			p.log.Warn("weir: acknowledged messages cannot be removed", "stream", p.name.Stream, "error", err)
		}
		if !told && err == nil && trimmed.Owner != backend.OwnerUnknown {
			p.tellTrim(trimmed.Owner)
			told = true
		}
	}
}

func (p *Pool) tellTrim(owner backend.Owner) {
	text := "weir: acknowledged messages stay in the stream, which weir did not make; trim=on removes them, trim=off ends this line"
	if owner == backend.OwnerWeir {
		text = "weir: what every group has acknowledged is removed from the stream, which weir made; trim=off keeps it"
	}
	p.log.Info(text, "stream", p.name.Stream, "consumer", p.cfg.Consumer)
}
