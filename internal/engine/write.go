package engine

import (
	"context"
	"crypto/sha256"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/internal/engine/governor"
	"github.com/weirmq/weir/internal/engine/topic"
	"github.com/weirmq/weir/internal/op"
	"github.com/weirmq/weir/internal/wal"
)

// batch is the records of one append, encoded and summed outside all locks.
type batch struct {
	frames []byte
	crc    uint32
	n      int
	bytes  uint64
	sizes  []uint32
	flows  []op.Span // by place in the batch, from 0; without those that are delayed
	delays []delayed
	head   []byte // scratch for the parts in front of the frames
}

// delayed is a record that nobody may claim yet.
type delayed struct {
	at   uint64 // place in the batch, from 0
	ms   uint64
	flow op.Flow
}

var batches = sync.Pool{New: func() any { return new(batch) }}

// maxPooled is the largest buffer that is kept for the next call.
const maxPooled = 1 << 20

// frameRoom is about what a frame needs besides its strings. The buffer is
// sized beforehand: growing it to 64 MiB step by step would allocate several
// times that.
const frameRoom = 32

func newBatch(records []api.Record) *batch {
	b := batches.Get().(*batch)
	b.frames, b.sizes, b.bytes, b.n = b.frames[:0], b.sizes[:0], 0, len(records)
	clear(b.flows)
	b.flows = b.flows[:0]
	clear(b.delays)
	b.delays = b.delays[:0]
	need := 0
	for i := range records {
		r := &records[i]
		need += r.Size() + len(r.Node) + len(r.Tag) + len(r.FairKey) + frameRoom
	}
	b.frames = slices.Grow(b.frames, need)
	for i := range records {
		r := &records[i]
		b.frames = op.AppendFrame(b.frames, r)
		b.sizes = append(b.sizes, uint32(r.Size()))
		b.bytes += uint64(r.Size())
		if r.Delay > 0 {
			b.delays = append(b.delays, delayed{uint64(i), r.Delay, op.FlowOf(r)})
			continue
		}
		b.flows = op.AppendSpan(b.flows, uint64(i), r)
	}
	b.crc = wal.Checksum(b.frames)
	return b
}

func (b *batch) put() {
	if cap(b.frames) <= maxPooled {
		batches.Put(b)
	}
}

// writing is one client's write: the append, what refuses it, and its answer.
type writing struct {
	appending
	slot            bool          // it holds a slot of the ingest queue
	full            error         // why it holds none
	late, throttled time.Duration // for a slot: what is too long, and all
	deduped         bool          // the key has a result already
	patient         bool          // it asked not to be refused for overload
	judged          bool          // the overload has let it through
	staged          time.Time
	fsync           bool
	copied          bool // it waits for the copy, too
	res             api.WriteResult
}

// Write appends a batch, all or nothing, and returns once the topic's class is
// met and the records are visible. The request was checked by the decoder
// (JSON and the per-record limits). An absent topic: created if req.Create,
// else if it is nil and the inline config's auto_create (default true) allows.
func (e *Engine) Write(ctx context.Context, name string, req *api.WriteRequest) (api.WriteResult, error) {
	defer guard()
	if err := e.usable(); err != nil {
		return api.WriteResult{}, err
	}
	w := newWriting(req)
	defer w.batch.put()
	e.waits.under.Add(1)
	defer e.waits.under.Add(-1)
	for {
		t, tk, err := e.stageWrite(ctx, name, req, &w)
		if err == nil {
			err = e.settleWrite(t, tk, &w)
		}
		if err == nil || !w.deduped {
			return w.res, err
		}
		// The write that had the key has failed, and the key is free again.
	}
}

func newWriting(req *api.WriteRequest) writing {
	w := writing{appending: appending{batch: newBatch(req.Records), hasKey: req.HasIdempotencyKey}, patient: req.DisableBackpressure}
	if w.hasKey {
		sum := sha256.Sum256(req.IdempotencyKey)
		w.key = op.KeyHash(sum[:])
	}
	return w
}

