package relay

import (
	"slices"
	"sort"
	"time"

	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/internal/engine/push"
)

const (
	// mostStretch bounds the data and meta of one read upstream.
	mostStretch = 512 << 10
	// stretchLingers is how long a stretch stays that nobody reads.
	stretchLingers = 5 * time.Second
)

// stretch is a part of a topic that was read upstream for a listener who had missed it. Those who
// come by later read it, too: listeners who begin far back are many, and at nearly the same place.
type stretch struct {
	from, next uint64   // cursors in front of it and behind it
	nodes      []string // whose records were left out
	life, head uint64   // of the topic
	start      uint64   // cursor in front of the records; it is not from behind a gap
	lost       *tombstone
	items      []item
	bytes      int64
	asked      time.Time
	used       time.Time // guarded by mirror.mu
}

// of takes the answer to the stretch's diff.
func (st *stretch) of(d *diff) (err error) {
	st.next, st.life, st.head, st.lost, st.start = d.NextFromSeq, d.Life, d.HeadSeq, d.Tombstone, st.from
	if t := d.Tombstone; t != nil {
		st.start = t.GapTo
		if t.Reason == api.ReasonRecreated {
			st.start = max(t.EarliestSeq, 1) - 1
		}
	}
	st.items, err = itemsOf(d.Records, true) // the filter was the upstream's
	st.bytes = itemBytes
	for i := range st.items {
		st.bytes += st.items[i].size()
	}
	return err
}

// has reports whether there is something behind the cursor.
func (st *stretch) has(cursor uint64) bool {
	return cursor < st.next && (cursor == st.from || cursor >= st.start)
}

// fill makes a frame of what is behind the cursor.
func (st *stretch) fill(name string, cursor uint64, rd *push.Reading) {
	rd.From, rd.Next, rd.Head = cursor, cursor, st.head
	if st.lost != nil && cursor == st.from {
		rd.Tomb, rd.From, rd.Next = st.lost.noun(), st.start, st.start
	}
	f := filler{name: name, rd: rd}
	for i := sort.Search(len(st.items), func(i int) bool { return st.items[i].last > rd.Next }); i < len(st.items); i++ {
		if !f.add(&st.items[i].rec, true) {
			f.close(rd.Next)
			return
		}
	}
	f.close(st.next)
}

// stretch returns what was read behind the cursor since the listener subscribed; nil: nothing.
func (m *mirror) stretch(cursor uint64, rd *push.Reading) *stretch {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, st := range m.read {
		if st.has(cursor) && st.asked.After(rd.Since) && slices.Equal(st.nodes, rd.Opt.Nodes) {
			st.used = time.Now()
			return st
		}
	}
	return nil
}

// keep keeps a stretch for others, within the bound of the buffer, instead of what was there of its place.
func (m *mirror) keep(st *stretch) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if st.life != m.life || st.next <= st.from {
		return
	}
	m.read = slices.DeleteFunc(m.read, func(old *stretch) bool { return old.from == st.from && slices.Equal(old.nodes, st.nodes) })
	st.used = time.Now()
	m.read = append(m.read, st)
	var bytes int64
	for _, st := range m.read {
		bytes += st.bytes
	}
	for bytes > m.relay.opt.BufferBytes && len(m.read) > 1 {
		i := 0
		for k, st := range m.read {
			if st.used.Before(m.read[i].used) {
				i = k
			}
		}
		bytes -= m.read[i].bytes
		m.read = slices.Delete(m.read, i, i+1)
	}
}

// letGo forgets what nobody reads any more.
func (m *mirror) letGo() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.read = slices.DeleteFunc(m.read, func(st *stretch) bool { return time.Since(st.used) > stretchLingers })
}
