package sim

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/internal/engine"
	"github.com/weirmq/weir/tests/crashfs"
)

// coverage is what every run of many seeds must meet.
var coverage = []string{
	"write", "deduped", "deduped though the clock was stepped", "evicted", "expired", "put", "class changed", "drop", "delete",
	"delayed write", "a delay over a kill", "a delay over a power cut", "session", "stream", "pushed", "a client goes back", "a session is over", "a session goes with a restart",
	"a session outlives a kill", "a session outlives a power cut", "a session outlives a close", "claim", "ack accepted", "nack accepted", "extend accepted", "stale token", "foreign token",
	"dead letter", "dead letters refused", "answer topic_full", "answer record_too_large", "answer topic_not_found",
	"answer topic_not_empty", "answer topic_exists_incompatible",
	"tombstone cap", "tombstone ttl", "tombstone mixed", "tombstone crash", "tombstone recreated",
	"time passes", "the clock freezes", "the clock goes on", "the clock jumps by 1h0m0s", "the clock jumps by -1h0m0s",
	"the clock jumps by 24h0m0s", "the clock jumps by -24h0m0s", "the clock goes back over a restart",
	"calls at once", "a long poll", "crash while calls are open", "backup", "close", "kill",
	"power cut keeping 0 %", "power cut keeping 30 %", "power cut keeping 70 %", "power cut lost changes", "crash in recovery", "recovered twice",
	"disk fails all", "disk fails writes", "disk fails syncs", "disk fails once", "disk fails one sync", "refused by a failing disk", "crash while the disk fails",
	"sealed", "rotated", "routed", "configured under writes",
}

// step makes one step of the simulation.
func (s *sim) step() {
	// Whether a sync waited for company or not, every step begins at the same
	// time, and at none at which a timer that an earlier one set goes off.
	s.steps++
	time.Sleep(stepGrid - time.Since(epoch)%stepGrid + time.Duration(s.steps*137)%stepGrid)
	switch n := s.rng.IntN(1000); {
	case n < 4:
		s.restart(closed)
	case n < 11:
		s.restart(killed)
	case n < 18:
		s.restart(powerCut)
	case n < 21:
		s.backup()
	case n < 25:
		s.failing()
	case n < 40:
		s.jump()
	case n < 100:
		s.pass()
	case n < 160:
		s.together()
	case n < 180:
		s.verifyAll()
	case n < 215:
		s.listen()
	default:
		s.do(s.any())
	}
}

const stepGrid = 5 * time.Millisecond

// any draws one call.
func (s *sim) any() *call {
	name := pickOf(s, names)
	switch n := s.rng.IntN(100); {
	case n < 40:
		return s.write(name)
	case n < 45:
		return s.put(name)
	case n < 47:
		return s.drop(name)
	case n < 53:
		return s.remove(name)
	case n < 54:
		return s.remove(routed)
	case n < 58:
		return s.writeRouted()
	}
	name = pickOf(s, queues)
	switch n := s.rng.IntN(10); {
	case n < 4:
		return s.claim(name)
	case n < 7:
		return s.settle("ack", name)
	case n < 9:
		return s.settle("nack", name)
	}
	return s.settle("extend", name)
}

// together makes calls at once, some of which a crash may cut short.
func (s *sim) together() {
	s.guard()
	var calls []*call
	taken := map[string]bool{}
	crash := s.chance(15)
	for range 2 + s.rng.IntN(4) {
		c := s.any()
		write := strings.HasPrefix(c.name, "write")
		if slices.ContainsFunc(c.topics, func(n string) bool { return taken[n] }) {
			continue
		}
		if crash && !write && c.topics[0] == "queue-a" {
			continue // which of its leases are there could not be told
		}
		if crash && c.topics[0] == routed {
			continue // how far its routers were would depend on the machine
		}
		for range 1 + s.rng.IntN(2) {
			calls = append(calls, c)
			if !write {
				break
			}
			if len(c.topics) > 1 {
				break
			}
			name := c.topics[0]
			if c = s.write(name); s.chance(30) { // between two writers of one topic
				calls = append(calls, s.put(name))
				s.count["configured under writes"]++
			}
		}
		for _, n := range c.topics {
			taken[n] = true
		}
	}
	poll := make(chan error, 1)
	watched := ""
	if i := slices.IndexFunc(calls, func(c *call) bool { return strings.HasPrefix(c.name, "write") && s.topics[c.topics[0]] != nil }); i >= 0 && !crash {
		watched = calls[i].topics[0]
		from, e := s.topics[watched].head, s.e
		go func() {
			_, err := e.Diff(bg, watched, &api.DiffRequest{FromSeq: from, Limit: 10, WaitMS: 20, MaxBatchBytes: 1 << 20}, func(*api.Record) {})
			poll <- err
		}()
		s.count["a long poll"]++
	}
	s.tell("%d calls at once", len(calls))
	s.count["calls at once"]++
	wg := s.burst(calls)
	if crash {
		time.Sleep(time.Duration(s.rng.IntN(700)) * time.Microsecond)
		s.crash(pickOf(s, []stop{killed, powerCut}), calls)
		return
	}
	wg.Wait()
	if watched != "" {
		if err := <-poll; err != nil {
			s.fail("the long poll of %s: %v", watched, err)
		}
	}
	for _, c := range calls {
		s.judge(c)
	}
	for _, name := range slices.Sorted(maps.Keys(taken)) {
		s.verify(name)
	}
}

