package engine

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/tests/bubble"
)

// coldDisk is a disk of which some files cannot be read for a while: reads wait, or fail.
type coldDisk struct {
	mu    sync.Mutex
	files map[string]bool
	wait  chan struct{} // nil: they fail
	met   int           // reads that did
}

func (d *coldDisk) String() string { return "a cold disk" }

func (d *coldDisk) MaybeError(o errorfs.Op) error {
	if o.Kind != errorfs.OpFileRead && o.Kind != errorfs.OpFileReadAt {
		return nil
	}
	d.mu.Lock()
	bad, wait := d.files[o.Path], d.wait
	if bad {
		d.met++
	}
	d.mu.Unlock()
	if bad && wait != nil {
		<-wait
	} else if bad {
		return syscall.EIO
	}
	return nil
}

// fall makes the files unreadable that there are in the directory.
func (d *coldDisk) fall(t *testing.T, fs vfs.FS, dir string, fail bool) {
	t.Helper()
	names, err := fs.List(dir)
	if err != nil {
		t.Fatal(err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.files = map[string]bool{}
	for _, name := range names {
		if strings.HasSuffix(name, ".sst") || strings.HasSuffix(dir, "wal") {
			d.files[fs.PathJoin(dir, name)] = true
		}
	}
	if !fail {
		d.wait = make(chan struct{})
	}
}

func (d *coldDisk) heal() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.files = nil
	if d.wait != nil {
		close(d.wait)
		d.wait = nil
	}
}

// oldJobs is how many jobs of a coldScene only the disk has: those from 1 on.
const oldJobs = 30

// coldScene is a queue "q" with old jobs that cannot be read, and urgent ones that are in memory.
type coldScene struct {
	*Engine
	disk *coldDisk
	fail bool // reads fail; else they wait
	kv   bool // the old jobs are in the store; else in the log
}

// onAColdDisk runs f in virtual time for each place that old jobs may have, and each trouble with
// it. before is done once they are written.
func onAColdDisk(t *testing.T, cfg api.Config, before func(*testing.T, *Engine), f func(*testing.T, *coldScene)) {
	for _, dir := range []string{"/data/kv", "/data/wal"} {
		for _, fail := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, reads fail %v", strings.TrimPrefix(dir, "/data/"), fail), func(t *testing.T) {
				bubble.Run(t, func(t *testing.T) {
					s := &coldScene{disk: &coldDisk{}, fail: fail, kv: dir == "/data/kv"}
					fs := errorfs.Wrap(vfs.NewMem(), s.disk)
					large := func(o *Options) { o.SegmentBytes = 1 << 20 }
					e := openOn(t, fs, "a", large)
					put(t, e, "q", cfg)
					put(t, e, "other", configOf(api.Disk, queueConfig))
					for i := range oldJobs {
						write(t, e, "q", fmt.Sprintf("%d-%s", i+1, strings.Repeat("x", 5000)))
					}
					before(t, e)
					if s.kv {
						sealNow(t, e)
					}
					time.Sleep(time.Minute)
					if err := e.Close(); err != nil {
						t.Fatal(err)
					}
					s.Engine = openOn(t, fs, "a", large)
					defer s.Close()
					defer s.disk.heal()
					s.disk.fall(t, fs, dir, fail)
					for range 5 {
						s.writeHot(t, "q")
					}
					f(t, s)
					if s.disk.met == 0 {
						t.Error("nothing needed the disk")
					}
				})
			})
		}
	}
}

func (s *coldScene) writeHot(t *testing.T, queue string) {
	t.Helper()
	req := &api.WriteRequest{Records: []api.Record{{Data: []byte("hot"), Tier: api.TierCritical}}}
	if _, err := s.Write(bg, queue, req); err != nil {
		t.Errorf("a write to %s: %v", queue, err)
	}
}

