package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/tests/capture"
)

// A scene is an engine whose topics lie on a disk that a test damages.
type scene struct {
	t       *testing.T
	fs      vfs.FS
	eio     func(path string) bool // reads of such files fail; guarded by mu
	mu      sync.Mutex
	e       *Engine
	log     *logLines
	where   string // "kv" or "wal"
	flipped bool
	wall    *wall
}

// logLines collects what the engine logs.
type logLines struct{ capture.Buffer }

func (l *logLines) lines(part string) (n int, all string) {
	all = l.String()
	return strings.Count(all, part), all
}

const (
	sceneRecords = 24
	sceneBytes   = 30 << 10 // so that few records share a block
	sceneDamaged = 9        // is made unreadable
)

// payload is the data of a record that the disk shows nowhere else.
func payload(topic string, n int) string {
	return fmt.Sprintf(`"%s-%04d %s"`, topic, n, strings.Repeat("x", sceneBytes))
}

func newScene(t *testing.T, where string) *scene {
	s := &scene{t: t, log: &logLines{}, where: where, wall: &wall{}}
	s.fs = errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(o errorfs.Op) error {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.eio != nil && (o.Kind == errorfs.OpFileRead || o.Kind == errorfs.OpFileReadAt || o.Kind == errorfs.OpOpen) && s.eio(o.Path) {
			return syscall.EIO
		}
		return nil
	}))
	s.open()
	return s
}

func (s *scene) open() {
	s.e = openOn(s.t, s.fs, "a", s.wall.set, func(o *Options) {
		o.SegmentBytes = 4 << 20
		o.Logger = slog.New(slog.NewTextHandler(s.log, nil))
	})
}

func (s *scene) reopen() {
	s.t.Helper()
	if err := s.e.Close(); err != nil {
		s.t.Fatal(err)
	}
	s.open()
}

// write writes the records of a topic.
func (s *scene) write(topic string) {
	s.t.Helper()
	for n := 1; n <= sceneRecords; n++ {
		req := &api.WriteRequest{Records: []api.Record{{Data: []byte(payload(topic, n)), HasTag: true, Tag: []byte(fmt.Sprint("t", n%2))}}}
		if _, err := s.e.Write(bg, topic, req); err != nil {
			s.t.Fatal(err)
		}
	}
}

// settle puts what was written where the scene is about: into the store, or
// into a log that is read from its file.
func (s *scene) settle() {
	s.t.Helper()
	if s.where == "kv" {
		sealNow(s.t, s.e)
		return
	}
	s.reopen()
}

// flip damages the record of a topic in every file that holds it.
func (s *scene) flip(topic string, n int) {
	s.t.Helper()
	s.flipped = true
	text := []byte(fmt.Sprintf(`"%s-%04d `, topic, n))
	for file, b := range imageOf(s.t, s.fs, "/data/"+s.where) {
		if at := bytes.Index(b, text); at >= 0 {
			s.flipAt(file, int64(at)+100, b[at+100])
			return
		}
	}
	s.t.Fatalf("record %d of %s is not in %s", n, topic, s.where)
}

func (s *scene) flipAt(file string, at int64, was byte) {
	s.t.Helper()
	f, err := s.fs.OpenReadWrite(file, vfs.WriteCategoryUnspecified)
	if err != nil {
		s.t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte{was ^ 4}, at); err != nil {
		s.t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		s.t.Fatal(err)
	}
}

// failing lets every read of the place fail, or no more.
func (s *scene) failing(on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.eio = nil
	if on {
		s.eio = func(path string) bool {
			return strings.Contains(path, "/"+s.where+"/") && (strings.HasSuffix(path, ".sst") || strings.HasSuffix(path, ".wal"))
		}
	}
}

