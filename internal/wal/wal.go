// Package wal is the one shared log of the server: it alone decides every
// acknowledgement. Operations are opaque bytes with consecutive LSNs.
//
// Three rules hold at any moment:
//
//  1. What Wait reported as Synced is read again after any crash, and what it
//     reported as Written after any kill of the process.
//  2. A file in which a write or a sync failed is never written again. What
//     was acknowledged but not yet synced moves to a new file first.
//  3. Reopening cuts only what no evidence says was ever durable; anything
//     else is a *CorruptError that names file and offset.
//
// Append copies an operation into the image of the file's tail in memory. The
// first caller of Wait becomes the writer (one write for all that gathered) or
// the syncer (one fdatasync for all that wait); the others sleep until their
// LSN is covered. A write never waits for a sync. Segments are prepared,
// recycled and replaced by the keeper, off the hot path.
package wal

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// Class says how safe an operation is.
type Class uint8

const (
	// Memory: encoded into the group buffer.
	Memory Class = iota
	// Written: write(2) of its group has returned.
	Written
	// Synced: an fdatasync that covers its LSN has returned. With
	// Options.ShipSync the copy of the log has it, too.
	Synced
	// Shipped: synced, and the copy of the log has it; without Options.Ship it
	// means Synced. In the file it is Synced.
	Shipped
)

// Pos is the place of one operation's payload (head‖body) in the log. Segment
// numbers grow and are never reused.
type Pos struct {
	Segment uint32
	Offset  uint32 // bytes from the start of the file
	Len     uint32 // bytes of head and body
}

// Op is one operation as replay and Scan show it.
type Op struct {
	LSN     uint64
	Pos     Pos
	Payload []byte // head‖body, valid only during the call
}

// SegmentInfo describes a sealed segment.
type SegmentInfo struct {
	Number            uint32
	FirstLSN, LastLSN uint64
	Bytes             int64
}

var (
	// ErrFull is returned by Reserve when no slot came free in time.
	ErrFull = errors.New("wal: the log accepts no more operations right now")
	// ErrReadOnly is returned while no file can be written; it is joined with the cause.
	ErrReadOnly = errors.New("wal: read-only until the log can be written again")
	// ErrStale is returned by Append when the log failed since gen was taken.
	ErrStale = errors.New("wal: the log failed since this operation was planned")
	// ErrReleased is returned by Read when the segment was released: its
	// operations are found in the store now.
	ErrReleased = errors.New("wal: segment was released")
	// ErrClosed is returned after Close.
	ErrClosed = errors.New("wal: closed")
	// ErrTooLarge is returned by Append for a payload above 1 GiB or a head above 16 MiB.
	ErrTooLarge = errors.New("wal: operation too large")
)

// WriteError says that a write or a sync of the log failed. The operation it
// is returned for is not in the log.
type WriteError struct {
	Op    string // "write" or "sync"
	Errno syscall.Errno
	Err   error
	// Open says that the file could not be replaced yet: a restart before it is may find the operation.
	Open bool
}

func (e *WriteError) Error() string { return "wal: " + e.Op + " failed: " + e.Err.Error() }

// Unwrap returns the cause.
func (e *WriteError) Unwrap() error { return e.Err }

func newWriteError(op string, err error) *WriteError {
	we := &WriteError{Op: op, Err: err}
	errors.As(err, &we.Errno)
	return we
}

// CorruptError says that the log is damaged before data that was durable.
type CorruptError struct {
	File   string
	Offset int64
	LSN    uint64 // the first LSN that cannot be read; 0 if a read names its place
	Reason string

	Ends bool // nothing else is wrong: the log ends there, and Open was to go on behind what is missing
}

func (e *CorruptError) Error() string {
	if e.LSN == 0 {
		return fmt.Sprintf("wal: %s is damaged at offset %d: %s", e.File, e.Offset, e.Reason)
	}
	if e.Ends {
		return fmt.Sprintf("wal: %s ends at offset %d (LSN %d): %s; start refused", e.File, e.Offset, e.LSN, e.Reason)
	}
	return fmt.Sprintf("wal: %s is damaged at offset %d (LSN %d): %s; start refused, see `weir repair`",
		e.File, e.Offset, e.LSN, e.Reason)
}

