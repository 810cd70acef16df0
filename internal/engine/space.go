package engine

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/weirmq/weir/internal/api"
)

const (
	// maxDiskReserve is the default reserve of a file system that is large enough.
	maxDiskReserve = 192 << 20
	// spaceSegments is how many log segments fit into the reserve. Below it no
	// client's records come in, and what goes on needs at most one segment for the
	// log, which makes its next file, and one for a table that is built before the
	// records it replaces are given back. The third is left for what lies between
	// two looks and for small files.
	spaceSegments = 3

	// maxFileReserve is how many files client writes leave room for, on a file system that
	// counts them and has place for many: the log's next ones, the tables of what is being
	// given back, the store's lists, and as many again for whoever else makes files there.
	maxFileReserve = 64

	minSegmentBytes = 1 << 20
	maxSegmentBytes = 64 << 20
	// segmentShare of the memory is for a segment: its records are in memory while it is sealed. hotShare of it is for
	// the log's newest bytes.
	segmentShare = 16
	hotShare     = 16

	spacePeriod = 100 * time.Millisecond
	spaceTold   = 10 * time.Second // between two lines about it in the log
)

// space knows how full the file system of the data directory is, and whether
// client writes may take more of it. Operations that free space do not ask.
type space struct {
	fs       vfs.FS
	dir      string
	reserve  int64 // bytes that client writes leave free; 0: none
	segment  int64 // bytes of a log segment
	ingested *atomic.Int64

	free atomic.Int64 // at the last look; -1: the file system does not say
	used atomic.Int64 // at the same look
	seen atomic.Int64 // what had been ingested then
	low  atomic.Bool  // writes are refused: fewer bytes than the reserve are free

	fileReserve int64        // files that client writes leave room for; 0: none
	files       atomic.Int64 // how many more there can be, at the last look; -1: the file system does not say
	few         atomic.Bool  // writes are refused: there is room for fewer files than that

	moved atomic.Bool // the directory is not there, so they are refused as well

	look sync.Mutex // held while looking
}

// openSpace takes the first look and fixes the reserve: want bytes, by
// default (0) the smaller of 192 MiB and a tenth of the file system, none if
// want is negative or the file system does not say how full it is.
func openSpace(opt *Options, ingested *atomic.Int64) *space {
	s := &space{fs: opt.FS, dir: opt.Dir, ingested: ingested}
	s.free.Store(-1)
	s.files.Store(-1)
	usage, err := s.fs.GetDiskUsage(s.dir)
	if err == nil && opt.DiskReserve >= 0 {
		s.reserve = opt.DiskReserve
		if s.reserve == 0 {
			s.reserve = min(maxDiskReserve, int64(usage.TotalBytes/10))
		}
		_, total := s.countFiles()
		s.fileReserve = min(maxFileReserve, total/10)
	}
	s.segment = opt.SegmentBytes
	if s.segment == 0 {
		s.segment = maxSegmentBytes
		if s.reserve > 0 {
			s.segment = min(s.segment, s.reserve/spaceSegments)
		}
		if opt.Memory > 0 {
			s.segment = min(s.segment, opt.Memory/segmentShare)
		}
		s.segment = max(minSegmentBytes, s.segment) &^ 4095
	}
	s.sample()
	return s
}

// sample looks at the file system.
func (s *space) sample() {
	s.look.Lock()
	defer s.look.Unlock()
	ingested := s.ingested.Load()
	usage, err := s.fs.GetDiskUsage(s.dir)
	s.moved.Store(errors.Is(err, errNotThere))
	if err != nil {
		s.free.Store(-1)
		s.low.Store(false)
		s.few.Store(false)
		return
	}
	free := int64(min(usage.AvailBytes, 1<<62))
	s.seen.Store(ingested)
	s.free.Store(free)
	s.used.Store(int64(min(usage.UsedBytes, 1<<62)))
	switch {
	case s.reserve == 0:
	case free < s.reserve:
		s.low.Store(true)
	case free >= s.reserve+s.segment/3: // a table being built must not toggle it
		s.low.Store(false)
	}
	files, _ := s.countFiles()
	s.files.Store(files)
	switch {
	case s.fileReserve == 0:
	case files >= 0 && files < s.fileReserve:
		s.few.Store(true)
	case files < 0 || files >= s.fileReserve+s.fileReserve/4: // as above
		s.few.Store(false)
	}
}