// numbers reads a topic: which numbers hold a record, and which a tombstone
// with the reason crash covers.
func (s *scene) numbers(topic string) (records, lost map[uint64]bool) {
	s.t.Helper()
	records, lost = map[uint64]bool{}, map[uint64]bool{}
	for from := uint64(0); ; {
		res, err := s.e.Diff(bg, topic, &api.DiffRequest{FromSeq: from, Limit: 7, MaxBatchBytes: 8 << 20}, func(r *api.Record) {
			if !strings.HasPrefix(string(r.Data), `"`) {
				s.t.Errorf("record %d of %s is %.20q", r.Seq, topic, r.Data)
			}
			records[r.Seq] = true
		})
		if err != nil {
			s.t.Fatalf("reading %s from %d: %v", topic, from, err)
		}
		if g := res.Tombstone; g != nil && g.Reason == api.ReasonCrash {
			for n := g.GapFrom; n <= g.GapTo; n++ {
				lost[n] = true
			}
		}
		if res.CaughtUp() {
			return records, lost
		}
		if res.NextFromSeq <= from && res.Tombstone == nil {
			s.t.Fatalf("a read of %s at %d goes nowhere", topic, from)
		}
		from = res.NextFromSeq
	}
}

// whole checks that every number of a topic from first on holds a record or is
// announced as lost, the damaged one among the latter, and that the counters
// say the same.
func (s *scene) whole(topic string, first uint64, damaged bool) {
	s.t.Helper()
	records, lost := s.numbers(topic)
	st := stateOf(s.t, s.e, topic)
	for n := max(first, 1); n <= st.HeadSeq; n++ {
		if records[n] == lost[n] {
			s.t.Fatalf("number %d of %s: read %v, lost %v", n, topic, records[n], lost[n])
		}
	}
	if damaged && (records[sceneDamaged] || !lost[sceneDamaged]) {
		s.t.Fatalf("the damaged record of %s: read %v, lost %v", topic, records[sceneDamaged], lost[sceneDamaged])
	}
	if max := sceneRecords / 2; len(lost) > max {
		s.t.Fatalf("%d numbers of %s are lost", len(lost), topic)
	}
	if st.Count != uint64(len(records)) {
		s.t.Fatalf("topic %s counts %d records and has %d", topic, st.Count, len(records))
	}
	if st.Count == 0 && st.Bytes != 0 {
		s.t.Fatalf("topic %s counts %d bytes without a record", topic, st.Bytes)
	}
}

// verb is one thing that a client or time does to a topic with a damaged place.
type verb struct {
	name string
	cfg  func(*api.Config)
	// before brings the topic to where the verb begins; nil: nothing.
	before func(s *scene)
	empty  bool // before writes the records
	do     func(s *scene) error
	// first is the first number that may not be missing once it is done.
	first uint64
	// sealed: the verb is about records in the store.
	sealed bool
	// once: a worker whose call failed has lost the job, which stays.
	once bool
}

func diffAll(s *scene) error {
	_, _, _, err := full(s.e, "t", 0)
	return err
}

func claimAll(s *scene) error {
	for {
		var got []uint64
		_, err := s.e.Claim(bg, "t", &api.ClaimRequest{Node: "w", Max: 4, HasLease: true, LeaseMS: 3600_000}, func(j *api.Job) { got = append(got, j.Seq) })
		if err != nil || len(got) == 0 {
			return err
		}
	}
}

func remove(s *scene, req *api.DeleteRequest) error {
	_, err := s.e.DeleteRecords(bg, "t", req)
	return err
}

func config(s *scene, set func(*api.Config)) error {
	cfg := stateOf(s.t, s.e, "t").Config
	set(&cfg)
	_, err := s.e.PutTopic(bg, "t", cfg)
	return err
}

