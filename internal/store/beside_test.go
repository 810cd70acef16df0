package store

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/internal/op"
	"github.com/weirmq/weir/tests/crashfs"
)

// besides are changes of a store beside which others read it, and what must be found meanwhile.
type besides struct {
	*Store
	rnd *rand.Rand
	lsn uint64

	mu     sync.RWMutex
	topics map[uint64]*besideTopic // those that exist
	next   uint64
	lost   map[uint64]bool // segments that are dropped

	reads, met atomic.Int64
}

// besideTopic is what a topic holds; number 0 is none.
type besideTopic struct {
	id   uint64
	head uint64
	in   []span // by segment, ascending
	gone map[uint64]bool
}

type span struct {
	segment  uint32
	from, to uint64
}

// contentOf is the data of a record, with a sum in front, so that any other would be noticed.
func contentOf(topic, seq uint64) []byte {
	rnd := rand.New(rand.NewPCG(topic, seq))
	b := make([]byte, 20+rnd.IntN(600)*(1+rnd.IntN(40)/39*200)&^7)
	binary.LittleEndian.PutUint64(b[4:], topic)
	binary.LittleEndian.PutUint64(b[12:], seq)
	for i := 20; i+8 <= len(b); i += 8 {
		binary.LittleEndian.PutUint64(b[i:], rnd.Uint64())
	}
	binary.LittleEndian.PutUint32(b, crc32.ChecksumIEEE(b[4:]))
	return b
}

// The view: what is gone by now.
func (s *besides) Recovered(uint64) (string, bool)                { return "", false }
func (s *besides) KeyAt(uint64, op.KeyHash, uint64) (int64, bool) { return 0, true }
func (s *besides) Watching(op.WatchID) bool                       { return true }
func (s *besides) Sync() error                                    { return nil }
func (s *besides) Snapshot(topic uint64) (gone func(seq uint64) bool) {
	return func(seq uint64) bool {
		s.mu.RLock()
		defer s.mu.RUnlock()
		t := s.topics[topic]
		return t == nil || t.gone[seq]
	}
}

func (s *besides) seal(segment uint32) error {
	var ops []Op
	add := func(p *op.Part, frames []byte) {
		s.lsn++
		ops = append(ops, Op{LSN: s.lsn, Payload: append(p.Encode(nil), frames...)})
	}
	s.mu.Lock()
	for len(s.topics) < 4 {
		s.next++
		t := &besideTopic{id: s.next, gone: make(map[uint64]bool)}
		s.topics[t.id] = t
		add(&op.Part{Kind: op.KindCreate, Topic: t.id, Name: fmt.Sprint("t", t.id), Config: api.DefaultConfig()}, nil)
	}
	var grown []*besideTopic
	var spans []span
	for _, id := range sortedIDs(s.topics) {
		t := s.topics[id]
		n := uint64(s.rnd.IntN(150))
		if n == 0 {
			continue
		}
		var frames []byte
		size := uint64(0)
		for i := range n {
			r := api.Record{Data: contentOf(t.id, t.head+1+i)}
			frames, size = op.AppendFrame(frames, &r), size+uint64(len(r.Data))
		}
		add(&op.Part{Kind: op.KindAppend, Topic: t.id, First: t.head + 1, N: n, Bytes: size, TS: int64(s.lsn)}, frames)
		grown, spans = append(grown, t), append(spans, span{segment, t.head + 1, t.head + n})
		t.head += n
	}
	s.mu.Unlock()
	_, _, err := s.Seal(context.Background(), segment, s.lsn, func(fn func(Op) error) error {
		for _, o := range ops {
			if err := fn(o); err != nil {
				return err
			}
		}
		return nil
	}, s, nil)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, t := range grown {
		t.in = append(t.in, spans[i])
	}
	return nil
}

func sortedIDs(m map[uint64]*besideTopic) []uint64 {
	var ids []uint64
	for id := uint64(1); len(ids) < len(m); id++ {
		if m[id] != nil {
			ids = append(ids, id)
		}
	}
	return ids
}

// pick returns a topic at random.
func (s *besides) pick(rnd *rand.Rand) *besideTopic {
	ids := sortedIDs(s.topics)
	if len(ids) == 0 {
		return nil
	}
	return s.topics[ids[rnd.IntN(len(ids))]]
}