// fileCounter is a file system that says for how many more files it has room, and for how
// many altogether. Most have a number of inodes that was fixed when they were made.
type fileCounter interface {
	CountFiles(path string) (free, total uint64, err error)
}

// countFiles returns what the file system says; free is -1 and total 0 if it has no such limit.
func (s *space) countFiles() (free, total int64) {
	fs, ok := s.fs.(fileCounter)
	if !ok {
		return -1, 0
	}
	f, t, err := fs.CountFiles(s.dir)
	if err != nil || t == 0 || f > math.MaxInt64 {
		return -1, 0
	}
	return int64(f), int64(min(t, math.MaxInt64))
}

// refuses reports whether client writes are refused for lack of room.
func (s *space) refuses() bool { return s.low.Load() || s.few.Load() }

// noRoom reports whether err says that the file system, or a quota on it, has no room left.
func noRoom(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// ample reports whether the disk has room for files that only save work.
func (s *space) ample() bool {
	free := s.free.Load()
	return s.reserve == 0 || free < 0 || free >= s.reserve+spaceSegments*s.segment
}

// room refuses a write of n encoded bytes that would not leave the reserve
// free. Bytes written since the last look count as taken, though most go to
// files that exist already; the file system is asked again only if that is too
// much.
func (s *space) room(n int64) error {
	if s.moved.Load() {
		return errMovedAway()
	}
	if s.few.Load() {
		return s.refusal()
	}
	if s.reserve == 0 {
		return nil
	}
	if n > s.segment {
		n *= 2 // its file grows by it, and so does the table made from it
	}
	if !s.low.Load() {
		if s.free.Load()-(s.ingested.Load()-s.seen.Load())-n >= s.reserve {
			return nil
		}
		s.sample()
		free := s.free.Load()
		if !s.low.Load() && (free < 0 || free-n >= s.reserve) {
			return nil
		}
	}
	return s.refusal()
}

func (s *space) refusal() error {
	err := api.Errorf(api.CodeDiskFull, "the disk has %s: delete or ack records, or enlarge the disk; reads, deletes and acks go on", s.shortage()).After(api.DiskRetryAfter)
	if !s.low.Load() && s.few.Load() {
		return err.With("free_files", s.files.Load()).With("reserve_files", s.fileReserve)
	}
	return err.With("free_bytes", s.free.Load()).With("reserve_bytes", s.reserve)
}

// shortage says what the disk lacks.
func (s *space) shortage() string {
	const goal = "are reserved for operations that free space"
	if !s.low.Load() && s.few.Load() {
		return fmt.Sprintf("room for %d more files (df -i) and %d %s", s.files.Load(), s.fileReserve, goal)
	}
	return fmt.Sprintf("%s free and %s %s", mib(s.free.Load()), mib(s.reserve), goal)
}

func mib(n int64) string { return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20)) }

func (s *space) tell(log *slog.Logger, refuses bool) {
	room := []any{"free", mib(s.free.Load()), "reserve", mib(s.reserve)}
	if s.fileReserve > 0 {
		room = append(room, "free_files", s.files.Load(), "reserve_files", s.fileReserve)
	}
	if refuses {
		log.Warn("the disk is nearly full: writes are refused; reads, deletes and acks go on", room...)
		return
	}
	log.Info("the disk has room again: writes go on", room...)
}

func (s *space) tellMoved(log *slog.Logger, moved bool) {
	if moved {
		log.Error("writes are refused", "directory", s.dir, "error", errNotThere)
		return
	}
	log.Info("the data directory is back: writes go on", "directory", s.dir)
}

// Writable reports whether the engine takes writes, and why it does not.
func (e *Engine) Writable() (ok bool, reason string) {
	defer guard()
	if e.space.moved.Load() {
		return false, errNotThere.Error()
	}
	if s := e.space; s.refuses() {
		return false, fmt.Sprintf("the disk has %s (--disk-reserve)", s.shortage())
	}
	if e.log.Metrics().ReadOnly {
		return false, "the log cannot be written at the moment; the server's log names the error"
	}
	if err := e.clogged(); err != nil {
		return false, err.Error()
	}
	return true, ""
}

const logFull = "the log is full, since the oldest of its segments cannot be moved to the store"

// clogged is why the log takes nothing more: so many of its segments wait for the store, which cannot
// take the first of them.
func (e *Engine) clogged() error {
	if err := e.unsealed.Load(); err != nil && e.log.WaitsForRelease() {
		return fmt.Errorf("%s: %w", logFull, *err)
	}
	return nil
}
