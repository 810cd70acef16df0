package oracle

// route is a router: what it has to copy, and from when on.
type route struct {
	Router
	lo, hi int64 // its creation was sent and answered
	until  int64 // its deletion was sent
	life   int   // crashes before it
}

// copied marks the id of a record that a router made.
const copied = "→"

// depth is how many routers lie in front of a topic.
func (c *Checker) depth(name string) (n int) {
	for f := c.feeds[name]; f != nil && n < 10; f = c.feeds[f.Source] {
		n++
	}
	return n
}

// where finds a record by its id: its number if that is known, and what is
// known about it. There is none if it was never written here.
func (t *topic) where(id BatchID, i int) (seq uint64, b *binding, there bool) {
	if batch := t.batches[id]; batch != nil {
		if batch.first == 0 {
			return 0, nil, !batch.failed
		}
		seq = batch.first + uint64(i)
		return seq, t.bySeq[seq], !batch.failed
	}
	seq, there = t.bySrc[recID{batch: id, i: i, from: copied}]
	return seq, t.bySeq[seq], there
}

// payload is what a copy of the record carries.
func (f *route) payload(id BatchID, i, size int) Payload {
	p := PayloadOf(id, i, size)
	if f.DropNode {
		p.Node = ""
	}
	return p
}

// bindCopy learns from a record that a router made, or that no writer of this
// topic has sent.
func (t *topic) bindCopy(r *Rec, e *Event) {
	f := t.feed
	var src *topic
	if f != nil {
		src = t.c.topics[f.Source]
	}
	if src == nil {
		t.violation("route", r.Seq, "record %d of batch %v has the mark of router %q, which is not there", r.I, r.Batch, r.Router)
		return
	}
	at, from, there := src.where(r.Batch, r.I)
	for up, n := src, 0; !there && up != nil && up.feed != nil && n < 10; n++ {
		// Nobody has read it in the middle of the chain yet.
		if up = t.c.topics[up.feed.Source]; up != nil {
			_, _, there = up.where(r.Batch, r.I)
		}
	}
	p := f.payload(r.Batch, r.I, r.Size)
	switch {
	case !there:
		t.violation("route", r.Seq, "copy of record %d of batch %v, which topic %s never held", r.I, r.Batch, f.Source)
		return
	case f.Tag != "" && p.Tag != f.Tag:
		t.violation("route", r.Seq, "copy of a record with tag %q, the filter is %q", p.Tag, f.Tag)
		return
	case f.ExactlyOnce && (r.Router != f.Name || r.Source != f.Source || at != 0 && r.SourceSeq != at):
		t.violation("route", r.Seq, "the copy is marked as %d of %s by %q, it is %d of %s by %q", r.SourceSeq, r.Source, r.Router, at, f.Source, f.Name)
		return
	case from != nil && from.known <= f.lo:
		t.violation("route", r.Seq, "copy of seq %d, which was there before the router", at)
		return
	}
	id := recID{batch: r.Batch, i: r.I, from: copied, fromSeq: 0}
	if have := t.bySeq[r.Seq]; have != nil && have.id != id {
		t.violation("D3", r.Seq, "held record %d of batch %v and now record %d of batch %v", have.id.i, have.id.batch, r.I, r.Batch)
		return
	} else if have == nil {
		if old := t.bySeq[t.bySrc[id]]; old != nil && !old.lost && !old.mayLost && (f.ExactlyOnce || t.c.life == f.life) {
			t.violation("route", r.Seq, "record %d of batch %v is copied twice, at %d too", r.I, r.Batch, t.bySrc[id])
		}
		t.bySrc[id] = r.Seq
		born := e.Invoke
		if from != nil {
			born = from.born
		}
		t.bySeq[r.Seq] = &binding{id: id, size: r.Size, hash: p.Hash(), bytes: r.Bytes, ts: r.TS, born: born, known: e.Return, class: t.ever.weakest}
		t.order = append(t.order, r.Seq)
	}
	t.bySeq[r.Seq].known = min(t.bySeq[r.Seq].known, e.Return)
	t.sameRecord(r, e)
}

// sourceLoses says whether a router into the topic may meet numbers that its
// source has lost, for which numbers are burnt here.
func (t *topic) sourceLoses() bool {
	for f, n := t.feed, 0; f != nil && n < 10; n++ {
		src := t.c.topics[f.Source]
		if src == nil || src.lossy() || src.capped() {
			return true
		}
		f = src.feed
	}
	return false
}

// judgeRoutes holds what was read of a source and of its destination, while
// nothing else ran, against each other.
func (c *Checker) judgeRoutes() {
	for dest, f := range c.feeds {
		d, src := c.topics[dest], c.topics[f.Source]
		if d != nil && src != nil && d.scanned != nil && src.scanned != nil {
			c.judgeRoute(f, src, d)
			d.scanned = nil
		}
	}
	for _, t := range c.topics {
		t.scanned = nil
	}
}

// judgeRoute checks that every live record that the router had to copy is
// there, and that copies are in the order of the source.
func (c *Checker) judgeRoute(f *route, src, d *topic) {
	var last uint64 // of the source, that has a copy
	waits := d.everReject()
	if waits { // it may stand before any of them, but skips none; what a crash took is copied again
		for _, seq := range src.order {
			if k := d.copyOf(src.bySeq[seq]); k != nil && !k.lost {
				last = seq
			}
		}
	}
	for _, seq := range src.order {
		b := src.bySeq[seq]
		switch {
		case !src.scanned[seq] || b.born < f.hi || b.known >= f.until || waits && seq > last:
			continue
		case f.Tag != "" && PayloadOf(b.id.batch, b.id.i, b.size).Tag != f.Tag:
			continue
		}
		k := d.copyOf(b)
		switch {
		case k == nil && (d.capped() || d.deleting): // it may have come and gone
		case k == nil || !d.scanned[d.bySrc[b.copyID()]] && k.mayGone == 0 && (k.lost || !d.capped()):
			d.violation("route", 0, "seq %d of %s is not copied, or its copy is gone (record %d of batch %v)", seq, src.name, b.id.i, b.id.batch)
			return
		default:
			c.tally.Copies++
		}
	}
	d.judgeCopyOrder(f, src)
}

func (b *binding) copyID() recID { return recID{batch: b.id.batch, i: b.id.i, from: copied} }

func (t *topic) copyOf(b *binding) *binding { return t.bySeq[t.bySrc[b.copyID()]] }

// everReject says whether a router may find the topic full.
func (t *topic) everReject() bool { return t.cfg.Reject || t.ever.tightened }

// judgeCopyOrder checks that copies stand in the order of the source. Without
// exactly_once a crash may have set the router back.
func (t *topic) judgeCopyOrder(f *route, src *topic) {
	if !f.ExactlyOnce && t.c.life != f.life {
		return
	}
	var last uint64
	for _, seq := range t.order {
		b := t.bySeq[seq]
		if b.id.from != copied || b.lost || b.mayLost {
			continue
		}
		at, _, _ := src.where(b.id.batch, b.id.i)
		if at != 0 && at < last {
			t.violation("route", seq, "copy of seq %d of %s behind that of seq %d", at, src.name, last)
			return
		}
		last = max(last, at)
	}
}
