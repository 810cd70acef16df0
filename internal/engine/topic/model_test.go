package topic

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/weirmq/weir/internal/op"
)

// The model of a topic is the set of its live numbers with their sizes, and for
// each change that is under way what it brings and what it takes. Whatever is
// staged, met and failed in whatever order, the topic shows the changes that
// were met and plans with all of them; and a topic that is given the same parts
// from the log alone, as at a restart, is the same.
func TestATopicIsWhatItsChangesMakeOfIt(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &model{live: map[uint64]uint64{}, keys: map[op.KeyHash]uint64{}}
		m.topic.Init()
		t.Repeat(map[string]func(*rapid.T){
			"append":  m.append,
			"delete":  m.delete,
			"expire":  m.expire,
			"burn":    m.burn,
			"damage":  m.damage,
			"advance": m.advance,
			"":        m.check,
		})
	})
}

type model struct {
	topic, again Topic // again is given the parts alone
	log          int   // last place given out

	head  uint64
	live  map[uint64]uint64 // sizes of visible records, by number
	keys  map[op.KeyHash]uint64
	under []change
}

// change is one that is staged.
type change struct {
	lsn    uint64
	parts  []op.Part
	ref    Ref
	comes  map[uint64]uint64
	goes   []uint64
	head   uint64 // the last number once it holds
	key    op.KeyHash
	hasKey bool
}

// planned is what is live once everything under way holds.
func (m *model) planned() (map[uint64]uint64, uint64) {
	live, head := maps.Clone(m.live), m.head
	for i := range m.under {
		head = m.under[i].apply(live, head)
	}
	return live, head
}

func (c *change) apply(live map[uint64]uint64, head uint64) uint64 {
	maps.Copy(live, c.comes)
	for _, seq := range c.goes {
		delete(live, seq)
	}
	return max(head, c.head)
}

func (m *model) stage(s Staged, c change) {
	m.log++
	s.LSN, s.Gen = uint64(m.log), 1
	c.lsn = s.LSN
	m.topic.Stage(s)
	m.under = append(m.under, c)
}

// oldest takes up to n of the lowest planned numbers.
func oldest(live map[uint64]uint64, n int) []uint64 {
	all := slices.Sorted(maps.Keys(live))
	return all[:min(n, len(all))]
}

func sum(live map[uint64]uint64, seqs []uint64) (bytes uint64) {
	for _, seq := range seqs {
		bytes += live[seq]
	}
	return bytes
}

func (m *model) append(t *rapid.T) {
	live, head := m.planned()
	n, size := rapid.IntRange(1, 5).Draw(t, "records"), rapid.Uint64Range(1, 9).Draw(t, "size")
	c := change{comes: map[uint64]uint64{}, head: head + uint64(n)}
	for i := range n {
		c.comes[head+1+uint64(i)] = size
	}
	maps.Copy(live, c.comes)
	s := Staged{First: head + 1, N: uint64(n), Bytes: uint64(n) * size, TS: int64(head)}
	s.Ref = Ref{First: s.First, N: uint32(n), TS: s.TS, Segment: 1}
	if rapid.Bool().Draw(t, "capped") {
		c.goes = oldest(live, rapid.IntRange(1, 8).Draw(t, "evicted"))
		s.EvictTo, s.EvictN, s.EvictBytes = c.goes[len(c.goes)-1], uint64(len(c.goes)), sum(live, c.goes)
	}
	if rapid.IntRange(0, 3).Draw(t, "key") == 0 {
		s.HasKey, s.Key = true, op.KeyHash{byte(m.log), byte(m.log >> 8), byte(m.log >> 16)}
		c.key, c.hasKey = s.Key, true
		m.topic.Keys.Put(s.Key, Key{First: s.First, N: uint32(n), At: s.TS, Pending: true})
	}
	c.ref = s.Ref
	c.parts = []op.Part{s.Append()}
	m.stage(s, c)
}

