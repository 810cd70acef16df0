package engine

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/weirmq/weir/internal/replica"
)

// shelf is a store of copies in memory: the log of one and its files. Whatever it
// is asked to store takes a time, and while it is away it waits.
type shelf struct {
	delay  atomic.Int64 // ns
	away   atomic.Bool
	noFile atomic.Bool // no file can be put there

	mu      sync.Mutex
	term    uint64
	entries []replica.Entry
	files   map[string]shelved
	trimmed uint64
}

type shelved struct {
	b  []byte
	at time.Time
}

func newShelf(delay time.Duration) *shelf {
	s := &shelf{files: map[string]shelved{}}
	s.delay.Store(int64(delay))
	return s
}

func (s *shelf) take(ctx context.Context) error {
	for d := time.Duration(s.delay.Load()); ; d = time.Second {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(d):
		}
		if !s.away.Load() {
			return nil
		}
	}
}

func (s *shelf) lead() (term, end uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.term++
	s.entries = append(s.entries, replica.Entry{Pos: uint64(len(s.entries)) + 1, Term: s.term})
	return s.term, uint64(len(s.entries))
}

// shelfLog is the log as one leader sees it.
type shelfLog struct {
	*shelf
	term  uint64
	queue chan func()
	once  sync.Once
	all   sync.WaitGroup
}

func (s *shelf) open(term uint64) *shelfLog {
	l := &shelfLog{shelf: s, term: term, queue: make(chan func(), 16)}
	l.all.Go(func() {
		for f := range l.queue {
			f()
		}
	})
	return l
}

func (l *shelfLog) Newest(context.Context) (replica.Term, error) { return replica.Term{}, nil }
func (l *shelfLog) Lead(context.Context, string) (replica.Lead, error) {
	return replica.Lead{}, errors.New("not here")
}
func (l *shelfLog) Close() error { l.once.Do(func() { close(l.queue) }); l.all.Wait(); return nil }

func (l *shelfLog) Append(ctx context.Context, data []byte, stored func(uint64, error)) error {
	arrives := make(chan error, 1)
	l.all.Go(func() { arrives <- l.take(ctx) })
	l.queue <- func() {
		if err := <-arrives; err != nil {
			stored(0, err)
			return
		}
		l.mu.Lock()
		if l.term != l.shelf.term {
			l.mu.Unlock()
			stored(0, replica.ErrFenced)
			return
		}
		pos := uint64(len(l.entries)) + 1
		l.entries = append(l.entries, replica.Entry{Pos: pos, Term: l.term, Data: bytes.Clone(data)})
		l.mu.Unlock()
		stored(pos, nil)
	}
	return nil
}

func (s *shelf) Read(_ context.Context, after uint64) (replica.Entry, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if after < s.trimmed {
		return replica.Entry{}, replica.ErrTrimmed
	}
	if after >= uint64(len(s.entries)) {
		return replica.Entry{}, io.EOF
	}
	return s.entries[after], nil
}

func (s *shelf) End(context.Context) (uint64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return uint64(len(s.entries)), nil
}

func (s *shelf) Trim(_ context.Context, upTo uint64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.trimmed = upTo
	return nil
}

// shelfFiles is the other half of a shelf.
type shelfFiles struct{ *shelf }

func (s shelfFiles) Close() error { return nil }

func (s shelfFiles) Put(ctx context.Context, name string, size int64, content io.Reader) error {
	b, err := io.ReadAll(content)
	if err != nil {
		return err
	}
	if int64(len(b)) != size {
		return fmt.Errorf("%s has %d bytes, not %d", name, len(b), size)
	}
	if err := s.take(ctx); err != nil {
		return err
	}
	if s.noFile.Load() {
		return errors.New("the store takes no files")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.files[name] = shelved{b, time.Now()}
	return nil
}

func (s shelfFiles) Get(_ context.Context, name string) (io.ReadCloser, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f, ok := s.files[name]
	if !ok {
		return nil, replica.ErrNotFound
	}
	return io.NopCloser(bytes.NewReader(f.b)), nil
}

func (s shelfFiles) List(_ context.Context, prefix string) (list []replica.File, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, f := range s.files {
		if strings.HasPrefix(name, prefix) {
			list = append(list, replica.File{Name: name, Size: int64(len(f.b)), Changed: f.at})
		}
	}
	slices.SortFunc(list, func(a, b replica.File) int { return strings.Compare(a.Name, b.Name) })
	return list, nil
}

func (s shelfFiles) Delete(_ context.Context, name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.files, name)
	return nil
}

// rebuild makes a data directory of the copy and returns how far its log goes.
func (s *shelf) rebuild(t testing.TB, fs vfs.FS, dir string) uint64 {
	t.Helper()
	names, err := shelfFiles{s}.List(bg, replica.BasePrefix)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range slices.Backward(names) {
		var b replica.Base
		if err := json.Unmarshal(s.files[f.Name].b, &b); err != nil {
			t.Fatal(err)
		}
		if b.Gap {
			e, err := s.Read(bg, b.After)
			if err != nil || e.Term != b.Term || e.Data == nil {
				continue
			}
			if g, err := replica.DecodeGroup(e.Data); err != nil || g.Last != b.LSN || len(g.Pieces) > 0 {
				continue
			}
		}
		for _, f := range b.Files {
			patch(t, fs, path.Join(dir, f.Name), 0, s.files[f.Object].b)
		}
		label, err := json.Marshal(format{Format: FormatVersion, Boot: replica.BootOfCopy})
		if err != nil {
			t.Fatal(err)
		}
		if err := writeFile(fs, path.Join(dir, "FORMAT"), label); err != nil {
			t.Fatal(err)
		}
		return max(b.LSN, s.replay(t, fs, dir, b.After))
	}
	t.Fatal("there is no base")
	return 0
}

// replay writes the pieces behind a position over the files.
func (s *shelf) replay(t testing.TB, fs vfs.FS, dir string, after uint64) (last uint64) {
	t.Helper()
	segments := map[string]bool{}
	for {
		e, err := s.Read(bg, after)
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if after = e.Pos; e.Data == nil {
			continue
		}
		g, err := replica.DecodeGroup(e.Data)
		if err != nil || g.Last < last {
			t.Fatalf("entry %d: last %d behind %d, %v", e.Pos, g.Last, last, err)
		}
		last = g.Last
		if g.Ends() {
			continue
		}
		for _, p := range g.Pieces {
			name := path.Join(dir, "wal", fmt.Sprintf("%010d.wal", p.Segment))
			patch(t, fs, name, p.Offset, p.Bytes)
			segments[name] = true
		}
	}
	for name := range segments { // as long as their headers say
		b, err := readFile(fs, name)
		if err != nil {
			t.Fatal(err)
		}
		if size := binary.LittleEndian.Uint64(b[40:]); uint64(len(b)) < size {
			patch(t, fs, name, int64(size)-1, []byte{0})
		}
	}
	return last
}

func patch(t testing.TB, fs vfs.FS, name string, off int64, b []byte) {
	t.Helper()
	err := fs.MkdirAll(path.Dir(name), 0o700)
	if err != nil {
		t.Fatal(err)
	}
	old, err := readFile(fs, name)
	if err != nil {
		old = nil
	}
	if n := off + int64(len(b)); int64(len(old)) < n {
		old = append(old, make([]byte, n-int64(len(old)))...)
	}
	copy(old[off:], b)
	if err := writeSynced(fs, name, old); err != nil {
		t.Fatal(err)
	}
}
