// Package engine is the embedded engine: topics, records, queues and their
// durability. All state changes go plan → append → stage → commit → advance;
// recovery runs apply, the inner part of the last step, alone.
//
// The verbs of the contract are methods of Engine, one file per verb. Each
// returns *api.Error values for what the contract names, and api.CodeInternal
// with detail "storage" for a failed write or sync of the log.
//
// Locks: topics (by id) → the registry and other short ones. No lock is held while waiting for
// the log or the disk.
package engine

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/internal/engine/governor"
	"github.com/weirmq/weir/internal/engine/push"
	"github.com/weirmq/weir/internal/engine/sched"
	"github.com/weirmq/weir/internal/op"
	"github.com/weirmq/weir/internal/store"
	"github.com/weirmq/weir/internal/wal"
)

// Options configure an engine. The zero value of a field means its default.
type Options struct {
	Dir    string
	FS     vfs.FS           // default: the operating system's
	Now    func() time.Time // default: time.Now; the only wall clock the engine reads
	Limits api.Limits       // default: api.DefaultLimits
	Logger *slog.Logger     // default: discards

	SegmentBytes  int64         // size of a log segment; default 64 MiB, at most a third of the disk reserve and a sixteenth of Memory
	Memory        int64         // bytes that the process may take; 0: not known, buffers are of their usual size
	DiskFlush     time.Duration // longest time a disk write stays unsynced; default 1 s
	IngestSlots   int           // submissions waiting for the log; default 4096
	IngestTimeout time.Duration // how long a write waits for a slot; default 1 s
	BootID        string        // default: the machine's boot id
	// StallAfter is how long the log may stand still with work waiting before
	// Stalled is told what stands still; 0: for ever. Stalled should end the process.
	StallAfter time.Duration
	Stalled    func(what string)
	Workers    int // dispatch workers, one shard each; default the number of CPUs
	// DiskReserve is how many bytes of the file system client writes leave free;
	// default the smaller of 192 MiB and a tenth of it, none if negative.
	DiskReserve int64
	// Replica keeps a copy of the data directory; nil: none.
	Replica *Replica
	// Open is called with the directory's lock held, before anything of it is read.
	// It may replace what is in it, but LOCK, and fill in Replica.
	Open func(ctx context.Context) error
	// Progress is told the share of the recovery that is done, 0 to 1.
	Progress func(float64)
	// Verified is told what Verify, or Repair that marks, has read so far; nil: nobody.
	Verified func(Contents)
	// Checked is told how many bytes of its tables Repair has read, of how many; nil: nobody.
	Checked func(read, all int64)

	deleteBatch int // see the constant; a test makes it small
}

