package engine

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/internal/engine/topic"
	"github.com/weirmq/weir/internal/op"
	"github.com/weirmq/weir/internal/store"
	"github.com/weirmq/weir/internal/wal"
)

// damagedSegment is a sealed segment of the log that cannot be read as a whole.
// What its damaged operations did is unknown, but the engine has applied them
// all. So in their place the store gets what the engine knows of every topic
// and can be told early; the rest is logged again (restate) before the store
// takes the segment in.
type damagedSegment struct {
	e   *Engine
	seg wal.SegmentInfo

	kept    []uint32          // offsets of the operations that can be read, ascending
	topics  map[uint64]bool   // whose creation is among them, or in the store
	routers map[uint64]uint64 // source topics of routers, alike
	lost    []lostOps
	records bool // some damaged operation held records that the index knows
}

// lostOps is a place with operations that cannot be read.
type lostOps struct {
	from, to uint64 // LSNs
	err      *wal.CorruptError
}

// announce makes the loss known and durable, as far as possible before the
// store takes the segment in.
func (d *damagedSegment) announce() error {
	if err := d.survey(); err != nil || len(d.lost) == 0 {
		return err
	}
	for _, t := range d.e.reg.all() {
		if err := d.lose(t); err != nil {
			return err
		}
	}
	for _, t := range d.e.reg.all() {
		if err := d.e.restate(t); err != nil {
			return err
		}
	}
	if err := d.dropAgain(); err != nil {
		return err
	}
	now, _ := d.e.clocks()
	if _, err := d.e.logClock(d.e.log.Gen(), now); err != nil {
		return err
	}
	return d.e.log.Sync()
}

// survey reads which operations there are.
func (d *damagedSegment) survey() error {
	e := d.e
	var p op.Part
	err := e.log.ScanDamaged(d.seg.Number, func(o wal.Op) error {
		d.kept = append(d.kept, o.Pos.Offset)
		r := op.NewReader(o.Payload)
		for r.Next(&p) {
			switch p.Kind {
			case op.KindCreate:
				d.topics[p.Topic] = true
			case op.KindRouter:
				d.routers[p.Router] = p.Topic
			}
		}
		return r.Err()
	}, func(c *wal.CorruptError, from, to uint64) error {
		d.lost = append(d.lost, lostOps{from, to, c})
		return nil
	})
	slices.Sort(d.kept) // what was moved here from a file that failed comes last
	if err == nil {
		err = e.store.Topics(func(id uint64) { d.topics[id] = true })
	}
	if err == nil {
		err = e.store.Routes(func(r op.Route) error { d.routers[r.ID] = r.Source; return nil })
	}
	return err
}

// lose announces the live records of a topic that lie in damaged operations.
func (d *damagedSegment) lose(t *entry) error {
	for range 10 {
		places, err := d.places(t)
		if err != nil || len(places) == 0 {
			return err
		}
		for _, p := range places {
			if err := notGone(d.e.stepOver(t, p)); err != nil {
				return err
			}
		}
	}
	return fmt.Errorf("topic %q: the loss of damaged records could not be announced", t.Name)
}

// places returns where live records of the topic lie in damaged operations.
func (d *damagedSegment) places(t *entry) (list []*damaged, err error) {
	if err := d.e.relock(t); err != nil {
		return nil, notGone(err)
	}
	defer t.mu.Unlock()
	d.e.advance(t)
	follows := false
	for _, ref := range t.Index.Refs(nil, 0, math.MaxUint64) {
		if _, readable := slices.BinarySearch(d.kept, ref.Offset); ref.Segment != d.seg.Number || readable {
			follows = false
			continue
		}
		d.records = true
		if t.NextFree(ref.First-1) > ref.Last() {
			follows = false
			continue
		}
		if k := len(list); follows && k > 0 && list[k-1].to+1 == ref.First {
			list[k-1].to = ref.Last()
			continue
		}
		c := d.lost[0].err
		list = append(list, &damaged{from: ref.First, to: ref.Last(), segment: ref.Segment, file: c.File,
			size: float64(ref.Len) / float64(ref.N), err: &wal.CorruptError{File: c.File, Offset: int64(ref.Offset), Reason: c.Reason}})
		follows = true
	}
	return list, nil
}

// notGone is err unless it says that the topic has ended meanwhile.
func notGone(err error) error {
	if api.IsCode(err, api.CodeTopicNotFound) {
		return nil
	}
	return err
}

// report says once what became of the segment.
func (d *damagedSegment) report() {
	if len(d.lost) == 0 {
		return
	}
	log := d.e.opt.Logger.Info
	if !d.records {
		log = d.e.opt.Logger.Error
		d.e.damage.add(d.seg.Number, false, 1, 0)
	}
	n := uint64(0)
	for _, l := range d.lost {
		n += l.to - l.from + 1
	}
	at := d.lost[0].err
	log("a damaged segment of the log is moved to the store without the operations that cannot be read; what they did was logged anew",
		"segment", d.seg.Number, "operations", n, "file", at.File, "offset", at.Offset, "error", at.Reason)
}

