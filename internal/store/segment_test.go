package store

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"pgregory.net/rapid"

	"github.com/weirmq/weir/internal/op"
)

// grow runs random operations and seals them as segments 0 to n-1.
func grow(t testing.TB, s *Store, m *model, n, operations int) {
	t.Helper()
	for segment := range uint32(n) {
		for range operations {
			m.step()
		}
		if err := m.seal(s, segment, nil); err != nil {
			t.Fatal(err)
		}
	}
}

func TestRewriteKeepsExactlyTheLiveRecords(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		m := newModel(rand.New(rand.NewPCG(rapid.Uint64().Draw(rt, "seed"), 2)).IntN)
		s := openStore(t, Options{FS: vfs.NewMem(), Dir: "/data"})
		defer s.Close()
		grow(t, s, m, 4, 60)
		for segment := range uint32(4) {
			runs, err := s.Rewrite(context.Background(), segment, m, nil)
			if err != nil {
				rt.Fatal(err)
			}
			for _, r := range runs {
				tp := m.topics[r.Topic]
				if tp == nil {
					rt.Fatalf("dropped topic %d survived", r.Topic)
				}
				n := 0
				for seq := range tp.live {
					if r.First <= seq && seq <= r.Last {
						n++
					}
				}
				if uint64(n) != r.N {
					rt.Fatalf("run %+v, %d live", r, n)
				}
			}
			if err := m.check(s); err != nil {
				rt.Fatalf("after rewriting segment %d: %v", segment, err)
			}
		}
	})
}

func TestSealLeavesOutWhatTheEngineKnowsIsGone(t *testing.T) {
	m := newModel(rand.New(rand.NewPCG(3, 3)).IntN)
	s := openStore(t, Options{FS: vfs.NewMem(), Dir: "/data"})
	defer s.Close()
	for range 60 {
		m.step()
	}
	last, scan := m.cut()
	for _, tp := range m.topics {
		m.deleteRange(tp, tp.st.Start+1, tp.st.Head)
	}
	runs, _, err := s.Seal(context.Background(), 0, last, scan, m, nil)
	if err != nil || len(runs) != 0 {
		t.Fatalf("runs %v, %v", runs, err)
	}
	if err := m.seal(s, 1, m); err != nil {
		t.Fatal(err)
	}
	if err := m.check(s); err != nil {
		t.Fatal(err)
	}
}