var verbs = []verb{
	{name: "diff", do: diffAll},
	{name: "diff of others' records", cfg: func(c *api.Config) { c.DedupeNode = true }, do: func(s *scene) error {
		for from := uint64(0); ; {
			res, err := s.e.Diff(bg, "t", &api.DiffRequest{FromSeq: from, Limit: 5, MaxBatchBytes: 8 << 20, Nodes: []string{"me"}}, func(*api.Record) {})
			if err != nil || res.CaughtUp() {
				return err
			}
			from = res.NextFromSeq
		}
	}},
	{name: "claim", cfg: queueConfig, do: claimAll},
	{name: "claim in a window", cfg: func(c *api.Config) { queueConfig(c); c.ClaimJitterMS = 5 }, do: claimAll},
	{name: "claim with durable leases", cfg: func(c *api.Config) { queueConfig(c); c.LeasesDurable = true }, do: claimAll},
	{name: "a restart after claims", cfg: func(c *api.Config) { queueConfig(c); c.LeasesDurable = true }, do: func(s *scene) error {
		if err := claimAll(s); err != nil {
			return err
		}
		s.reopen()
		return claimAll(s)
	}, sealed: true},
	{name: "work stream", cfg: queueConfig, do: func(s *scene) error {
		w, err := s.e.OpenWork(bg, "t", &api.ClaimRequest{Node: "w", Max: sceneRecords})
		if err != nil {
			return err
		}
		defer w.Close()
		for {
			if n, err := w.Next(bg, func(*api.Job) {}); err != nil || n == 0 {
				return err
			}
		}
	}},
	{name: "ack of a lease that outlived a restart", cfg: func(c *api.Config) { queueConfig(c); c.LeasesDurable = true },
		before: func(s *scene) {
			if err := claimAll(s); err != nil {
				s.t.Fatal(err)
			}
			s.reopen()
		}, do: func(s *scene) error {
			res, err := s.e.Ack(bg, "t", &api.SettleRequest{Node: "w", Seqs: []uint64{sceneDamaged}})
			if err == nil && res.Done != 1 {
				return fmt.Errorf("the ack of the damaged job did nothing: %+v", res)
			}
			return err
		}, once: true, first: sceneDamaged + 1},
	{name: "dead letter", cfg: func(c *api.Config) {
		queueConfig(c)
		c.LeasesDurable = true
		c.MaxDeliveries, c.DeadLetter, c.HasDeadLetter = 1, "letters", true
	},
		before: func(s *scene) {
			if err := claimAll(s); err != nil {
				s.t.Fatal(err)
			}
			for n := uint64(1); n <= sceneRecords; n++ {
				if _, err := s.e.Nack(bg, "t", &api.SettleRequest{Node: "w", Seqs: []uint64{n}}); err != nil {
					s.t.Fatal(err)
				}
			}
		}, do: func(s *scene) error {
			if err := claimAll(s); err != nil {
				return err
			}
			for range 100 { // with a disk that fails, jobs stay ready
				if stateOf(s.t, s.e, "t").Count == 0 {
					return nil
				}
				if err := claimAll(s); err != nil {
					return err
				}
			}
			return fmt.Errorf("%d jobs are not dead letters", stateOf(s.t, s.e, "t").Count)
		}, first: sceneRecords + 1},
	{name: "delete by number through the place", do: func(s *scene) error {
		return remove(s, &api.DeleteRequest{HasBefore: true, BeforeSeq: sceneDamaged + 4})
	}, first: sceneDamaged + 4},
	{name: "delete by number in front of the place", do: func(s *scene) error {
		return remove(s, &api.DeleteRequest{HasBefore: true, BeforeSeq: 3})
	}, first: 3},
	{name: "delete everything", do: func(s *scene) error { return remove(s, &api.DeleteRequest{HasBefore: true, BeforeSeq: 1000}) }, first: sceneRecords + 1},
	{name: "delete by tag", do: func(s *scene) error {
		return remove(s, &api.DeleteRequest{Match: matchTag("t1")})
	}, first: sceneRecords + 1},
	{name: "cap of records", cfg: func(c *api.Config) { c.CapRecords = sceneRecords }, do: func(s *scene) error {
		for range sceneRecords {
			if _, err := tryWrite(s.e, "t", `"new"`); err != nil {
				return err
			}
		}
		return nil
	}, first: sceneRecords + 1},
	{name: "cap of bytes", cfg: func(c *api.Config) { c.CapBytes = sceneRecords * (sceneBytes + 100) }, do: func(s *scene) error {
		for n := range sceneRecords + 2 {
			if _, err := tryWrite(s.e, "t", payload("new", n)); err != nil {
				return err
			}
		}
		return nil
	}, first: sceneRecords + 3},
	{name: "a lower cap", do: func(s *scene) error { return config(s, func(c *api.Config) { c.CapRecords = 2 }) }, first: sceneRecords - 1},
	{name: "ttl", cfg: func(c *api.Config) { c.TTLMS = 3600_000 }, do: func(s *scene) error {
		s.wall.jump(2 * time.Hour)
		_, err := s.e.Topic("t", false)
		if err != nil {
			return err
		}
		return diffAll(s)
	}, first: sceneRecords + 1},
	{name: "watch", do: func(s *scene) error {
		ctx, end := context.WithTimeout(bg, 20*time.Second)
		defer end()
		sock := s.e.NewSocket()
		defer sock.Close()
		if _, err := sock.Subscribe(ctx, &api.WatchRequest{Topics: []api.WatchTopic{{Topic: "t", FromSeq: 0}},
			WatchOptions: api.WatchOptions{Limit: 3, MaxBatchBytes: 8 << 20, IncludeData: true}}); err != nil {
			return err
		}
		var all []byte
		for !bytes.Contains(all, []byte("caught_up")) {
			msg, err := sock.Next(ctx, nil)
			if err != nil {
				return err
			}
			sock.Sent()
			if len(msg) == 0 {
				select {
				case <-sock.Ready():
				case <-ctx.Done():
					return ctx.Err()
				}
			}
			all = append(all, msg...)
		}
		if !bytes.Contains(all, []byte(`"tombstone"`)) && s.flipped {
			return fmt.Errorf("the stream did not hear of the loss: %.2000s", all)
		}
		return nil
	}},
	{name: "seal", do: func(s *scene) error {
		if err := s.e.log.Rotate(); err != nil {
			return err
		}
		for {
			seg, ok := s.e.log.OldestSealed()
			if !ok {
				break
			}
			if err := s.e.seal(seg); err != nil {
				return err
			}
		}
		return diffAll(s)
	}},
	{name: "shrink", do: func(s *scene) error {
		if err := remove(s, &api.DeleteRequest{Match: matchTag("t0")}); err != nil {
			return err
		}
		if err := s.e.shrinkStore(new(draining)); err != nil {
			return err
		}
		return diffAll(s)
	}, first: sceneRecords + 1},
	{name: "restart", do: func(s *scene) error {
		if err := diffAll(s); err != nil {
			return err
		}
		s.reopen()
		return diffAll(s)
	}, sealed: true},
	{name: "router", empty: true, before: func(s *scene) {
		full := configOf(api.Disk, func(c *api.Config) { c.Discard, c.CapRecords = api.DiscardReject, 1 })
		put(s.t, s.e, "copies", full)
		write(s.t, s.e, "copies", `"full"`)
		if _, err := s.e.PutRouter(bg, "r", api.RouterConfig{Source: "t", Dest: "copies", Guarantee: api.ExactlyOnce}); err != nil {
			s.t.Fatal(err)
		}
		s.write("t")
	}, do: func(s *scene) error {
		if _, err := s.e.PutTopic(bg, "copies", configOf(api.Disk)); err != nil {
			return err
		}
		records, lost := map[uint64]bool{}, map[uint64]bool{}
		for from := uint64(1); from < sceneRecords+1; {
			res, err := s.e.Diff(bg, "copies", &api.DiffRequest{FromSeq: from, Limit: 7, MaxBatchBytes: 8 << 20}, func(r *api.Record) { records[r.Seq] = true })
			if err != nil {
				return err
			}
			if g := res.Tombstone; g != nil {
				for n := g.GapFrom; n <= g.GapTo; n++ {
					lost[n] = true
				}
			}
			if res.NextFromSeq == from && res.Tombstone == nil {
				return fmt.Errorf("the router stays at %d", from)
			}
			from = res.NextFromSeq
		}
		if n := uint64(sceneDamaged + 1); records[n] == lost[n] || lost[n] && !s.flipped {
			return fmt.Errorf("copies %v, lost %v", records, lost)
		}
		return nil
	}},
}

