package op

import (
	"bytes"
	"math"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/weirmq/weir/internal/api"
)

func TestHolesAgreeWithASetOfNumbers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var h Holes
		set := map[uint64]bool{}
		floor := uint64(0)
		number := rapid.Uint64Range(0, 5*pageSeqs)
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			switch rapid.IntRange(0, 3).Draw(t, "step") {
			case 0:
				s := max(number.Draw(t, "seq"), floor)
				if h.Add(s) == set[s] {
					t.Fatalf("Add(%d) on a set that has it: %v", s, set[s])
				}
				set[s] = true
			case 1:
				from := max(number.Draw(t, "from"), floor)
				to := from + rapid.SampledFrom([]uint64{0, 1, 63, 64, 200, 4095, 4096, 9000}).Draw(t, "span")
				h.AddRange(from, to)
				for s := from; s <= to; s++ {
					set[s] = true
				}
			case 2:
				floor = max(floor, number.Draw(t, "floor"))
				h.DropBelow(floor)
				for s := range set {
					if s>>pageBits < floor>>pageBits {
						delete(set, s)
					}
				}
			case 3:
				var c Holes
				h.Pages(func(idx uint64, b []byte) {
					if !c.SetPage(idx, b) {
						t.Fatal("page refused")
					}
				})
				h = c
			}
			from := number.Draw(t, "at")
			to := from + number.Draw(t, "length")
			next, n := from, uint64(0)
			for set[next] {
				next++
			}
			for s := from; s <= to; s++ {
				if set[s] {
					n++
				}
			}
			hole := from
			for hole <= to && !set[hole] {
				hole++
			}
			if got, ok := h.Next(from, to); ok != (hole <= to) || ok && got != hole {
				t.Fatalf("the next one from %d to %d is %d, %v, want %d", from, to, got, ok, hole)
			}
			if h.Has(from) != set[from] || h.NextFree(from) != next || h.Between(from, to) != n {
				t.Fatalf("Has(%d)=%v NextFree=%d want %d, Between(…%d)=%d want %d", from, h.Has(from), h.NextFree(from), next, to, h.Between(from, to), n)
			}
		}
	})
}

// naive is a topic as a list of what happened to each number.
type naive struct {
	head uint64
	live map[uint64]bool
	loss uint64
}

func TestStateAgreesWithANaiveTopic(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var s State
		n := naive{live: map[uint64]bool{}}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			n.step(t, &s)
			n.compare(t, &s)
			if rapid.IntRange(0, 5).Draw(t, "encode") == 0 {
				c, err := DecodeState(s.EncodeState(nil))
				if err != nil {
					t.Fatal(err)
				}
				s.Holes.Pages(func(idx uint64, b []byte) { c.Holes.SetPage(idx, b) })
				s = *c
				n.compare(t, &s)
			}
		}
	})
}

func (n *naive) step(t *rapid.T, s *State) {
	seqs := make([]uint64, 0, len(n.live))
	for seq := range n.live {
		seqs = append(seqs, seq)
	}
	slices.Sort(seqs)
	evict := func(to uint64) (count uint64) {
		for seq := range n.live {
			if seq <= to {
				delete(n.live, seq)
				count++
			}
		}
		n.loss = max(n.loss, to)
		return count
	}
	switch k := rapid.IntRange(0, 7).Draw(t, "step"); {
	case k <= 2:
		p := Part{Kind: KindAppend, First: n.head + 1, N: rapid.Uint64Range(1, 9).Draw(t, "n")}
		p.Bytes = p.N * 10
		for i := range p.N {
			n.live[p.First+i] = true
		}
		n.head += p.N
		if len(seqs) > 0 && k == 2 {
			p.EvictTo = rapid.SampledFrom(seqs).Draw(t, "evict")
			p.EvictN = evict(p.EvictTo)
			p.EvictBytes = p.EvictN * 10
		}
		s.Apply(&p)
	case k <= 4 && len(seqs) > 0:
		p := Part{Kind: KindDelete}
		for i := rapid.IntRange(0, len(seqs)-1).Draw(t, "i"); i < len(seqs); i += rapid.IntRange(1, 9).Draw(t, "gap") {
			p.Ranges = append(p.Ranges, Range{seqs[i], seqs[i]})
			delete(n.live, seqs[i])
			p.N++
		}
		p.Bytes = p.N * 10
		s.Apply(&p)
	case k == 5 && len(seqs) > 0:
		p := Part{Kind: KindEvict, To: rapid.SampledFrom(seqs).Draw(t, "to"), Cause: CauseTTL}
		p.N = evict(p.To)
		p.Bytes = p.N * 10
		s.Apply(&p)
	case k == 6:
		p := Part{Kind: KindLose, From: n.head + 1, To: n.head + rapid.Uint64Range(1, 9).Draw(t, "lost")}
		n.head = p.To
		s.Apply(&p)
	case k == 7:
		p := Part{Kind: KindSkip, To: n.head + rapid.SampledFrom([]uint64{0, 1, 5000}).Draw(t, "skip")}
		n.head = p.To
		s.Apply(&p)
	}
}