// scan gives the store what can be read, and at the place of the damage what
// the engine knows.
func (d *damagedSegment) scan(fn func(store.Op) error) error {
	at := 0
	err := d.e.log.ScanDamaged(d.seg.Number, func(o wal.Op) error {
		return fn(store.Op{LSN: o.LSN, Payload: o.Payload})
	}, func(_ *wal.CorruptError, from, to uint64) error {
		if at++; at > 1 && at < len(d.lost) {
			return nil
		}
		return d.known(at == 1, func(payload []byte) error { return fn(store.Op{LSN: from, Payload: payload}) })
	})
	if err != nil || len(d.lost) == 0 {
		return err
	}
	return d.ends(func(payload []byte) error { return fn(store.Op{LSN: d.seg.LastLSN, Payload: payload}) })
}

// manyRecords is the count of a topic from the damage to where it is restated:
// so large that the topic never seems empty, whatever is taken from it.
const manyRecords = 1 << 62

// known emits what the engine knows of every topic and can be told early,
// because what the log says later replaces it.
func (d *damagedSegment) known(first bool, fn func([]byte) error) error {
	e := d.e
	if first {
		for _, l := range d.lost {
			for _, id := range e.reg.endings(l.from, l.to) {
				// It has ended, but operations behind name it.
				part := op.Part{Kind: op.KindCreate, Topic: id, Name: fmt.Sprintf("ended-%d", id)}
				if err := fn(part.Encode(nil)); err != nil {
					return err
				}
			}
		}
	}
	all := e.reg.all()
	slices.SortFunc(all, func(a, b *entry) int { return cmp.Compare(a.ID, b.ID) })
	for _, t := range all {
		if !t.created.Load() || !d.topics[t.ID] && !d.has(t.begin.lsn) {
			continue // it begins later
		}
		for _, payload := range d.topic(t, first) {
			if err := fn(payload); err != nil {
				return err
			}
		}
	}
	for _, r := range e.routes.sorted() {
		if r.gone.Load() {
			continue
		}
		part := r.part(r.cfg.Load())
		if err := fn(part.Encode(nil)); err != nil {
			return err
		}
	}
	return nil
}

// topic encodes what known says of one topic.
func (d *damagedSegment) topic(t *entry, first bool) (payloads [][]byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	var head []byte
	if first && d.has(t.begin.lsn) {
		head = createParts(head, t)
	}
	if first {
		for _, b := range d.e.buried.of(t.ID) {
			if d.has(b.lsn) {
				part := op.Part{Kind: op.KindDelete, Topic: t.ID, Dead: b.n}
				head = part.Encode(head)
			}
		}
	}
	for _, part := range []op.Part{
		{Kind: op.KindConfig, Topic: t.ID, Config: t.Config},
		{Kind: op.KindReserve, Topic: t.ID, To: t.reserve.next},
		{Kind: op.KindCounters, Topic: t.ID, Count: manyRecords, Bytes: manyRecords},
	} {
		head = part.Encode(head)
	}
	payloads = append(payloads, head)
	if t.jobs == nil {
		return payloads
	}
	t.jobs.q.Each(func(seq uint64, node string, id uint64, deadline int64, deliveries uint64) {
		scheduled := node == "" && id == 0 && deadline > 0
		if !t.Config.LeasesDurable && !scheduled {
			return
		}
		part := op.Part{Kind: op.KindRelease, Topic: t.ID, Node: node, Leases: []op.Lease{{Seq: seq, ID: id, Deadline: deadline, Deliveries: deliveries}}}
		if node != "" {
			part.Kind = op.KindLease
		}
		payloads = append(payloads, part.Encode(nil))
	})
	return payloads
}

// has reports whether the operation is a damaged one.
func (d *damagedSegment) has(lsn uint64) bool {
	return slices.ContainsFunc(d.lost, func(l lostOps) bool { return lsn >= l.from && lsn <= l.to })
}

// ends emits the end of topics and routers that the store may have and the
// engine does not.
func (d *damagedSegment) ends(fn func([]byte) error) error {
	running := make(map[uint64]bool)
	for _, r := range d.e.routes.sorted() {
		running[r.id] = true
	}
	var head []byte
	for id, source := range d.routers {
		if !running[id] {
			part := op.Part{Kind: op.KindRouterDrop, Topic: source, Router: id}
			head = part.Encode(head)
		}
	}
	for id := range d.topics {
		if d.e.reg.id(id) == nil {
			part := op.Part{Kind: op.KindDrop, Topic: id}
			head = part.Encode(head)
		}
	}
	if len(head) == 0 {
		return nil
	}
	return fn(head)
}

