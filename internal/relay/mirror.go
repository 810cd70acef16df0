package relay

import (
	"context"
	"errors"
	"slices"
	"sort"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/internal/engine/push"
)

// mirror is one life of a topic as far as its subscription has told it, with what came
// last. It is the push.Source of the topic's listeners.
type mirror struct {
	relay *Relay
	name  string
	link  *link
	topic push.Topic
	again atomic.Bool   // streams met push.ErrLater
	ready chan struct{} // closed once it is subscribed, or err is set
	err   error

	subscribing uint64 // request that is not answered; of the link's goroutine and link.mu
	alone       bool   // it was refused with others and is subscribed by itself; guarded by link.mu

	mu       sync.Mutex
	life     uint64
	earliest uint64
	head     uint64 // position of the subscription
	more     bool   // the upstream has more than that
	gone     bool   // it ended, or nobody wanted it
	used     time.Time
	items    []item // ascending by last; none is changed once it is here
	from     uint64 // cursor in front of the first item
	bytes    int64
	left     int64 // bytes that were trimmed and are still in memory, in front of items
	read     []*stretch
}

// item is a record, or a range that was lost.
type item struct {
	last  uint64 // its number, or the last of the range
	lost  *api.Tombstone
	rec   api.Record
	plain bool // node filters do not count
}

// itemBytes is what an item takes besides its data.
const itemBytes = 256

func (it *item) size() int64 {
	return itemBytes + int64(it.rec.Size()+len(it.rec.Node)+len(it.rec.Tag)+len(it.rec.FairKey))
}

func newMirror(r *Relay, name string) *mirror {
	m := &mirror{relay: r, name: name, ready: make(chan struct{}), used: time.Now()}
	m.topic.Source = m
	return m
}

// Lock locks the mirror.
func (m *mirror) Lock() { m.mu.Lock() }

// Unlock unlocks it.
func (m *mirror) Unlock() { m.mu.Unlock() }

// Earliest is the first live number when the topic was subscribed.
func (m *mirror) Earliest() uint64 { return m.earliest }

// State is what the mirror shows.
func (m *mirror) State() push.State {
	return push.State{Name: m.name, ID: m.life, Head: m.head, Synced: true, Gone: m.gone, Mirror: true, More: m.more}
}

// errMissing tells a visit that its streams have to fetch what they lack.
var errMissing = errors.New("the records are not in the relay's buffer any more")

// Read reads one frame behind the cursor: from the buffer, or upstream if that does not
// reach back so far. What a connection finds is read upstream, too: what is in the buffer
// may have gone meanwhile, and what was acknowledged may not be here yet.
func (m *mirror) Read(ctx context.Context, cursor uint64, rd *push.Reading) error {
	if m.gone {
		m.mu.Unlock()
		return push.ErrLater
	}
	if !rd.Backlog && m.from <= cursor && cursor <= m.head {
		i := sort.Search(len(m.items), func(i int) bool { return m.items[i].last > cursor })
		items, head := m.items[i:], m.head
		m.mu.Unlock()
		m.assemble(items, cursor, head, rd)
		return nil
	}
	life := m.life
	m.mu.Unlock()
	if rd.Visit {
		return errMissing
	}
	return m.fetch(ctx, life, cursor, rd)
}

// assemble makes a frame of buffered items; head is where they end.
func (m *mirror) assemble(items []item, cursor, head uint64, rd *push.Reading) {
	rd.From, rd.Next, rd.Head = cursor, cursor, head
	end := min(head, rd.UpTo)
	if len(items) > 0 && items[0].lost != nil {
		lost := items[0].lost
		if cursor+1 < lost.GapFrom { // the gap is announced by the next read
			rd.Next = min(lost.GapFrom-1, end)
			return
		}
		tomb := *lost
		tomb.GapFrom, tomb.MissedEstimate = cursor+1, lost.GapTo-cursor
		rd.Tomb, rd.From, rd.Next = &tomb, lost.GapTo, lost.GapTo
		items = items[1:]
	}
	f := filler{name: m.name, rd: rd}
	for i := range items {
		it := &items[i]
		if it.lost != nil {
			end = min(end, it.lost.GapFrom-1)
			break
		}
		if it.last > end {
			break
		}
		if !f.add(&it.rec, it.plain) {
			end = rd.Next
			break
		}
	}
	f.close(max(end, rd.Next))
}

// filler puts records into a Reading as a diff would.
type filler struct {
	name  string
	rd    *push.Reading
	bytes int64
}

// add adds a record unless a filter leaves it out; false means that it does not fit.
func (f *filler) add(rec *api.Record, plain bool) bool {
	rd := f.rd
	if !plain && rec.HasNode && slices.Contains(rd.Opt.Nodes, string(rec.Node)) {
		rd.Next = rec.Seq
		return true
	}
	size := int64(rec.Size())
	if rd.N > 0 && (rd.N >= rd.Opt.Limit || f.bytes+size > rd.Most) {
		return false
	}
	if rd.N == 0 {
		rd.Body = rd.Style.AppendRecordsHead(rd.Body, f.name, rd.From, rd.Head)
	}
	rd.Body = api.AppendFrameRecord(rd.Body, rec, rd.Opt)
	rd.N++
	f.bytes += size
	rd.Next = rec.Seq
	return true
}

// close ends the frame at the last number examined.
func (f *filler) close(next uint64) {
	f.rd.Next = next
	if f.rd.N > 0 {
		f.rd.Body = f.rd.Style.AppendRecordsTail(f.rd.Body, next)
	}
}

// began notes what the first subscription found.
func (m *mirror) began(p *position) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.life, m.earliest, m.head, m.from = p.Life, p.EarliestSeq, p.FromSeq, p.FromSeq
}

// goesOn reports whether a later subscription, which began at the mirror's head, is of the
// same life.
func (m *mirror) goesOn(p *position) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.more = p.HeadSeq > m.head
	return p.Life == m.life
}

// at returns where the subscription stands.
func (m *mirror) at() uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.head
}

// add appends what a message brought and returns the head then; ok is false if there is
// nothing to deliver.
func (m *mirror) add(items []item, to uint64, more bool) (head uint64, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.gone || to < m.head {
		return 0, false
	}
	for i := range items {
		m.bytes += items[i].size()
	}
	m.items = append(m.items, items...)
	m.head, m.more = to, more
	m.trim()
	return m.head, m.topic.Watched()
}

// trim keeps the buffer within its bound, and what is left in memory of the items that it
// takes out within an eighth of that: to copy the rest at each message would take longer
// than the message.
func (m *mirror) trim() {
	n := 0
	for m.bytes > m.relay.opt.BufferBytes && n < len(m.items) {
		size := m.items[n].size()
		m.bytes, m.left = m.bytes-size, m.left+size
		m.from = m.items[n].last
		n++
	}
	m.items = m.items[n:]
	// A reader may hold the old slice: what is left is moved, not overwritten.
	if m.left > m.relay.opt.BufferBytes/8 {
		m.items, m.left = slices.Clone(m.items), 0
	}
}

// unwanted reports that nobody has listened for so long, and ends the mirror then.
func (m *mirror) unwanted(since time.Duration) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.topic.Watched() {
		m.used = time.Now()
		return false
	}
	if time.Since(m.used) < since {
		return false
	}
	m.gone = true
	return true
}