func matchTag(tag string) *api.Predicate { return &api.Predicate{Value: tag} }

// setUp makes the topic of a verb and brings it to the disk.
func (s *scene) setUp(v verb) {
	s.t.Helper()
	cfg := configOf(api.Disk)
	if v.cfg != nil {
		v.cfg(&cfg)
	}
	put(s.t, s.e, "t", cfg)
	if !v.empty {
		s.write("t")
	}
	if v.before != nil {
		v.before(s)
	}
	s.settle()
}

// Whatever is done to a topic with a damaged place: it steps over it, readers
// are told, and nothing else is missing.
func TestEveryVerbStepsOverADamagedPlace(t *testing.T) {
	for _, where := range []string{"kv", "wal"} {
		for i, v := range verbs {
			if i%verbShare > 0 {
				continue
			}
			if where == "wal" && v.sealed {
				continue // a start over a damaged log is refused, and repaired
			}
			t.Run(where+" "+v.name, func(t *testing.T) {
				t.Parallel()
				s := newScene(t, where)
				s.setUp(v)
				s.flip("t", sceneDamaged)
				if err := v.do(s); err != nil {
					t.Fatalf("%s: %v", v.name, err)
				}
				// A log may still have the record in memory for a router that was stopped.
				s.whole("t", v.first, v.first <= sceneDamaged && !v.empty)
				if n, all := s.log.lines("ERROR"); n > 1 {
					t.Fatalf("%d error lines for one place:\n%s", n, all)
				}
			})
		}
	}
}

