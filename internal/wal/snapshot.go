package wal

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// Snapshot is the log from an applied LSN up to one position, held still for
// copying while the log goes on: its files do not change until Close. Copied
// into a directory they are a log that ends at LSN.
type Snapshot struct {
	LSN   uint64 // last operation in it
	Files []SnapshotFile

	log    *Log
	pinned []*segment
}

// SnapshotFile is one file of a Snapshot.
type SnapshotFile struct {
	Name string // in the directory of the log
	Size int64

	head []byte // its first bytes
	rest vfs.File
}

// Open returns the content of the file, Size bytes; it may be read until the
// snapshot is closed.
func (f *SnapshotFile) Open() io.Reader {
	head := bytes.NewReader(f.head)
	if f.rest == nil {
		return head
	}
	n := int64(len(f.head))
	return io.MultiReader(head, io.NewSectionReader(f.rest, n, f.Size-n))
}

// Snapshot syncs the log and holds still what it has behind after, the last LSN
// that the store has taken over; the store must not take over more before
// Snapshot has returned. It fails while the log is read-only. The caller closes
// the snapshot, before the log.
func (l *Log) Snapshot(after uint64) (*Snapshot, error) {
	if err := l.Sync(); err != nil {
		return nil, err
	}
	skips, err := readAll(l.opt.FS, l.path(skipName))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("wal: %w", err)
	}
	s, err := l.hold(after)
	if err != nil {
		return nil, err
	}
	for i := range s.pinned {
		if err := s.addHead(i); err != nil {
			s.Close()
			return nil, err
		}
	}
	if len(skips) > 0 {
		s.Files = append(s.Files, SnapshotFile{Name: skipName, Size: int64(len(skips)), head: skips})
	}
	return s, nil
}

// hold pins what a snapshot has behind after. The heads of the files are still to be read: that
// may take long, and the log goes on meanwhile.
func (l *Log) hold(after uint64) (*Snapshot, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.broken != nil {
		return nil, errors.Join(ErrReadOnly, l.mu.cause)
	}
	s := &Snapshot{LSN: l.synced.Load(), log: l}
	for _, seg := range l.mu.segs {
		// A failed segment is followed by one that says what of it is void, so
		// all that have a header come along.
		size := l.syncedEndLocked(seg)
		if size < segHeaderSize || seg.last <= after && seg.limit == 0 && seg != l.mu.seg {
			continue
		}
		seg.pin()
		s.pinned = append(s.pinned, seg)
		s.Files = append(s.Files, SnapshotFile{Name: segName(seg.number), Size: size, rest: seg.file.Load().File})
	}
	if len(s.Files) == 0 {
		s.addEmpty(max(s.LSN, after))
	}
	return s, nil
}

// syncedEndLocked is where the synced part of a segment's file ends. What lies
// behind may be the group of a write that will have failed.
func (l *Log) syncedEndLocked(seg *segment) int64 {
	if seg.file.Load() == nil {
		return 0
	}
	for i := range l.mu.unsynced {
		if g := &l.mu.unsynced[i]; g.chunk.seg == seg {
			return g.chunk.base + int64(g.start)
		}
	}
	return seg.end.Load()
}

// addHead reads the head of the file of a pinned segment. It says how long the file
// was made for the log; the copy is as long as what is in it.
func (s *Snapshot) addHead(i int) error {
	seg, f := s.pinned[i], &s.Files[i]
	head := make([]byte, segHeaderSize)
	if _, err := f.rest.ReadAt(head, 0); err != nil {
		return fmt.Errorf("wal: %s: %w", f.Name, err)
	}
	h, ok, err := decodeSegHeader(head)
	if err != nil || !ok || h.number != seg.number {
		return &CorruptError{File: s.log.path(f.Name), LSN: seg.first, Reason: "its header is damaged"}
	}
	h.size = uint64(f.Size)
	h.encode(head)
	f.head = head
	return nil
}

// addEmpty adds an empty segment if the log holds nothing: its number keeps the
// numbers of the store's segments from being reused.
func (s *Snapshot) addEmpty(lsn uint64) {
	l := s.log
	head := make([]byte, segHeaderSize)
	number := l.mu.seg.number
	segHeader{number: number, first: lsn + 1, epoch: l.mu.epoch, durable: lsn, size: segHeaderSize, id: l.id}.encode(head)
	s.Files = append(s.Files, SnapshotFile{Name: segName(number), Size: segHeaderSize, head: head})
}

// Close lets the log use the files again.
func (s *Snapshot) Close() {
	s.log.mu.Lock()
	defer s.log.mu.Unlock()
	s.closeLocked()
}

func (s *Snapshot) closeLocked() {
	for _, seg := range s.pinned {
		s.log.dropRefLocked(seg)
	}
	s.pinned, s.Files = nil, nil
}

func readAll(fsys vfs.FS, path string) ([]byte, error) {
	f, err := fsys.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(f)
}