// Options configure a log. The zero value of a field means its default.
type Options struct {
	FS  vfs.FS // default: the operating system's
	Dir string // the log's own directory, created if absent

	SegmentBytes int64         // prewritten size of a segment, default 64 MiB
	FlushEvery   time.Duration // longest time written bytes stay unsynced, default 1 s
	FlushBytes   int64         // most bytes that stay unsynced, default 8 MiB; beyond it Reserve waits
	Slots        int           // operations not yet written, default 4096
	MaxSealed    int           // full segments waiting for Release, default 4; beyond it Reserve waits
	HotBytes     int64         // newest bytes kept in memory, default 16 MiB
	Window       time.Duration // how long a sync gathers company, default 500 µs
	RetryEvery   time.Duration // how often a read-only log tries again, default 1 s
	FirstSegment uint32        // number of the first segment of a log that has none, default 1

	// Ship makes a Tail, from which the log is copied elsewhere; the copy has it up
	// to ShippedTo. ShipSync lets Synced mean Shipped for callers of Wait, Check and
	// Durable, and lets Reserve wait while FlushBytes are not in the copy.
	Ship, ShipSync bool
	ShippedTo      uint64

	// StallAfter is how long the log may stand still although work waits for it
	// before Stalled is called; 0: for ever. A log that is read-only with a cause
	// does not stand still, and time for which the process was suspended does not
	// count.
	StallAfter time.Duration
	// Stalled is told what stands still, once, and should end the process.
	Stalled func(what string)

	// SameBoot says that the machine has not restarted since the log was last
	// written, so that nothing written can be missing.
	SameBoot bool
	// Sealed is called when a segment became sealed. It must not block and not
	// call the log.
	Sealed func()
	// Progress is told how many of the bytes to replay are done.
	Progress func(done, total int64)
	// Gap is told of LSNs that Open skips because `weir repair` marked them as lost,
	// and of the most bytes that their operations had.
	Gap func(from, to uint64, bytes int64)
	// Logger gets failures and recoveries; default discards.
	Logger *slog.Logger
}

