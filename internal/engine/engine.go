// Package engine is the embedded engine: topics, records, queues and their
// durability. All state changes go plan → commit → apply; recovery runs the
// apply steps alone.
//
// The verbs of the contract are methods of Engine, one file per verb. Each
// returns *api.Error values for what the contract names, and api.CodeInternal
// with detail "storage" for a failed write or sync of the log.
package engine

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/weirmq/weir/internal/api"
)

// ErrClosed is returned by every verb after Close has begun.
var ErrClosed = errors.New("engine: closed")

// Options configure an engine. The zero value of a field means its default.
type Options struct {
	Dir    string
	FS     vfs.FS           // default: the operating system's
	Now    func() time.Time // default: time.Now; the only wall clock the engine reads
	Limits api.Limits       // default: api.DefaultLimits
	Logger *slog.Logger     // default: discards

	SegmentBytes  int64         // size of a log segment; default 64 MiB
	DiskFlush     time.Duration // longest time a disk write stays unsynced; default 1 s
	IngestSlots   int           // submissions waiting for the log; default 4096
	IngestTimeout time.Duration // how long a write waits for a slot; default 1 s
	BootID        string        // default: the machine's boot id
	// Progress is told the share of the recovery that is done, 0 to 1.
	Progress func(float64)
}

// PutTopic creates a topic or replaces the configuration of an existing one.
func (e *Engine) PutTopic(ctx context.Context, name string, cfg api.Config) (api.PutTopicResult, error) {
	return api.PutTopicResult{}, errStub
}

// Topic returns the state of a topic; touch marks it as just read.
func (e *Engine) Topic(name string, touch bool) (api.TopicState, error) {
	return api.TopicState{}, errStub
}

// TopicExists reports whether the topic exists now.
func (e *Engine) TopicExists(name string) bool { return false }

// Topics returns one page of the topic list in the order of the names' bytes:
// names with the prefix, behind the name after, that allowed accepts (nil: all).
func (e *Engine) Topics(prefix, after string, pageSize int, touch bool, allowed func(string) bool) api.TopicList {
	return api.TopicList{}
}

// DeleteTopic removes a topic with everything it holds; an absent one is no error.
func (e *Engine) DeleteTopic(ctx context.Context, name string, ifEmpty bool) (api.DeleteTopicResult, error) {
	return api.DeleteTopicResult{}, errStub
}

// Write appends a batch, all or nothing, and returns once the topic's class is
// met and the records are visible. The request was checked by the decoder
// (JSON and the per-record limits). An absent topic: created if req.Create,
// else if it is nil and the inline config's auto_create (default true) allows.
func (e *Engine) Write(ctx context.Context, name string, req *api.WriteRequest) (api.WriteResult, error) {
	return api.WriteResult{}, errStub
}

// Diff reads after a cursor, waiting up to req.WaitMS for something to answer.
// visit is called for each record in ascending order, after all waiting is
// done; the record is valid only during the call.
func (e *Engine) Diff(ctx context.Context, name string, req *api.DiffRequest, visit func(*api.Record)) (api.DiffResult, error) {
	return api.DiffResult{}, errStub
}

// DeleteRecords removes the records that match at the time of the call.
func (e *Engine) DeleteRecords(ctx context.Context, name string, req *api.DeleteRequest) (api.DeleteResult, error) {
	return api.DeleteResult{}, errStub
}

// Claim leases up to req.Max jobs, expired and returned ones first. visit is
// called for each job in ascending order of seq; the job is valid only during
// the call.
func (e *Engine) Claim(ctx context.Context, name string, req *api.ClaimRequest, visit func(*api.Job)) (api.ClaimResult, error) {
	return api.ClaimResult{}, errStub
}

// Ack completes leased jobs: they are permanently deleted.
func (e *Engine) Ack(ctx context.Context, name string, req *api.SettleRequest) (api.SettleResult, error) {
	return api.SettleResult{}, errStub
}

// Nack gives leased jobs back, at once or after req.DelayMS.
func (e *Engine) Nack(ctx context.Context, name string, req *api.SettleRequest) (api.SettleResult, error) {
	return api.SettleResult{}, errStub
}

// Extend sets the deadline of leased jobs to now plus req.LeaseMS.
func (e *Engine) Extend(ctx context.Context, name string, req *api.SettleRequest) (api.SettleResult, error) {
	return api.SettleResult{}, errStub
}

// Backup writes a consistent copy of the data directory into dir, which must
// not exist, while the engine goes on. Everything acknowledged before the call
// is in it.
func (e *Engine) Backup(ctx context.Context, dir string) error { return errStub }

// SetCommitWindow changes the time a group of synced writes may gather company.
func (e *Engine) SetCommitWindow(d time.Duration) {}

// Metrics are the numbers behind /v0/metrics, all read without a topic lock
// except the per-topic rows.
type Metrics struct {
	Topics        int
	TopicsByClass [4]int // by api.Durability
	Routers       int
	RecordsLive   int64
	BytesLive     int64
	QueueTopics   int
	Leases        int64

	WAL WALMetrics
}

// WALMetrics are the counters of the log.
type WALMetrics struct {
	Frames, Batches, Fsyncs, BytesWritten, Rotations int64
	SubmitFull                                       int64
	QueueDepth, QueueDepthPeak                       int64
	ReadOnly                                         bool
	FsyncMicros                                      int64
	FsyncBuckets                                     [10]int64 // not cumulative: ≤50, 100, 250, 500, 1000, 5000, 10000, 50000, 100000 µs, +Inf
	DebtSegments                                     int       // sealed segments waiting for the builder
}

// Metrics returns the current numbers.
func (e *Engine) Metrics() Metrics { return Metrics{} }

// TopicRow is one line of the per-topic metrics.
type TopicRow struct {
	Topic string
	Queue bool
	api.TopicCounters
	Jobs api.QueueCounters
}

// TopicRows returns at most max rows in name order and whether there are more.
func (e *Engine) TopicRows(max int) ([]TopicRow, bool) { return nil, false }

// Drain answers all waiting long polls at once and lets no new one wait; the
// other verbs go on. It is the first step of a graceful stop.
func (e *Engine) Drain() {}

// Close stops the background work, syncs the log, writes what makes the next
// start quick, and releases the data directory.
func (e *Engine) Close() error { return nil }

// Open recovers the data directory and starts the engine. It fails if another
// process holds the directory, if its format is newer, or if it is damaged
// (naming file and offset).
func Open(ctx context.Context, opt Options) (*Engine, error) { return nil, errStub }

// Engine is one open data directory.
type Engine struct{}

var errStub = errors.New("engine: not there yet")
