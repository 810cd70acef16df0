package kafka

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/weirmq/weir/backend"
)

var _ backend.Observer = (*Backend)(nil)

// Observe reads what weir's workers say of themselves, and the newest records. Which messages
// somebody holds is not known: workers say how many, and brokers nothing.
func (b *Backend) Observe(ctx context.Context, most int) (backend.Observed, error) {
	call, done, err := b.begin(ctx)
	if err != nil {
		return backend.Observed{}, err
	}
	defer done()
	var o backend.Observed
	var noGroups, noRecords error
	var wait sync.WaitGroup
	wait.Go(func() { noGroups = b.observeGroups(call, most, &o) })
	wait.Go(func() { o.Last, noRecords = b.newest(call, most) })
	wait.Wait()
	if noGroups != nil && noRecords != nil {
		return backend.Observed{}, b.cut(ctx, noRecords)
	}
	return o, nil // what may not be read is not known
}

func (b *Backend) observeGroups(ctx context.Context, most int, o *backend.Observed) error {
	w, err := b.measure(ctx, false)
	if err != nil && !errors.Is(err, backend.ErrGroupNotFound) {
		return err
	}
	r, err := b.ledger.read(ctx)
	if err != nil {
		return err
	}
	if !r.ours {
		if n, err := b.groupMembers(ctx); err != nil || n > 0 {
			return nil // they do not say what they do
		}
	}
	groups, workers := b.ledger.observed(time.Now())
	own := groups[b.set.group]
	own.Name = b.set.group
	own.Pending, own.Lag = split(w.left, r.pending)
	groups[own.Name] = own
	byName := func(a, b string) int { return cmp.Or(boolean(b == own.Name)-boolean(a == own.Name), cmp.Compare(a, b)) }
	o.Groups = []backend.GroupState{}
	for _, name := range slices.SortedFunc(maps.Keys(groups), byName) {
		o.Groups = append(o.Groups, groups[name])
	}
	slices.SortFunc(workers, func(a, b backend.ConsumerState) int { return cmp.Compare(a.Name, b.Name) })
	o.Groups, o.Consumers = o.Groups[:min(len(o.Groups), most)], workers[:min(len(workers), most)]
	return nil
}

func boolean(b bool) int {
	if b {
		return 1
	}
	return 0
}

// observed returns the groups in which weir's workers are, and the workers of this one.
func (l *ledger) observed(now time.Time) (groups map[string]backend.GroupState, workers []backend.ConsumerState) {
	l.mu.Lock()
	defer l.mu.Unlock()
	groups, workers = map[string]backend.GroupState{}, []backend.ConsumerState{}
	for key, e := range l.entries {
		name, isWorker := strings.CutPrefix(key, workerPrefix)
		slash := strings.LastIndexByte(name, '/')
		if !isWorker || slash < 0 || !e.valid(now) {
			continue
		}
		group, member := name[:slash], name[slash+1:]
		g := groups[group]
		g.Name, g.Consumers, g.Pending = group, g.Consumers+1, g.Pending+e.Pending
		groups[group] = g
		if group == l.b.set.group {
			workers = append(workers, backend.ConsumerState{Name: cmp.Or(e.Name, member), Pending: e.Pending, Idle: max(0, now.Sub(e.at))})
		}
	}
	return groups, workers
}

// consumer is what the worker of this handle calls itself.
func (b *Backend) consumer() string {
	if name := b.worker.Load(); name != nil {
		return *name
	}
	return ""
}

// newest reads the last records of the topic by their time. Of many partitions it reads
// those whose newest record can be among them.
func (b *Backend) newest(ctx context.Context, most int) ([]backend.Record, error) {
	l, err := b.layout(ctx)
	if err != nil {
		return nil, err
	}
	ends, err := b.offsets(ctx, l, atEnd)
	if err != nil {
		return nil, err
	}
	listed, err := named(ctx, b, b.admin.ListMaxTimestampOffsets, b.set.topic)
	if err != nil {
		return nil, b.explain(err)
	}
	parts := slices.SortedFunc(maps.Values(listed[b.set.topic]), func(a, b kadm.ListedOffset) int { return cmp.Compare(b.Timestamp, a.Timestamp) })
	var last []*kgo.Record
	for _, part := range parts {
		if part.Err != nil || part.Offset < 0 {
			continue
		}
		if len(last) == most && last[most-1].Timestamp.UnixMilli() > part.Timestamp {
			break
		}
		from := max(0, ends[part.Partition]-int64(most))
		if _, err := b.pages(ctx, b.set.topic, l, part.Partition, from, func(r *kgo.Record) { last = append(last, r) }); err != nil {
			return nil, b.explain(err)
		}
		slices.SortFunc(last, func(a, b *kgo.Record) int {
			return cmp.Or(b.Timestamp.Compare(a.Timestamp), cmp.Compare(a.Partition, b.Partition), cmp.Compare(b.Offset, a.Offset))
		})
		last = last[:min(len(last), most)]
	}
	records := make([]backend.Record, len(last))
	for i, r := range last {
		records[i] = readOf(r)
	}
	return records, nil
}