// A disk that fails to read has lost nothing: the verb fails, or waits, and
// once the disk reads again every record is there.
func TestAReadThatFailsIsNoLoss(t *testing.T) {
	for _, where := range []string{"kv", "wal"} {
		for i, v := range verbs {
			if i%verbShare > 0 {
				continue
			}
			if where == "wal" && v.sealed || strings.Contains(v.name, "restart after") || v.name == "restart" {
				continue
			}
			t.Run(where+" "+v.name, func(t *testing.T) {
				t.Parallel()
				s := newScene(t, where)
				s.setUp(v)
				s.failing(true)
				err := v.do(s)
				s.failing(false)
				if ranges, records := s.e.damage.totals(); ranges > 0 || records > 0 {
					t.Fatalf("%d records in %d ranges count as lost: %v", records, ranges, err)
				}
				if n, all := s.log.lines("announced as lost"); n > 0 {
					t.Fatal(all)
				}
				if err != nil && !v.once {
					if err := v.do(s); err != nil {
						t.Fatalf("%s once the disk reads again: %v", v.name, err)
					}
				}
				if _, lost := s.numbers("t"); len(lost) > 0 {
					t.Fatalf("numbers %v are lost", lost)
				}
				if first := v.first; err == nil || !v.once {
					s.whole("t", first, false)
				} else {
					s.whole("t", 1, false)
				}
			})
		}
	}
}

// What repair --mark accepts in the tables is announced by every later start, a
// second look finds nothing, and all else is there.
func TestRepairMarksDamagedTables(t *testing.T) {
	s := newScene(t, "kv")
	s.setUp(verbs[0])
	s.flip("t", sceneDamaged)
	if err := s.e.Close(); err != nil {
		t.Fatal(err)
	}
	opt := Options{Dir: "/data", FS: s.fs, BootID: "a", SegmentBytes: 4 << 20}
	var report strings.Builder
	if n, err := Repair(bg, opt, false, &report); n != 1 || err != nil {
		t.Fatalf("%d places, %v:\n%s", n, err, report.String())
	}
	if n, err := Repair(bg, opt, true, &report); n != 1 || err != nil {
		t.Fatalf("%d places, %v:\n%s", n, err, report.String())
	}
	if !strings.Contains(report.String(), "topic=t") || !strings.Contains(report.String(), ".sst") {
		t.Fatal(report.String())
	}
	if n, err := Repair(bg, opt, false, &report); n != 0 || err != nil {
		t.Fatalf("after the mark: %d places, %v:\n%s", n, err, report.String())
	}
	s.open()
	s.whole("t", 1, true)
	if ranges, _ := s.e.damage.totals(); ranges != 0 {
		t.Fatal("what was marked is met again")
	}
}