func (o Options) withDefaults() Options {
	if o.FS == nil {
		o.FS = vfs.Default
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Limits == (api.Limits{}) {
		o.Limits = api.DefaultLimits()
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.DiskFlush == 0 {
		o.DiskFlush = time.Second
	}
	if o.IngestSlots == 0 {
		o.IngestSlots = 4096
	}
	if o.IngestTimeout == 0 {
		o.IngestTimeout = time.Second
	}
	if o.BootID == "" {
		o.BootID = machineBootID()
	}
	if o.Workers == 0 {
		o.Workers = runtime.GOMAXPROCS(0)
	}
	if o.deleteBatch == 0 {
		o.deleteBatch = deleteBatch
	}
	if o.Progress == nil {
		o.Progress = func(float64) {}
	}
	if o.Checked == nil {
		o.Checked = func(int64, int64) {}
	}
	return o
}

// machineBootID identifies this boot of the machine; on systems without such an
// id every start of the engine counts as another boot.
func machineBootID() string {
	if id := os.Getenv("WEIR_TEST_BOOT_ID"); id != "" {
		return id // lets a test stand for a machine that has restarted
	}
	if b, err := os.ReadFile("/proc/sys/kernel/random/boot_id"); err == nil {
		return strings.TrimSpace(string(b))
	}
	return fmt.Sprintf("unknown-%016x", rand.Uint64())
}

// Engine is one open data directory.
type Engine struct {
	opt     Options
	log     *wal.Log
	store   *store.Store
	dir     *directory
	space   *space
	ballast ballast
	reg     registry
	routes  routes

	listeners [3]listener

	startAt time.Time // with a monotonic reading
	startMS int64     // the lease clock then

	noting sync.Mutex
	noted  noted

	lastTS    atomic.Int64 // highest server time seen, Unix ms
	created   int64        // highest that a topic known to the recovery was created at: the clock may have been set back since
	nextTopic atomic.Uint64
	nextLease atomic.Uint64

	records     atomic.Int64
	bytes       atomic.Int64 // live and staged
	queueTopics atomic.Int64
	keys        atomic.Int64 // idempotency keys, remembered or about to be
	ingested    atomic.Int64 // bytes given to the log
	byClass     [4]atomic.Int64

	sched    *sched.Scheduler
	routing  []routing // of each of its shards
	governor *governor.Governor
	push     push.Room
	found    foundWatches // during recovery
	work     workTime
	damage   damageRecord
	buried   burials
	waits    writeWaits
	rate     atomic.Int64 // operations into the log per second, at the last sample
	hooks    visitHooks
	tallies  tallies
	fronts   fronts
	fetches  fetches
	looks    looks
	ended    endedTotals

	sealing  turn // held while a segment moves to the store, and while a snapshot is taken
	copying  turn // held while a snapshot is open
	shrink   chan struct{}
	unsealed atomic.Pointer[error] // why the oldest sealed segment cannot be moved to the store; nil: it can
	sealed   chan struct{}
	drain    chan struct{}
	drained  sync.Once
	stop     context.Context
	cancel   context.CancelFunc
	loops    sync.WaitGroup
	closed   atomic.Bool
	fenced   atomic.Bool // another server leads
	copier   *copier     // nil without Options.Replica
}

// Open recovers the data directory and starts the engine. It fails if another
// process holds the directory, if its format is newer, or if it is damaged
// (naming file and offset).
func Open(ctx context.Context, opt Options) (*Engine, error) {
	defer guard()
	opt = opt.withDefaults()
	if opt.Dir == "" {
		return nil, fmt.Errorf("engine: Options.Dir is empty; name the data directory")
	}
	dir, err := openDirectory(ctx, opt)
	if err != nil {
		return nil, err
	}
	if opt.FS, err = dir.hold(); err != nil {
		dir.release()
		return nil, fmt.Errorf("data directory: %w", err)
	}
	e := newEngine(opt, dir)
	e.space = openSpace(&opt, &e.ingested)
	e.opt.SegmentBytes = e.space.segment
	e.ballast.fs, e.ballast.name = opt.FS, dir.file(ballastFile)
	if err := e.pinPressure(); err != nil {
		e.abandon()
		return nil, err
	}
	// Lease ids of earlier runs do not come back, wherever the clock was set.
	e.nextLease.Store(rand.Uint64() >> 1)
	if err := e.recover(ctx); err != nil {
		e.abandon()
		return nil, err
	}
	if 0 < dir.format && dir.format < FormatVersion {
		opt.Logger.Warn("the data directory gets a newer format: from now on an older weir refuses it", "from", dir.format, "to", FormatVersion)
	}
	if err := dir.markOpen(); err != nil {
		e.abandon()
		return nil, err
	}
	if opt.Replica != nil {
		e.copier = startCopier(e, opt.Replica)
	}
	e.start()
	return e, nil
}

func newEngine(opt Options, dir *directory) *Engine {
	e := &Engine{opt: opt, dir: dir, sealing: make(turn, 1), copying: make(turn, 1), shrink: make(chan struct{}, 1), sealed: make(chan struct{}, 1), drain: make(chan struct{})}
	e.stop, e.cancel = context.WithCancel(context.Background())
	e.reg.init()
	e.routes.init()
	e.found.init()
	e.fetches.init()
	e.listeners = [...]listener{pushRoom{e}, routeRoom{e}, jobRoom{e}}
	e.sched = sched.New(opt.Workers)
	e.routing = make([]routing, e.sched.Shards())
	for i := range e.routing {
		e.routing[i].init()
	}
	e.governor = governor.New()
	e.push.Init(e.pushEnv())
	return e
}

// abandon gives up an engine that did not start.
func (e *Engine) abandon() {
	e.cancel()
	if e.log != nil {
		e.log.Close()
	}
	if e.store != nil {
		e.store.Close()
	}
	e.dir.release()
}

// Drain answers all waiting long polls at once and lets no new one wait; the
// other verbs go on. It is the first step of a graceful stop.
func (e *Engine) Drain() { e.drained.Do(func() { close(e.drain) }) }

// Close stops the background work, syncs the log, writes what makes the next
// start quick, and releases the data directory. Verbs called afterwards fail
// with the code shutting_down.
func (e *Engine) Close() error {
	defer guard()
	if e.closed.Swap(true) {
		return nil
	}
	e.Drain()
	e.cancel()
	e.fetches.close()
	e.loops.Wait()
	if e.copier != nil {
		e.copier.endBases()
	}
	e.noteClock(true)
	e.copying.Lock() // an open snapshot reads the files of log and store
	err := e.logHeads()
	if e.copier != nil {
		e.copier.close()
	}
	if cerr := e.log.Close(); err == nil {
		err = cerr
	}
	if cerr := e.store.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = e.dir.markClean()
	}
	e.dir.release()
	if noRoom(err) {
		// Nothing acknowledged depends on it: the next start recovers from the
		// log as after a kill.
		e.opt.Logger.Warn("the disk is full: the data directory could not be marked as closed, so the next start replays the log", "error", err)
		return nil
	}
	return err
}

// logHeads logs the heads of topics whose records are not in the log, so that a
// clean restart continues after them.
func (e *Engine) logHeads() error {
	for _, t := range e.reg.all() {
		t.mu.Lock()
		if t.Config.Durability == api.Ephemeral && t.created.Load() && !t.dropped && t.Head > 0 {
			part := op.Part{Kind: op.KindLose, Topic: t.ID, From: t.loggedHead + 1, To: t.Head, Cause: op.CauseCrash}
			if part.From <= part.To {
				if _, _, err := e.log.AppendUnslotted(e.log.Gen(), part.Encode(nil), nil, noFrames, wal.Memory); err != nil {
					t.mu.Unlock()
					return storageError(err)
				}
			}
		}
		t.mu.Unlock()
	}
	return nil
}

// Draining is closed once Drain was called: every stream has to end.
func (e *Engine) Draining() <-chan struct{} { return e.drain }
