package engine

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/tests/crashfs"
)

// point is the file system as a crash leaves it, and what was acknowledged.
type point struct {
	what    string
	fs      *crashfs.FS
	before  world
	after   []world // what the calls under way may come to
	now     int64
	killed  bool // the process only, not the machine
	closing bool // all calls are over
}

// linkFS keeps links and pictures apart: MemFS takes one lock twice in Link and
// hangs if a picture is asked for in between.
type linkFS struct {
	vfs.FS
	mu sync.Mutex
}

func (l *linkFS) Link(from, to string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.FS.Link(from, to)
}

// sweep takes a picture in front of every call that changes the file system.
type sweep struct {
	t      *testing.T
	mem    *crashfs.FS
	links  *linkFS
	rng    *rand.Rand
	now    atomic.Int64
	points chan point
	n      atomic.Int64
	calls  int
	every  int // so many calls are one with a picture in front of it

	mu    sync.Mutex
	cur   world
	next  []world
	doing string

	backing atomic.Pointer[backing]
	past    []world // since a backup began
	backups int     // taken while something was done
}

func (s *sweep) clock() time.Time { return time.UnixMilli(s.now.Load()) }

func (s *sweep) MaybeError(o errorfs.Op) error {
	if !mutates(o.Kind) {
		return nil
	}
	if b := s.backing.Load(); b != nil {
		b.meet(o.Path)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls++
	if s.calls%s.every != 0 {
		return nil
	}
	s.links.mu.Lock()
	defer s.links.mu.Unlock()
	what := fmt.Sprintf("call %d (kind %d %s) of %s", s.calls, o.Kind, o.Path, s.doing)
	for _, keep := range []int{0, 40, 100, 100} {
		p := point{what: fmt.Sprintf("%s, %d %% kept", what, keep), before: s.cur, after: s.next, now: s.now.Load(), closing: s.doing == "close"}
		p.fs = s.mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: keep, RNG: s.rng})
		s.points <- p
		if keep == 100 {
			p.fs = s.mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: keep, RNG: s.rng})
			p.killed = true
			s.points <- p
			break
		}
	}
	return nil
}

func (s *sweep) String() string { return "sweep" }

// step is one call: what it should change, and the call itself.
func (s *sweep) step(what string, change func(world), run func() error) {
	s.t.Helper()
	s.mu.Lock()
	next := s.cur.clone()
	change(next)
	s.next, s.doing = []world{next}, what
	s.mu.Unlock()
	if err := run(); err != nil {
		s.t.Fatalf("%s: %v", what, err)
	}
	s.mu.Lock()
	s.cur, s.next, s.doing = next, nil, "nothing"
	s.past = append(s.past, next)
	s.mu.Unlock()
}

// After a crash in front of any call of the file system everything that was
// acknowledged is there as its class promises, what is missing is announced,
// and a recovery that is killed comes to the same.
func TestSweepOfCrashPoints(t *testing.T) {
	begin := time.Now()
	points := int64(0)
	for seed := range uint64(3) {
		points += sweepOnce(t, seed)
	}
	t.Logf("%d crash points in %v", points, time.Since(begin).Round(time.Second))
	fmt.Printf("sweep: %d crash points\n", points)
	if points < 3000/sweepShare {
		t.Errorf("only %d crash points were reached", points)
	}
}

func sweepOnce(t *testing.T, seed uint64) int64 {
	s := &sweep{t: t, mem: crashfs.New(), rng: rand.New(rand.NewPCG(seed, 3)), points: make(chan point, 16), cur: world{}, every: sweepShare * (1 + 3*int(min(seed, 1)))}
	s.links = &linkFS{FS: s.mem}
	s.now.Store(1_800_000_000_000)
	var wg sync.WaitGroup
	var failed atomic.Int64
	for range 2 {
		wg.Go(func() {
			for p := range s.points {
				s.n.Add(1)
				if failed.Load() >= 5 {
					continue
				}
				if err := p.check(); err != nil {
					failed.Add(1)
					t.Errorf("seed %d, crash before %s (killed %v): %v", seed, p.what, p.killed, err)
				}
			}
		})
	}
	opt := optionsOn(errorfs.Wrap(s.links, s), "a")
	opt.DiskFlush, opt.Now = 5*time.Millisecond, s.clock
	e, err := Open(bg, opt)
	if err != nil {
		t.Fatal(err)
	}
	s.script(e, rand.New(rand.NewPCG(seed, 5)))
	s.step("close", func(world) {}, e.Close)
	if s.backups < 3 {
		t.Errorf("only %d of three backups met any load", s.backups)
	}
	close(s.points)
	wg.Wait()
	return s.n.Load()
}

