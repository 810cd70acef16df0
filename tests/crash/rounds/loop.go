package rounds

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/weirmq/weir/tests/oracle"
)

// MinAcked is how many records a round must have acknowledged to count.
const MinAcked = 500

// Options configure a Loop.
type Options struct {
	Host Host
	// Rounds is how many rounds have to count. A run ends before at Deadline if AtLeast of
	// them count, and at Latest in any case; zero: there is no such time.
	Rounds, AtLeast  int
	Deadline, Latest time.Time
	Seed             uint64
	// Power says that Host.Kill cuts the power: unsynced bytes are gone too.
	Power bool
	// DiskFlush is the longest time a disk record stays unsynced.
	DiskFlush time.Duration
	// Twice recovers a copy of the data directory in several ways every so many
	// rounds and compares the answers; nil for never.
	Twice func(ctx context.Context) error
	// Backup takes a backup under load every few rounds; nil for never.
	Backup Backup
	// TwiceEvery is the number of rounds between two calls of Twice.
	TwiceEvery int
	// HistoryDir receives the history of a violation; empty: the working directory.
	HistoryDir string
	// Log receives a line per round; nil discards.
	Log io.Writer
}

// Summary is what a run reached.
type Summary struct {
	Seed       uint64
	Rounds     int      // that count
	Repeated   int      // with fewer than MinAcked records
	EarlyKills int      // starts killed before they were ready
	Twice      int      // comparisons of repeated recoveries
	CutBackups int      // backups that the kill cut off
	Internal   int      // answers with status 500
	FirstNotes []string // what the first of them said
	oracle.Tally
	backups    bool // were asked for
	Violations []oracle.Violation
	History    string // file with the history of the violations
	SlowStart  time.Duration
}

// Err is not nil if a promise was broken, or if too little was done to tell.
func (s *Summary) Err() error {
	if len(s.Violations) == 0 {
		return s.thin()
	}
	return fmt.Errorf("%d violations, the first: %v (history: %s)", len(s.Violations), s.Violations[0], s.History)
}

// thin finds traffic that a run has to have and did not.
func (s *Summary) thin() error {
	for _, k := range []struct {
		what        string
		have, least int
	}{
		{"records copied by routers", s.Copies, 10 * s.Rounds},
		{"topics made again under load", s.Lives, s.Rounds / 2},
		{"configurations changed under load", s.Changes, s.Rounds},
		{"delayed records claimed", s.Delayed, s.Rounds},
		{"backups restored and judged", s.Backups, s.Rounds / 10},
	} {
		if k.have < k.least && (k.what != "backups restored and judged" || s.backups) {
			return fmt.Errorf("only %d %s in %d rounds, want %d", k.have, k.what, s.Rounds, k.least)
		}
	}
	return nil
}

func (s *Summary) String() string {
	return fmt.Sprintf(`rounds %d (repeated %d, killed while starting %d, recovered twice %d), slowest start %v, status 500: %d %q, seed %d
acked by class: %v
lost by class:  %v
copies of routers %d, topics made again %d, configurations changed %d, delayed records claimed %d, backups restored %d (cut off %d)`,
		s.Rounds, s.Repeated, s.EarlyKills, s.Twice, s.SlowStart.Round(time.Millisecond), s.Internal, s.FirstNotes, s.Seed,
		s.Acked, s.Lost, s.Copies, s.Lives, s.Changes, s.Delayed, s.Backups, s.CutBackups)
}

// maxKept bounds the events that are kept for the history of a violation.
const maxKept = 400_000

// Loop runs rounds of load, kill, restart and check.
type Loop struct {
	opt     Options
	rnd     *rand.Rand
	checker *oracle.Checker
	client  *Client
	targets []*target
	retries []retry
	routing *routing
	gone    []string // topics whose drop was acknowledged, newest last

	goneRouters []string
	names       int
	actors      uint32
	sum         Summary
	kept        []oracle.Event
	lastAt      time.Duration // how long the last start took
}

