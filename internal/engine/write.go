package engine

import (
	"context"
	"crypto/sha256"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/weirmq/weir/internal/api"
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
	head   []byte // scratch for the parts in front of the frames
}

var batches = sync.Pool{New: func() any { return new(batch) }}

// maxPooled is the largest buffer that is kept for the next call.
const maxPooled = 1 << 20

// frameRoom is about what a frame needs besides its strings: growing a batch of
// 64 MiB step by step would take several times its size.
const frameRoom = 32

func newBatch(records []api.Record) *batch {
	b := batches.Get().(*batch)
	b.frames, b.sizes, b.bytes, b.n = b.frames[:0], b.sizes[:0], 0, len(records)
	need := 0
	for i := range records {
		r := &records[i]
		need += r.Size() + len(r.Node) + len(r.Tag) + frameRoom
	}
	b.frames = slices.Grow(b.frames, need)
	for i := range records {
		r := &records[i]
		b.frames = op.AppendFrame(b.frames, r)
		b.sizes = append(b.sizes, uint32(r.Size()))
		b.bytes += uint64(r.Size())
	}
	b.crc = wal.Checksum(b.frames)
	return b
}

func (b *batch) put() {
	if cap(b.frames) <= maxPooled {
		batches.Put(b)
	}
}

// Write appends a batch, all or nothing, and returns once the topic's class is
// met and the records are visible. The request was checked by the decoder
// (JSON and the per-record limits). An absent topic: created if req.Create,
// else if it is nil and the inline config's auto_create (default true) allows.
func (e *Engine) Write(ctx context.Context, name string, req *api.WriteRequest) (api.WriteResult, error) {
	defer guard()
	var res api.WriteResult
	if err := e.usable(); err != nil {
		return res, err
	}
	b := newBatch(req.Records)
	defer b.put()
	var key op.KeyHash
	if req.HasIdempotencyKey {
		sum := sha256.Sum256(req.IdempotencyKey)
		key = op.KeyHash(sum[:])
	}
	e.waits.under.Add(1)
	defer e.waits.under.Add(-1)
	begin := time.Now()
	late, full := e.admit(ctx, int64(len(b.frames)), req.DisableBackpressure)
	if waited := time.Since(begin); waited > time.Millisecond {
		res.ThrottleMS = ms(waited)
	}
	slot := full == nil
	defer func() {
		if slot {
			e.log.Unreserve()
		}
	}()
	for {
		t, created, err := e.lockForWrite(name, req)
		if err != nil {
			return res, err
		}
		if wait, ok := t.unsettled(); ok && !created {
			t.mu.Unlock()
			e.settle(t, wait)
			continue
		}
		e.advance(t)
		now := e.clock()
		if req.HasIdempotencyKey {
			if k, ok := t.Keys.Get(key, now, t.Config.IdempotencyWindowMS); ok {
				t.mu.Unlock()
				if again, err := e.awaitKey(t, k); err != nil {
					return res, err
				} else if again {
					continue
				}
				return dedupedResult(k), nil
			}
		}
		err = e.roomFor(t, b, now)
		if err == nil {
			err = full
		}
		if err == nil && req.HasIdempotencyKey && !e.takeKey(t, now) {
			err = api.OverLimit("max_idempotency_keys", e.opt.Limits.MaxIdempotencyKeys)
		}
		if err == nil && !e.takeBytes(t, int64(b.bytes)) {
			err = api.OverLimit("max_total_bytes", e.opt.Limits.MaxTotalBytes)
		}
		var tk ticket
		var first uint64
		if err == nil {
			a := appending{batch: b, now: now, created: created, slot: &slot, hasKey: req.HasIdempotencyKey, key: key}
			tk, first, err = e.stageAppend(t, &a)
			e.account(t)
		}
		e.countKeys(t)
		if err != nil {
			if created {
				t.dropped = true
			}
			t.mu.Unlock()
			if created {
				e.reg.remove(t)
			}
			if err == wal.ErrStale {
				e.unstale(t)
				continue
			}
			return res, err
		}
		t.lastWrite = now
		fsync := t.Config.Durability == api.Fsync
		t.mu.Unlock()

		begin = time.Now()
		if err := e.commit(t, tk); err != nil {
			if created {
				e.unregister(t)
			}
			return res, storageError(err)
		}
		waited := time.Since(begin)
		if fsync {
			gathered := min(waited, e.log.Gathered())
			res.SyncMS = ms(waited)
			res.ThrottleMS += ms(gathered)
			e.waits.add(waitSynced, late+waited-gathered)
		} else {
			res.AppendMS = ms(waited)
			e.waits.add(waitOther, late+waited)
		}
		res.FirstSeq, res.LastSeq = first, first+uint64(b.n)-1
		res.HeadSeq, res.Count, res.Created = res.LastSeq, b.n, created
		return res, nil
	}
}

