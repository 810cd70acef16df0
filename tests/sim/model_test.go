package sim

import (
	"fmt"
	"maps"
	"slices"

	"github.com/weirmq/weir/internal/api"
)

// rec is one live record of the model.
type rec struct {
	seq             uint64
	ts              int64 // Unix ms; unknownTS if no answer has told it
	data, meta      string
	tag, node       string
	hasTag, hasNode bool
	size            uint64
}

const unknownTS = -1

func (r rec) String() string {
	return fmt.Sprintf("%d at %d: %.12s… (%d bytes) meta %.60s tag %v %q node %v %q", r.seq, r.ts, r.data, r.size, r.meta, r.hasTag, r.tag, r.hasNode, r.node)
}

type span struct{ from, to uint64 }

type jobState uint8

const (
	ready jobState = iota
	leased
	delayed
)

// job is a job that was claimed at least once, or came with a delay.
type job struct {
	state      jobState
	node       string
	id         uint64
	until      int64 // lease or delay, on the lease clock
	deliveries uint64
	due        int64 // on the lease clock, of a job that came with a delay; else 0
}

// keyed is the remembered result of a write.
type keyed struct {
	first, n uint64
	at       int64 // on the lease clock
	found    int64 // when a restart found it whose log does not say well how old it is, likewise; else 0
}

// open reports whether a server may know the key or not. The log has a time stamp, which may stand
// still, and for up to a second after a step of the wall clock does not tell of that.
func (k keyed) open(now, window int64) bool {
	return k.found > 0 && now-k.at > window-1100 && now-k.found <= window+1100
}

// topic is a topic as its readers must see it. A version is never changed
// once it stands in the journal: a change works on a copy.
type topic struct {
	cfg  api.Config
	life int // another number for each topic that was ever made
	head uint64
	loss uint64 // loss floor
	lost []span // kept ranges above it
	recs []rec  // live, ascending
	jobs map[uint64]job
	keys map[string]keyed
	dead uint64
}

func newTopic(cfg api.Config) *topic {
	return &topic{cfg: cfg, jobs: map[uint64]job{}, keys: map[string]keyed{}}
}

func (t *topic) clone() *topic {
	c := *t
	c.lost, c.recs, c.jobs, c.keys = slices.Clone(t.lost), slices.Clone(t.recs), maps.Clone(t.jobs), maps.Clone(t.keys)
	return &c
}

func (t *topic) bytes() (n uint64) {
	for i := range t.recs {
		n += t.recs[i].size
	}
	return n
}

func (t *topic) earliest() uint64 {
	if len(t.recs) == 0 {
		return t.head + 1
	}
	return t.recs[0].seq
}

func (t *topic) counters() api.TopicCounters {
	return api.TopicCounters{HeadSeq: t.head, EarliestSeq: t.earliest(), Count: uint64(len(t.recs)), Bytes: t.bytes()}
}

// tick lets leases and delays end; now is the lease clock.
func (t *topic) tick(now int64) {
	for seq, j := range t.jobs {
		if j.state == leased && now > j.until || j.state == delayed && now >= j.until {
			j.state = ready
			t.jobs[seq] = j
		}
	}
}

func (t *topic) queue() api.QueueCounters {
	c := api.QueueCounters{DeadLettered: t.dead}
	waiting := uint64(0)
	for _, j := range t.jobs {
		switch j.state {
		case leased:
			c.InFlight++
		case delayed:
			waiting++
			if j.id == 0 {
				c.Scheduled++
			}
		}
	}
	c.Delayed = waiting
	c.Ready = uint64(len(t.recs)) - c.InFlight - waiting
	return c
}

// expire takes what has outlived its time.
func (t *topic) expire(now int64) {
	if t.cfg.TTLMS == 0 {
		return
	}
	to := uint64(0)
	for _, r := range t.recs {
		if r.ts == unknownTS || now-r.ts <= int64(t.cfg.TTLMS) {
			break
		}
		to = r.seq
	}
	t.evict(to)
}

func (t *topic) overCap(count, bytes uint64) bool {
	return t.cfg.CapRecords > 0 && count > t.cfg.CapRecords || t.cfg.CapBytes > 0 && bytes > t.cfg.CapBytes
}

// cap evicts what is above the caps, oldest first.
func (t *topic) cap() {
	if t.cfg.Discard != api.DiscardOld {
		return
	}
	n, bytes, to := uint64(len(t.recs)), t.bytes(), uint64(0)
	for i := 0; t.overCap(n, bytes); i++ {
		to = t.recs[i].seq
		n--
		bytes -= t.recs[i].size
	}
	t.evict(to)
}

// evict loses everything up to to.
func (t *topic) evict(to uint64) {
	if to <= t.loss {
		return
	}
	t.loss = to
	t.keep(func(r *rec) bool { return r.seq > to })
}

