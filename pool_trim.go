package weir

import (
	"context"
	"time"

	"github.com/weirmq/weir/backend"
)

const (
	// trimSoon is how long after its start a pool first trims.
	trimSoon = time.Second
	// trimKeep is how long messages stay under TrimAuto, so that a group that starts a
	// little later than the others gets them, too.
	trimKeep = time.Minute
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
	text := "weir: acknowledged messages stay in the stream, which weir did not create; trim=on removes them, trim=off silences this line"
	if owner == backend.OwnerWeir {
		text = "weir: what every group has acknowledged is removed from the stream, which weir created; trim=off keeps it"
	}
	p.log.Info(text, "stream", p.name.Stream, "consumer", p.cfg.Consumer)
}