func (m *model) delete(t *rapid.T) {
	live, _ := m.planned()
	c := change{}
	part := op.Part{Kind: op.KindDelete}
	for _, seq := range slices.Sorted(maps.Keys(m.live)) {
		if _, free := live[seq]; free && rapid.IntRange(0, 3).Draw(t, "take") == 0 {
			c.goes = append(c.goes, seq)
			part.Ranges = append(part.Ranges, op.Range{From: seq, To: seq})
		}
	}
	if len(c.goes) == 0 {
		return
	}
	part.N, part.Bytes = uint64(len(c.goes)), sum(live, c.goes)
	c.parts = []op.Part{part}
	m.stage(Staged{Parts: []op.Part{part}}, c)
}

func (m *model) expire(t *rapid.T) {
	live, _ := m.planned()
	maps.DeleteFunc(live, func(seq, _ uint64) bool { return seq > m.head })
	c := change{goes: oldest(live, rapid.IntRange(1, 4).Draw(t, "expired"))}
	if len(c.goes) == 0 {
		return
	}
	part := op.Part{Kind: op.KindEvict, To: c.goes[len(c.goes)-1], Cause: op.CauseTTL, N: uint64(len(c.goes)), Bytes: sum(live, c.goes)}
	c.parts = []op.Part{part}
	m.stage(Staged{Parts: []op.Part{part}}, c)
}

func (m *model) burn(t *rapid.T) {
	_, head := m.planned()
	part := op.Part{Kind: op.KindLose, From: head + 1, To: head + rapid.Uint64Range(1, 4).Draw(t, "burnt"), Cause: op.CauseTrim}
	m.stage(Staged{Parts: []op.Part{part}}, change{parts: []op.Part{part}, head: part.To})
}

// damage takes a range of visible records.
func (m *model) damage(t *rapid.T) {
	live, _ := m.planned()
	maps.DeleteFunc(live, func(seq, _ uint64) bool { return seq > m.head })
	if len(live) == 0 {
		return
	}
	all := slices.Sorted(maps.Keys(live))
	from := rapid.IntRange(0, len(all)-1).Draw(t, "from")
	c := change{goes: all[from:rapid.IntRange(from+1, len(all)).Draw(t, "to")]}
	c.parts = []op.Part{
		{Kind: op.KindDelete, N: uint64(len(c.goes)), Bytes: sum(live, c.goes)},
		{Kind: op.KindLose, From: c.goes[0], To: c.goes[len(c.goes)-1], Cause: op.CauseCrash},
	}
	m.stage(Staged{Parts: c.parts}, c)
}

// advance lets some of what is under way hold, and fails the rest or leaves it.
func (m *model) advance(t *rapid.T) {
	met := rapid.IntRange(0, len(m.under)).Draw(t, "met")
	fails := rapid.IntRange(0, 2).Draw(t, "fails") == 0 && met < len(m.under)
	at := 0
	undone := m.topic.Advance(func(s *Staged) (ok, failed bool) {
		return at < met, at >= met && fails
	}, func(s *Staged) {
		c := &m.under[at]
		if s.LSN != c.lsn {
			t.Fatalf("change %d holds, want %d", s.LSN, c.lsn)
		}
		at++
		if s.N > 0 {
			p := s.Append()
			m.topic.Apply(&p, s.Ref)
		}
		for i := range s.Parts {
			m.topic.Apply(&s.Parts[i], Ref{})
		}
	})
	if at != met || undone != fails {
		t.Fatalf("%d changes hold, want %d; undone %t, want %t", at, met, undone, fails)
	}
	for i := range m.under[:met] {
		c := &m.under[i]
		m.head = c.apply(m.live, m.head)
		for k := range c.parts {
			m.again.Apply(&c.parts[k], c.ref)
		}
		if c.hasKey {
			m.keys[c.key] = c.parts[0].First
		}
	}
	if m.under = m.under[met:]; fails {
		m.under = nil
	}
}

