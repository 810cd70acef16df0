package store

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/sstable/block"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/atomicfs"
)

// pebbleFormat pins what Pebble writes; a higher one needs a new FormatVersion.
const pebbleFormat = pebble.FormatFlushableIngestExcises

// Options configure a store. The zero value of a field means its default.
type Options struct {
	FS     vfs.FS       // default: the operating system's
	Dir    string       // data directory; the store lives in its kv and stage
	Logger *slog.Logger // default: discards
	// ReadOnly opens the store, which has to be there, without changing a file,
	// until Writable is called.
	ReadOnly bool
	// CacheBytes bounds the cache of table blocks; default 8 MiB.
	CacheBytes int64
	// ChunkCacheBytes bounds the cache of chunks that were read; default 8 MiB.
	ChunkCacheBytes int64
	// MaxTableBytes is where a table of records ends and another begins;
	// default 128 MiB.
	MaxTableBytes int
}

// Store holds the sealed segments. Load, Read and Metrics may run at any time;
// Checkpoint and the methods that change it wait for each other.
type Store struct {
	opt   Options
	fs    vfs.FS
	dir   string // <data>/kv
	stage string // <data>/stage
	log   *slog.Logger
	cache *pebble.Cache
	kv    atomic.Pointer[kv]

	manifest *ManifestError // nil: nothing is wrong with it

	change   sync.Mutex    // held by whatever builds tables
	excising sync.RWMutex  // held while keys are taken out; see ingest
	excised  atomic.Uint64 // counts up as that begins and ends: odd meanwhile
	staged   int           // tables begun since Open; guarded by change
	applied  atomic.Uint64
	segments struct {
		sync.Mutex
		m map[uint32]segmentInfo
	}
	chunks chunkCache
}

// Open opens the store of a data directory, whose lock the caller holds, or an
// empty one. What is left in the stage is removed, unless it is opened to be
// read. Damage is an error that names the file.
func Open(opt Options) (*Store, error) {
	if opt.FS == nil {
		opt.FS = vfs.Default
	}
	if opt.Logger == nil {
		opt.Logger = slog.New(slog.DiscardHandler)
	}
	if opt.CacheBytes == 0 {
		opt.CacheBytes = 8 << 20
	}
	if opt.ChunkCacheBytes == 0 {
		opt.ChunkCacheBytes = 8 << 20
	}
	if opt.MaxTableBytes == 0 {
		opt.MaxTableBytes = 128 << 20
	}
	s := &Store{opt: opt, fs: opt.FS, log: opt.Logger,
		dir: opt.FS.PathJoin(opt.Dir, "kv"), stage: opt.FS.PathJoin(opt.Dir, "stage")}
	s.segments.m = make(map[uint32]segmentInfo)
	s.chunks.init(opt.ChunkCacheBytes)
	if !opt.ReadOnly {
		if err := s.emptyStage(); err != nil {
			return nil, err
		}
	}
	var err error
	if s.manifest, err = checkManifest(s.fs, s.dir); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("store: %w", err)
	}
	s.cache = pebble.NewCache(opt.CacheBytes)
	if err := s.open(opt.ReadOnly); err != nil {
		s.cache.Unref()
		if s.manifest != nil {
			return nil, fmt.Errorf("store: %w: %w", s.manifest, err)
		}
		return nil, err
	}
	return s, nil
}

// Writable lets a store that was opened for reading be changed. Call it only
// once the log confirms that the list of tables is the newest: tables it does
// not name are removed afterwards.
func (s *Store) Writable() error {
	if !s.opt.ReadOnly {
		return nil
	}
	if err := s.emptyStage(); err != nil {
		return err
	}
	old := s.kv.Load()
	if err := s.open(false); err != nil {
		return err
	}
	return old.fence.guarded(old.Close)
}

// Manifest says what is wrong with the list of the store's tables; nil if all
// of it was read.
func (s *Store) Manifest() *ManifestError { return s.manifest }

// open opens Pebble and reads what must be known before anything else.
func (s *Store) open(readOnly bool) error {
	k := &kv{fence: newFence(s.fs, s.dir, s.log)}
	opt := s.pebbleOptions(k.fence)
	opt.ReadOnly = readOnly
	opt.FileCache = pebble.NewFileCache(fileCacheShards, openTables())
	defer opt.FileCache.Unref() // Pebble has its own reference
	err := k.fence.guarded(func() (err error) {
		k.DB, err = pebble.Open(s.dir, opt)
		return err
	})
	if errors.Is(err, pebble.ErrDBDoesNotExist) {
		return fmt.Errorf("store: %s: it has no list of its tables (MANIFEST)", s.dir)
	}
	if err != nil {
		return fmt.Errorf("store: cannot open %s: %w", s.Listed(), plain{err})
	}
	if err := s.readHeader(k); err != nil {
		return cmp.Or(fmt.Errorf("store: %s: %w", s.dir, plain{err}), k.Close())
	}
	s.kv.Store(k)
	return nil
}