// dropAgain logs the end of topics whose creation is damaged.
func (d *damagedSegment) dropAgain() error {
	var head []byte
	for _, l := range d.lost {
		for _, id := range d.e.reg.endings(l.from, l.to) {
			part := op.Part{Kind: op.KindDrop, Topic: id}
			head = part.Encode(head)
		}
	}
	if len(head) == 0 {
		return nil
	}
	gen := d.e.log.Gen()
	lsn, _, err := d.e.log.AppendUnslotted(gen, head, nil, noFrames, wal.Written)
	if err != nil {
		return err
	}
	return d.e.wait(ticket{lsn, gen, wal.Written})
}

// restateRanges is how many ranges one operation of restate takes at most.
const restateRanges = 4096

// restate logs again where the topic stands: what is not live, its head and its
// totals. For a topic whose log is whole this changes nothing.
func (e *Engine) restate(t *entry) error {
	if err := e.atRest(t); err != nil {
		return notGone(err)
	}
	var tk ticket
	var err error
	for _, head := range e.stateParts(t) {
		if tk, _, err = e.append(t, head, nil, noFrames, wal.Memory, nil); err != nil {
			break
		}
		tk = t.stage(topic.Staged{LSN: tk.lsn, Gen: tk.gen, Need: uint8(tk.need)})
	}
	t.mu.Unlock()
	if err == nil {
		err = e.commit(t, tk)
	}
	return err
}

// atRest locks the topic. If some of its records are only in memory, nothing is
// staged then.
func (e *Engine) atRest(t *entry) error {
	for range 1000 {
		if err := e.relock(t); err != nil {
			return err
		}
		e.advance(t)
		lsn, gen, need := t.Pending()
		if t.Idle() || t.plannedConfig().Durability != api.Ephemeral && t.Config.Durability != api.Ephemeral && !t.Index.InMemory() {
			return nil
		}
		t.mu.Unlock()
		if err := e.commit(t, ticket{lsn, gen, wal.Class(need)}); err != nil {
			return err
		}
	}
	return fmt.Errorf("topic %q is never at rest", t.Name)
}

// stateParts encodes what restate says. The topic's lock is held.
func (e *Engine) stateParts(t *entry) (heads [][]byte) {
	end := t.Head // what the log may know of
	if t.Config.Durability == api.Ephemeral {
		end = min(end, t.loggedHead)
	}
	n, bytes := t.loggedTotals()
	var head []byte
	say := func(p op.Part) {
		p.Topic = t.ID
		head = p.Encode(head)
	}
	say(op.Part{Kind: op.KindCounters, Count: n, Bytes: bytes})
	for _, f := range []struct {
		to    uint64
		cause op.Cause
	}{{t.CapTo, op.CauseCap}, {t.TTLTo, op.CauseTTL}, {t.TrimTo, op.CauseTrim}, {t.Loss, op.CauseCrash}} {
		if to := min(f.to, end); to > 0 {
			say(op.Part{Kind: op.KindEvict, To: to, Cause: f.cause, TS: t.LastTS})
		}
	}
	for _, l := range t.Lost {
		if l.To = min(l.To, end); l.From <= l.To {
			say(op.Part{Kind: op.KindLose, From: l.From, To: l.To, Cause: l.Cause})
		}
	}
	for _, ref := range t.Index.Refs(nil, 0, end) {
		if to := min(ref.Last(), end); ref.Segment == topic.InMemory {
			say(op.Part{Kind: op.KindLose, From: ref.First, To: to, Cause: op.CauseCrash})
		}
	}
	say(op.Part{Kind: op.KindSkip, To: end})
	var ranges []op.Range
	if to := min(t.Start, end); to > 0 {
		ranges = append(ranges, op.Range{From: 1, To: to})
	}
	flush := func() {
		say(op.Part{Kind: op.KindDelete, Ranges: ranges})
		heads, head, ranges = append(heads, head), nil, ranges[:0]
	}
	t.Holes.Ranges(func(r op.Range) {
		if r.From, r.To = max(r.From, t.Start+1), min(r.To, end); r.From > r.To {
			return
		}
		if ranges = append(ranges, r); len(ranges) == restateRanges {
			flush()
		}
	})
	flush()
	return heads
}

// loggedTotals is the planned count and size of the records that the log holds.
func (t *entry) loggedTotals() (n, bytes uint64) {
	n, bytes = t.PlannedCount(), t.PlannedBytes()
	if !t.Index.InMemory() {
		return n, bytes
	}
	var r api.Record
	for _, ref := range t.Index.Refs(nil, 0, math.MaxUint64) {
		if ref.Segment != topic.InMemory {
			continue
		}
		frames, err := t.Index.Frames(ref.First), error(nil)
		for seq := ref.First; seq <= ref.Last(); seq++ {
			if frames, err = op.ReadFrame(frames, &r); err != nil {
				break
			}
			if t.Free(seq) {
				n -= min(n, 1)
				bytes -= min(bytes, uint64(len(r.Data)+len(r.Meta)))
			}
		}
	}
	return n, bytes
}
