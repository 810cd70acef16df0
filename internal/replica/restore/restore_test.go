package restore

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/internal/engine"
	"github.com/weirmq/weir/internal/replica"
	"github.com/weirmq/weir/tests/crashfs"
)

// shelf is a copy in memory.
type shelf struct {
	mu      sync.Mutex
	entries []replica.Entry
	newest  replica.Term
	files   map[string][]byte
}

func (s *shelf) copy() Copy {
	return Copy{Log: (*shelfLog)(s), Files: (*shelfFiles)(s), Format: engine.FormatVersion}
}

// lose drops the last n entries.
func (s *shelf) lose(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.entries = s.entries[:len(s.entries)-n]
}

type shelfLog shelf

func (s *shelfLog) Read(_ context.Context, after uint64) (replica.Entry, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.entries {
		if e.Pos > after {
			return e, nil
		}
	}
	return replica.Entry{}, io.EOF
}

func (s *shelfLog) Newest(context.Context) (replica.Term, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.newest, nil
}

func (s *shelfLog) Lead(_ context.Context, node string) (replica.Lead, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.newest = replica.Term{Number: s.newest.Number + 1, Node: node}
	pos := uint64(1)
	if n := len(s.entries); n > 0 {
		pos = s.entries[n-1].Pos + 1
	}
	s.entries = append(s.entries, replica.Entry{Pos: pos, Term: s.newest.Number})
	return replica.Lead{Term: s.newest.Number, End: pos}, nil
}

func (s *shelfLog) Append(_ context.Context, data []byte, stored func(uint64, error)) error {
	s.mu.Lock()
	pos := s.entries[len(s.entries)-1].Pos + 1
	s.entries = append(s.entries, replica.Entry{Pos: pos, Term: s.newest.Number, Data: bytes.Clone(data)})
	s.mu.Unlock()
	stored(pos, nil)
	return nil
}

func (s *shelfLog) End(context.Context) (uint64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.entries) == 0 {
		return 0, nil
	}
	return s.entries[len(s.entries)-1].Pos, nil
}

func (s *shelfLog) Trim(context.Context, uint64) error { return nil }

func (s *shelfLog) Close() error { return nil }

type shelfFiles shelf

func (s *shelfFiles) Put(_ context.Context, name string, _ int64, content io.Reader) error {
	b, err := io.ReadAll(content)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.files[name] = b
	return err
}

func (s *shelfFiles) Get(_ context.Context, name string) (io.ReadCloser, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if b, ok := s.files[name]; ok {
		return io.NopCloser(bytes.NewReader(b)), nil
	}
	return nil, replica.ErrNotFound
}

func (s *shelfFiles) List(_ context.Context, prefix string) (list []replica.File, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(s.files)) {
		if strings.HasPrefix(name, prefix) {
			list = append(list, replica.File{Name: name, Size: int64(len(s.files[name]))})
		}
	}
	return list, nil
}

func (s *shelfFiles) Delete(_ context.Context, name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.files, name)
	return nil
}

func (s *shelfFiles) Close() error { return nil }

// keeper keeps what a log file held when it is removed or used again: the shipper
// of these tests pins none.
type keeper struct {
	vfs.FS
	mu   sync.Mutex
	gone map[string][]byte
}

func (k *keeper) keep(name string) {
	if b, err := readFile(k.FS, name); err == nil && strings.HasSuffix(name, segmentSuffix) {
		k.mu.Lock()
		k.gone[name] = b
		k.mu.Unlock()
	}
}

func (k *keeper) Rename(from, to string) error { k.keep(from); return k.FS.Rename(from, to) }

func (k *keeper) Remove(name string) error { k.keep(name); return k.FS.Remove(name) }

// leader is an engine that a test ships by hand: what its log files hold.
type leader struct {
	*engine.Engine
	t    testing.TB
	fs   *keeper
	to   *shelf
	pos  uint64
	last uint64
	term uint64
	seg  uint32 // of the next group
	off  int64
	now  int64 // Unix ms

	newer int // by how much the format of its bases is higher than what this program has
}

func lead(t testing.TB) *leader {
	l := &leader{term: 1, t: t, fs: &keeper{FS: crashfs.New(), gone: map[string][]byte{}}, to: &shelf{files: map[string][]byte{}}, seg: 1, now: 1_700_000_000_000}
	l.Engine = open(t, l.fs, "/data")
	return l
}