// failing lets the log's files fail for a while.
func (s *sim) failing() {
	s.guard()
	kind := pickOf(s, []string{"all", "writes", "syncs", "once", "one sync"})
	errno := pickOf(s, []syscall.Errno{syscall.EIO, syscall.ENOSPC})
	s.tell("the disk fails: %s, %v", kind, errno)
	s.count["disk fails "+kind]++
	s.faulty = true
	if kind == "once" || kind == "one sync" {
		d := s.disk
		d.set(func(o errorfs.Op) error {
			if !strings.Contains(o.Path, "/wal") || kind == "one sync" && !isSync(o.Kind) {
				return nil
			}
			d.set(nil)
			return errno
		})
	} else {
		s.disk.failing(kind, errno)
	}
	for range 2 + s.rng.IntN(8) {
		name := pickOf(s, names)
		if t := s.topics[name]; t != nil && t.cfg.TTLMS > 0 {
			continue
		}
		switch n := s.rng.IntN(10); {
		case n < 6:
			s.do(s.write(name))
		case n < 7:
			s.do(s.remove(name))
		case n < 8:
			s.do(s.put(name))
		case n < 9:
			// What a refused ack leaves of a durable lease is seen after a restart only.
			if slices.Contains(queues, name) && name != "queue-a" {
				s.do(s.settle("ack", name))
			}
		default:
			s.pass()
		}
		if s.chance(4) {
			s.count["crash while the disk fails"]++
			s.crash(pickOf(s, []stop{killed, powerCut}), nil)
			return
		}
	}
	s.disk.set(nil)
	s.tell("the disk works again")
	time.Sleep(5 * time.Second)
	s.faulty = false
	s.clock()
	c := s.write(probe)
	s.do(c)
	s.journal.changes = slices.DeleteFunc(s.journal.changes, func(c change) bool { return c.failed })
	s.synced = time.Now()
}

// backup copies the directory and opens the copy.
func (s *sim) backup() {
	s.guard()
	s.count["backup"]++
	s.tell("backup")
	must(s.disk.RemoveAll("/backup")) // a power cut may have brought it back
	if err := s.e.Backup(bg, "/backup"); err != nil {
		s.fail("backup: %v", err)
	}
	s.guard()
	opt := s.options("/backup", s.disk)
	opt.BootID = "another machine"
	e, err := engine.Open(bg, opt)
	if err != nil {
		s.fail("the backup does not open: %v", err)
	}
	defer func() {
		must(e.Close())
		must(s.disk.RemoveAll("/backup"))
	}()
	now, err := e.Topic(probe, true)
	if err != nil {
		s.fail("the backup: %v", err)
	}
	seen, err := look(e)
	if err != nil {
		s.fail("the backup: %v", err)
	}
	a := &aftermath{how: powerCut, before: s.topics, from: now.LastReadTS, till: s.clock()}
	if _, err := a.explain(s.topics, seen); err != nil {
		s.fail("the backup differs: %v", err)
	}
	for _, l := range s.listeners {
		if _, err := e.SessionOwner(l.wid); codeOf(err) != api.CodeNotFound {
			s.fail("a session lives in the backup: %v", err)
		}
	}
}

// restart ends this life in one of three ways and begins the next.
func (s *sim) restart(how stop) {
	s.guard()
	if how != closed {
		s.crash(how, nil)
		return
	}
	s.tell("close")
	s.count["close"]++
	s.noteMetrics()
	if err := s.e.Close(); err != nil {
		s.fail("close: %v", err)
	}
	s.disconnect()
	s.journal.settle()
	s.reopen(how, s.disk.cut(100, 0))
}

func (s *sim) noteMetrics() {
	m := s.e.Metrics()
	s.count["rotated"] += int(m.WAL.Rotations)
	if m.WAL.Rotations > int64(m.WAL.DebtSegments)+1 {
		s.count["sealed"]++
	}
}