// Whichever record of a segment is damaged, the last ones too, the server starts and announces it, and
// repair marks it.
func TestWhicheverRecordIsDamagedTheServerStarts(t *testing.T) {
	fs := vfs.NewMem()
	opt := optionsOn(fs, "a")
	opt.SegmentBytes = 1 << 20
	e, err := Open(bg, opt)
	if err != nil {
		t.Fatal(err)
	}
	const n = 4
	for i := 1; i <= n; i++ {
		write(t, e, "t", fmt.Sprintf(`"t-%04d %s"`, i, strings.Repeat("x", 70<<10))) // a block of its own
	}
	sealNow(t, e)
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	im := imageOf(t, fs, "/data")
	for i := 1; i <= n; i++ {
		for _, marked := range []bool{false, true} {
			s := &scene{t: t, where: "kv"}
			if s.fs, err = im.with("", nil); err != nil {
				t.Fatal(err)
			}
			s.flip("t", i)
			opt.FS = s.fs
			if marked {
				var report strings.Builder
				if found, err := Repair(bg, opt, true, &report); found != 1 || err != nil {
					t.Errorf("record %d: %d places, %v\n%s", i, found, err, report.String())
					continue
				}
			}
			if s.e, err = Open(bg, opt); err != nil {
				t.Errorf("record %d: %v", i, err)
				continue
			}
			if records, lost := s.numbers("t"); len(records) != n-1 || len(lost) != 1 || !lost[uint64(i)] {
				t.Errorf("record %d, marked %v: read %v, lost %v", i, marked, records, lost)
			}
			if err := s.e.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// A repair that is ended leaves a directory that another one goes on with: without the mark, as it was.
func TestARepairMayBeEnded(t *testing.T) {
	s := &scene{t: t, where: "kv", fs: vfs.NewMem()}
	s.e = openOn(t, s.fs, "a")
	write(t, s.e, "t", fmt.Sprintf(`"t-0001 %s"`, strings.Repeat("x", 200))) // of a small block, which is read soon
	sealNow(t, s.e)
	write(t, s.e, "t", `"in the log"`)
	s.flip("t", 1)
	if err := s.e.Close(); err != nil {
		t.Fatal(err)
	}
	im := imageOf(t, s.fs, "/data")
	for _, mark := range []bool{false, true} {
		for step := 1; ; step++ {
			fs, err := im.with("", nil)
			if err != nil {
				t.Fatal(err)
			}
			ctx, end := context.WithCancel(bg)
			steps := 0
			count := func() {
				if steps++; steps == step {
					end()
				}
			}
			opt := optionsOn(fs, "a")
			opt.Progress, opt.Verified, opt.Checked = func(float64) { count() }, func(Contents) { count() }, func(int64, int64) { count() }
			_, err = Repair(ctx, opt, mark, io.Discard)
			end()
			if steps < step { // it was over before
				if err != nil || step < 4 {
					t.Errorf("marking %v: ends in %d steps, %v", mark, steps, err)
				}
				break
			}
			if err != nil && !errors.Is(err, context.Canceled) {
				t.Errorf("marking %v, ended at step %d: %v", mark, step, err)
			}
			if !mark {
				for file, b := range imageOf(t, fs, "/data") {
					if !bytes.Equal(b, im[file]) {
						t.Errorf("ended at step %d, %s has changed", step, file)
					}
				}
			}
			if _, err := Repair(bg, optionsOn(fs, "a"), true, io.Discard); err != nil {
				t.Fatalf("marking %v, ended at step %d, then marked: %v", mark, step, err)
			}
			s.e = openOn(t, fs, "a")
			if records, lost := s.numbers("t"); len(records) != 1 || !records[2] || len(lost) != 1 || !lost[1] {
				t.Errorf("marking %v, ended at step %d: read %v, lost %v", mark, step, records, lost)
			}
			if err := s.e.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// What cannot be marked is an error of repair --mark, never a success.
func TestRepairMarkFailsOnWhatItCannotMark(t *testing.T) {
	s := newScene(t, "kv")
	s.setUp(verbs[0])
	if err := s.e.Close(); err != nil {
		t.Fatal(err)
	}
	for file, b := range imageOf(t, s.fs, "/data/kv") {
		if strings.HasSuffix(file, ".sst") && !bytes.Contains(b, []byte(`"t-0001 `)) {
			s.flipAt(file, 10, b[10])
		}
	}
	var report strings.Builder
	_, err := Repair(bg, Options{Dir: "/data", FS: s.fs, BootID: "a", SegmentBytes: 4 << 20}, true, &report)
	if err == nil || !strings.Contains(err.Error(), "restore a backup") {
		t.Fatalf("%v:\n%s", err, report.String())
	}
}