// script makes about twelve kinds of calls on topics of all classes.
func (s *sweep) script(e *Engine, rng *rand.Rand) {
	put := func(name string, cfg api.Config) {
		s.step("create "+name, func(w world) { w.create(name, cfg) }, func() error { _, err := e.PutTopic(bg, name, cfg); return err })
	}
	serial := 0
	data := func(n int) []string {
		d := make([]string, n)
		for i := range d {
			serial++
			d[i] = fmt.Sprintf(`"%d-%s"`, serial, strings.Repeat("x", 100+rng.IntN(900)))
		}
		return d
	}
	append := func(name string, n int) {
		d := data(n)
		s.step("append to "+name, func(w world) { w.appendTo(name, d...) }, func() error { _, err := tryWrite(e, name, d...); return err })
	}
	remove := func(name string, what string, req *api.DeleteRequest, pick func(seq uint64, data string) bool) {
		s.step("delete "+what+" of "+name, func(w world) {
			for n := range w[name].live {
				if pick(n, w[name].all[n]) {
					delete(w[name].live, n)
				}
			}
		}, func() error { _, err := e.DeleteRecords(bg, name, req); return err })
	}
	classes := []string{"ephemeral", "memory", "disk", "fsync"}
	for i, name := range classes {
		// A key is kept for as long as the sweep of a busy machine may take.
		put(name, configOf(api.Durability(i), func(c *api.Config) { c.IdempotencyWindowMS = 3_600_000 }))
	}
	put("capped", configOf(api.Fsync, func(c *api.Config) { c.CapRecords = 8 }))
	put("capped-disk", configOf(api.Disk, func(c *api.Config) { c.CapRecords = 5 }))
	put("dead", configOf(api.Fsync))
	put("jobs", configOf(api.Fsync, queueConfig, func(c *api.Config) { c.MaxDeliveries, c.HasDeadLetter, c.DeadLetter = 1, true, "dead" }))
	put("full", configOf(api.Fsync, queueConfig, func(c *api.Config) { c.CapRecords, c.Discard = 6, api.DiscardReject }))
	more := sweepMore{sweep: s, e: e, put: put, append: append}
	more.create()
	put("timed", configOf(api.Fsync, func(c *api.Config) { c.TTLMS = 3_600_000 }))
	for round := range 3 {
		for _, name := range classes {
			append(name, 1)
			append(name, 2+rng.IntN(5))
		}
		append("capped", 3)
		append("capped-disk", 3)
		append("timed", 2)
		s.keyed(e, fmt.Sprint("key", round), data(2))
		append("jobs", 4)
		s.ackAndKill(e)
		s.fill(e, data)
		remove("fsync", "a range", &api.DeleteRequest{HasBefore: true, BeforeSeq: uint64(3 + 4*round)}, func(n uint64, _ string) bool { return n < uint64(3+4*round) })
		remove("disk", "a range", &api.DeleteRequest{HasBefore: true, BeforeSeq: uint64(2 + 3*round)}, func(n uint64, _ string) bool { return n < uint64(2+3*round) })
		s.tagged(e)
		cfg := configOf(api.Fsync, func(c *api.Config) { c.CapRecords = uint64(7 - round) })
		s.step("a tighter cap", func(w world) { w["capped"].cfg = cfg; w["capped"].cap() }, func() error { _, err := e.PutTopic(bg, "capped", cfg); return err })
		if round == 1 {
			s.step("time passes", func(w world) {
				for _, n := range w["timed"].liveSeqs() {
					w["timed"].lose(n)
				}
				w["fsync"].key = "" // its window is over
			}, func() error { s.now.Add(4_000_000); _, err := e.Topic("timed", false); return err })
		}
		if round > 0 {
			s.step("drop", func(w world) { w.drop("again") }, func() error { _, err := e.DeleteTopic(bg, "again", false); return err })
		}
		put("again", configOf(api.Disk))
		append("again", 2)
		s.step("rotate", func(world) {}, e.log.Rotate)
		more.routers(round)
		more.settings(round)
		more.lives(round)
		append("jobs", 4)
		more.backup(fmt.Sprint("/backup", round), []func(){
			func() { s.ackAndKill(e); append("capped-disk", 4) },
			func() {
				before := uint64(4 + 5*round)
				remove("disk", "a range", &api.DeleteRequest{HasBefore: true, BeforeSeq: before}, func(n uint64, _ string) bool { return n < before })
				append("disk", 2)
			},
			func() { append("in", 2) },
		})
	}
}

