package queue

import (
	"context"
	"slices"

	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/internal/api"
)

var _ backend.Observer = (*Backend)(nil)

// observedBytes bounds what Observe reads.
const observedBytes = 1 << 20

// Observe reads the newest records that are still there. Who holds the others is known to
// the server alone.
func (b *Backend) Observe(ctx context.Context, most int) (backend.Observed, error) {
	ctx, leave, err := b.enter(ctx)
	if err != nil {
		return backend.Observed{}, err
	}
	defer leave()
	st, err := b.svc.Topic(ctx, b.opt.Topic)
	if err != nil {
		return backend.Observed{}, b.fail(err, false)
	}
	records, res, err := b.svc.Diff(ctx, b.opt.Topic, &api.DiffRequest{
		FromSeq: st.HeadSeq - min(st.HeadSeq, uint64(most)), Limit: min(most, maxPage), IncludeTags: true, IncludeMeta: true, MaxBatchBytes: observedBytes,
	})
	if err != nil {
		return backend.Observed{}, b.fail(err, false)
	}
	last := readRecords(records, &res).Records
	slices.Reverse(last)
	return backend.Observed{Last: last}, nil
}