// crash ends this life without a goodbye; calls may be open.
func (s *sim) crash(how stop, calls []*call) {
	synctest.Wait()
	var answered []bool
	for _, c := range calls {
		answered = append(answered, c.answered())
	}
	var disk *crashfs.FS
	if how == killed {
		s.tell("kill")
		s.count["kill"]++
		disk = s.disk.cut(100, 0)
	} else {
		keep := pickOf(s, []int{0, 30, 70, 100})
		s.tell("power cut keeping %d %%", keep)
		s.count[fmt.Sprintf("power cut keeping %d %%", keep)]++
		disk = s.disk.cut(keep, s.rng.Uint64())
		s.boot++
	}
	at := time.Now()
	s.noteMetrics()
	s.disk.set(nil)
	_ = s.e.Close()
	s.disconnect()
	for i, c := range calls {
		<-c.done
		if answered[i] {
			s.assume(c, at, false)
		} else {
			s.count["crash while calls are open"]++
			s.assume(c, at, true)
		}
	}
	s.reopen(how, disk)
}

// assume follows a call that cannot be looked at any more.
func (s *sim) assume(c *call, at time.Time, open bool) {
	if c.at == 0 {
		return // it never began
	}
	p := c.plan(c)
	s.tell("%s: open %v", c.name, open)
	if p.code != ok || !open && codeOf(c.err) != ok {
		if !open && codeOf(c.err) != p.code {
			s.fail("%s: answered %v, want %s", c.name, c.err, p.code)
		}
		return
	}
	if !open && p.check != nil {
		if err := p.check(); err != nil {
			s.fail("%s: %v", c.name, err)
		}
	}
	for name, t := range p.after {
		if t == nil {
			delete(s.topics, name)
		} else {
			s.topics[name] = t
		}
	}
	s.note(c, p, at, open)
}

// least is the place in the journal up to which a crash can have taken nothing.
func (s *sim) least(how stop) int {
	least := 0
	for i, c := range s.journal.changes {
		switch {
		case c.open, c.failed:
		case how == closed, c.class == api.Fsync, how == killed && c.class == api.Disk, s.old(how, c.at):
			least = i + 1
		}
	}
	return least
}

// old says whether time alone has made it safe.
func (s *sim) old(how stop, at time.Time) bool {
	if how == closed {
		return true
	}
	bound := 30 * time.Millisecond
	if how == powerCut {
		bound = diskFlush + 50*time.Millisecond
	}
	return !s.faulty && time.Since(at) > bound && time.Since(s.synced) > bound
}