// lockForWrite returns the topic with its lock held, creating it if the
// request allows; created says that its creation is still to be logged.
func (e *Engine) lockForWrite(name string, req *api.WriteRequest) (t *entry, created bool, err error) {
	if t := e.reg.get(name); t != nil {
		t.mu.Lock()
		return t, false, nil
	}
	create := req.Config == nil || req.Config.AutoCreate
	if req.Create != nil {
		create = *req.Create
	}
	if !create {
		return nil, false, api.TopicNotFound(name)
	}
	if err := api.CheckTopicName(name); err != nil {
		return nil, false, err
	}
	cfg := api.DefaultConfig()
	if req.Config != nil {
		cfg = *req.Config
		if err := api.CheckConfig(name, &cfg); err != nil {
			return nil, false, err
		}
	}
	return e.register(name, cfg)
}

// register makes a new topic and returns it with its lock held, or the one
// that has the name by now.
func (e *Engine) register(name string, cfg api.Config) (t *entry, created bool, err error) {
	t = &entry{}
	name = strings.Clone(name) // it may be a piece of a request that must not live on
	t.State = op.State{ID: e.nextTopic.Add(1), Name: name, Config: cfg, CreatedTS: e.clock()}
	t.Init()
	t.ensureQueue()
	e.enlist(t)
	t.mu.Lock()
	have, added := e.reg.add(name, t, e.opt.Limits.MaxTopics)
	if added {
		return t, true, nil
	}
	t.mu.Unlock()
	if have == nil {
		return nil, false, api.OverLimit("max_topics", e.opt.Limits.MaxTopics)
	}
	have.mu.Lock()
	return have, false, nil
}

// awaitKey waits for the write that holds the key, if it is not visible yet;
// again says that it failed, so that the caller may try itself.
func (e *Engine) awaitKey(t *entry, k topic.Key) (again bool, err error) {
	if !k.Pending {
		return false, nil
	}
	err = e.commit(t, ticket{k.LSN, k.Gen, wal.Class(k.Need)})
	return err != nil, nil
}

func dedupedResult(k topic.Key) api.WriteResult {
	last := k.First + uint64(k.N) - 1
	return api.WriteResult{FirstSeq: k.First, LastSeq: last, HeadSeq: last, Count: int(k.N), Deduped: true}
}

// appending is one append on its way into the log.
type appending struct {
	*batch
	now     int64
	created bool  // the topic begins with it
	slot    *bool // see append
	hasKey  bool
	key     op.KeyHash
	before  []op.Part // further parts of the same operation, in front
	least   wal.Class // what those parts need
}