// Run runs rounds until enough of them count, the deadline passes or a promise
// is broken. The error is not nil if the loop itself failed.
func Run(ctx context.Context, opt Options) (*Summary, error) {
	if opt.Log == nil {
		opt.Log = io.Discard
	}
	l := &Loop{opt: opt, rnd: rand.New(rand.NewPCG(opt.Seed, 1)), checker: oracle.New(opt.DiskFlush)}
	l.sum.Seed, l.sum.backups = opt.Seed, opt.Backup != nil
	err := l.run(ctx)
	l.sum.Tally, l.sum.Violations = l.checker.Tally(), l.checker.Violations()
	if len(l.sum.Violations) > 0 {
		err = errors.Join(err, l.saveHistory())
	}
	return &l.sum, err
}

func (l *Loop) run(ctx context.Context) error {
	if err := l.start(ctx); err != nil {
		return err
	}
	defer func() { l.opt.Host.Kill() }()
	for l.sum.Rounds < l.opt.Rounds && len(l.checker.Violations()) == 0 {
		if l.timeIsUp(time.Now()) {
			return nil
		}
		if err := l.round(ctx); err != nil {
			return fmt.Errorf("round %d (seed %d): %w", l.sum.Rounds+l.sum.Repeated+1, l.opt.Seed, err)
		}
	}
	return nil
}

func (l *Loop) timeIsUp(now time.Time) bool {
	over := func(end time.Time) bool { return !end.IsZero() && now.After(end) }
	return over(l.opt.Latest) || over(l.opt.Deadline) && l.sum.Rounds >= l.opt.AtLeast
}

// round is one load, kill, restart and check.
func (l *Loop) round(ctx context.Context) error {
	if err := l.prepare(ctx); err != nil {
		return err
	}
	load := time.Duration(5+l.rnd.IntN(596)) * time.Millisecond
	acked, err := l.load(ctx, load)
	if err != nil {
		return err
	}
	if l.opt.Twice != nil && (l.sum.Rounds+1)%l.opt.TwiceEvery == 0 {
		if err := l.opt.Twice(ctx); err != nil {
			return err
		}
		l.sum.Twice++
	}
	if err := l.start(ctx); err != nil {
		return err
	}
	if err := l.verify(ctx); err != nil {
		return err
	}
	if acked < MinAcked {
		l.sum.Repeated++
	} else {
		l.sum.Rounds++
	}
	fmt.Fprintf(l.opt.Log, "round %d: load %v, acked %d, start %v, topics %d\n",
		l.sum.Rounds, load, acked, l.lastAt.Round(time.Millisecond), l.checker.Topics())
	return nil
}

// start starts the server; one start in five is killed before it is ready.
func (l *Loop) start(ctx context.Context) error {
	for l.checker.Topics() > 0 && l.rnd.IntN(5) == 0 {
		d := time.Duration(l.rnd.Int64N(int64(l.lastAt + 2*time.Millisecond)))
		if err := l.opt.Host.StartKilled(d); err != nil {
			return fmt.Errorf("a start killed after %v: %w", d, err)
		}
		l.sum.EarlyKills++
		now := time.Now().UnixNano()
		l.add(oracle.Event{Kind: oracle.Crash, Invoke: now, Return: now, Outcome: oracle.OK, Power: l.opt.Power, Note: "while starting"})
	}
	begin := time.Now()
	base, err := l.opt.Host.Start(ctx)
	if err != nil {
		return err
	}
	l.lastAt = time.Since(begin)
	l.sum.SlowStart = max(l.sum.SlowStart, l.lastAt)
	if l.client != nil {
		l.client.Close()
	}
	l.client = NewClient(base)
	return nil
}

// prepare makes sure that every role has its topic, replacing some, and sends
// half of the writes of unknown outcome again.
func (l *Loop) prepare(ctx context.Context) error {
	if err := l.prepareRoutes(ctx); err != nil {
		return err
	}
	have := map[string]int{}
	for i, t := range l.targets {
		have[t.role] = i
	}
	for _, r := range roles() {
		i, ok := have[r.name]
		if ok && l.rnd.IntN(10) > 0 {
			continue
		}
		t := l.newTarget(r)
		if ok {
			if err := l.retire(ctx, l.targets[i]); err != nil {
				return err
			}
			l.targets[i] = t
		} else {
			l.targets = append(l.targets, t)
		}
		if err := l.create(ctx, t); err != nil {
			return err
		}
	}
	return l.sendAgain(ctx)
}