// stageWrite takes a slot for a write and stages it; settleWrite has to follow. What takes
// long, encoding and waiting for a slot, comes before the topic's lock: whoever reads or
// writes there must not wait for it.
func (e *Engine) stageWrite(ctx context.Context, name string, req *api.WriteRequest, w *writing) (*entry, ticket, error) {
	admitted := false
	free := func() {
		if w.slot { // the log took it over, or it goes back
			e.log.Unreserve()
			w.slot = false
		}
	}
	defer free()
	w.deduped = false // of an earlier look
	t, tk, err := e.stageFound(ctx, func() (*entry, error) {
		if !admitted {
			// A refusal is kept: the topic may have an answer that comes before it.
			w.throttled, w.late, w.full = e.admit(ctx, int64(len(w.frames)), req.DisableBackpressure)
			w.slot, admitted = w.full == nil, true
		}
		return e.lockForWrite(name, req)
	}, func(t *entry) (ticket, error) {
		tk, err := e.planWrite(t, w)
		if _, ok := err.(*cold); ok {
			free() // the disk may take long, and other topics need the log's slots
			admitted = false
		}
		return tk, err
	})
	if err != nil && !w.deduped {
		w.res = api.WriteResult{}
		if t != nil && t.jobs != nil {
			t.jobs.produced.count(w.n, err)
		}
	}
	return t, tk, err
}

// settleWrite waits for a write that is staged.
func (e *Engine) settleWrite(t *entry, tk ticket, w *writing) error {
	err := e.settleFound(t, tk)
	if t.jobs != nil && (err == nil || !w.deduped) {
		t.jobs.produced.count(w.n, err)
	}
	switch {
	case err != nil:
		w.res = api.WriteResult{}
	case !w.deduped:
		e.tellWaits(w)
	}
	return err
}

// planWrite stages a write, or finds that it needs none. The topic's lock is
// held. The checks stand in the order of their answers: a repeated write gets
// the first one's result, though the topic or the queue may be full by now;
// what retrying never mends comes before what passes; and what is counted
// comes last, so that nothing behind it refuses the write.
func (e *Engine) planWrite(t *entry, w *writing) (ticket, error) {
	w.now, w.created = e.clock(), !t.begun()
	if w.hasKey {
		var k topic.Key
		if k, w.deduped = t.Keys.Get(w.key, e.leaseClock(), t.Config.IdempotencyWindowMS); w.deduped {
			w.res = dedupedResult(k)
			w.res.KeyReused = k.Sum != 0 && k.Sum != op.SumOf(w.crc)
			if !k.Pending {
				return ticket{}, nil
			}
			return ticket{k.LSN, k.Gen, wal.Class(k.Need)}, nil
		}
	}
	if len(w.delays) > 0 && t.jobs == nil {
		is := "is a log"
		if w.created {
			is = "does not exist and would be a log"
		}
		return ticket{}, api.Errorf(api.CodeNotAQueue, "topic %q %s, which nobody claims from; \"delay_ms\" is for topics of type queue", t.Name, is).With("topic", t.Name)
	}
	if err := e.roomFor(t, w.batch, w.now); err != nil {
		return ticket{}, err
	}
	switch {
	case w.full != nil:
		return ticket{}, w.full
	case w.hasKey && !e.takeKey(t):
		return ticket{}, api.OverLimit("max_idempotency_keys", e.opt.Limits.MaxIdempotencyKeys)
	case !e.takeBytes(t, int64(w.bytes)):
		return ticket{}, api.OverLimit("max_total_bytes", e.opt.Limits.MaxTotalBytes)
	}
	if err := e.judge(t, w); err != nil {
		return ticket{}, err
	}
	tk, first, err := e.stageAppend(t, &w.appending, &w.slot)
	if err != nil {
		return ticket{}, err
	}
	t.lastWrite = w.now
	w.copied = tk.need == wal.Shipped || tk.need == wal.Synced && e.opt.Replica != nil && e.opt.Replica.Sync
	w.staged, w.fsync = time.Now(), t.Config.Durability == api.Fsync
	last := first + uint64(w.n) - 1
	w.res = api.WriteResult{FirstSeq: first, LastSeq: last, HeadSeq: last, Count: w.n, Created: w.created}
	return tk, nil
}