// stageAppend gives the batch its numbers, plans what the caps take for it,
// puts both into the log as one operation and stages them. The topic's lock
// is held; the batch becomes visible once commit has returned for the ticket.
func (e *Engine) stageAppend(t *entry, a *appending) (ticket, uint64, error) {
	cfg := &t.Config
	caps := t.plannedConfig()
	ev, err := e.planCap(t, caps, a.batch)
	if err != nil {
		return ticket{}, 0, err
	}
	st := topic.Staged{First: t.PlannedHead() + 1, N: uint64(a.n), Bytes: a.bytes, TS: max(a.now, t.PlannedTS()),
		EvictTo: ev.To, EvictN: ev.N, EvictBytes: ev.Bytes, HasKey: a.hasKey, Key: a.key}
	if caps.CapBytes > 0 || caps.CapRecords > 0 {
		st.Sizes = append([]uint32(nil), a.sizes...)
	}
	last := st.First + st.N - 1
	need := max(classOf(cfg.Durability), a.least)
	head := a.head[:0]
	if a.created {
		head = createParts(head, t)
		need = wal.Synced
	}
	reserved := t.reserve
	head, synced := e.reserveHead(head, t, last)
	if synced {
		need = wal.Synced
	}
	for i := range a.before {
		head = a.before[i].Encode(head)
	}
	st.Need = uint8(need)
	st.Ref = topic.Ref{First: st.First, TS: st.TS, N: uint32(a.n)}
	part := op.Part{Kind: op.KindAppend, Topic: t.ID, First: st.First, N: st.N, Bytes: st.Bytes, TS: st.TS, HasKey: a.hasKey, Key: a.key,
		EvictTo: ev.LoggedTo, EvictN: ev.LoggedN, EvictBytes: ev.LoggedBytes}
	var frames []byte
	crc := noFrames
	if cfg.Durability == api.Ephemeral {
		st.Ref.Segment = topic.InMemory
		if ev.LoggedN > 0 {
			evict := op.Part{Kind: op.KindEvict, Topic: t.ID, To: ev.LoggedTo, Cause: op.CauseCap, N: ev.LoggedN, Bytes: ev.LoggedBytes, TS: st.TS}
			head = evict.Encode(head)
		}
	} else {
		head = part.Encode(head)
		frames, crc = a.frames, a.crc
	}
	a.head = head
	if len(head) > 0 {
		tk, pos, err := e.append(t, head, frames, crc, need, a.slot)
		if err != nil {
			t.reserve = reserved
			return ticket{}, 0, err
		}
		st.LSN, st.Gen, st.Need = tk.lsn, tk.gen, uint8(tk.need)
		if st.Ref.Segment != topic.InMemory {
			t.loggedHead = last
			st.Ref.Segment, st.Ref.Offset, st.Ref.Len = pos.Segment, pos.Offset, pos.Len
		}
		t.reserve.logged(st.LSN, st.Gen)
	} else if synced && t.Idle() {
		// Nothing of the batch is in the log, but its numbers are only reserved
		// once an earlier operation is synced. Behind a staged change it waits with that.
		st.LSN, st.Gen = t.reserve.lsn, t.reserve.gen
	}
	if st.Ref.Segment == topic.InMemory {
		t.Index.Keep(st.First, append([]byte(nil), a.frames...))
	}
	if ev.To > 0 && (t.q != nil || t.routers.Load() != nil) {
		st.Undo = func() {
			if t.q != nil {
				t.q.Rewind(1)
			}
		}
		st.Apply = func() {
			t.keepForRouters(ev.To)
			e.forgetJobs(t, ev.To)
			t.Evict(ev.To, op.CauseCap, ev.N, ev.Bytes)
			t.Index.Trim(t.Start)
		}
	}
	if a.created {
		e.stageCreate(t, st.LSN, st.Gen)
	}
	tk := t.stage(st)
	if a.hasKey {
		t.Keys.Expire(a.now, cfg.IdempotencyWindowMS, keysPerWrite)
		t.Keys.Put(a.key, topic.Key{First: st.First, N: uint32(a.n), TS: st.TS, Pending: true, LSN: tk.lsn, Gen: tk.gen, Need: uint8(tk.need)})
	}
	return tk, st.First, nil
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