func (l *Loop) create(ctx context.Context, t *target) error {
	if t.cfg.DeadLetter != "" {
		if err := l.must(l.client.Put(ctx, t.cfg.DeadLetter, oracle.Config{Class: t.cfg.Class})); err != nil {
			return err
		}
	}
	return l.must(l.client.Put(ctx, t.name, t.cfg))
}

func (l *Loop) sendAgain(ctx context.Context) error {
	for _, r := range l.retries {
		if l.rnd.IntN(2) == 0 || !l.alive(r.topic) {
			continue
		}
		for range 1 + l.rnd.IntN(2) {
			e, err := l.client.WriteLater(ctx, r.topic.name, r.batch, r.size, r.key, r.topic.delays(r.batch, r.size))
			r.topic.saw(e.Head)
			if err != nil {
				return err
			}
			l.add(e)
		}
	}
	l.retries = nil
	return nil
}

func (l *Loop) alive(t *target) bool {
	for _, x := range l.targets {
		if x == t {
			return true
		}
	}
	return false
}

// must records an operation that has no reason to fail.
func (l *Loop) must(e oracle.Event, err error) error {
	l.add(e)
	if err == nil && e.Outcome != oracle.OK {
		err = fmt.Errorf("%s %s: %s", e.Kind, e.Topic, e.Note)
	}
	return err
}

func (l *Loop) add(e oracle.Event) {
	l.checker.Add(e)
	if len(l.kept) >= maxKept {
		l.kept = append(l.kept[:0], l.kept[maxKept/4:]...)
	}
	l.kept = append(l.kept, e)
}

// load runs the clients for about d, then kills the server under them. It
// returns how many records were acknowledged.
func (l *Loop) load(outer context.Context, d time.Duration) (acked int, err error) {
	ctx, stop := context.WithCancel(outer)
	defer stop()
	var wg sync.WaitGroup
	var actors []*actor
	for _, job := range l.cast() {
		l.actors++
		a := &actor{client: l.client, id: l.actors, rnd: rand.New(rand.NewPCG(l.opt.Seed, uint64(l.actors)<<8))}
		actors = append(actors, a)
		wg.Go(func() { job(ctx, a) })
	}
	saver := l.saver(ctx, &wg)
	time.Sleep(d)
	if saver != nil && l.rnd.IntN(4) > 0 { // the others are cut off, if they are still under way
		<-saver.saved
	}
	crash := oracle.Event{Kind: oracle.Crash, Invoke: time.Now().UnixNano(), Outcome: oracle.OK, Power: l.opt.Power}
	l.opt.Host.Kill()
	crash.Return = time.Now().UnixNano()
	stop()
	wg.Wait()
	for _, a := range actors {
		for _, e := range a.events {
			l.add(e)
			if e.Kind == oracle.Write && e.Outcome == oracle.OK && !e.Deduped {
				acked += e.Size
			}
		}
		l.sum.Internal += a.broken
		l.sum.FirstNotes = append(l.sum.FirstNotes, a.notes...)[:min(5, len(l.sum.FirstNotes)+len(a.notes))]
		l.retries = append(l.retries, a.retry...)
		for _, c := range a.churned {
			l.churned(c)
		}
		for _, r := range a.rewired {
			if r.dropped {
				l.goneRouters = append(l.goneRouters, r.router)
			}
		}
	}
	if saver != nil {
		err = l.judgeBackup(outer, saver, crash.Invoke)
	}
	l.add(crash)
	return acked, err
}

// saver starts the client that takes a backup, in one round of three.
func (l *Loop) saver(ctx context.Context, wg *sync.WaitGroup) *actor {
	if l.opt.Backup == nil || l.rnd.IntN(3) > 0 {
		return nil
	}
	l.actors++
	a := &actor{client: l.client, id: l.actors, rnd: rand.New(rand.NewPCG(l.opt.Seed, uint64(l.actors)<<8)), saved: make(chan struct{})}
	wg.Go(func() { a.saver(ctx, l.opt.Backup) })
	return a
}

