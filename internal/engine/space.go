package engine

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
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

	minSegmentBytes = 1 << 20
	maxSegmentBytes = 64 << 20

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
	low  atomic.Bool  // writes are refused

	moved atomic.Bool // the directory is not there, so they are refused as well

	look sync.Mutex // held while looking
}

// openSpace takes the first look and fixes the reserve: want bytes, by
// default (0) the smaller of 192 MiB and a tenth of the file system, none if
// want is negative or the file system does not say how full it is.
func openSpace(opt *Options, ingested *atomic.Int64) *space {
	s := &space{fs: opt.FS, dir: opt.Dir, ingested: ingested}
	s.free.Store(-1)
	usage, err := s.fs.GetDiskUsage(s.dir)
	if err == nil && opt.DiskReserve >= 0 {
		s.reserve = opt.DiskReserve
		if s.reserve == 0 {
			s.reserve = min(maxDiskReserve, int64(usage.TotalBytes/10))
		}
	}
	s.segment = opt.SegmentBytes
	if s.segment == 0 {
		s.segment = maxSegmentBytes
		if s.reserve > 0 {
			s.segment = min(maxSegmentBytes, max(minSegmentBytes, s.reserve/spaceSegments)) &^ 4095
		}
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
	free := s.free.Load()
	return api.Errorf(api.CodeDiskFull, "the disk has %s free and %s are reserved for operations that free space: delete or ack records, or enlarge the disk; reads, deletes and acks go on",
		mib(free), mib(s.reserve)).
		With("free_bytes", free).With("reserve_bytes", s.reserve).After(api.DiskRetryAfter)
}

func mib(n int64) string { return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20)) }

func (s *space) tell(log *slog.Logger, low bool) {
	if low {
		log.Warn("the disk is nearly full: writes are refused; reads, deletes and acks go on", "free", mib(s.free.Load()), "reserve", mib(s.reserve))
		return
	}
	log.Info("the disk has room again: writes go on", "free", mib(s.free.Load()), "reserve", mib(s.reserve))
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
	if s := e.space; s.low.Load() {
		return false, fmt.Sprintf("the disk has %s free and %s are reserved for operations that free space (--disk-reserve)", mib(s.free.Load()), mib(s.reserve))
	}
	if e.log.Metrics().ReadOnly {
		return false, "the log cannot be written at the moment; the server's log names the error"
	}
	return true, ""
}
