package queue

import (
	"context"
	"fmt"
	"time"

	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/internal/api"
)

// Read returns the records after a cursor, which is a record's number. It reads logs as
// well as queues; of a queue it shows what is not done yet.
func (b *Backend) Read(ctx context.Context, req backend.ReadRequest) (backend.Records, error) {
	ctx, leave, err := b.enter(ctx)
	if err != nil {
		return backend.Records{}, err
	}
	defer leave()
	cursor, err := b.cursor(ctx, req.After)
	if err != nil {
		return backend.Records{}, err
	}
	end := time.Now().Add(req.Block)
	for {
		wait := min(max(time.Until(end), 0).Milliseconds(), api.MaxWaitMS)
		records, res, err := b.svc.Diff(ctx, b.opt.Topic, &api.DiffRequest{
			FromSeq: cursor, Limit: min(max(req.Max, 1), maxPage), IncludeTags: true, IncludeMeta: true,
			MaxBatchBytes: api.DefaultDiffBytes, WaitMS: uint32(wait),
		})
		if err != nil {
			return backend.Records{}, b.fail(err, false)
		}
		if len(records) > 0 || res.Tombstone != nil || time.Until(end) <= time.Millisecond {
			return readRecords(records, &res), nil
		}
		cursor = res.NextFromSeq
	}
}

func (b *Backend) cursor(ctx context.Context, after string) (uint64, error) {
	switch after {
	case backend.CursorStart:
		return 0, nil
	case backend.CursorEnd:
		st, err := b.svc.Topic(ctx, b.opt.Topic)
		return st.HeadSeq, b.fail(err, false)
	case "0":
		return 0, nil
	}
	seq, ok := parseSeq(after)
	if !ok {
		return 0, fmt.Errorf("%q is not a cursor of a weir topic; it is a number", after)
	}
	return seq, nil
}

func readRecords(records []api.Record, res *api.DiffResult) backend.Records {
	out := backend.Records{Records: make([]backend.Record, len(records)), Next: formatSeq(res.NextFromSeq)}
	for i := range records {
		r := &records[i]
		data, headers := decode(r)
		out.Records[i] = backend.Record{ID: formatSeq(r.Seq), Data: data, Headers: headers, At: at(r.TS)}
	}
	if t := res.Tombstone; t != nil {
		missed := int64(t.MissedEstimate)
		out.Gap = &backend.Gap{From: formatSeq(t.GapFrom), To: formatSeq(t.GapTo), Reason: string(t.Reason), Missed: &missed}
	}
	return out
}