// tellWaits says how long a write waited for its slot and for its class: to its
// client, and to the governor, which counts of the former what is late.
func (e *Engine) tellWaits(w *writing) {
	if w.throttled > time.Millisecond {
		w.res.ThrottleMS = ms(w.throttled)
	}
	waited := time.Since(w.staged)
	judged := waited
	if w.copied {
		judged = 0 // it waited for a store that the governor cannot help
	}
	if !w.fsync {
		w.res.AppendMS = ms(waited)
		e.waits.add(waitOther, w.late+judged)
		return
	}
	gathered := min(waited, e.log.Gathered())
	w.res.SyncMS = ms(waited)
	w.res.ThrottleMS += ms(gathered)
	e.waits.add(waitSynced, w.late+max(0, judged-gathered))
}

// lockForWrite returns the topic with its lock held, registered if it is absent
// and the request allows.
func (e *Engine) lockForWrite(name string, req *api.WriteRequest) (*entry, error) {
	for {
		if t := e.reg.get(name); t != nil {
			t.mu.Lock()
			if e.ready(t) {
				return t, nil
			}
			continue
		}
		create := req.Config == nil || req.Config.AutoCreate
		if req.Create != nil {
			create = *req.Create
		}
		if !create {
			return nil, api.TopicNotFound(name)
		}
		if err := api.CheckTopicName(name); err != nil {
			return nil, err
		}
		cfg := api.DefaultConfig()
		if req.Config != nil {
			cfg = *req.Config
			if err := api.CheckConfig(name, &cfg); err != nil {
				return nil, err
			}
		}
		t, created, err := e.register(name, cfg)
		if err != nil || created || e.ready(t) {
			return t, err
		}
	}
}

func dedupedResult(k topic.Key) api.WriteResult {
	last := k.First + uint64(k.N) - 1
	return api.WriteResult{FirstSeq: k.First, LastSeq: last, HeadSeq: last, Count: int(k.N), Deduped: true}
}

// appending is one append on its way into the log.
type appending struct {
	*batch
	now     int64
	created bool // the topic begins with it
	hasKey  bool
	key     op.KeyHash
	before  []op.Part  // further parts of the same operation, in front
	least   wal.Class  // what those parts need
	later   []op.Lease // until when nobody may claim some of its records
}

// stageAppend gives the batch its numbers, plans what the caps take for it,
// puts both into the log as one operation and stages them. The topic's lock
// is held; the batch becomes visible once commit has returned for the ticket.
// slot is append's.
func (e *Engine) stageAppend(t *entry, a *appending, slot *bool) (ticket, uint64, error) {
	// What the caps take is planned first: it may read old records, and a plan
	// that finds damage announces it, which is an operation of its own.
	caps := t.plannedConfig()
	ev, err := e.planCap(t, caps, a.batch)
	if err != nil {
		return ticket{}, 0, err
	}
	st := topic.Staged{First: t.PlannedHead() + 1, N: uint64(a.n), Bytes: a.bytes, TS: max(a.now, t.PlannedTS()),
		EvictTo: ev.To, EvictN: ev.N, EvictBytes: ev.Bytes, HasKey: a.hasKey, Key: a.key}
	if a.hasKey {
		st.Sum = op.SumOf(a.crc)
	}
	if caps.CapBytes > 0 || caps.CapRecords > 0 {
		st.Sizes = append([]uint32(nil), a.sizes...)
	}
	if t.jobs != nil {
		st.Flows = a.flowsFrom(st.First)
	}
	e.planDelays(t, a, &st)
	st.Ref = topic.Ref{First: st.First, TS: st.TS, N: uint32(a.n)}
	if t.Config.Durability == api.Ephemeral {
		st.Ref.Segment = topic.InMemory
	}
	if err := e.logAppend(t, a, &st, &ev, slot); err != nil {
		return ticket{}, 0, err
	}
	// From here on nothing may fail: the log has it. The records are kept before
	// they are staged, since whoever finds a staged batch may look at them; the
	// creation is staged in front of them, and the key behind, since it
	// remembers what the whole change waits for.
	if st.Ref.Segment == topic.InMemory {
		t.Index.Keep(st.First, append([]byte(nil), a.frames...))
	}
	if a.created {
		e.stageCreate(t, st.LSN, st.Gen)
	}
	tk := t.stage(st)
	if a.hasKey {
		now := e.leaseClock()
		t.Keys.Expire(now, t.Config.IdempotencyWindowMS, keysPerWrite)
		t.Keys.Put(a.key, topic.Key{First: st.First, N: uint32(a.n), At: now, Sum: st.Sum, Pending: true, LSN: tk.lsn, Gen: tk.gen, Need: uint8(tk.need)})
	}
	return tk, st.First, nil
}