// keep leaves only the records that are wanted.
func (t *topic) keep(want func(*rec) bool) (gone int) {
	n := len(t.recs)
	kept := make([]rec, 0, n)
	for i := range t.recs {
		if want(&t.recs[i]) {
			kept = append(kept, t.recs[i])
		} else {
			delete(t.jobs, t.recs[i].seq)
		}
	}
	t.recs = kept
	t.settle()
	return n - len(kept)
}

// settle lets the loss floor take in the ranges it has reached.
func (t *topic) settle() {
	for len(t.lost) > 0 {
		if l := t.lost[0]; l.from <= t.loss+1 {
			t.loss = max(t.loss, l.to)
		} else if l.to > t.loss {
			return
		}
		t.lost = t.lost[1:]
	}
}

// crash loses the numbers from…to, which the head moves over.
func (t *topic) crash(from, to uint64) {
	if to < from {
		return
	}
	t.head = max(t.head, to)
	k := len(t.lost)
	switch {
	case len(t.recs) == 0:
		t.loss = max(t.loss, to)
	case k > 0 && t.lost[k-1].to+1 == from:
		t.lost[k-1].to = to
	default:
		t.lost = append(t.lost, span{from, to})
	}
	t.settle()
}

// page is what a read answers.
type page struct {
	recs []rec
	tomb *span
	next uint64
}

// read is contract 5.3 and 8.2.
func (t *topic) read(from uint64, limit int, nodes []string) page {
	pos, end, p := from, t.head, page{}
	switch in := slices.IndexFunc(t.lost, func(l span) bool { return l.from-1 <= from && from < l.to }); {
	case from > t.head:
		p.tomb = &span{1, t.head}
		pos = t.earliest() - 1
	case from < t.loss:
		p.tomb = &span{from + 1, t.loss}
		pos = t.loss
	case in >= 0:
		p.tomb = &span{from + 1, t.lost[in].to}
		pos = t.lost[in].to
	}
	for _, l := range t.lost {
		if l.from > pos+1 || l.from == pos+1 && p.tomb != nil {
			end = min(end, l.from-1)
			break
		}
	}
	p.next = max(pos, end)
	for _, r := range t.recs {
		if r.seq <= pos || r.seq > end {
			continue
		}
		if t.cfg.DedupeNode && r.hasNode && slices.Contains(nodes, r.node) {
			continue
		}
		p.recs = append(p.recs, r)
		if len(p.recs) == limit {
			p.next = r.seq
			break
		}
	}
	return p
}

// find returns the index of a live record, -1 if it is not live.
func (t *topic) find(seq uint64) int {
	i, ok := slices.BinarySearchFunc(t.recs, seq, func(r rec, s uint64) int { return int(int64(r.seq) - int64(s)) })
	if !ok {
		return -1
	}
	return i
}

// pick says which jobs a claim gets, and which become dead letters on the way.
func (t *topic) pick(most int) (picks, dead []uint64) {
	limit := t.cfg.MaxDeliveries
	if !t.cfg.HasDeadLetter {
		limit = 0
	}
	for _, again := range []bool{true, false} { // returned ones go first
		for _, r := range t.recs {
			j, known := t.jobs[r.seq]
			if len(picks) == most || known != again || j.state != ready {
				continue
			}
			if limit > 0 && j.deliveries >= limit {
				dead = append(dead, r.seq)
				continue
			}
			picks = append(picks, r.seq)
		}
	}
	slices.Sort(picks)
	return picks, dead
}

// deadLetter is the copy of a job.
func (t *topic) deadLetter(queue string, seq uint64) rec {
	r := t.recs[t.find(seq)]
	inner := ""
	if len(r.meta) > 2 {
		inner = r.meta[1:len(r.meta)-1] + ","
	}
	r.meta = fmt.Sprintf(`{%s"$dead_letter_from":%q,"$dead_letter_deliveries":"%d","$dead_letter_src_seq":"%d"}`, inner, queue, t.jobs[seq].deliveries, seq)
	r.size, r.ts = uint64(len(r.data)+len(r.meta)), unknownTS
	return r
}

// append gives records their numbers and applies the caps.
func (t *topic) append(recs []rec) (first uint64) {
	first = t.head + 1
	for _, r := range recs {
		t.head++
		r.seq = t.head
		t.recs = append(t.recs, r)
	}
	t.cap()
	return first
}

// refuses says how a write of this size is refused: "" if it fits.
func (t *topic) refuses(n, bytes uint64) api.Code {
	switch {
	case t.cfg.Discard != api.DiscardReject:
		return ""
	case t.overCap(n, bytes):
		return api.CodeRecordTooLarge
	case t.overCap(uint64(len(t.recs))+n, t.bytes()+bytes):
		return api.CodeTopicFull
	}
	return ""
}

// held says whether a worker may settle the job.
func (t *topic) held(seq uint64, node string, id uint64) bool {
	j, ok := t.jobs[seq]
	return ok && j.state == leased && j.node == node && (id == 0 || j.id == id)
}