// keyed writes under an idempotency key, twice.
func (s *sweep) keyed(e *Engine, key string, data []string) {
	write := func() (api.WriteResult, error) {
		req := &api.WriteRequest{IdempotencyKey: []byte(key), HasIdempotencyKey: true}
		for _, d := range data {
			req.Records = append(req.Records, api.Record{Data: []byte(d)})
		}
		return e.Write(bg, "fsync", req)
	}
	s.step("append under a key", func(w world) {
		m := w["fsync"]
		m.key, m.keySeq = key, m.head+1
		m.append(data...)
	}, func() error { _, err := write(); return err })
	s.step("the same key", func(world) {}, func() error {
		if res, err := write(); err != nil || !res.Deduped {
			return fmt.Errorf("%+v: %w", res, err)
		}
		return nil
	})
}

// ackAndKill acks two jobs and lets two others die.
func (s *sweep) ackAndKill(e *Engine) {
	var seqs []uint64
	s.step("claim", func(world) {}, func() error {
		_, err := e.Claim(bg, "jobs", &api.ClaimRequest{Node: "w", Max: 4}, func(j *api.Job) { seqs = append(seqs, j.Seq) })
		return err
	})
	s.step("ack", func(w world) {
		delete(w["jobs"].live, seqs[0])
		delete(w["jobs"].live, seqs[2])
	}, func() error {
		_, err := e.Ack(bg, "jobs", &api.SettleRequest{Node: "w", Seqs: []uint64{seqs[0], seqs[2]}})
		return err
	})
	s.step("nack", func(world) {}, func() error {
		_, err := e.Nack(bg, "jobs", &api.SettleRequest{Node: "w", Seqs: []uint64{seqs[1], seqs[3]}})
		return err
	})
	s.step("dead letter", func(w world) {
		var moved []string
		for _, n := range []uint64{seqs[1], seqs[3]} {
			moved = append(moved, w["jobs"].all[n])
			delete(w["jobs"].live, n)
		}
		w["dead"].append(moved...)
	}, func() error {
		_, err := e.Claim(bg, "jobs", &api.ClaimRequest{Node: "w", Max: 4}, func(*api.Job) {})
		return err
	})
}

// fill writes to a queue that refuses until it does, and acks one job.
func (s *sweep) fill(e *Engine, data func(int) []string) {
	for {
		d := data(2)
		s.mu.Lock()
		full := len(s.cur["full"].live)+2 > 6
		s.mu.Unlock()
		if full {
			break
		}
		s.step("append to full", func(w world) { w["full"].append(d...) }, func() error { _, err := tryWrite(e, "full", d...); return err })
	}
	if _, err := tryWrite(e, "full", "1", "2"); !api.IsCode(err, api.CodeTopicFull) {
		s.t.Errorf("a full queue answers %v", err)
	}
	var seq uint64
	if _, err := e.Claim(bg, "full", &api.ClaimRequest{Node: "w", Max: 1}, func(j *api.Job) { seq = j.Seq }); err != nil || seq == 0 {
		s.t.Fatal(seq, err)
	}
	s.step("ack full", func(w world) { delete(w["full"].live, seq) }, func() error {
		_, err := e.Ack(bg, "full", &api.SettleRequest{Node: "w", Seqs: []uint64{seq}})
		return err
	})
}

// tagged writes three records and deletes one of them by its tag.
func (s *sweep) tagged(e *Engine) {
	req := &api.WriteRequest{}
	for _, tag := range []string{"keep", "drop", "keep"} {
		req.Records = append(req.Records, api.Record{Data: []byte(`"` + tag + `"`), Tag: []byte(tag), HasTag: true})
	}
	s.step("append with tags", func(w world) { w["fsync"].append(`"keep"`, `"drop"`, `"keep"`) }, func() error { _, err := e.Write(bg, "fsync", req); return err })
	s.step("delete by tag", func(w world) {
		for n := range w["fsync"].live {
			if w["fsync"].all[n] == `"drop"` {
				delete(w["fsync"].live, n)
			}
		}
	}, func() error {
		_, err := e.DeleteRecords(bg, "fsync", &api.DeleteRequest{Match: &api.Predicate{Value: "drop"}})
		return err
	})
}