// planDelays says from when the delayed records of a batch may be claimed. The log has that in
// the same operation, in front of them, as it has a delay that a worker asked for.
func (e *Engine) planDelays(t *entry, a *appending, st *topic.Staged) {
	if len(a.delays) == 0 {
		return
	}
	now := e.leaseClock()
	delays := slices.Clone(a.delays)
	a.later = a.later[:0]
	for _, d := range delays {
		a.later = append(a.later, op.Lease{Seq: st.First + d.at, Deadline: now + int64(d.ms)})
	}
	first := st.First
	st.Then = func() {
		for _, d := range delays {
			if seq := first + d.at; t.Live(seq) { // a cap may have taken it with this very write
				t.jobs.q.Delay(seq, now+int64(d.ms), d.flow)
			}
		}
	}
}

// flowsFrom returns the flows of a batch that has its numbers, nil if all of it
// is plain.
func (b *batch) flowsFrom(first uint64) []op.Span {
	flows := append([]op.Span(nil), b.flows...)
	for i := range flows {
		flows[i].From += first
		flows[i].To += first
	}
	return flows
}

// logAppend puts an append into the log, with all that is one operation with
// it, and notes in st where it stands there. After an error the topic is as it was.
func (e *Engine) logAppend(t *entry, a *appending, st *topic.Staged, ev *topic.Eviction, slot *bool) error {
	need := max(classOf(t.Config.Durability), a.least)
	inMemory := st.Ref.Segment == topic.InMemory
	head := a.head[:0]
	if a.created {
		head = createParts(head, t)
		need = wal.Synced
	}
	// The reservation covers the numbers of this very append, so it stands in
	// the same operation, and in front of it.
	last := st.First + st.N - 1
	reserved := t.reserve
	head, safe := e.reserveHead(head, t, last)
	need = max(need, safe)
	for i := range a.before {
		head = a.before[i].Encode(head)
	}
	if !inMemory && len(a.delays) > 0 {
		later := op.Part{Kind: op.KindRelease, Topic: t.ID, Leases: a.later}
		head = later.Encode(head)
	}
	st.Need = uint8(need)
	var frames []byte
	crc := noFrames
	if !inMemory {
		part := st.Append()
		part.Topic, part.EvictTo, part.EvictN, part.EvictBytes = t.ID, ev.LoggedTo, ev.LoggedN, ev.LoggedBytes
		head = part.Encode(head) // the last part: the frames follow it
		frames, crc = a.frames, a.crc
	} else if ev.LoggedN > 0 {
		evict := op.Part{Kind: op.KindEvict, Topic: t.ID, To: ev.LoggedTo, Cause: op.CauseCap, N: ev.LoggedN, Bytes: ev.LoggedBytes, TS: st.TS}
		head = evict.Encode(head)
	}
	a.head = head
	if len(head) == 0 {
		if safe > wal.Memory && t.Idle() {
			// Nothing of the batch is in the log, but its numbers are only reserved
			// once an earlier operation is synced. Behind a staged change it waits with that.
			st.LSN, st.Gen = t.reserve.lsn, uint64(t.reserve.gen)
		}
		return nil
	}
	tk, pos, err := e.append(t, head, frames, crc, need, slot)
	if err != nil {
		t.reserve = reserved
		return err
	}
	t.reserve.logged(tk.lsn, tk.gen)
	st.LSN, st.Gen, st.Need = tk.lsn, tk.gen, uint8(tk.need)
	if !inMemory {
		t.loggedHead = last
		st.Ref.Segment, st.Ref.Offset, st.Ref.Len = pos.Segment, pos.Offset, pos.Len
	}
	return nil
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// admit takes a slot of the bounded ingest queue for a write of so many encoded
// bytes. It waits up to the ingest timeout, or for ever if the writer asked not
// to be refused, and then answers throttled with the estimated drain time. A
// write that the disk has no room for is refused at once. late is waited without the
// time a patient writer waited where others are refused.
func (e *Engine) admit(ctx context.Context, bytes int64, patient bool) (waited, late time.Duration, refused error) {
	if err := e.space.room(bytes); err != nil {
		return 0, 0, err
	}
	if e.log.TryReserve() {
		return 0, 0, nil
	}
	timeout := e.opt.IngestTimeout
	refuses := governor.Refuses(e.governor.State().Pressure)
	if refuses && e.log.Full() {
		timeout = 0
	}
	if patient {
		timeout = math.MaxInt64
	}
	begin := time.Now()
	err := e.log.Reserve(ctx, timeout)
	waited = time.Since(begin)
	if !refuses && !governor.Refuses(e.governor.State().Pressure) {
		late = waited
	}
	return waited, late, e.refusal(ctx, err)
}

// refusal turns what Reserve returned into the answer.
func (e *Engine) refusal(ctx context.Context, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, wal.ErrFull):
		full := "the ingest queue is full"
		switch {
		case e.clogged() != nil:
			full = logFull + "; the server's log names the error"
		case e.log.WaitsForCopy():
			full = "writes wait for the copy of the log (--replica-sync), which is behind"
		}
		return api.Errorf(api.CodeThrottled, "%s; try again after retry_after_ms", full).
			After(time.Duration(spread(e.drainTimeMS())) * time.Millisecond)
	case ctx.Err() != nil:
		return ctx.Err()
	}
	return storageError(err)
}