// reopen begins a new life on what is left, and finds out what that is.
func (s *sim) reopen(how stop, mem *crashfs.FS) {
	least, gone := s.least(how), map[string]uint64{}
	s.settleNotes(how)
	for name, list := range s.expired {
		for _, n := range list {
			if s.old(how, n.at) {
				gone[name] = max(gone[name], n.to)
			}
		}
	}
	till := s.clock()
	lease, back := s.leaseClock(), false
	const noted = time.Second + diskFlush + 50*time.Millisecond // so long after a step the log has it
	sure := !s.faulty && s.wall.frozen.Load() == 0 && (how == closed || time.Since(s.stepped) > noted && time.Since(s.synced) > noted &&
		(s.noted.Equal(s.stepped) || time.Since(s.start) > noted)) // a life that was too short has not noted it
	if sure {
		s.noted = s.stepped
	}
	// What had expired when this life began may not be on disk yet. It is there again
	// after a power cut, if the clock is set back too; the model has forgotten it.
	short := how == powerCut && time.Since(s.start) < diskFlush+50*time.Millisecond
	if s.chance(25) && !short {
		s.wall.frozen.Store(0)
		s.wall.offset.Add(-int64(pickOf(s, []time.Duration{time.Second, time.Hour, 24 * time.Hour})))
		back, s.stepped = true, time.Now()
		s.count["the clock goes back over a restart"]++
		s.tell("the clock goes back")
	}
	heads := maps.Clone(s.topics)
	for _, c := range s.journal.changes {
		if c.open { // nobody was told of its numbers
			for name := range c.after {
				heads[name] = s.journal.base[name]
			}
		}
	}
	s.e, s.faulty = nil, false
	s.disk = newDisk(mem)
	if how != closed && s.chance(20) {
		s.crashInRecovery()
	}
	s.open()
	if sure {
		s.leaseClockWentOn(how, lease, back)
	}
	seen, err := look(s.e)
	if err != nil {
		s.fail("after the restart: %v", err)
	}
	if how != closed && s.chance(15) {
		seen = s.again(seen)
	}
	a := &aftermath{how: how, before: heads, from: s.last.Load(), till: till, gone: gone}
	w, lost, err := s.journal.find(least, seen, a)
	if err != nil {
		s.fail("after the restart: %v", err)
	}
	lostSome, stepped := least < len(s.journal.changes), s.stepped.After(s.keysFrom) || s.keysAhead
	if lostSome {
		s.era++
	} else {
		s.findKeys(w, stepped, lease)
	}
	if lostSome || stepped {
		s.keysFrom, s.keysAhead = time.Now(), s.last.Load() > s.wall.now().UnixMilli() || s.wall.frozen.Load() != 0
	}
	if lost > 0 {
		s.count["power cut lost changes"]++
	}
	s.tell("%d changes lost", lost)
	s.topics, s.journal = w, journal{base: maps.Clone(w)}
	clear(s.expired)
	s.revived(how, lease)
	for _, name := range queues {
		if t := w[name]; t != nil {
			for _, j := range t.jobs {
				if j.due > s.lease {
					s.count["a delay over a "+how.String()]++
				}
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(w)) {
		s.tell("%s: head %d, %d records", name, w[name].head, len(w[name].recs))
	}
	if s.overAgain(lease) {
		s.forgetLeases()
	}
	s.verifyAll()
}

// findKeys notes of which keys the log does not say well how old they are: of all if the clock was
// stepped since it did, and of those of which it never has. was is the lease clock before the restart.
func (s *sim) findKeys(w map[string]*topic, all bool, was int64) {
	for name, t := range w {
		t = t.clone()
		for key, k := range t.keys {
			if all || k.found > 0 {
				k.at, k.found = k.at+min(0, s.lease-was), s.lease // they are as old as before, also where the lease clock is set back
				t.keys[key] = k
			}
		}
		w[name] = t
	}
}

// leaseClockWentOn checks that the lease clock, which was was, goes on over a restart. A wall clock
// that was set back while the server was down (back) may cost time, after a stop no more than a minute,
// but never brings any.
func (s *sim) leaseClockWentOn(how stop, was int64, back bool) {
	s.count["the lease clock goes on"]++
	most := int64(60)
	switch {
	case back && how == closed:
		most += 60_000
	case back:
		most = math.MaxInt64
	}
	if passed := s.lease - was; passed > 60 || passed < -most {
		s.fail("the lease clock moved by %d ms at a restart", passed)
	}
}

// overAgain reports whether there is a lease or delay that was over at a time of the lease
// clock before a restart and may not be now, or only just.
func (s *sim) overAgain(was int64) bool {
	for _, name := range queues {
		t := s.topics[name]
		if t == nil {
			continue
		}
		for _, j := range t.jobs {
			if j.until-4 <= was && j.until+4 >= s.leaseClock() {
				return true
			}
		}
	}
	return false
}

// forgetLeases begins the queues with durable leases or delays anew: the model does not know
// which are over.
func (s *sim) forgetLeases() {
	for _, name := range queues {
		if t := s.topics[name]; t == nil || len(t.jobs) == 0 {
			continue
		}
		if _, err := s.e.DeleteTopic(bg, name, false); err != nil {
			s.fail("drop %s: %v", name, err)
		}
		delete(s.topics, name)
		delete(s.journal.base, name)
	}
}

// crashInRecovery opens the directory and takes the power away halfway.
func (s *sim) crashInRecovery() {
	k, n := s.rng.IntN(40), 0
	var mu sync.Mutex // the engine calls the disk from several goroutines
	var left *crashfs.FS
	d := s.disk
	d.set(func(errorfs.Op) error {
		mu.Lock()
		defer mu.Unlock()
		if n++; n == k+1 {
			left = d.cut(100, 0)
		}
		return nil
	})
	e, err := engine.Open(bg, s.options("/data", d))
	if err != nil {
		s.fail("the engine does not open: %v", err)
	}
	d.set(nil)
	_ = e.Close()
	mu.Lock()
	defer mu.Unlock()
	if left == nil {
		left = d.cut(100, 0)
	}
	s.tell("crash in recovery")
	s.count["crash in recovery"]++
	s.disk = newDisk(left)
}

// again kills the engine right after its recovery: the next one must come to
// the same.
func (s *sim) again(seen map[string]*sight) map[string]*sight {
	mem := s.disk.cut(100, 0)
	_ = s.e.Close()
	s.disk = newDisk(mem)
	s.open()
	s.count["recovered twice"]++
	second, err := look(s.e)
	if err != nil {
		s.fail("after the second recovery: %v", err)
	}
	for name, a := range seen {
		b := second[name]
		if b == nil || a.state.TopicCounters != b.state.TopicCounters || !slices.Equal(a.recs, b.recs) || !slices.Equal(a.tombs, b.tombs) {
			s.fail("topic %s: two recoveries differ: %+v and %+v", name, a, b)
		}
	}
	return second
}
