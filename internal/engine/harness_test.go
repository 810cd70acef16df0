package engine

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/weirmq/weir/internal/api"
)

var bg = context.Background()

// optionsOn are those of an engine on a file system in memory. Its segments are small, so on
// a busy machine a few writers fill all that may wait to be sealed: they wait for as long as
// that takes, unless a test asks how writes are refused.
func optionsOn(fs vfs.FS, boot string) Options {
	return Options{Dir: "/data", FS: fs, BootID: boot, SegmentBytes: 64 << 10, DiskFlush: time.Hour, IngestTimeout: time.Minute}
}

// openOn opens an engine on a file system in memory.
func openOn(t testing.TB, fs vfs.FS, boot string, with ...func(*Options)) *Engine {
	t.Helper()
	opt := optionsOn(fs, boot)
	for _, f := range with {
		f(&opt)
	}
	e, err := Open(bg, opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	return e
}

// wall is a wall clock that a test moves.
type wall struct {
	offset atomic.Int64
	later  time.Duration // by which it moves while the server is down next
}

func (w *wall) jump(d time.Duration) { w.offset.Add(int64(d)) }

// down lets the next restart take so long, or moves the clock while it lasts.
func (w *wall) down(d time.Duration) { w.later += d }

func (w *wall) now() time.Time { return time.Now().Add(time.Duration(w.offset.Load())) }

func (w *wall) set(o *Options) { o.Now = w.now }

// faults fails calls that change the file system.
type faults struct {
	vfs.FS
	mu   sync.Mutex
	n    int                         // calls so far
	hook func(errorfs.Op, int) error // nil: all is well
}

func newFaults(fs vfs.FS) *faults {
	f := &faults{}
	f.FS = errorfs.Wrap(fs, errorfs.InjectorFunc(func(o errorfs.Op) error {
		if !mutates(o.Kind) {
			return nil
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		f.n++
		if f.hook == nil {
			return nil
		}
		return f.hook(o, f.n)
	}))
	return f
}

func mutates(k errorfs.OpKind) bool {
	switch k {
	case errorfs.OpFileClose, errorfs.OpLock, errorfs.OpFileFlush:
		return false
	}
	return k.ReadOrWrite() == errorfs.OpIsWrite
}

func (f *faults) set(hook func(o errorfs.Op, n int) error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.hook = hook
}

// failing fails every call below the directory named part with err.
func (f *faults) failing(part string, err error) {
	f.set(func(o errorfs.Op, _ int) error {
		if strings.Contains(o.Path, part) {
			return err
		}
		return nil
	})
}

func configOf(d api.Durability, with ...func(*api.Config)) api.Config {
	c := api.DefaultConfig()
	c.Durability = d
	for _, f := range with {
		f(&c)
	}
	return c
}

func queueConfig(c *api.Config) { c.Type = api.TypeQueue }

func put(t testing.TB, e *Engine, topic string, cfg api.Config) {
	t.Helper()
	if _, err := e.PutTopic(bg, topic, cfg); err != nil {
		t.Fatal(err)
	}
}

func tryWrite(e *Engine, topic string, data ...string) (api.WriteResult, error) {
	req := &api.WriteRequest{}
	for _, d := range data {
		req.Records = append(req.Records, api.Record{Data: []byte(d)})
	}
	return e.Write(bg, topic, req)
}

func claimJobs(t testing.TB, e *Engine, queue, node string, max int) []api.Job {
	t.Helper()
	var jobs []api.Job
	_, err := e.Claim(bg, queue, &api.ClaimRequest{Node: node, Max: max}, func(j *api.Job) {
		k := *j
		k.Data, k.Meta, k.Tag, k.Node = clone(j.Data), clone(j.Meta), clone(j.Tag), clone(j.Node)
		k.FairKey = clone(j.FairKey)
		jobs = append(jobs, k)
	})
	if err != nil {
		t.Fatal(err)
	}
	return jobs
}

func clone(b []byte) []byte { return append([]byte(nil), b...) }

func seqsOf(jobs []api.Job) string {
	var s []uint64
	for _, j := range jobs {
		s = append(s, j.Seq)
	}
	return fmt.Sprint(s)
}

func ack(t testing.TB, e *Engine, queue, node string, seqs ...uint64) api.SettleResult {
	t.Helper()
	res, err := e.Ack(bg, queue, &api.SettleRequest{Node: node, Seqs: seqs})
	if err != nil {
		t.Fatal(err)
	}
	return res
}

func stateOf(t testing.TB, e *Engine, topic string) api.TopicState {
	t.Helper()
	s, err := e.Topic(topic, false)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// full reads a topic from a cursor to its head: the live records, and the
// ranges that tombstones mark.
func full(e *Engine, topic string, from uint64) (records []string, gaps []string, next uint64, err error) {
	for {
		res, err := e.Diff(bg, topic, &api.DiffRequest{FromSeq: from, Limit: 7, MaxBatchBytes: 8 << 20}, func(r *api.Record) {
			records = append(records, fmt.Sprintf("%d=%s", r.Seq, r.Data))
		})
		if err != nil {
			return nil, nil, 0, err
		}
		if g := res.Tombstone; g != nil {
			gaps = append(gaps, fmt.Sprintf("%d-%d %s", g.GapFrom, g.GapTo, g.Reason))
		}
		if res.CaughtUp() {
			return records, gaps, res.NextFromSeq, nil
		}
		if res.NextFromSeq <= from {
			return nil, nil, 0, fmt.Errorf("a read at %d of topic %s goes nowhere", from, topic)
		}
		from = res.NextFromSeq
	}
}

func mustFull(t testing.TB, e *Engine, topic string) (records, gaps []string) {
	t.Helper()
	records, gaps, _, err := full(e, topic, 0)
	if err != nil {
		t.Fatal(err)
	}
	return records, gaps
}

// fatal is a testing.TB or a rapid.T.
type fatal interface {
	Helper()
	Fatal(args ...any)
}

// sealNow moves everything in the log to the store.
func sealNow(t fatal, e *Engine) {
	t.Helper()
	if err := e.log.Rotate(); err != nil {
		t.Fatal(err)
	}
	for {
		seg, ok := e.log.OldestSealed()
		if !ok {
			return
		}
		if err := e.seal(seg); err != nil {
			t.Fatal(err)
		}
	}
}