// checkFreeRange asks for a range between two numbers. What is not visible yet comes one by one.
func (m *model) checkFreeRange(t *rapid.T, live map[uint64]uint64, head uint64) {
	pos := rapid.Uint64Range(0, head).Draw(t, "pos")
	end := pos + rapid.Uint64Range(0, 20).Draw(t, "more")
	from, to := m.topic.FreeRange(pos, end)
	if want := m.topic.NextFree(pos); from != want || to > end {
		t.Fatalf("free from %d to %d, want from %d, to at most %d", from, to, want, end)
	}
	for seq := from; seq <= to; seq++ {
		if _, ok := live[seq]; !ok {
			t.Fatalf("%d is in the range %d…%d but not free", seq, from, to)
		}
	}
	if _, ok := live[to+1]; ok && from <= to && to < min(end, m.topic.Head) {
		t.Fatalf("the range %d…%d could go on", from, to)
	}
}

func (m *model) check(t *rapid.T) {
	x := &m.topic
	live, head := m.planned()
	all := slices.Sorted(maps.Keys(live))
	if x.PlannedHead() != head || x.PlannedCount() != uint64(len(live)) || x.PlannedBytes() != sum(live, all) {
		t.Fatalf("planned: head %d, %d records, %d bytes; want %d, %d, %d", x.PlannedHead(), x.PlannedCount(), x.PlannedBytes(), head, len(live), sum(live, all))
	}
	var free []uint64
	for seq := x.NextFree(0); seq <= head; seq = x.NextFree(seq) {
		free = append(free, seq)
	}
	if !slices.Equal(free, all) {
		t.Fatalf("free are %v, want %v", free, all)
	}
	m.checkFreeRange(t, live, head)
	if x.Idle() != (len(m.under) == 0) {
		t.Fatalf("idle %t with %d changes under way", x.Idle(), len(m.under))
	}
	var visible []uint64
	for seq := x.NextLive(0); seq <= x.Head; seq = x.NextLive(seq) {
		visible = append(visible, seq)
		if ref, _, inLog, _ := x.Index.Find(seq); !inLog || seq < ref.First || seq > ref.Last() {
			t.Fatalf("number %d lies in %v, %t", seq, ref, inLog)
		}
	}
	if want := slices.Sorted(maps.Keys(m.live)); !slices.Equal(visible, want) || x.Head != m.head {
		t.Fatalf("visible are %v up to %d, want %v up to %d", visible, x.Head, want, m.head)
	}
	if refs := x.Index.Refs(nil, 0, head); len(refs) > 0 && refs[0].Last() <= x.Start {
		t.Fatalf("the batch %v is kept, though nothing up to %d is live", refs[0], x.Start)
	}
	for hash, first := range m.keys {
		if k, ok := x.Keys.Get(hash, 0, 1<<60); !ok || k.Pending || k.First != first {
			t.Fatalf("key %x is %v, %t; want number %d", hash[:3], k, ok, first)
		}
	}
	if under := len(m.keys) + m.pendingKeys(); x.Keys.Len() != under {
		t.Fatalf("%d keys, want %d", x.Keys.Len(), under)
	}
	if got, want := describe(x), describe(&m.again); got != want {
		t.Fatalf("the topic is %s, after a restart %s", got, want)
	}
	if x.Idle() && m.again.Keys.Len() != x.Keys.Len() {
		t.Fatalf("%d keys, after a restart %d", x.Keys.Len(), m.again.Keys.Len())
	}
}

// describe is what a restart has to find again, but for the keys.
func describe(x *Topic) string {
	s := fmt.Sprintf("head %d start %d count %d bytes %d loss %d cap %d ttl %d trim %d lost %v batches %v holes",
		x.Head, x.Start, x.Count, x.Bytes, x.Loss, x.CapTo, x.TTLTo, x.TrimTo, x.Lost, x.Index.refs)
	x.Holes.Ranges(func(r op.Range) { s += fmt.Sprint(" ", r) })
	return s
}

func (m *model) pendingKeys() (n int) {
	for i := range m.under {
		if m.under[i].hasKey {
			n++
		}
	}
	return n
}