func open(t testing.TB, fs vfs.FS, dir string) *engine.Engine {
	t.Helper()
	e, err := engine.Open(t.Context(), engine.Options{Dir: dir, FS: fs, BootID: "boot", SegmentBytes: 64 << 10, DiskFlush: time.Hour, DiskReserve: -1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	return e
}

// ship appends what the log has got since the last call, as one entry.
func (l *leader) ship() {
	l.t.Helper()
	var pieces []replica.Piece
	for {
		b := l.file(l.seg)
		if l.off == 0 && len(b) >= 64 && string(b[:8]) == "weirseg1" && binary.LittleEndian.Uint32(b[12:]) == l.seg {
			pieces = append(pieces, replica.Piece{Segment: l.seg, Bytes: b[:64]})
			l.off = 64
		}
		begin := l.off
		for l.off > 0 && l.off+48 < int64(len(b)) {
			h := b[l.off:]
			le := binary.LittleEndian
			if !bytes.Equal(h[1:5], []byte("weir")) || le.Uint64(h[16:]) != l.last+1 || le.Uint32(h[32:]) != l.seg {
				break
			}
			l.last += uint64(le.Uint32(h[36:]))
			l.off += 48 + int64(le.Uint32(h[40:]))
		}
		if l.off > begin {
			pieces = append(pieces, replica.Piece{Segment: l.seg, Offset: begin, Bytes: b[begin:l.off]})
		}
		if next := l.file(l.seg + 1); len(next) < 64 || binary.LittleEndian.Uint32(next[12:]) != l.seg+1 {
			break
		}
		l.seg, l.off = l.seg+1, 0
	}
	l.now += 1000
	g := replica.Group{Term: l.term, Last: l.last, TimeMS: l.now, Pieces: pieces}
	l.append(g)
}

func (l *leader) append(g replica.Group) {
	l.to.mu.Lock()
	defer l.to.mu.Unlock()
	l.pos++
	l.to.entries = append(l.to.entries, replica.Entry{Pos: l.pos, Term: g.Term, Data: g.Encode(nil)})
	if l.to.newest.Number == 0 {
		l.to.newest.Number = g.Term
	}
}

func (l *leader) file(segment uint32) []byte {
	name := "/data/wal/" + segmentName(segment)
	b, err := readFile(l.fs, name)
	if errors.Is(err, os.ErrNotExist) {
		l.fs.mu.Lock()
		defer l.fs.mu.Unlock()
		return l.fs.gone[name]
	}
	if err != nil {
		l.t.Fatal(err)
	}
	return b
}

// base uploads one.
func (l *leader) base() {
	l.t.Helper()
	s, err := l.Snapshot(l.t.Context())
	if err != nil {
		l.t.Fatal(err)
	}
	l.now += 500
	b := replica.Base{Format: engine.FormatVersion + l.newer, LSN: s.LSN, After: l.pos, Term: 1, Taken: time.UnixMilli(l.now)}
	err = s.Copy(l.t.Context(), 0, func(name string, size int64, content io.Reader) error {
		data, err := io.ReadAll(content)
		if err != nil || name == engine.ManifestName {
			return err
		}
		sum := sha256.Sum256(data)
		f := replica.BaseFile{Name: name, Object: "kv/" + hex.EncodeToString(sum[:]), Size: size, SHA256: hex.EncodeToString(sum[:])}
		b.Files = append(b.Files, f)
		return l.to.copy().Files.Put(l.t.Context(), f.Object, size, bytes.NewReader(data))
	})
	if err = errors.Join(err, s.Close()); err != nil {
		l.t.Fatal(err)
	}
	text, err := json.Marshal(b)
	if err != nil {
		l.t.Fatal(err)
	}
	if err := l.to.copy().Files.Put(l.t.Context(), replica.BaseName(b.After), int64(len(text)), bytes.NewReader(text)); err != nil {
		l.t.Fatal(err)
	}
}

// gap says of the newest base that it covers what the log has left out.
func (l *leader) gap() (b replica.Base) {
	l.t.Helper()
	name := replica.BaseName(l.pos)
	if err := json.Unmarshal(l.to.files[name], &b); err != nil {
		l.t.Fatal(err)
	}
	b.Gap = true
	l.to.files[name], _ = json.Marshal(b)
	return b
}

// digest says what clients can read of an engine.
func digest(t testing.TB, e *engine.Engine) string {
	t.Helper()
	var b strings.Builder
	list := e.Topics("", "", 10_000, false, nil)
	for _, entry := range list.Topics {
		st, err := e.Topic(entry.Topic, false)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "%s %+v count %d head %d ready %d dead %+v\n", st.Topic, st.Config, st.Count, st.HeadSeq, st.Queue.Ready+st.Queue.InFlight, st.Config.Durability)
		req := api.DiffRequest{Limit: 100_000, MaxBatchBytes: 1 << 30, IncludeTags: true, IncludeMeta: true}
		if _, err := e.Peek(t.Context(), entry.Topic, &req, func(r *api.Record) { fmt.Fprintf(&b, " %d %s %s\n", r.Seq, r.Tag, r.Data) }); err != nil {
			t.Fatal(err)
		}
	}
	return b.String()
}

// restored builds a directory and opens it.
func (l *leader) restored(p Point) *engine.Engine {
	l.t.Helper()
	fs := vfs.NewMem()
	if err := fs.MkdirAll("/new", 0o700); err != nil {
		l.t.Fatal(err)
	}
	plan, err := l.to.copy().Plan(l.t.Context(), p)
	if err != nil {
		l.t.Fatal(err)
	}
	if err := l.to.copy().Build(l.t.Context(), plan, fs, "/new"); err != nil {
		l.t.Fatal(err)
	}
	return open(l.t, fs, "/new")
}

func (l *leader) put(topic string, with ...func(*api.Config)) {
	l.t.Helper()
	c := api.DefaultConfig()
	c.Durability, c.DedupeNode = api.Fsync, false
	for _, f := range with {
		f(&c)
	}
	if _, err := l.PutTopic(l.t.Context(), topic, c); err != nil {
		l.t.Fatal(err)
	}
}

func (l *leader) write(topic string, n int) {
	l.t.Helper()
	req := &api.WriteRequest{}
	for range n {
		req.Records = append(req.Records, api.Record{Tag: strconv.AppendInt(nil, rand.Int64N(5), 10), Data: fmt.Appendf(nil, `"%d %0*d"`, rand.Uint64(), rand.IntN(300), 0)})
	}
	if _, err := l.Write(l.t.Context(), topic, req); err != nil {
		l.t.Fatal(err)
	}
}

func TestNewestStateIsRestored(t *testing.T) {
	l := lead(t)
	l.put("a")
	l.put("b", func(c *api.Config) { c.Type = api.TypeQueue })
	l.write("a", 3)
	l.ship()
	l.base()
	for range 20 { // over several segments
		l.write("a", 40)
		l.write("b", 5)
		l.ship()
	}
	want := digest(t, l.Engine)
	if got := digest(t, l.restored(Point{})); got != want {
		t.Errorf("restored:\n%.2000s\nwant:\n%.2000s", got, want)
	}
	l.base()
	l.write("b", 5)
	l.ship()
	want = digest(t, l.Engine)
	e := l.restored(Point{})
	if got := digest(t, e); got != want {
		t.Errorf("from a later base:\n%.2000s\nwant:\n%.2000s", got, want)
	}
	if _, err := e.Write(t.Context(), "a", &api.WriteRequest{Records: []api.Record{{Data: []byte("1")}}}); err != nil {
		t.Errorf("the restored engine cannot be written: %v", err)
	}
}

// An entry may end anywhere, and its leader right behind it: in the header of a log file, too.
func TestALogFileThatIsCutInItsHeaderIsRestored(t *testing.T) {
	for _, cut := range []int{1, 20, 63, 64} {
		l := lead(t)
		l.put("a")
		l.ship()
		l.base()
		l.write("a", 3)
		l.ship()
		want := digest(t, l.Engine)
		first := l.seg
		for l.seg == first { // the next file
			l.write("a", 20)
			l.ship()
			if l.seg == first {
				want = digest(t, l.Engine)
			}
		}
		last := &l.to.entries[len(l.to.entries)-1]
		before, err := replica.DecodeGroup(l.to.entries[len(l.to.entries)-2].Data)
		if err != nil {
			t.Fatal(err)
		}
		g := replica.Group{Term: 1, Last: before.Last, TimeMS: l.now, Pieces: []replica.Piece{{Segment: l.seg, Bytes: l.file(l.seg)[:cut]}}}
		last.Data = g.Encode(nil)
		if got := digest(t, l.restored(Point{})); got != want {
			t.Errorf("cut at %d:\n%.500s\nwant:\n%.500s", cut, got, want)
		}
	}
}

// TestGapIsCoveredByABase lets a leader leave out a part of its log.
func TestGapIsCoveredByABase(t *testing.T) {
	l := lead(t)
	l.put("a")
	l.ship()
	l.base()
	l.write("a", 3)
	l.ship()
	whole := digest(t, l.Engine)
	l.write("a", 4)
	l.write("a", 4)
	l.ship()
	l.to.lose(1)
	l.pos--
	l.base()
	name, b := replica.BaseName(l.pos), l.gap()
	if got := digest(t, l.restored(Point{})); got != whole {
		t.Errorf("a base that its leader did not go on behind was used:\n%s\nwant:\n%s", got, whole)
	}
	l.pos++
	g := replica.Group{Term: 1, Last: b.LSN, TimeMS: l.now}
	l.to.entries = append(l.to.entries, replica.Entry{Pos: l.pos, Term: 1, Data: g.Encode(nil)})
	l.write("a", 5)
	l.ship()
	if got, want := digest(t, l.restored(Point{})), digest(t, l.Engine); got != want {
		t.Errorf("behind the gap:\n%s\nwant:\n%s", got, want)
	}
	if _, err := l.to.copy().Plan(t.Context(), Point{LSN: b.LSN - 1}); err == nil {
		t.Error("a point inside the gap was found")
	}
	delete(l.to.files, name)
	var bad *DamagedError
	if _, err := l.to.copy().Plan(t.Context(), Point{}); !errors.As(err, &bad) {
		t.Errorf("without the base that covers the gap: %v", err)
	}
}
