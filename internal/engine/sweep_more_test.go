package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/weirmq/weir/internal/api"
)

// sweepMore are the calls of the sweep around routers, changing configurations,
// topics that are made again, and backups under load.
type sweepMore struct {
	*sweep
	e      *Engine
	put    func(name string, cfg api.Config)
	append func(name string, n int)
}

func (s *sweepMore) create() {
	s.put("in", configOf(api.Fsync))
	s.put("tuned", configOf(api.Fsync))
}

// routers copies from one topic into another, and with a filter into a queue
// that has little room; routers come and go.
func (s *sweepMore) routers(round int) {
	route := func(name, source, dest string, f feed, with func(*api.RouterConfig), cfg api.Config) {
		if s.cur[dest] == nil {
			s.put(dest, cfg)
		}
		f.router, f.dest = name, dest
		s.step("router "+name, func(w world) { w.route(source, f) }, func() error {
			c := api.RouterConfig{Source: source, Dest: dest, PreserveNode: true, PreserveTag: true}
			with(&c)
			_, err := s.e.PutRouter(bg, name, c)
			return err
		})
	}
	if round == 0 {
		route("all", "in", "out", feed{}, func(c *api.RouterConfig) { c.Guarantee = api.ExactlyOnce }, configOf(api.Fsync))
		route("on", "out", "end", feed{}, func(*api.RouterConfig) {}, configOf(api.Fsync))
	}
	few := fmt.Sprint("few", round)
	route(few, "in", "little", feed{only: "keep"}, func(c *api.RouterConfig) { c.Filter = &api.Predicate{Value: "keep"} },
		configOf(api.Fsync, queueConfig, func(c *api.Config) { c.CapRecords, c.Discard = 4, api.DiscardReject }))
	s.append("in", 3)
	req := &api.WriteRequest{}
	for _, tag := range []string{"keep", "drop"} {
		req.Records = append(req.Records, api.Record{Data: []byte(`"` + tag + `"`), Tag: []byte(tag), HasTag: true})
	}
	s.step("append with tags to in", func(w world) { w.appendTo("in", `"keep"`, `"drop"`) }, func() error { _, err := s.e.Write(bg, "in", req); return err })
	s.step("read of the end", func(world) {}, func() error { _, err := ask(s.e, "end"); return err })
	s.step("delete router "+few, func(w world) {
		delete(w, routerName(few))
		w["in"].feeds = w["in"].feeds[:len(w["in"].feeds)-1]
	}, func() error {
		if _, err := s.e.Router(bg, few); err != nil { // what it has to copy is copied
			return err
		}
		_, err := s.e.DeleteRouter(bg, few)
		return err
	})
	if round == 2 {
		s.step("drop of a source", func(w world) { w.drop("out") }, func() error { _, err := s.e.DeleteTopic(bg, "out", false); return err })
	}
}

// settings changes what a topic may hold, and its class.
func (s *sweepMore) settings(round int) {
	s.append("tuned", 6)
	for _, cfg := range []api.Config{
		configOf(api.Disk, func(c *api.Config) { c.CapBytes = uint64(3000 - 500*round) }),
		configOf(api.Fsync, func(c *api.Config) { c.CapRecords, c.Discard = 2, api.DiscardReject }),
		configOf(api.Fsync, func(c *api.Config) { c.CapRecords = 3 }),
		configOf(api.Memory, func(c *api.Config) { c.CapRecords = 9 }),
		configOf(api.Fsync),
	} {
		s.step("another configuration", func(w world) { w["tuned"].cfg = cfg; w["tuned"].cap() },
			func() error { _, err := s.e.PutTopic(bg, "tuned", cfg); return err })
		if cfg.Discard == api.DiscardOld && cfg.Durability == api.Fsync {
			s.append("tuned", 2)
		}
	}
}

// lives deletes a queue while a claim of it buries jobs, and makes it again.
func (s *sweepMore) lives(round int) {
	cfg := configOf(api.Fsync, queueConfig, func(c *api.Config) {
		c.LeasesDurable, c.MaxDeliveries, c.HasDeadLetter, c.DeadLetter = true, 1, true, "dead"
	})
	s.put("reborn", cfg)
	s.step("leases outlive", func(w world) { w["reborn"].held = true }, func() error { return nil })
	s.append("reborn", 3)
	var seqs []uint64
	claim := func(max int) error {
		_, err := s.e.Claim(bg, "reborn", &api.ClaimRequest{Node: "w", Max: max}, func(j *api.Job) { seqs = append(seqs, j.Seq) })
		return err
	}
	s.step("claim of reborn", func(world) {}, func() error { return claim(2) })
	s.step("nack of reborn", func(world) {}, func() error {
		_, err := s.e.Nack(bg, "reborn", &api.SettleRequest{Node: "w", Seqs: seqs})
		return err
	})
	bury := func(w world) {
		var moved []string
		for _, n := range seqs {
			moved = append(moved, w["reborn"].all[n])
			delete(w["reborn"].live, n)
		}
		w["dead"].append(moved...)
	}
	s.race("a claim that buries and a drop", []func(world){bury, func(w world) { w.drop("reborn") }},
		func() error { return claim(3) },
		func() error { _, err := s.e.DeleteTopic(bg, "reborn", false); return err })
	if round < 2 {
		s.put("reborn", cfg)
		s.step("leases outlive", func(w world) { w["reborn"].held = true }, func() error { return nil })
		s.append("reborn", 1)
		s.step("drop of reborn", func(w world) { w.drop("reborn") }, func() error { _, err := s.e.DeleteTopic(bg, "reborn", false); return err })
	}
}