// change makes one change.
func (s *besides) change(segments uint32) error {
	ctx := context.Background()
	segment := uint32(s.rnd.IntN(int(segments)))
	switch s.rnd.IntN(10) {
	case 0, 1, 2: // deletes, here and there or all up to some number, as a time to live does
		s.mu.Lock()
		defer s.mu.Unlock()
		t := s.pick(s.rnd)
		if t.head == 0 {
			return nil
		}
		to, every := s.rnd.Uint64N(t.head)+1, uint64(1+s.rnd.IntN(4))
		for seq := uint64(1); seq <= to; seq += every {
			t.gone[seq] = true
		}
	case 3: // the end of a topic
		if s.rnd.IntN(3) > 0 {
			return nil
		}
		s.mu.Lock()
		delete(s.topics, s.pick(s.rnd).id)
		s.mu.Unlock()
	case 4:
		s.mu.Lock()
		s.lost[uint64(segment)] = true
		s.mu.Unlock()
		return s.DropSegment(segment)
	default:
		_, err := s.Rewrite(ctx, segment, s, nil)
		return err
	}
	return nil
}

// read reads around a number at random and judges what it gets.
func (s *besides) read(rnd *rand.Rand) error {
	s.mu.RLock()
	t := s.pick(rnd)
	if t == nil || len(t.in) == 0 {
		s.mu.RUnlock()
		return nil
	}
	in := t.in[rnd.IntN(len(t.in))]
	seq := in.from + rnd.Uint64N(in.to-in.from+1)
	s.mu.RUnlock()
	c, err := s.Store.Read(in.segment, t.id, seq)
	if err != nil {
		return err
	}
	s.reads.Add(1)
	found := false
	if c != nil {
		defer c.Release()
		var r api.Record
		last := uint64(0)
		for it := c.Seek(0); it.Next(&r); last = r.Seq {
			if r.Seq <= last || r.Seq < c.First || r.Seq > c.Last || r.Seq < in.from || r.Seq > in.to {
				return fmt.Errorf("topic %d, segment %d: a chunk %d-%d for %d has record %d behind %d", t.id, in.segment, c.First, c.Last, seq, r.Seq, last)
			}
			if sum := crc32.ChecksumIEEE(r.Data[4:]); sum != binary.LittleEndian.Uint32(r.Data) || binary.LittleEndian.Uint64(r.Data[4:]) != t.id || binary.LittleEndian.Uint64(r.Data[12:]) != r.Seq {
				return fmt.Errorf("topic %d, segment %d: record %d is not what was written", t.id, in.segment, r.Seq)
			}
			found = found || r.Seq == seq
		}
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.topics[t.id] != t || t.gone[seq] || s.lost[uint64(in.segment)] {
		return nil
	}
	if s.met.Add(1); !found {
		return fmt.Errorf("topic %d, segment %d: record %d is live and was not found (%v)", t.id, in.segment, seq, c != nil)
	}
	return nil
}

// Whatever is taken out, rewritten and taken in meanwhile: who reads finds each record that is live, and nothing that
// was not written under its number. WEIRTEST_SEEDS is how many rounds there are.
func TestReadsFindWhatLivesWhateverIsChangedBesideThem(t *testing.T) {
	rounds := 2
	if n, err := strconv.Atoi(os.Getenv("WEIRTEST_SEEDS")); err == nil {
		rounds = n
	}
	for seed := range uint64(rounds) {
		for name, fs := range map[string]vfs.FS{"in memory": crashfs.New(), "on disk": vfs.Default} {
			t.Run(fmt.Sprint(name, " ", seed), func(t *testing.T) { readBesides(t, fs, seed) })
		}
	}
}

func readBesides(t *testing.T, fs vfs.FS, seed uint64) {
	dir := "/data"
	if fs == vfs.Default {
		dir = t.TempDir()
	}
	opt := Options{FS: fs, Dir: dir, CacheBytes: 1 << 20, ChunkCacheBytes: 1 << (10 + seed%12), MaxTableBytes: 64 << 10}
	s := &besides{Store: openStore(t, opt), rnd: rand.New(rand.NewPCG(seed, 1)), topics: make(map[uint64]*besideTopic), lost: make(map[uint64]bool)}
	defer func() { s.Close() }()
	ctx, stop := context.WithCancel(context.Background())
	var readers sync.WaitGroup
	failed := make(chan error, 4)
	for i := range cap(failed) {
		readers.Go(func() {
			rnd := rand.New(rand.NewPCG(seed, uint64(i)+2))
			for ctx.Err() == nil {
				if err := s.read(rnd); err != nil {
					failed <- err
					return
				}
			}
		})
	}
	var err error
	const segments = 8
	for segment := range uint32(segments) {
		if err = s.seal(segment); err != nil || len(failed) > 0 {
			break
		}
		for range 8 {
			err = errors.Join(err, s.change(segment+1))
		}
	}
	stop()
	readers.Wait()
	close(failed)
	for wrong := range failed {
		err = errors.Join(err, wrong)
	}
	if err != nil {
		t.Fatal(err)
	}
	if s.met.Load() < 20 {
		t.Errorf("only %d reads, %d of records that were live", s.reads.Load(), s.met.Load())
	}
	t.Logf("%d segments, %d reads, %d of records that were live", segments, s.reads.Load(), s.met.Load())
}
