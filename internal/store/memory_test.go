package store

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/internal/op"
)

// jobs makes up the log of a queue whose jobs go soon, 100 an operation.
type jobs struct {
	lsn, head uint64
	n         int // operations of each kind
	between   func(j *jobs, fn func(...*op.Part) error) error
	every     uint64 // one in so many jobs stays
}

const jobsAtOnce = 100

func (j *jobs) lease(kind op.Kind, id uint64) *op.Part {
	p := &op.Part{Kind: kind, Topic: 1, Node: "worker"}
	for i := range uint64(jobsAtOnce) {
		p.Leases = append(p.Leases, op.Lease{Seq: j.head - i, ID: id, Deadline: 1 << 40, Deliveries: 1})
	}
	return p
}

// ack deletes the jobs of the last append, but for one in so many.
func (j *jobs) ack() *op.Part {
	p := &op.Part{Kind: op.KindDelete, Topic: 1, N: jobsAtOnce, Bytes: jobsAtOnce}
	from := j.head - jobsAtOnce + 1
	if j.every > 0 && from%j.every == 1 {
		from++
		p.N, p.Bytes = p.N-1, p.Bytes-1
	}
	p.Ranges = []op.Range{{From: from, To: j.head}}
	return p
}

func (j *jobs) scan(fn func(Op) error) error {
	var frames, b []byte
	for range jobsAtOnce {
		frames = op.AppendFrame(frames, &api.Record{Data: []byte("1")})
	}
	write := func(parts ...*op.Part) error {
		j.lsn++
		b = b[:0]
		for _, p := range parts {
			if b = p.Encode(b); p.Kind == op.KindAppend {
				b = append(b, frames...)
			}
		}
		return fn(Op{LSN: j.lsn, Payload: b})
	}
	if j.lsn == 0 {
		if err := write(&op.Part{Kind: op.KindCreate, Topic: 1, Name: "q", Config: api.DefaultConfig()}); err != nil {
			return err
		}
	}
	for range j.n {
		j.head += jobsAtOnce
		if err := j.between(j, write); err != nil {
			return err
		}
	}
	return nil
}

func (j *jobs) append() *op.Part {
	return &op.Part{Kind: op.KindAppend, Topic: 1, First: j.head - jobsAtOnce + 1, N: jobsAtOnce, Bytes: jobsAtOnce, TS: 1}
}

// weigher is a view that looks how much memory is in use whenever it is asked.
type weigher struct {
	gone  func(seq uint64) bool
	most  int64
	calls int
}

func inUse() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func (w *weigher) weigh() {
	w.calls++
	w.most = max(w.most, inUse())
}

func (w *weigher) Snapshot(uint64) func(uint64) bool { w.weigh(); return w.gone }
func (w *weigher) Recovered(uint64) (string, bool)   { return "", false }
func (w *weigher) KeyAt(uint64, op.KeyHash, uint64) (int64, bool) {
	return 0, true
}

func (w *weigher) Watching(op.WatchID) bool { return true }
func (w *weigher) Sync() error              { w.weigh(); return nil }

func TestSealingTakesNoMemoryForJobsThatAreGone(t *testing.T) {
	keyed := 0
	for _, c := range []struct {
		name    string
		between func(j *jobs, write func(...*op.Part) error) error
	}{
		{"delayed and evicted", func(j *jobs, write func(...*op.Part) error) error {
			p := j.append()
			if p.First > 1 {
				p.EvictTo, p.EvictN, p.EvictBytes = p.First-1, jobsAtOnce, jobsAtOnce
			}
			return write(j.lease(op.KindRelease, 0), p)
		}},
		{"claimed, given back, claimed and acked", func(j *jobs, write func(...*op.Part) error) error {
			for _, p := range []*op.Part{j.append(), j.lease(op.KindLease, 1), j.lease(op.KindRelease, 1), j.lease(op.KindLease, 2), j.ack()} {
				if err := write(p); err != nil {
					return err
				}
			}
			return nil
		}},
		{"delayed, with a key, and deleted", func(j *jobs, write func(...*op.Part) error) error {
			p := j.append()
			keyed++
			p.HasKey, p.Key = true, op.KeyHash{byte(keyed % 100)}
			if err := write(j.lease(op.KindRelease, 0), p); err != nil {
				return err
			}
			return write(j.ack())
		}},
	} {
		for _, known := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s/known to be gone=%v", c.name, known), func(t *testing.T) {
				s := openStore(t, Options{FS: vfs.NewMem(), Dir: "/data"})
				defer s.Close()
				j := &jobs{n: sealedOps, between: c.between, every: 100 * jobsAtOnce}
				var size int64
				if err := j.scan(func(o Op) error { size += int64(len(o.Payload)); return nil }); err != nil {
					t.Fatal(err)
				}
				last, head, every := j.lsn, j.head, j.every
				w := &weigher{gone: func(seq uint64) bool { return known && seq+jobsAtOnce <= head && seq%every != 1 }}
				*j = jobs{n: sealedOps, between: c.between, every: every}
				before := inUse()
				if _, _, err := s.Seal(context.Background(), 1, last, j.scan, w, nil); err != nil {
					t.Fatal(err)
				}
				limit := int64(3 << 20)
				if !known { // the segment is kept, and what its parts are found by
					limit += size + size/4
				}
				if got := w.most - before; w.calls < 2 || got > limit {
					t.Errorf("sealing %d KiB of log takes %d KiB, want at most %d", size>>10, got>>10, limit>>10)
				}
			})
		}
	}
}