// goesOn asserts that what needs none of the old jobs is done soon.
func (s *coldScene) goesOn(t *testing.T) {
	t.Helper()
	begin := time.Now()
	s.writeHot(t, "other")
	for _, q := range []string{"q", "other"} {
		jobs := claimJobs(t, s.Engine, q, "w", 1)
		if len(jobs) != 1 || string(jobs[0].Data) != "hot" {
			t.Fatalf("a claim of %s gets %s", q, seqsOf(jobs))
		}
		if res := ack(t, s.Engine, q, "w", jobs[0].Seq); res.Done != 1 {
			t.Errorf("an ack of %s: %+v", q, res)
		}
	}
	if s.kv {
		sealNow(t, s.Engine)
	}
	if rows, _ := s.TopicRows(10, nil); len(rows) < 2 {
		t.Errorf("%d rows", len(rows))
	}
	if took := time.Since(begin); took > 2*time.Second {
		t.Errorf("what needs no old job took %v", took)
	}
}

// meanwhile begins a call that needs old jobs and sees that everything else goes on; if reads wait,
// the call does, and if they fail, it says so, and works later.
func (s *coldScene) meanwhile(t *testing.T, call func(context.Context) error) {
	t.Helper()
	leave, cancel := context.WithTimeout(bg, 3*time.Second)
	defer cancel()
	done, left := make(chan error, 1), make(chan error, 1)
	go func() { done <- call(bg) }()
	go func() { left <- call(leave) }()
	time.Sleep(time.Second)
	s.goesOn(t)
	switch err := <-left; {
	case s.fail && (err == nil || !strings.Contains(err.Error(), "cannot be read")):
		t.Errorf("the error of a read that fails: %v", err)
	case !s.fail && !errors.Is(err, context.DeadlineExceeded):
		t.Errorf("whoever has left gets %v", err)
	}
	if s.disk.heal(); s.fail {
		<-done
		go func() { done <- call(bg) }()
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func nothing(*testing.T, *Engine) {}

func TestATopicGoesOnWhileWhatExpiresCannotBeRead(t *testing.T) {
	onAColdDisk(t, configOf(api.Disk, queueConfig, timed(100_000)), nothing, func(t *testing.T, s *coldScene) {
		s.goesOn(t)
		time.Sleep(45 * time.Second) // the old ones expire
		s.writeHot(t, "q")
		s.goesOn(t)
		if n := s.Count("q"); n != oldJobs+4 {
			t.Errorf("%d jobs", n)
		}
		s.disk.heal()
		time.Sleep(3 * time.Second)
		if st := stateOf(t, s.Engine, "q"); st.Count != 4 || st.EarliestSeq <= oldJobs {
			t.Errorf("once the disk is well there are %d jobs from %d on", st.Count, st.EarliestSeq)
		}
		if _, gaps := mustFull(t, s.Engine, "q"); fmt.Sprint(gaps) != "[1-30 ttl]" {
			t.Error(gaps)
		}
	})
}

func TestATopicGoesOnWhileWhatACapTakesCannotBeRead(t *testing.T) {
	onAColdDisk(t, configOf(api.Disk, queueConfig), nothing, func(t *testing.T, s *coldScene) {
		put(t, s.Engine, "q", configOf(api.Disk, queueConfig, func(c *api.Config) { c.CapRecords = oldJobs + 5 }))
		s.meanwhile(t, func(ctx context.Context) error {
			_, err := s.Write(ctx, "q", &api.WriteRequest{Records: []api.Record{{Data: []byte("1")}, {Data: []byte("2")}, {Data: []byte("3")}}})
			return err
		})
		if st := stateOf(t, s.Engine, "q"); st.Count != oldJobs+5 || st.EarliestSeq != 3 {
			t.Errorf("%d jobs from %d on", st.Count, st.EarliestSeq)
		}
	})
}

func TestATopicGoesOnWhileWhatALowerCapTakesCannotBeRead(t *testing.T) {
	onAColdDisk(t, configOf(api.Disk, queueConfig), nothing, func(t *testing.T, s *coldScene) {
		lower := configOf(api.Disk, queueConfig, func(c *api.Config) { c.CapBytes = 20_000 })
		s.meanwhile(t, func(ctx context.Context) error {
			_, err := s.PutTopic(ctx, "q", lower)
			return err
		})
		if st := stateOf(t, s.Engine, "q"); st.Config.CapBytes != 20_000 || st.Bytes > 20_000 || st.EarliestSeq != oldJobs-2 {
			t.Errorf("%+v", st)
		}
	})
}

func TestAQueueGoesOnWhileItsDeadJobsCannotBeRead(t *testing.T) {
	cfg := configOf(api.Disk, queueConfig, func(c *api.Config) {
		c.LeasesDurable, c.MaxDeliveries, c.HasDeadLetter, c.DeadLetter = true, 1, true, "dead"
	})
	onAColdDisk(t, cfg, func(t *testing.T, e *Engine) {
		req := &api.SettleRequest{Node: "w"}
		for _, j := range claimJobs(t, e, "q", "w", oldJobs) {
			req.Seqs = append(req.Seqs, j.Seq)
		}
		if res, err := e.Nack(bg, "q", req); err != nil || res.Done != oldJobs {
			t.Fatal(res, err)
		}
	}, func(t *testing.T, s *coldScene) {
		s.goesOn(t)
		begin := time.Now()
		if jobs := claimJobs(t, s.Engine, "q", "w", 10); len(jobs) != 4 {
			t.Errorf("a claim that meets dead jobs gets %s", seqsOf(jobs))
		}
		if took := time.Since(begin); took > 2*time.Second {
			t.Errorf("it took %v", took)
		}
		s.writeHot(t, "q")
		s.goesOn(t)
		s.disk.heal()
		time.Sleep(time.Second)
		claimJobs(t, s.Engine, "q", "w", 10)
		records, _ := mustFull(t, s.Engine, "dead")
		if len(records) != oldJobs || s.Count("q") != 4 {
			t.Fatalf("%d dead letters, %d jobs are left", len(records), s.Count("q"))
		}
		for i, r := range records {
			if want := fmt.Sprintf("%d=%d-x", i+1, i+1); !strings.HasPrefix(r, want) {
				t.Errorf("letter %d is %.10s…", i+1, r)
			}
		}
	})
}

func TestAQueueGoesOnWhileTheSizeOfAnAckedJobCannotBeRead(t *testing.T) {
	cfg := configOf(api.Disk, queueConfig, func(c *api.Config) { c.LeasesDurable, c.LeaseMS = true, 3_600_000 })
	onAColdDisk(t, cfg, func(t *testing.T, e *Engine) { claimJobs(t, e, "q", "old", 20) }, func(t *testing.T, s *coldScene) {
		var done atomic.Int64
		s.meanwhile(t, func(ctx context.Context) error {
			res, err := s.Ack(ctx, "q", &api.SettleRequest{Node: "old", Seqs: []uint64{2, 3, 19, 20}})
			done.Add(int64(res.Done))
			return err
		})
		if st := stateOf(t, s.Engine, "q"); done.Load() != 4 || st.Count != oldJobs {
			t.Errorf("%d acked, %+v", done.Load(), st)
		}
	})
}

func TestADestinationGoesOnWhileWhatItsCapTakesCannotBeRead(t *testing.T) {
	onAColdDisk(t, configOf(api.Disk, queueConfig), nothing, func(t *testing.T, s *coldScene) {
		put(t, s.Engine, "q", configOf(api.Disk, queueConfig, func(c *api.Config) { c.CapRecords = oldJobs + 5 }))
		put(t, s.Engine, "in", configOf(api.Disk))
		putRouter(t, s.Engine, "r", "in", "q")
		write(t, s.Engine, "in", "1")
		time.Sleep(2 * time.Second)
		s.goesOn(t)
		s.disk.heal()
		if s.fail {
			write(t, s.Engine, "in", "2") // as the log says
		}
		time.Sleep(3 * time.Second)
		if st := stateOf(t, s.Engine, "q"); st.Count != oldJobs+5 {
			t.Errorf("%d jobs from %d on", st.Count, st.EarliestSeq)
		}
	})
}
