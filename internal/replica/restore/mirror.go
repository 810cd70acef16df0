// Package restore builds data directories from the copy of a log: a base, and
// the pieces of log files that were shipped behind it.
package restore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/weirmq/weir/internal/replica"
	"github.com/weirmq/weir/internal/wal"
)

// ErrEmpty says that a copy holds no base that counts.
var ErrEmpty = errors.New("the copy is empty: it has no base")

// ErrNewer ends the error about a copy that a newer version has written.
var ErrNewer = errors.New("use a newer weir")

// Copy is where a copy is.
type Copy struct {
	Log   replica.Log
	Files replica.Files
	// Trouble, if set, is told the errors after which something is tried again, or an older
	// base.
	Trouble func(error)
	// Progress, if set, is told how many bytes of what is being read have been, and of how many;
	// 0: nobody knows.
	Progress func(done, total int64)
	// Format is the highest format of data directories that this program reads; 0: any.
	Format int

	began uint64 // position of the entry that began the term of who reads it, behind all others; 0: it does not lead
}

func (c Copy) progress(done, total int64) {
	if c.Progress != nil {
		c.Progress(done, total)
	}
}

// DamagedError says where a copy cannot be read any further.
type DamagedError struct {
	After uint64 // position of the last whole entry
	LSN   uint64 // up to which the copy is whole
	Err   error
}

func (e *DamagedError) Error() string {
	text := fmt.Sprintf("the copy is damaged behind position %d of its log: %v; ", e.After, e.Err)
	if e.LSN == 0 {
		return text + "nothing was written before that"
	}
	return text + fmt.Sprintf("it is whole up to LSN %d: `weir restore URL DIR --at %d` restores that", e.LSN, e.LSN)
}

func (e *DamagedError) Unwrap() error { return e.Err }

// Mirror is a data directory that is being built. No engine may open it before
// Finish.
type Mirror struct {
	Base replica.Base
	At   uint64 // position of the last entry in it
	LSN  uint64 // up to which it is whole
	Term uint64 // newest of the entries in it
	// Ended says that its leader has stopped since it shipped the last of it, and
	// nobody has led since.
	Ended  bool
	Behind int64 // bytes of the log that were written behind the base

	got struct {
		sync.Mutex
		bytes int64
	}
	whole int64 // how many bytes there are
	copy  Copy
	fs    vfs.FS
	dir   string
	chain chain
	open  map[uint32]vfs.File
}

// read counts what was read.
func (m *Mirror) read(bytes int64) {
	m.got.Lock()
	defer m.got.Unlock()
	whole := m.whole
	if m.got.bytes += bytes; m.got.bytes > whole { // there is more of the log than was known
		whole = 0
	}
	m.copy.progress(m.got.bytes, whole)
}

func (m *Mirror) path(name string) string { return m.fs.PathJoin(m.dir, name) }

// Begin builds dir, which must be empty, as the newest base has it that can be
// read. What an older mirror holds of it is linked. It returns ErrEmpty if there
// is no base that counts.
func (c Copy) Begin(ctx context.Context, fs vfs.FS, dir string, older *Mirror) (*Mirror, error) {
	names, err := c.baseNames(ctx)
	if err != nil {
		return nil, err
	}
	var failed error
	var broken []replica.BaseFile
	for _, name := range slices.Backward(names) {
		base, err := c.readBase(ctx, name)
		if errors.Is(err, errUnused) || err == nil && needs(base, broken) {
			continue
		}
		if err == nil {
			var m *Mirror
			if m, err = c.begin(ctx, base, 0, fs, dir, older); err == nil {
				return m, nil
			}
		}
		if f := asBroken(err); f != nil {
			broken = append(broken, *f)
		}
		if failed = errors.Join(failed, err); ctx.Err() != nil {
			break
		}
	}
	if failed == nil {
		return nil, ErrEmpty
	}
	return nil, failed
}

// begin is Begin with this base, behind which so many bytes of the log will be read.
func (c Copy) begin(ctx context.Context, base *replica.Base, behind int64, fs vfs.FS, dir string, older *Mirror) (*Mirror, error) {
	m := &Mirror{Base: *base, At: base.After, LSN: base.LSN, Term: base.Term, copy: c, fs: fs, dir: dir, chain: newChain(base), open: map[uint32]vfs.File{}, whole: sizeOf(base) + behind}
	for _, name := range []string{"wal", "kv", "FORMAT"} {
		if err := fs.RemoveAll(m.path(name)); err != nil {
			return nil, err
		}
	}
	if err := m.fetch(ctx, older); err != nil {
		return nil, err
	}
	return m, nil
}