// churned remembers a topic that was made and dropped under load.
func (l *Loop) churned(c churned) {
	if !c.dropped {
		l.targets = append(l.targets, &target{name: c.name, role: "churned", cfg: oracle.Config{Class: oracle.Fsync}})
		return
	}
	l.gone = append(l.gone, c.name)
}

// cast picks the clients of a round: 6 to 16 writers and, around them, workers,
// deleters, readers and one that makes and drops topics.
func (l *Loop) cast() (jobs []func(context.Context, *actor)) {
	logs := l.byRole("log-")
	queues := l.byRole("q-")
	hot := l.byRole("hot-")
	many, capped := l.byRole("many"), l.byRole("cap")
	sources, tuned, again := l.byRole("src-"), l.byRole("tuned-"), l.byRole("again-")
	if l.opt.Power && l.rnd.IntN(2) == 0 { // no fsync write that syncs the others too
		logs, queues, hot, many, capped = unsynced(logs), unsynced(queues), unsynced(hot), unsynced(many), unsynced(capped)
	}
	every := append(append(append(append([]*target(nil), many...), capped...), logs...), queues...)
	hottest := hot[l.rnd.IntN(len(hot)):][:1]
	write := func(ts []*target) func(context.Context, *actor) {
		return func(ctx context.Context, a *actor) { a.writer(ctx, ts) }
	}
	jobs = append(jobs, write(many), write(queues), write(capped), write(logs))
	for range 2 + l.rnd.IntN(11) {
		jobs = append(jobs, write([][]*target{hottest, every, logs}[l.rnd.IntN(3)]))
	}
	work := func(ctx context.Context, a *actor) { a.worker(ctx, queues) }
	jobs = append(jobs, work, work, work, write(sources), write(tuned), write(again))
	lively := append(append(l.byRole("rtq-"), l.byRole("tuned-queue")...), l.byRole("again-queue")...)
	later := l.byRole("later-")
	jobs = append(jobs,
		func(ctx context.Context, a *actor) { a.scheduler(ctx, later) },
		func(ctx context.Context, a *actor) { a.worker(ctx, later) },
		func(ctx context.Context, a *actor) { a.worker(ctx, lively) },
		func(ctx context.Context, a *actor) { a.worker(ctx, lively) },
		func(ctx context.Context, a *actor) { a.tuner(ctx, tuned) },
		func(ctx context.Context, a *actor) { a.reborner(ctx, again) })
	every = append(append(append(every, tuned...), again...), append(sources, l.byRole("rt")...)...)
	var deletable []*target
	for _, t := range every {
		if t.deletes {
			deletable = append(deletable, t)
		}
	}
	jobs = append(jobs,
		func(ctx context.Context, a *actor) { a.deleter(ctx, deletable) },
		func(ctx context.Context, a *actor) { a.reader(ctx, append(every, hot...)) })
	if !l.opt.Power {
		jobs = append(jobs,
			func(ctx context.Context, a *actor) { a.churner(ctx) },
			func(ctx context.Context, a *actor) { a.rewirer(ctx, hot) })
	}
	return jobs
}

// unsynced are the targets whose writes need no sync.
func unsynced(ts []*target) (out []*target) {
	for _, t := range ts {
		if t.cfg.Class != oracle.Fsync {
			out = append(out, t)
		}
	}
	return out
}

func (l *Loop) byRole(prefix string) (ts []*target) {
	for _, t := range l.targets {
		if len(t.role) >= len(prefix) && t.role[:len(prefix)] == prefix {
			ts = append(ts, t)
		}
	}
	return ts
}

func (l *Loop) saveHistory() error {
	l.sum.History = filepath.Join(l.opt.HistoryDir, fmt.Sprintf("history-%d.jsonl", l.opt.Seed))
	f, err := os.Create(l.sum.History)
	if err != nil {
		return err
	}
	return errors.Join(oracle.WriteHistory(f, l.kept), f.Close())
}