// usable opens Pebble again if the one in use is dead. One that dies leaves files open and goroutines
// behind, so the disk has to take a file of ours first.
func (s *Store) usable() error {
	if !s.kv.Load().fence.dead.Load() {
		return nil
	}
	if err := s.probe(); err != nil {
		return fmt.Errorf("store: %s cannot be written: %w", s.dir, err)
	}
	return s.open(false)
}

// probe makes a file in the store's directory, which Pebble does not know, and removes it.
func (s *Store) probe() error {
	name := s.fs.PathJoin(s.dir, "probe")
	f, err := s.fs.Create(name, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	_, err = f.Write(make([]byte, 64<<10))
	err = cmp.Or(err, f.Sync())
	return errors.Join(err, f.Close(), s.fs.Remove(name))
}

// Listed returns the file that lists the store's tables, for errors; the
// store's directory if there is none.
func (s *Store) Listed() string {
	if name, err := atomicfs.ReadMarker(s.fs, s.dir, "manifest"); err == nil && name != "" {
		return s.fs.PathJoin(s.dir, name)
	}
	return s.dir
}

const (
	// maxOpenTables is the most tables that are kept open; see openTables.
	maxOpenTables = 512

	fileCacheShards = 2
)

func (s *Store) pebbleOptions(f *fence) *pebble.Options {
	o := &pebble.Options{
		FS:                          f,
		Cache:                       s.cache,
		DisableWAL:                  true,
		FormatMajorVersion:          pebbleFormat,
		MemTableSize:                64 << 10,
		MemTableStopWritesThreshold: 2,
		MaxManifestFileSize:         1 << 20,
		DisableTableStats:           true,
		Logger:                      pebbleLogger{f},
	}
	// Pebble would end the process; here the reader gets the error and reports
	// it once, since a failed read may be repeated.
	o.EventListener = &pebble.EventListener{DataCorruption: func(i pebble.DataCorruptionInfo) {
		s.log.Debug("storage: damaged file", "path", i.Path, "detail", plain{i.Details}.Error())
	}, ManifestCreated: func(i pebble.ManifestCreateInfo) {
		if i.Err == nil {
			f.release()
		}
	}}
	o.Experimental.ReadSamplingMultiplier = -1
	for i := range o.Levels {
		o.Levels[i].BlockSize = metaBlockBytes
		o.Levels[i].Compression = func() *sstable.CompressionProfile { return block.NoCompression }
	}
	return o
}

// pebbleLogger passes on the errors that Pebble reports; the rest is of no use
// to an operator.
type pebbleLogger struct{ fence *fence }

func (l pebbleLogger) Infof(string, ...interface{}) {}

func (l pebbleLogger) Errorf(format string, args ...interface{}) {
	l.fence.log.Warn("storage", "detail", fmt.Sprintf(format, args...))
}

func (l pebbleLogger) Fatalf(format string, args ...interface{}) {
	l.fence.die(fmt.Sprintf(format, args...))
}

func (s *Store) emptyStage() error {
	if err := s.fs.MkdirAll(s.stage, 0o755); err != nil {
		return fmt.Errorf("store: cannot make %s: %w", s.stage, err)
	}
	names, err := s.fs.List(s.stage)
	if err != nil {
		return fmt.Errorf("store: cannot empty %s: %w", s.stage, err)
	}
	for _, n := range names {
		if err := s.fs.Remove(s.fs.PathJoin(s.stage, n)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("store: cannot empty %s: %w", s.stage, err)
		}
	}
	return nil
}

// readHeader reads the version, the last operation and the totals of the segments.
func (s *Store) readHeader(k *kv) error {
	version, found, err := k.getUint([]byte{prefixFormat})
	if err != nil {
		return err
	}
	if !found {
		empty, err := k.empty()
		if err == nil && !empty {
			err = errors.New("it holds records but no format version")
		}
		return err
	}
	if version != FormatVersion {
		return fmt.Errorf("its format is %d, this program reads %d; use a newer weir", version, FormatVersion)
	}
	applied, found, err := k.getUint([]byte{prefixApplied})
	if err != nil {
		return err
	}
	if !found {
		return errors.New("the number of its last operation is missing")
	}
	segments := make(map[uint32]segmentInfo)
	err = k.scan([]byte{prefixSegment}, []byte{prefixSegment + 1}, func(k, v []byte) error {
		segment, info, err := parseSegment(k, v)
		if err == nil {
			segments[segment] = info
		}
		return err
	})
	if err != nil {
		return err
	}
	s.applied.Store(applied)
	s.segments.Lock()
	defer s.segments.Unlock()
	s.segments.m = segments
	return nil
}

func (k *kv) getUint(key []byte) (v uint64, found bool, err error) {
	b, closer, err := k.Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, err
	}
	v, w := binary.Uvarint(b)
	if w != len(b) || w == 0 {
		err = badValue(key)
	}
	return v, true, cmp.Or(err, closer.Close())
}

func (k *kv) empty() (bool, error) {
	it, err := k.NewIter(nil)
	if err != nil {
		return false, err
	}
	found := it.First()
	return !found, cmp.Or(it.Error(), it.Close())
}