func (n *naive) compare(t *rapid.T, s *State) {
	earliest := n.head + 1
	for seq := range n.live {
		earliest = min(earliest, seq)
	}
	if s.Head != n.head || s.Count != uint64(len(n.live)) || s.Bytes != 10*s.Count || s.Earliest() != earliest {
		t.Fatalf("head %d count %d bytes %d earliest %d, want %d %d %d", s.Head, s.Count, s.Bytes, s.Earliest(), n.head, len(n.live), earliest)
	}
	if s.Loss < n.loss || s.Start > earliest-1 || s.Start < s.Loss || s.Loss >= earliest {
		t.Fatalf("start %d, loss floor %d, want at least %d, earliest %d", s.Start, s.Loss, n.loss, earliest)
	}
	for _, l := range s.Lost {
		if l.From > l.To || l.To <= s.Loss {
			t.Fatalf("kept range %+v, loss floor %d", l, s.Loss)
		}
	}
	at := rapid.Uint64Range(0, n.head+2).Draw(t, "at")
	next := at + 1
	for next <= n.head && !n.live[next] {
		next++
	}
	next = min(next, n.head+1)
	if s.Live(at) != n.live[at] || s.NextLive(at) != next {
		t.Fatalf("number %d: live %v, next live %d, want %v, %d", at, s.Live(at), s.NextLive(at), n.live[at], next)
	}
	end := rapid.Uint64Range(0, n.head+2).Draw(t, "end")
	last := next
	for n.live[last+1] && last < end {
		last++
	}
	if from, to := s.LiveRange(at, end); from != next || next <= min(end, n.head) && to != last {
		t.Fatalf("above %d up to %d are %d to %d live, want %d to %d", at, end, from, to, next, last)
	}
}

func TestPartsReadBackAsTheyWereWritten(t *testing.T) {
	conf := api.DefaultConfig()
	conf.Type, conf.Durability, conf.HasDeadLetter, conf.DeadLetter, conf.Priority, conf.HasPriority = api.TypeQueue, api.Fsync, true, "dead", -7, true
	parts := []Part{
		{Kind: KindCreate, Topic: 1, Name: "a", TS: -5, Config: conf},
		{Kind: KindConfig, Topic: 1, Config: conf},
		{Kind: KindDrop, Topic: math.MaxUint64},
		{Kind: KindDelete, Topic: 3, N: 4, Bytes: 5, Dead: 2, Ranges: []Range{{1, 1}, {4, 9}}},
		{Kind: KindEvict, Topic: 3, To: 9, Cause: CauseTTL, N: 1, Bytes: 2, TS: 8},
		{Kind: KindLose, Topic: 3, From: 1, To: 9, Cause: CauseTrim},
		{Kind: KindSkip, Topic: 3, To: 10},
		{Kind: KindReserve, Topic: 3, To: 11},
		{Kind: KindLease, Topic: 3, Node: "n", Leases: []Lease{{1, 2, 3, 4}, {5, 6, -7, 8}}},
		{Kind: KindRelease, Topic: 3, Leases: []Lease{{1, 2, 0, 4}}},
		{Kind: KindCounters, Topic: 3, Count: 1, Bytes: 2},
		{Kind: KindAppend, Topic: 3, First: 7, N: 1, Bytes: 1, EvictTo: 3, EvictN: 2, EvictBytes: 1, TS: 99, HasKey: true, Key: KeyHash{1}},
	}
	watch := &Watch{ID: WatchID{1, 15: 2}, Owner: Mark{3}, Since: 1 << 41, Topics: []WatchPlace{{"a", 1, 0}, {"b", 7, math.MaxUint64}},
		Opt: api.WatchOptions{Nodes: []string{"n", ""}, Limit: 1000, MaxBatchBytes: 8 << 20, HeartbeatMS: 60_000, IncludeTags: true, Strong: true}}
	parts = slices.Insert(parts, 1,
		Part{Kind: KindWatch, Watch: watch},
		Part{Kind: KindWatchMove, Session: watch.ID, Move: &WatchMove{Since: -1, Places: []MovedPlace{{255, 2, 3}}}},
		Part{Kind: KindWatchMove, Session: watch.ID, Move: &WatchMove{}},
		Part{Kind: KindWatchEnd, Session: watch.ID}, Part{Kind: KindClock, Clock: Clock{Lease: 1 << 41, Wall: -1, TS: 1 << 42}})
	var b []byte
	for i := range parts {
		b = parts[i].Encode(b)
	}
	frames := AppendFrame(nil, &api.Record{Data: []byte("1")})
	r := NewReader(append(b, frames...))
	for i := range parts {
		var p Part
		if !r.Next(&p) {
			t.Fatalf("part %d: %v", i, r.Err())
		}
		if len(p.Ranges) == 0 {
			p.Ranges = nil
		}
		if len(p.Leases) == 0 {
			p.Leases = nil
		}
		if !reflect.DeepEqual(p, parts[i]) {
			t.Errorf("part %+v, want %+v", p, parts[i])
		}
	}
	if r.Next(new(Part)) || r.Err() != nil || !bytes.Equal(r.Frames, frames) {
		t.Fatalf("behind the last part: %v, frames %x", r.Err(), r.Frames)
	}
}