func TestLeasesOfASegmentThatAreGoneInTheNextTakeNoMemory(t *testing.T) {
	const lsn = sealedOps + 1
	for _, c := range []struct {
		part op.Part
		left int
	}{
		{op.Part{Kind: op.KindDelete, Topic: 1, Ranges: []op.Range{{From: 2, To: sealedOps*jobsAtOnce - 1}}, N: sealedOps*jobsAtOnce - 2}, 2},
		{op.Part{Kind: op.KindDrop, Topic: 1}, 0},
	} {
		s := openStore(t, Options{Dir: t.TempDir(), CacheBytes: 1 << 20})
		j := &jobs{n: sealedOps, between: func(j *jobs, write func(...*op.Part) error) error {
			return write(j.lease(op.KindRelease, 0), j.append())
		}}
		if _, _, err := s.Seal(context.Background(), 1, lsn, j.scan, nil, nil); err != nil {
			t.Fatal(err)
		}
		leases := func() (n int) {
			err := s.Load(func(*op.State) error { return nil }, func(Run) error { return nil }, func(Key) error { return nil }, func(Lease) error { n++; return nil })
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
		if n := leases(); n != sealedOps*jobsAtOnce {
			t.Fatalf("%d leases", n)
		}
		w := &weigher{gone: func(uint64) bool { return false }}
		before := inUse()
		if _, _, err := s.Seal(context.Background(), 2, lsn+1, func(fn func(Op) error) error {
			return fn(Op{LSN: lsn + 1, Payload: c.part.Encode(nil)})
		}, w, nil); err != nil {
			t.Fatal(err)
		}
		if got := w.most - before; got > 3<<20 {
			t.Errorf("kind %d: sealing takes %d KiB", c.part.Kind, got>>10)
		}
		if n := leases(); n != c.left {
			t.Errorf("kind %d: %d leases are left, want %d", c.part.Kind, n, c.left)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestPartsOfAllSizesAreFoundAgain(t *testing.T) {
	x := partIndex{topics: make(map[uint64]*partList)}
	defer x.free()
	r := rand.New(rand.NewPCG(1, 1))
	var want [2][]string
	for i := range 200 {
		n := 1 + r.IntN(100_000)
		if i == 0 || i%50 == 7 {
			n = len(payloadBlock{})/4 + r.IntN(len(payloadBlock{}))
		}
		frames := bytes.Repeat([]byte{byte(i)}, n)
		topic := uint64(i % 2)
		x.add(x.list(topic), []byte{1, 2}, frames, false, 0)
		want[topic] = append(want[topic], "\x01\x02"+string(frames))
	}
	for topic := range uint64(2) {
		at := x.topics[topic].head
		for i, w := range want[topic] {
			var ref partRef
			if at, ref = x.at(at); string(ref.part) != w {
				t.Fatalf("part %d of topic %d has %d bytes, want %d", i, topic, len(ref.part), len(w))
			}
		}
		if at != noPart {
			t.Errorf("topic %d has more parts", topic)
		}
	}
}

// Many leases in few segments: the store has those of the live records, whatever
// was left out on the way.
func TestLeasesOfManyOperationsReadBackAsTheModelSays(t *testing.T) {
	for seed := range uint64(4) {
		m := newModel(rand.New(rand.NewPCG(seed, 7)).IntN)
		s := openStore(t, Options{FS: vfs.NewMem(), Dir: "/data"})
		m.next = 1
		m.operation(nil, &op.Part{Kind: op.KindCreate, Topic: 1, Name: "q", Config: api.DefaultConfig()})
		q := m.topics[1]
		for segment := range uint32(4) {
			for range 60 {
				// A release stands in front of the append that it is for.
				p := &op.Part{Kind: op.KindRelease, Topic: 1}
				first := q.st.Head + 1
				var frames []byte
				for i := range uint64(100) {
					p.Leases = append(p.Leases, op.Lease{Seq: first + i, Deadline: int64(m.lsn)})
					frames = op.AppendFrame(frames, &api.Record{Data: []byte("1")})
				}
				m.operation(frames, &op.Part{Kind: op.KindAppend, Topic: 1, First: first, N: 100, Bytes: 100, TS: 1})
				// The model forgets a lease without a record, so it gets the release again.
				for _, l := range p.Leases {
					q.leases[l.Seq] = Lease{Topic: 1, Lease: l, Released: true}
				}
				last := &m.ops[len(m.ops)-1]
				last.Payload = append(p.Encode(nil), last.Payload...)
				for range 3 {
					if seqs := q.seqs(); len(seqs) > 0 {
						p := &op.Part{Kind: op.KindLease, Topic: 1, Node: "worker"}
						for i := m.choose(len(seqs)); i < len(seqs) && len(p.Leases) < 50; i += 1 + m.choose(3) {
							p.Leases = append(p.Leases, op.Lease{Seq: seqs[i], ID: m.lsn, Deadline: int64(m.lsn), Deliveries: 1})
						}
						m.operation(nil, p)
					}
				}
				if seqs := q.seqs(); len(seqs) > 150 {
					from := m.choose(50)
					m.deleteRange(q, seqs[from], seqs[from+100])
				}
			}
			view := View(m)
			if segment%2 == 0 {
				view = nil
			}
			if err := m.seal(s, segment, view); err != nil {
				t.Fatal(err)
			}
			if err := m.check(s); err != nil {
				t.Fatalf("seed %d, after segment %d: %v", seed, segment, err)
			}
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