// check recovers twice, compares, and goes on writing.
func (p *point) check() error {
	boot := "b"
	if p.killed {
		boot = "a"
	}
	first, crashed, err := p.recover(p.fs, boot)
	if err != nil {
		return err
	}
	side, err := p.side(first)
	if err != nil {
		return err
	}
	// The recovered process is killed at once, and recovers again.
	opt := p.options(crashed, boot)
	e, err := Open(bg, opt)
	if err != nil {
		return fmt.Errorf("second open: %w", err)
	}
	defer e.Close()
	second, err := askAll(e)
	if err != nil {
		return err
	}
	for name, a := range first {
		if p.closing && a.state.Config.Durability < api.Disk {
			continue // the first recovery found a closed directory, the second does not
		}
		if second[name] == nil || second[name].text != a.text {
			return fmt.Errorf("topic %s: the second recovery answers\n%s\nthe first\n%s", name, second[name].text, a.text)
		}
	}
	return side.goOn(e)
}

func (p *point) options(fs vfs.FS, boot string) Options {
	opt := optionsOn(fs, boot)
	opt.Now = func() time.Time { return time.UnixMilli(p.now) }
	return opt
}

// recover opens what the crash left and returns its answers, and what a kill
// right then leaves.
func (p *point) recover(fs *crashfs.FS, boot string) (map[string]*answer, *crashfs.FS, error) {
	links := &linkFS{FS: fs}
	e, err := Open(bg, p.options(links, boot))
	if err != nil {
		return nil, nil, fmt.Errorf("open: %w", err)
	}
	answers, err := askAll(e)
	rng := rand.New(rand.NewPCG(1, 1))
	links.mu.Lock()
	crashed := fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rng})
	links.mu.Unlock()
	return answers, crashed, errors.Join(err, e.Close())
}

func askAll(e *Engine) (map[string]*answer, error) {
	answers := map[string]*answer{}
	for _, t := range e.Topics("", "", 1000, false, nil).Topics {
		a, err := ask(e, t.Topic)
		if err != nil {
			return nil, err
		}
		answers[t.Topic] = a
	}
	for _, r := range e.Routers("", "", "", "", 1000, nil).Routers {
		s, err := e.Router(bg, r.Router)
		if err != nil {
			return nil, err
		}
		a := &answer{}
		a.state.Count = s.ForwardedTotal
		filter := s.Config.Filter
		s.Config.Filter = nil
		a.text = fmt.Sprintf("%+v %+v", s, filter)
		answers[routerName(r.Router)] = a
	}
	return answers, nil
}

// side returns the side of the call under way that the answers agree with.
func (p *point) side(answers map[string]*answer) (world, error) {
	err := p.before.check(answers, p.killed)
	if err == nil {
		return p.before, nil
	}
	for _, after := range p.after {
		again := after.check(answers, p.killed)
		if again == nil {
			return after, nil
		}
		err = fmt.Errorf("neither the state before (%w) nor after (%w)", err, again)
	}
	return nil, err
}

// goOn checks what is promised about the calls that come after a recovery.
func (w world) goOn(e *Engine) error {
	for name, m := range w {
		if m.router {
			continue
		}
		if m.key != "" {
			req := &api.WriteRequest{IdempotencyKey: []byte(m.key), HasIdempotencyKey: true, Records: []api.Record{{Data: []byte("1")}}}
			if res, err := e.Write(bg, name, req); err != nil || !res.Deduped || res.FirstSeq != m.keySeq {
				return fmt.Errorf("the key of record %d is forgotten: %+v %w", m.keySeq, res, err)
			}
		}
		if m.cfg.Type == api.TypeQueue {
			var seqs []uint64
			if _, err := e.Claim(bg, name, &api.ClaimRequest{Node: "v", Max: 1000}, func(j *api.Job) { seqs = append(seqs, j.Seq) }); err != nil {
				return err
			}
			if !m.held && !slices.Equal(seqs, m.liveSeqs()) {
				return fmt.Errorf("jobs %v of %s can be claimed, want %v", seqs, name, m.liveSeqs())
			}
		}
		if m.cfg.Discard == api.DiscardReject {
			continue
		}
		res, err := tryWrite(e, name, "1")
		if err != nil {
			return err
		}
		if res.FirstSeq <= m.head {
			return fmt.Errorf("topic %s: number %d was given out twice", name, res.FirstSeq)
		}
		a, err := ask(e, name)
		if err != nil {
			return err
		}
		if a.records[res.FirstSeq] != "1" {
			return fmt.Errorf("topic %s: record %d is %q", name, res.FirstSeq, a.records[res.FirstSeq])
		}
	}
	return nil
}