// Follow adds the entries of the log up to the position until, 0: up to its
// end. The log is known to go on behind until, so an end in front of that is an
// error. A *DamagedError says where the copy is broken.
func (m *Mirror) Follow(ctx context.Context, until uint64) error {
	for until == 0 || m.At < until {
		e, err := replica.Next(ctx, m.copy.Log, m.At)
		switch {
		case errors.Is(err, io.EOF) && until > 0:
			return fmt.Errorf("the store says that the log of the copy ends behind position %d, and has said that it goes on to %d: nothing is built of a part of it", m.At, until)
		case errors.Is(err, io.EOF):
			return nil
		case err != nil && ctx.Err() != nil:
			return err
		case err != nil && errors.Is(err, replica.ErrDamaged):
			return &DamagedError{m.At, m.LSN, err}
		case err != nil:
			return fmt.Errorf("reading the copy behind position %d of its log: %w", m.At, err)
		case until > 0 && e.Pos > until:
			return nil
		}
		g, err := m.chain.next(&e)
		if err != nil {
			return &DamagedError{m.At, m.LSN, err}
		}
		if err := m.write(g.Pieces); err != nil {
			return err
		}
		if until > 0 { // a standby that has caught up is never done
			m.read(int64(len(e.Data)))
		}
		m.At, m.LSN, m.Term = e.Pos, max(m.LSN, g.Last), e.Term
		m.Ended = g.Ends()
	}
	return nil
}

func (m *Mirror) write(pieces []replica.Piece) error {
	for _, p := range pieces {
		if p.Segment < m.chain.lowest {
			continue
		}
		f, err := m.segment(p.Segment)
		if err != nil {
			return err
		}
		if _, err := f.WriteAt(p.Bytes, p.Offset); err != nil {
			return err
		}
		m.Behind += int64(len(p.Bytes))
	}
	return nil
}

func (m *Mirror) name(segment uint32) string {
	return m.path(m.fs.PathJoin("wal", segmentName(segment)))
}

// segment opens the file of a segment. Of those that are open, the oldest is
// closed if they are more than few.
func (m *Mirror) segment(number uint32) (vfs.File, error) {
	if f := m.open[number]; f != nil {
		return f, nil
	}
	f, err := m.fs.OpenReadWrite(m.name(number), vfs.WriteCategoryUnspecified)
	if err != nil {
		return nil, err
	}
	m.open[number] = f
	if len(m.open) > 4 {
		oldest := number
		for n := range m.open {
			oldest = min(oldest, n)
		}
		if oldest != number {
			err = m.closeSegment(oldest)
		}
	}
	return f, err
}

// closeSegment makes the file of a segment as long as its header says and syncs it.
func (m *Mirror) closeSegment(number uint32) error {
	f := m.open[number]
	delete(m.open, number)
	err := extend(f)
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// extend lengthens a segment's file to what its header says, or to a header if the leader
// has shipped no more than a part of that: the log refuses a shorter one, since a file that
// was cut off looks like that.
func extend(f vfs.File) error {
	var head [wal.HeaderSize]byte
	if _, err := f.ReadAt(head[:], 0); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	length := int64(wal.HeaderSize)
	if h, ok := wal.ReadHeader(head[:]); ok {
		length = max(length, h.Length)
	}
	info, err := f.Stat()
	if err != nil || info.Size() >= length {
		return err
	}
	_, err = f.WriteAt([]byte{0}, length-1)
	return err
}

// Finish makes the directory one that an engine can open, ending behind lsn at the
// latest. If that is the end and the mirror has Ended, nothing is missing, and the
// directory counts as closed. Otherwise it says that it is a copy.
func (m *Mirror) Finish(lsn uint64) error {
	if err := m.label(m.Ended && lsn >= m.LSN); err != nil {
		return err
	}
	for n := range m.open {
		if err := m.closeSegment(n); err != nil {
			return err
		}
	}
	for _, name := range []string{"wal", "kv", ""} {
		d, err := m.fs.OpenDir(m.path(name))
		if err == nil {
			err = errors.Join(d.Sync(), d.Close())
		}
		if err != nil {
			return err
		}
	}
	return m.endAt(lsn)
}

// label writes into the directory what it is.
func (m *Mirror) label(clean bool) error {
	name := m.path("FORMAT")
	b, err := readFile(m.fs, name)
	format := map[string]any{}
	if err == nil {
		err = json.Unmarshal(b, &format)
	}
	format["clean"], format["boot"] = clean, replica.BootOfCopy
	if err == nil {
		b, err = json.Marshal(format)
	}
	if err == nil {
		err = writeFile(m.fs, name, append(b, '\n'))
	}
	return err
}

// endAt ends the directory's log behind lsn.
func (m *Mirror) endAt(lsn uint64) error {
	if lsn >= m.LSN {
		return nil
	}
	m.LSN = lsn
	return wal.EndAt(wal.Options{FS: m.fs, Dir: m.path("wal")}, lsn)
}

// Close gives up what Finish would close.
func (m *Mirror) Close() {
	for n, f := range m.open {
		f.Close()
		delete(m.open, n)
	}
}