// race makes a call whose topic another takes away: at any time nothing, the
// first, the second or both have happened, and in the end the second.
func (s *sweepMore) race(what string, changes []func(world), first, second func() error) {
	s.t.Helper()
	s.mu.Lock()
	one, two, both := s.cur.clone(), s.cur.clone(), s.cur.clone()
	changes[0](one)
	changes[1](two)
	changes[0](both)
	changes[1](both)
	s.next, s.doing = []world{one, two, both}, what
	s.mu.Unlock()
	var wg sync.WaitGroup
	var err error
	wg.Go(func() { err = first() })
	if err := second(); err != nil {
		s.t.Fatalf("%s: %v", what, err)
	}
	wg.Wait()
	if err != nil && !api.IsCode(err, api.CodeTopicNotFound) {
		s.t.Fatalf("%s: %v", what, err)
	}
	answers, err := askAll(s.e)
	if err != nil {
		s.t.Fatalf("%s: %v", what, err)
	}
	end := two
	if again := two.clone(); answers["dead"].state.Count != uint64(len(again["dead"].live)) {
		end = both
	}
	s.mu.Lock()
	s.cur, s.next, s.doing = end, nil, "nothing"
	s.mu.Unlock()
}

// backing is a backup under way: where it comes by one of several places for
// the first time, the next piece of load is done before it goes on.
type backing struct {
	context.Context
	dir  string
	load []func()
	seen map[string]bool
	busy bool
}

// Err is asked by a backup between its steps.
func (b *backing) Err() error {
	b.at("a step")
	return b.Context.Err()
}

// meet is called in front of every call that changes the file system.
func (b *backing) meet(path string) {
	switch {
	case !strings.HasPrefix(path, b.dir) && !strings.HasPrefix(path, "/data/backup"):
	case strings.Contains(path, ManifestName):
		b.at("the manifest")
	case strings.Contains(path, "/kv"):
		b.at("the store")
	default:
		b.at("the directory")
	}
}

func (b *backing) at(place string) {
	if b.busy || b.seen[place] || len(b.load) == 0 {
		return
	}
	b.seen[place], b.busy = true, true
	next := b.load[0]
	b.load = b.load[1:]
	next()
	b.busy = false
}

// backup takes a backup in the middle of which load is done, and holds it
// against every state there was meanwhile.
func (s *sweepMore) backup(dir string, load []func()) {
	s.t.Helper()
	b := &backing{Context: bg, dir: dir, load: load, seen: map[string]bool{}}
	s.mu.Lock()
	s.past = []world{s.cur}
	s.mu.Unlock()
	s.backing.Store(b)
	if err := s.e.Backup(b, dir); err != nil {
		s.t.Fatalf("backup: %v", err)
	}
	s.backing.Store(nil)
	if len(b.seen) > 0 {
		s.backups++
	}
	s.links.mu.Lock()
	copied := s.mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rand.New(rand.NewPCG(1, 1))})
	s.links.mu.Unlock()
	if err := s.restored(copied, dir); err != nil {
		s.t.Errorf("the backup in %s, taken with load at %v: %v", dir, slices.Sorted(maps.Keys(b.seen)), err)
	}
}

// restored opens a backup and finds the state that it is.
func (s *sweepMore) restored(fs vfs.FS, dir string) error {
	opt := Options{Dir: dir, FS: fs, BootID: "c", SegmentBytes: 64 << 10, Now: s.clock}
	e, err := Open(bg, opt)
	if err != nil {
		return err
	}
	defer e.Close()
	answers, err := askAll(e)
	if err != nil {
		return err
	}
	var errs []error
	for i := len(s.past) - 1; i >= 0; i-- {
		err := s.past[i].isCopied(answers)
		if err == nil {
			return s.past[i].goOn(e)
		}
		errs = append(errs, fmt.Errorf("state %d of %d: %w", i+1, len(s.past), err))
	}
	return fmt.Errorf("it is no state there was: %w", errors.Join(errs...))
}

// isCopied holds what a backup answers against a world.
func (w world) isCopied(answers map[string]*answer) error {
	for name := range answers {
		if w[name] == nil {
			return fmt.Errorf("topic %s is there", name)
		}
	}
	for name := range maps.Keys(w) {
		m, a := w[name], answers[name]
		switch {
		case a == nil:
			return fmt.Errorf("topic %s is missing", name)
		case m.router:
			continue
		case a.state.Config != m.cfg:
			return fmt.Errorf("topic %s: config is %+v, want %+v", name, a.state.Config, m.cfg)
		}
		if err := m.restored(a); err != nil {
			return fmt.Errorf("topic %s (%s): %w", name, m.cfg.Durability, err)
		}
	}
	return nil
}
