package engine

import (
	"context"
	"errors"

	"github.com/weirmq/weir/internal/api"
)

// WriteEach makes many writes to a topic, each as Write does, in their order, and waits
// once for all of them. Each has an outcome of its own. Once one has failed with an error
// that passes, those behind it are not made and have the same outcome, so that trying
// again keeps the order; what a queue sheds does not stop the others. The error is that of
// an engine that is closed.
func (e *Engine) WriteEach(ctx context.Context, name string, reqs []api.WriteRequest) ([]api.WriteOutcome, error) {
	defer guard()
	if err := e.usable(); err != nil {
		return nil, err
	}
	e.waits.under.Add(1)
	defer e.waits.under.Add(-1)
	out := make([]api.WriteOutcome, len(reqs))
	all := make([]stagedWrite, len(reqs))
	var last ticket
	for i := range reqs {
		s := &all[i]
		if last.lsn > 0 && e.log.Waits() {
			// The log's room may be taken by what is staged here, and nobody else waits for that.
			_ = e.wait(last) // what went wrong is found out below
		}
		s.writing = newWriting(&reqs[i])
		if s.t, s.tk, out[i].Err = e.stageWrite(ctx, name, &reqs[i], &s.writing); out[i].Err == nil && s.tk.lsn > last.lsn {
			last = s.tk
		}
		if stops(out[i].Err) {
			for n := range out[i+1:] {
				out[i+1+n].Err = out[i].Err
			}
			break
		}
	}
	for i := range all {
		s := &all[i]
		if s.batch == nil {
			break // it was not made
		}
		if out[i].Err == nil {
			out[i].Err = e.settleWrite(s.t, s.tk, &s.writing)
			out[i].WriteResult = s.res
		}
		s.batch.put()
		if out[i].Err != nil && s.deduped {
			// The write that had the key has failed, and the key is free again.
			out[i].WriteResult, out[i].Err = e.Write(ctx, name, &reqs[i])
		}
	}
	return out, nil
}

// stagedWrite is one of many writes.
type stagedWrite struct {
	writing
	t  *entry
	tk ticket
}

// stops reports whether after a write with this outcome no more are made.
func stops(err error) bool {
	if err == nil {
		return false
	}
	e, ok := errors.AsType[*api.Error](err)
	return !ok || e.Retryable() && !e.Sheds()
}
