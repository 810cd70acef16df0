package oracle

// judgeBackup holds what a restored backup answers against the history: it is
// the state at one place of the log, between the call and its answer.
func (c *Checker) judgeBackup(e *Event, parts []life) {
	byTopic := map[string][]*Event{}
	asked := e.Return
	for i := range e.Copy {
		p := &e.Copy[i]
		asked = max(asked, p.Return)
		p.Invoke, p.Return = e.Invoke, e.Return
		byTopic[p.Topic] = append(byTopic[p.Topic], p)
	}
	var list []*backedUp
	place := e.Invoke // the backup holds everything that was answered by then
	for name, t := range c.topics {
		k := &backedUp{t: t, events: byTopic[name], asked: asked, shown: map[uint64]bool{}}
		k.pick(parts, e)
		if k.t == nil {
			continue
		}
		list = append(list, k)
		for seq := range k.shown {
			if b := k.t.bySeq[seq]; b != nil && b.id.from == "" {
				place = max(place, b.born)
			}
		}
	}
	records := 0
	for _, k := range list {
		records += len(k.shown) + len(k.copies)
		k.judge(e, place)
		for _, src := range list {
			if f := k.t.feed; f != nil && src.t.name == f.Source && len(k.events) > 0 {
				k.judgeCopies(e, src, f)
			}
		}
	}
	if records > 0 {
		c.tally.Backups++
	}
}

// backedUp is one topic of a backup.
type backedUp struct {
	t      *topic
	events []*Event
	asked  int64 // when it was read: what has expired since is not in it
	shown  map[uint64]bool
	copies []*Rec // that a router made
	whole  bool   // this life was there all the time
}

// pick finds the life that the backup shows, learns what it holds, and leaves
// t nil if nothing can be said.
func (k *backedUp) pick(parts []life, e *Event) {
	name := k.t.name
	var lives []*life
	touched := false
	for i := range parts {
		l := &parts[i]
		touched = touched || l.t.name == name
		if l.t.name == name && l.from < e.Return && e.Invoke < l.to {
			lives = append(lives, l)
		}
	}
	k.whole = !k.t.maybe
	switch {
	case len(lives) == 0 && touched:
		if len(k.events) > 0 {
			k.t.violation("backup", 0, "the topic was not there while the backup was taken, and is in it")
		}
		k.t = nil
	case len(lives) > 1:
		k.t = k.byBatch(lives)
		k.whole = false
	case len(lives) == 1:
		k.t, k.whole = lives[0].t, lives[0].born <= e.Invoke && e.Return <= lives[0].dying && !lives[0].t.maybe
	}
	if k.t == nil {
		return
	}
	for _, p := range k.events {
		for i := range p.Recs {
			r := &p.Recs[i]
			if r.From == "" && (r.Router != "" || k.t.feed != nil && k.t.batches[r.Batch] == nil) {
				k.copies = append(k.copies, r) // perhaps made by the restored server, with other numbers
				continue
			}
			k.t.bindSeen(r, p)
			k.shown[r.Seq] = true
		}
	}
	if len(k.events) > 0 {
		k.t.sortOrder()
		k.t.removals(nil) // deletes that are known already may have removed what only the backup shows
	}
}

// byBatch is the one life that every shown record was written in. A batch may
// have been sent to more than one: then nothing can be said.
func (k *backedUp) byBatch(lives []*life) (found *topic) {
	for _, l := range lives {
		if !k.allIn(l.t) {
			continue
		}
		if found != nil {
			return nil
		}
		found = l.t
	}
	return found
}

func (k *backedUp) allIn(t *topic) bool {
	for _, p := range k.events {
		for i := range p.Recs {
			if t.batches[p.Recs[i].Batch] == nil {
				return false
			}
		}
	}
	return true
}

// judge checks one topic; place is a time by which the place of the log had
// surely been reached.
func (k *backedUp) judge(e *Event, place int64) {
	t := k.t
	if len(k.events) == 0 {
		if k.whole && len(t.settings) > 0 && t.settings[0].hi <= e.Invoke {
			t.violation("backup", 0, "the topic is not in the backup")
		}
		return
	}
	var next, count, bytes uint64
	for _, p := range k.events {
		if p.Kind == State {
			if (p.Count != count || p.Bytes != bytes) && !(t.ever.ttl > 0 && p.Count <= count && p.Bytes <= bytes) {
				t.violation("backup", 0, "the copy counts %d records of %d bytes, a full read of it shows %d of %d", p.Count, p.Bytes, count, bytes)
			}
			continue
		}
		if p.From != next {
			t.violation("backup", p.From, "the reads of the copy do not follow each other")
		}
		next = p.Next
		for i := range p.Recs {
			count, bytes = count+1, bytes+uint64(p.Recs[i].Bytes)
		}
	}
	k.judgeRecords(e, place)
}

// judgeRecords checks what is in the backup and what is not.
func (k *backedUp) judgeRecords(e *Event, place int64) {
	t, evictable, quiet := k.t, k.t.evictable(e.Return, k.asked), &Event{Return: e.Return, Quiet: true}
	batches := map[BatchID]bool{}
	for seq := range k.shown {
		b := t.bySeq[seq]
		if b == nil {
			continue
		}
		batches[b.id.batch] = batches[b.id.batch] || b.id.from == ""
		switch {
		case b.born > e.Return:
			t.violation("backup", seq, "written after the backup, and in it")
		case b.gone != 0 && b.gone <= place:
			t.violation("backup", seq, "removed %d ms before something that is in the backup, and in it", ms(place-b.gone))
		}
	}
	for _, seq := range t.order {
		b := t.bySeq[seq]
		if k.shown[seq] || b.lost || b.mayLost || b.class == Ephemeral || seq <= evictable || t.mayBeGone(b, seq, quiet) {
			continue
		}
		switch {
		case batches[b.id.batch] && b.id.from == "":
			t.violation("backup", seq, "record %d of batch %v is missing, others of it are in the backup", b.id.i, b.id.batch)
		case k.whole && b.known <= place && b.id.from == "":
			t.violation("backup", seq, "acknowledged or shown %d ms before something that is in the backup, and missing", ms(place-b.known))
		default:
			continue
		}
		return
	}
}

// judgeCopies checks that the restored server has copied what it holds of the
// source, each record once.
func (k *backedUp) judgeCopies(e *Event, src *backedUp, f *route) {
	there := map[recID]bool{}
	for _, r := range k.copies {
		id := recID{batch: r.Batch, i: r.I, from: copied}
		if there[id] {
			k.t.violation("backup", r.Seq, "record %d of batch %v is copied twice in the backup", r.I, r.Batch)
		}
		there[id] = true
		if f.payload(r.Batch, r.I, r.Size).Hash() != r.Hash {
			k.t.violation("backup", r.Seq, "the copy of record %d of batch %v differs from what was written", r.I, r.Batch)
		}
	}
	if k.t.everReject() || k.t.capped() || k.t.deleting {
		return
	}
	if f.until <= e.Return {
		return // it may be gone at the place of the backup, and the topic still there
	}
	for seq := range src.shown {
		b := src.t.bySeq[seq]
		if b == nil || b.born < f.hi || b.known >= f.until || f.Tag != "" && PayloadOf(b.id.batch, b.id.i, b.size).Tag != f.Tag || there[b.copyID()] {
			continue
		}
		if made := k.t.copyOf(b); made == nil || made.mayGone == 0 {
			k.t.violation("backup", 0, "seq %d of %s is in the backup and is not copied there", seq, src.t.name)
			return
		}
	}
}