func TestDroppedSegmentIsGoneAndItsKeysStayUntilTheyExpire(t *testing.T) {
	m := newModel(rand.New(rand.NewPCG(4, 4)).IntN)
	opt := Options{FS: vfs.NewMem(), Dir: "/data"}
	s := openStore(t, opt)
	defer func() { s.Close() }()
	grow(t, s, m, 3, 60)
	if s.Applied() != m.lsn {
		t.Errorf("the store is at operation %d, the last one was %d", s.Applied(), m.lsn)
	}
	for _, seg := range s.Segments() {
		if err := s.DropSegment(seg.Segment); err != nil {
			t.Fatal(err)
		}
	}
	if runs := m.runs(t, s); len(runs) != 0 {
		t.Fatalf("runs %v are left", runs)
	}
	for id := range m.topics {
		for segment := range uint32(3) {
			if c, err := s.Read(segment, id, 0); c != nil || err != nil {
				t.Fatalf("segment %d of topic %d: %v, %v", segment, id, c, err)
			}
		}
	}
	keys := func() (n int) {
		err := s.Load(func(*op.State) error { return nil }, func(Run) error { return nil },
			func(Key) error { n++; return nil }, func(Lease) error { return nil })
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	if keys() == 0 {
		t.Fatal("the keys went with the records")
	}
	if n, err := s.ExpireKeys(func(at int64) bool { return at < 1000 }); n != 0 || err != nil {
		t.Fatalf("%d keys expired too soon, %v", n, err)
	}
	youngest, left := int64(0), 0
	each := func(fn func(Key)) {
		t.Helper()
		err := s.Load(func(*op.State) error { return nil }, func(Run) error { return nil },
			func(k Key) error { fn(k); return nil }, func(Lease) error { return nil })
		if err != nil {
			t.Fatal(err)
		}
	}
	each(func(k Key) { youngest = max(youngest, k.At) })
	if _, err := s.ExpireKeys(func(at int64) bool { return at < youngest }); err != nil {
		t.Fatal(err)
	}
	if each(func(k Key) {
		if k.At == youngest {
			left++
		}
	}); left == 0 {
		t.Fatal("the youngest key expired with older ones")
	}
	if n, err := s.ExpireKeys(func(at int64) bool { return at < 1<<40 }); n == 0 || err != nil || keys() != 0 {
		t.Fatalf("%d keys expired, %d left, %v", n, keys(), err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = openStore(t, opt)
	if list := s.Segments(); len(list) != 0 {
		t.Fatalf("segments left after reopening: %v", list)
	}
}

// Keys that expire leave the records, and what is known of them.
func TestKeysThatExpireLeaveTheRecords(t *testing.T) {
	m := newModel(rand.New(rand.NewPCG(4, 4)).IntN)
	opt := Options{FS: vfs.NewMem(), Dir: "/data"}
	s := openStore(t, opt)
	defer func() { s.Close() }()
	grow(t, s, m, 3, 60)
	disk := func(keys bool) map[uint32]uint64 {
		of, some := map[uint32]uint64{}, false
		for _, seg := range s.Segments() {
			of[seg.Segment] = seg.Disk
			some = some || seg.Keys > 0
		}
		if some != keys {
			t.Fatalf("there are keys: %v", some)
		}
		return of
	}
	want := disk(true)
	if n, err := s.ExpireKeys(func(int64) bool { return true }); n == 0 || err != nil {
		t.Fatalf("%d keys expired, %v", n, err)
	}
	for range 2 {
		if got := disk(false); !maps.Equal(got, want) {
			t.Errorf("bytes by segment %v, were %v", got, want)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		s = openStore(t, opt)
	}
}

func diskUse(t *testing.T, dir string) (size int64) {
	t.Helper()
	err := filepath.Walk(dir, func(_ string, fi os.FileInfo, err error) error {
		if err == nil && fi.Mode().IsRegular() {
			size += fi.Size()
		}
		if os.IsNotExist(err) {
			return nil
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return size
}

// everyNth says all numbers are gone but each nth.
type everyNth uint64

func (n everyNth) Recovered(uint64) (string, bool) { return "", false }

func (n everyNth) KeyAt(uint64, op.KeyHash, uint64) (int64, bool) {
	return 0, true
}

func (n everyNth) Watching(op.WatchID) bool { return true }

func (n everyNth) Snapshot(uint64) func(uint64) bool {
	return func(seq uint64) bool { return seq%uint64(n) != 0 }
}

func (n everyNth) Sync() error { return nil }

func TestSpaceOfDeletedRecordsComesBack(t *testing.T) {
	dir := t.TempDir()
	s := openStore(t, Options{Dir: dir})
	defer s.Close()
	lsn, ops, _ := appends(4, 100, 8<<20)
	scan := func(fn func(Op) error) error {
		for _, o := range ops {
			if err := fn(o); err != nil {
				return err
			}
		}
		return nil
	}
	if _, _, err := s.Seal(context.Background(), 1, lsn, scan, nil, nil); err != nil {
		t.Fatal(err)
	}
	full := diskUse(t, dir)
	await := func(what string, limit int64) {
		t.Helper()
		deadline := time.Now().Add(time.Minute)
		for diskUse(t, dir) > limit {
			if time.Now().After(deadline) {
				t.Fatalf("%s: %d of %d bytes are still in use", what, diskUse(t, dir), full)
			}
			time.Sleep(5 * time.Millisecond)
		}
	}
	if _, err := s.Rewrite(context.Background(), 1, everyNth(10), nil); err != nil {
		t.Fatal(err)
	}
	await("one of ten rewritten", full/8)
	if err := s.DropSegment(1); err != nil {
		t.Fatal(err)
	}
	await("segment dropped", 100<<10)
}

func TestCheckpointIsACompleteStore(t *testing.T) {
	m := newModel(rand.New(rand.NewPCG(6, 6)).IntN)
	fs := vfs.NewMem()
	s := openStore(t, Options{FS: fs, Dir: "/data"})
	defer s.Close()
	grow(t, s, m, 3, 60)
	if err := fs.MkdirAll("/backup", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := s.Checkpoint("/backup/kv"); err != nil {
		t.Fatal(err)
	}
	c := openStore(t, Options{FS: fs, Dir: "/backup"})
	defer c.Close()
	if err := m.check(c); err != nil || c.Applied() != m.lsn {
		t.Fatalf("at %d: %v", c.Applied(), err)
	}
}

func TestVerifyNamesTheDamagedTable(t *testing.T) {
	m := newModel(rand.New(rand.NewPCG(8, 8)).IntN)
	fs := vfs.NewMem()
	s := openStore(t, Options{FS: fs, Dir: "/data"})
	grow(t, s, m, 2, 60)
	var tables, bad []string
	report := func(table string, err error) {
		tables = append(tables, table)
		if err != nil {
			bad = append(bad, table)
		}
	}
	s.Verify(t.Context(), report, func(int64, int64) {})
	if len(tables) < 4 || len(bad) > 0 {
		t.Fatalf("tables %v, damaged %v", tables, bad)
	}
	var data string
	levels, err := s.kv.Load().SSTables()
	if err != nil {
		t.Fatal(err)
	}
	for _, info := range levels[len(levels)-1] {
		if info.Smallest.UserKey[0] == prefixData {
			data = fmt.Sprintf("%s.sst", info.BackingSSTNum)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	flip(t, fs, "/data/kv/"+data, 100)
	s = openStore(t, Options{FS: fs, Dir: "/data"})
	defer s.Close()
	s.Verify(t.Context(), report, func(int64, int64) {})
	if !slices.Equal(bad, []string{data}) {
		t.Fatalf("damaged %v, want %s", bad, data)
	}
}

func TestMissingTableStopsTheStart(t *testing.T) {
	m := newModel(rand.New(rand.NewPCG(8, 8)).IntN)
	fs := vfs.NewMem()
	s := openStore(t, Options{FS: fs, Dir: "/data"})
	grow(t, s, m, 1, 60)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	names, err := fs.List("/data/kv")
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range names {
		if strings.HasSuffix(n, ".sst") {
			if err := fs.Remove("/data/kv/" + n); err != nil {
				t.Fatal(err)
			}
			_, err := Open(Options{FS: fs, Dir: "/data"})
			if err == nil || !strings.Contains(err.Error(), strings.TrimSuffix(n, ".sst")) {
				t.Fatalf("opened without %s: %v", n, err)
			}
			return
		}
	}
	t.Fatal("no tables")
}

func TestManySmallSegmentsAreCompactedButNotTheirRecords(t *testing.T) {
	m := newModel(rand.New(rand.NewPCG(11, 11)).IntN)
	s := openStore(t, Options{FS: vfs.NewMem(), Dir: "/data"})
	defer s.Close()
	grow(t, s, m, 40, 10)
	if err := m.check(s); err != nil {
		t.Fatal(err)
	}
	levels, err := s.kv.Load().SSTables()
	if err != nil {
		t.Fatal(err)
	}
	for level, tables := range levels {
		for _, info := range tables {
			if p := info.Smallest.UserKey[0]; (p == prefixData || p == prefixKey) && level != len(levels)-1 {
				t.Errorf("%s is in level %d", fmt.Sprint(info.BackingSSTNum), level)
			}
		}
	}
	if n := len(levels[0]); n > 12 {
		t.Errorf("%d tables wait in level 0", n)
	}
}