// scan calls fn for every key from from up to but without to.
func (k *kv) scan(from, to []byte, fn func(k, v []byte) error) error {
	it, err := k.NewIter(&pebble.IterOptions{LowerBound: from, UpperBound: to})
	if err != nil {
		return err
	}
	for ok := it.First(); ok; ok = it.Next() {
		v, err := it.ValueAndErr()
		if err == nil {
			err = fn(it.Key(), v)
		}
		if err != nil {
			return cmp.Or(err, it.Close())
		}
	}
	return cmp.Or(it.Error(), it.Close())
}

// Applied returns the number of the last operation that is in the store.
func (s *Store) Applied() uint64 { return s.applied.Load() }

// Segment is the total of one segment.
type Segment struct {
	Segment uint32
	Disk    uint64 // bytes of its chunks; 0: none left
	Keys    uint64 // its idempotency keys; 0: none left
}

// Segments returns the segments of which something is left, in no order.
func (s *Store) Segments() []Segment {
	s.segments.Lock()
	defer s.segments.Unlock()
	list := make([]Segment, 0, len(s.segments.m))
	for n, i := range s.segments.m {
		list = append(list, Segment{Segment: n, Disk: i.Disk, Keys: i.Keys})
	}
	return list
}

// LastSegment is the highest number of a segment of which something is left, 0
// if there is none.
func (s *Store) LastSegment() uint32 {
	s.segments.Lock()
	defer s.segments.Unlock()
	last := uint32(0)
	for n := range s.segments.m {
		last = max(last, n)
	}
	return last
}

func (s *Store) segment(n uint32) (segmentInfo, bool) {
	s.segments.Lock()
	defer s.segments.Unlock()
	i, ok := s.segments.m[n]
	return i, ok
}

func (s *Store) setSegment(n uint32, i segmentInfo) {
	s.segments.Lock()
	defer s.segments.Unlock()
	if i.Disk == 0 && i.Keys == 0 {
		delete(s.segments.m, n)
		return
	}
	s.segments.m[n] = i
}

// Metrics are the sizes of the store.
type Metrics struct {
	DiskBytes int64 // all files of the store
	Tables    int64 // tables in use
	Obsolete  int64 // bytes of tables that are about to be removed
}

// Metrics returns the current sizes.
func (s *Store) Metrics() Metrics {
	m := s.kv.Load().Metrics()
	total := m.Total()
	return Metrics{DiskBytes: int64(m.DiskSpaceUsage()), Tables: total.TablesCount, Obsolete: int64(m.Table.ObsoleteSize + m.Table.ZombieSize)}
}

// Checkpoint makes a copy of the store in dir, which must not exist; tables are
// linked where the file system can.
func (s *Store) Checkpoint(dir string) error {
	s.change.Lock()
	defer s.change.Unlock()
	err := s.usable()
	if err == nil && !s.kv.Load().changed.Load() {
		err = s.touch()
	}
	if err == nil {
		k := s.kv.Load()
		err = k.fence.guarded(func() error { return k.Checkpoint(dir) })
	}
	if err != nil {
		return fmt.Errorf("store: checkpoint in %s: %w", dir, plain{err})
	}
	return nil
}

// touch makes a change that changes nothing: Pebble begins its manifest with
// the first change after it was opened, and a checkpoint made before would lack
// it.
func (s *Store) touch() error {
	t := &tables{ctx: context.Background(), s: s}
	meta := t.table(metaBlockBytes)
	var header entries
	header.set([]byte{prefixFormat}, appendUints(nil, FormatVersion))
	header.set([]byte{prefixApplied}, appendUints(nil, s.applied.Load()))
	err := cmp.Or(header.write(meta), meta.close())
	if err == nil {
		err = s.ingest(t.ctx, t, nil, nil)
	}
	if err != nil {
		t.abandon(meta)
	}
	return err
}

// Close releases the directory. No other method may run or be called again.
func (s *Store) Close() error {
	k := s.kv.Load()
	if k.fence.dead.Load() {
		return nil // closing could wait for a goroutine that has ended
	}
	err := k.fence.guarded(k.DB.Close)
	if errors.Is(err, errBroken) {
		return nil // it died meanwhile, and the next start opens what is on disk
	}
	s.cache.Unref()
	return err
}

// ingest takes the tables in and, if a span is given, everything in it out, in
// one step.
func (s *Store) ingest(ctx context.Context, t *tables, from, to []byte) error {
	if from != nil {
		// Pebble takes the old keys out a moment before it shows the new ones.
		s.excising.Lock()
		s.excised.Add(1)
		defer func() {
			s.excised.Add(1)
			s.excising.Unlock()
		}()
	}
	db := s.kv.Load()
	err := db.fence.guarded(func() error {
		if from == nil {
			return db.Ingest(ctx, t.paths)
		}
		_, err := db.IngestAndExcise(ctx, t.paths, nil, nil, pebble.KeyRange{Start: from, End: to})
		return err
	})
	if err == nil {
		db.changed.Store(true)
	}
	return err
}