// WithDefaults returns o with defaults in place of zero values.
func (o Options) WithDefaults() Options {
	def := func(v *int64, d int64) {
		if *v <= 0 {
			*v = d
		}
	}
	if o.FS == nil {
		o.FS = vfs.Default
	}
	def(&o.SegmentBytes, 64<<20)
	def((*int64)(&o.FlushEvery), int64(time.Second))
	def(&o.FlushBytes, 8<<20)
	def(&o.HotBytes, DefaultHotBytes)
	def((*int64)(&o.Window), int64(defaultWindow))
	def((*int64)(&o.RetryEvery), int64(time.Second))
	if o.Slots <= 0 {
		o.Slots = 4096
	}
	if o.MaxSealed <= 0 {
		o.MaxSealed = 4
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}

// DefaultHotBytes is how many of its newest bytes a log keeps in memory.
const DefaultHotBytes = 16 << 20

const defaultWindow = 500 * time.Microsecond

// Reasons for Reserve to wait, as bits of Log.blocked.
const (
	blockSealed   = 1 << iota // MaxSealed segments wait for Release
	blockUnsynced             // FlushBytes are not synced
	blockHealing              // a failed file is being replaced for the first time
	blockReadOnly             // and that failed
	blockClosed
	blockUnshipped // FlushBytes are not in the copy
)

// Log is an open log. Its methods may be called concurrently.
type Log struct {
	opt  Options
	id   uint64 // of the directory, in every segment
	seed uint32

	gen     atomic.Uint64
	written atomic.Uint64
	synced  atomic.Uint64
	shipped atomic.Uint64 // LSN up to which the copy has the log
	window  atomic.Int64
	// gathered is how long the last sync waited for company because the window
	// was widened, ns.
	gathered atomic.Int64

	slots       atomic.Int64
	blocked     atomic.Uint32
	roomWaiting atomic.Int32
	room        roomQueue

	start            time.Time // what busyClocks count from
	writing, syncing busyClock // syncing: only while writers are held up by it

	hot   atomic.Pointer[[]*chunk]
	table atomic.Pointer[map[uint32]*segment]
	cache blockCache
	m     counters
	// For the watchdog: callers asleep in Wait, steps of preparing files, syncs begun.
	callers atomic.Int32
	steps   atomic.Uint64
	syncs   atomic.Uint64

	tail  *Tail // nil without Options.Ship
	hurry chan struct{}

	look     bool     // see Look
	after    uint64   // LSNs up to here were applied before Open
	accepted []Damage // marked as lost

	mu struct {
		sync.Mutex
		epoch   uint64
		nextLSN uint64
		cause   error // why the log is read-only

		// The tail: the chunk that takes operations and the group open in it.
		seg   *segment
		chunk *chunk
		group group

		pending  []group // closed, not yet written
		unsynced []group // closed, not yet synced, in LSN order, pending included
		dirty    int64   // bytes of unsynced
		hotBytes int64
		free     [][]byte // chunk buffers for reuse

		writing      bool
		writeTarget  uint64 // last LSN of the write in flight
		writeNow     chan struct{}
		writeNext    chan struct{}
		syncing      bool
		syncTarget   uint64
		syncNow      chan struct{}
		syncNext     chan struct{}
		syncWaiters  int
		lastReleased int
		shipping     chan struct{} // closed when the copy has more
		unshipped    bool          // see StopShipping
		gatherGoal   int
		gather       chan struct{}
		dirtySince   time.Time

		segs  []*segment // oldest first, the tail last
		spare *spareFile
		// spareWanted is set while the writer waits for a spare.
		spareWanted bool
		spareErr    error
		// spareEarly asks the keeper to make the spare before the tail is half full,
		// spareGone to remove it and to make none until it is needed or asked for;
		// see Provide and GiveSpare.
		spareEarly, spareGone bool
		keepNone              bool // see Keep
		spareReady            chan struct{}

		fill fillClock

		failures []failure
		broken   *failure // being healed
		armed    bool
		retired  []*segment // released, no reader left: to be used again
		closed   bool
		done     bool // all is written and synced for the last time
	}
	arm     chan struct{}
	keep    chan struct{}
	stop    chan struct{}
	unwatch chan struct{}
	watched chan struct{} // nil: no watchdog
	marks   markFile
	wg      sync.WaitGroup
	scratch []group // the writer's other buffer of groups
}

// Gen returns the number of failures of the log so far.
func (l *Log) Gen() uint64 { return l.gen.Load() }

// SetWindow changes how long a sync gathers company. Above 500 µs a group of
// two or more waits the window out.
func (l *Log) SetWindow(d time.Duration) { l.window.Store(int64(d)) }

// Window returns what SetWindow has set, 500 µs before.
func (l *Log) Window() time.Duration { return time.Duration(l.window.Load()) }

// Gathered returns how long the last sync waited for company in a window above
// 500 µs; 0 if it did not.
func (l *Log) Gathered() time.Duration { return time.Duration(l.gathered.Load()) }

// Durable returns what holds for an LSN now. LSNs of operations that failed
// are not meaningful.
func (l *Log) Durable(lsn uint64) Class {
	if class := l.reached(lsn); class != Synced || !l.opt.ShipSync {
		return class
	}
	return Written
}

func (l *Log) reached(lsn uint64) Class {
	switch {
	case lsn <= l.synced.Load():
		if l.opt.Ship && lsn <= l.shipped.Load() {
			return Shipped
		}
		return Synced
	case lsn <= l.written.Load():
		return Written
	}
	return Memory
}

func (l *Log) segment(number uint32) *segment { return (*l.table.Load())[number] }

func (l *Log) publishTable() {
	t := make(map[uint32]*segment, len(l.mu.segs))
	for _, s := range l.mu.segs {
		t[s.number] = s
	}
	l.table.Store(&t)
}