// drainTimeMS estimates how long the ingest queue takes to empty at the rate of
// the last sample, within [100, 5000].
func (e *Engine) drainTimeMS() int64 {
	depth, rate := e.log.Metrics().QueueDepth, e.rate.Load()
	if depth > 0 && rate == 0 {
		return 5000 // nothing moves
	}
	return min(5000, max(100, 1000*depth/max(1, rate)))
}

// spread moves a time by up to half, within the bounds of drainTimeMS: writers
// that were refused together must not all come back at the same moment.
func spread(ms int64) int64 {
	return min(5000, max(100, ms/2+rand.Int64N(ms)))
}

// roomFor refuses a write that does not fit into a topic with discard "reject".
func (e *Engine) roomFor(t *entry, b *batch, now int64) error {
	if err := e.expire(t, now); err != nil {
		return err
	}
	if err := t.neverHolds(b.n, b.bytes); err != nil {
		return err
	}
	if c := t.plannedConfig(); c.Discard == api.DiscardReject && topic.OverCap(c, t.PlannedCount()+uint64(b.n), t.PlannedBytes()+b.bytes) {
		return t.isFull()
	}
	return nil
}

// neverHolds refuses what is larger than the topic, as it is configured, may ever hold.
func (t *entry) neverHolds(records int, bytes uint64) error {
	c := t.plannedConfig()
	if c.Discard != api.DiscardReject || !topic.OverCap(c, uint64(records), bytes) {
		return nil
	}
	return api.Errorf(api.CodeRecordTooLarge, "the write (%d records, %d bytes) is larger than topic %q may ever hold (cap_records %d, cap_bytes %d)",
		records, bytes, t.Name, c.CapRecords, c.CapBytes)
}

// isFull is the refusal of what a topic with discard "reject" has no room for now.
func (t *entry) isFull() error {
	c := t.plannedConfig()
	return api.Errorf(api.CodeTopicFull, "topic %q is full; try again when its readers have made room", t.Name).
		With("topic", t.Name).With("cap_records", c.CapRecords).With("cap_bytes", c.CapBytes).
		With("head_seq", t.Head).With("earliest_seq", t.Earliest())
}

// takeBytes counts the bytes of a client's write against the total cap; racing
// writers never exceed it.
func (e *Engine) takeBytes(t *entry, n int64) bool {
	limit := e.opt.Limits.MaxTotalBytes
	if limit <= 0 {
		return true
	}
	if e.bytes.Add(n) > limit {
		e.bytes.Add(-n)
		return false
	}
	t.accounted += uint64(n)
	return true
}

// takeKey counts a key that is about to be remembered against the limit, and is
// as exact as takeBytes. Keys recovered from the log are counted, never
// refused.
func (e *Engine) takeKey(t *entry) bool {
	limit := e.opt.Limits.MaxIdempotencyKeys
	if e.keys.Load() >= limit && limit > 0 {
		t.Keys.Expire(e.leaseClock(), t.Config.IdempotencyWindowMS, keysPerTurn)
		e.countKeys(t)
	}
	if e.keys.Add(1) > limit && limit > 0 {
		e.keys.Add(-1)
		return false
	}
	t.keyed.Add(1)
	return true
}