// FuzzReader checks that no operation makes the reader panic or take more
// memory than its bytes justify, and that its parts survive being written again.
func FuzzReader(f *testing.F) {
	f.Add((&Part{Kind: KindDelete, Topic: 1, Ranges: []Range{{1, 2}}}).Encode(nil))
	f.Add((&Part{Kind: KindLease, Topic: 1, Node: "n", Leases: []Lease{{1, 2, 3, 4}}}).Encode(nil))
	f.Add((&Part{Kind: KindCreate, Topic: 1, Name: "n", Config: api.DefaultConfig()}).Encode(nil))
	f.Add((&Part{Kind: KindWatch, Watch: &Watch{Topics: []WatchPlace{{"a", 1, 2}}, Opt: api.WatchOptions{Nodes: []string{"n"}}}}).Encode(nil))
	f.Add((&Part{Kind: KindWatchMove, Move: &WatchMove{Places: []MovedPlace{{1, 2, 3}}}}).Encode(nil))
	f.Fuzz(func(t *testing.T, in []byte) {
		r := NewReader(in)
		var p Part
		for r.Next(&p) {
			if len(p.Ranges)*2 > len(in) || len(p.Leases)*4 > len(in) {
				t.Fatal("longer lists than the bytes hold")
			}
			again := NewReader(p.Encode(nil))
			var q Part
			if !again.Next(&q) {
				t.Fatalf("%+v cannot be read again: %v", p, again.Err())
			}
		}
		var rec api.Record
		for b := r.Frames; len(b) > 0; {
			var err error
			if b, err = ReadFrame(b, &rec); err != nil {
				return
			}
		}
	})
}

// FuzzState checks that no bytes make the decoder panic.
func FuzzState(f *testing.F) {
	s := State{ID: 1, Name: "a", Config: api.DefaultConfig(), Head: 9, Lost: []LostRange{{Range{3, 4}, CauseCrash}}}
	f.Add(s.EncodeState(nil))
	f.Fuzz(func(t *testing.T, in []byte) {
		s, err := DecodeState(in)
		if err != nil {
			return
		}
		if c, err := DecodeState(s.EncodeState(nil)); err != nil || !reflect.DeepEqual(c, s) {
			t.Fatalf("%+v, %v, want %+v", c, err, s)
		}
	})
}

// FuzzWatch checks that no bytes make the decoder panic.
func FuzzWatch(f *testing.F) {
	w := Watch{ID: WatchID{1}, Since: 5, Topics: []WatchPlace{{"a", 1, 2}}, Opt: api.WatchOptions{Nodes: []string{"n"}, Limit: 3}}
	f.Add(w.EncodeWatch(nil))
	f.Fuzz(func(t *testing.T, in []byte) {
		w, err := DecodeWatch(in)
		if err != nil {
			return
		}
		if c, err := DecodeWatch(w.EncodeWatch(nil)); err != nil || !reflect.DeepEqual(c, w) {
			t.Fatalf("%+v, %v, want %+v", c, err, w)
		}
	})
}

func TestAMoveOfASessionKeepsWhatItDoesNotName(t *testing.T) {
	w := Watch{Since: 9, Topics: []WatchPlace{{"a", 1, 1}, {"b", 2, 2}}}
	w.Move(&WatchMove{Places: []MovedPlace{{1, 5, 6}, {2, 7, 8}}})
	if want := []WatchPlace{{"a", 1, 1}, {"b", 5, 6}}; w.Since != 0 || !slices.Equal(w.Topics, want) {
		t.Fatalf("%+v, want %+v", w, want)
	}
}

func TestRangesOfHoles(t *testing.T) {
	for _, want := range [][]Range{
		nil,
		{{1, 1}},
		{{3, 3}, {5, 4095}},
		{{7, 4096}, {4098, 8191}},
		{{4000, 3 * 4096}, {5 * 4096, 5*4096 + 1}},
	} {
		var h Holes
		for _, r := range want {
			h.AddRange(r.From, r.To)
		}
		var got []Range
		h.Ranges(func(r Range) { got = append(got, r) })
		if !slices.Equal(got, want) {
			t.Errorf("ranges are %v, want %v", got, want)
		}
	}
}
