package weir

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/internal/admission"
)

// maxSoftSleep bounds the sleep of the proportional guard where no hard limit does.
const maxSoftSleep = time.Minute

// guard decides whether and when a publish may proceed. In this order: the gate and
// the window refuse at once (with ShedWait the window waits); the lag limits make it sleep once, or pause until the
// workers have caught up; the depth makes it check a few more times and then refuses.
// Settings can be replaced while publishes wait, and apply from their next check on.
type guard struct {
	name     StreamName
	hooks    Hooks
	tracing  Tracing
	signals  *signals
	stages   *stageLog
	owner    *owner
	settings atomic.Pointer[settings]
	shed     shedder
	aim      struct {
		sync.Mutex
		at admission.Objective
	}

	blind     seldom       // the signal is not known
	known     atomic.Int32 // what was said about the signal last: 0 nothing, else signalKnown or signalUnknown
	near      atomic.Bool  // it was told that the depth is near its limit
	fullSince atomic.Int64 // Unix ns since when shadow has seen no room; 0: there was some
	cutText   atomic.Pointer[cutText]
}

const (
	signalKnown   = 1
	signalUnknown = 2
)

// settings is a ProducerConfig with what follows from it.
type settings struct {
	ProducerConfig
	rules  GuardMode // by which decisions are made: never GuardShadow
	shadow bool      // decisions are counted and logged, not carried out
	limit  int64     // the depth from which there is no room
	warn   int64     // the depth from which that is near
}

func newSettings(c ProducerConfig) *settings {
	s := &settings{ProducerConfig: c, rules: c.decides(), shadow: c.Guard == GuardShadow}
	if s.rules == GuardAdaptive {
		s.LagWarn, s.LagPause = -1, -1 // the cut takes their place
	}
	s.limit = shareOf(c.MaxDepth, c.BackpressureThreshold)
	if c.Budget != "" {
		s.limit, s.MaxDepth = c.BudgetMaxDepth, c.BudgetMaxDepth
	}
	s.warn = shareOf(s.limit, nearCapacity)
	return s
}

func (g *guard) configure(c ProducerConfig) {
	set := newSettings(c)
	g.settings.Store(set)
	var o admission.Objective
	if set.rules == GuardAdaptive {
		o = admission.Objective{SLO: c.WaitSLO, Watch: set.shadow}
	}
	g.aimAt(o)
}

// aimAt replaces what the guard wants of the controller, which it shares, until it is closed.
func (g *guard) aimAt(o admission.Objective) {
	g.aim.Lock()
	defer g.aim.Unlock()
	if g.owner.life.Err() != nil {
		o = admission.Objective{}
	}
	g.signals.control.Change(g.aim.at, o)
	g.aim.at = o
}

// shareOf is a share of a depth, rounded up. It is seldom exact in binary: 0.07 of
// 100 is 7, not 7.000000000000001.
func shareOf(depth int64, share float64) int64 {
	return int64(math.Ceil(float64(depth) * share * (1 - 1e-12)))
}

// level is how a signal stands to the lag limits.
type level int

const (
	nominal  level = iota
	elevated       // above LagWarn: one sleep
	critical       // above LagPause: a pause
)

// visit is a publish on its way past the guard.
type visit struct {
	ctx     context.Context
	now     time.Time // when it came
	try     bool      // it never waits
	done    bool      // in shadow: it would have been refused, there is nothing more to decide
	outside bool      // in shadow: the gate would have refused it, so it takes no place there
	n       int64     // messages
	took    int64     // of the room below the limits, until its append is over
	fade    float64   // adaptive: the share of refusals that is dropped because the load is unknown
	tier    int       // adaptive: below the most important one
	r       *reading  // what it was judged by last; nil: nothing is known
	why     string    // what made it wait last
	ofAll   bool      // its request was counted among those of all processes
}

// enter is the first check. A publish that got in has to leave the gate later, unless it is outside.
func (g *guard) enter(v *visit) error {
	set, limit := g.settings.Load(), 0
	if set.sheds() {
		limit = set.ShedConcurrency
	}
	if !g.shed.enter(limit) {
		what := fmt.Sprintf("%d publishes are in progress, as many as shed_concurrency allows", limit)
		v.outside = true
		return g.shedding(set, v, what, set.BackpressureBaseDelay)
	}
	if set.rules == GuardAdaptive {
		return nil // the window counts what the cut lets through
	}
	err := g.window(set, v)
	if err != nil {
		g.shed.leave()
	}
	return err
}

func (s *settings) sheds() bool { return s.rules != GuardOff && !s.DisableLoadShedding }

// windowed reports whether requests are counted in a window.
func (s *settings) windowed() bool { return s.sheds() && s.LoadSheddingMaxRequests > 0 }

// window lets a publish through, makes it wait for the next window, or refuses it.
func (g *guard) window(set *settings, v *visit) error {
	for set.windowed() {
		left, ok, err := g.request(set, v)
		if ok || err != nil {
			return err
		}
		v.why = set.crowdOfRequests(v.ofAll)
		if v.try || set.shadow || !set.ShedWait {
			return g.shedding(set, v, v.why, left)
		}
		g.note(stageShedding, set, v, event{text: "publish waits for the next window of requests", decision: string(WindowWait), wait: left})
		if err := g.sleep(v, WindowWait, left); err != nil {
			return err
		}
		set, v.now = g.settings.Load(), time.Now()
	}
	return nil
}

func (s *settings) crowdOfRequests(ofAll bool) string {
	whose := "this process"
	if ofAll {
		whose = "all processes"
	}
	return fmt.Sprintf("%d requests of %s within %s, as many as QUEUE_LOAD_SHEDDING_MAX_REQUESTS allows",
		s.LoadSheddingMaxRequests, whose, s.ShedWindow)
}

// shedding reports a refusal by the gate or the window; it returns nil in shadow.
func (g *guard) shedding(set *settings, v *visit, what string, retryAfter time.Duration) error {
	v.r = g.signals.last.Load()
	g.note(stageShedding, set, v, event{text: "publish refused: " + what, decision: string(LoadShedding)})
	if set.shadow {
		v.done = true
		return nil
	}
	return g.refusal(set, v, LoadShedding, what, retryAfter, nil)
}

func (g *guard) refusal(set *settings, v *visit, reason Reason, what string, retryAfter time.Duration, cause error) error {
	depth, _ := v.r.depth()
	return &QueueFullError{
		Queue: g.name.Stream, Depth: depth, MaxDepth: set.MaxDepth,
		Reason: reason, Limit: what, RetryAfter: max(retryAfter, time.Millisecond), Err: cause,
	}
}

// lag applies the soft and the hard limit. A pause lasts while the signal is above the
// hard limit; there is no sleep after it.
func (g *guard) lag(v *visit) error {
	set := g.settings.Load()
	if v.done {
		return nil
	}
	switch set.rules {
	case GuardOff:
		g.measure(set, v)
		return nil
	case GuardAdaptive:
		return g.expect(set, v)
	}
	var err error
	if v.r, err = g.look(v, v.now, set.LagCache); err != nil {
		return g.stopped(v, err)
	}
	is, signal := g.judge(set, v.r, v.now)
	switch {
	case is == nominal:
	case set.shadow:
		kind := SoftSleep
		if is == critical {
			kind = HardPause
		}
		g.note(stageBackpressure, set, v, event{text: "publish would wait for the workers", decision: string(kind)})
	case is == critical:
		return g.halt(set, v)
	case !v.try:
		return g.nudge(set, v, signal)
	}
	return nil
}

// nudge is the one sleep above the soft limit; the depth is checked after it.
func (g *guard) nudge(set *settings, v *visit, signal int64) error {
	d := set.softSleep(signal)
	v.why = set.aboveSoft(signal)
	g.note(stageBackpressure, set, v, event{text: "publish sleeps: lag above the soft limit", decision: string(SoftSleep), wait: d})
	if err := g.sleep(v, SoftSleep, d); err != nil {
		return err
	}
	r, err := g.look(v, time.Now(), set.LagCache)
	if err != nil {
		return g.stopped(v, err)
	}
	v.r = r
	return nil
}

// measure keeps the readings coming when no decision depends on them.
func (g *guard) measure(set *settings, v *visit) {
	if _, soon := g.signals.current(v.now, set.LagCache); soon {
		g.refresh(v.n)
	}
	if v.r = g.signals.last.Load(); v.r != nil {
		g.judge(set, v.r, v.now)
	}
}

// pause waits while the signal is above the hard limit.
func (g *guard) pause(set *settings, v *visit) (err error) {
	g.note(stageBackpressure, set, v, event{text: "publish pauses: lag above the hard limit", decision: string(HardPause)})
	began := time.Now()
	v.why = set.aboveHard(v.r)
	g.slowing(v, HardPause)
	defer func() { g.slowed(v, HardPause, began, err) }()
	for ; ; v.why = set.aboveHard(v.r) {
		if err := g.wait(v, set.LagPoll); err != nil {
			return err
		}
		if set = g.settings.Load(); set.rules == GuardOff || set.shadow {
			return nil
		}
		if err := g.newer(v); err != nil {
			return err
		}
		if !g.holdsUp(set, v.r) {
			return nil
		}
	}
}

// holdsUp reports whether a reading keeps a pause going. The adaptive guard pauses only for
// a load that is not known.
func (g *guard) holdsUp(set *settings, r *reading) bool {
	if set.rules == GuardAdaptive {
		_, known := r.depth()
		g.tellKnown(set, r, known)
		return !known && set.LagUnknown == UnknownHold
	}
	is, _ := g.judge(set, r, time.Now())
	return is == critical || set.crowded(r)
}

// newer replaces the visit's reading by one that was begun after it.
func (g *guard) newer(v *visit) (err error) {
	var number int64
	if v.r != nil {
		number = v.r.number
	}
	r, err := g.await(v, number, time.Time{})
	if err != nil {
		return g.stopped(v, err)
	}
	v.r = r
	return g.overWith(r)
}

// overWith is the error of a publish to a stream that is closed: no later reading will say
// anything else.
func (g *guard) overWith(r *reading) error {
	if r == nil || !errors.Is(r.err, ErrClosed) {
		return nil
	}
	return fmt.Errorf("publish to %q: nothing is stored: %w", g.name.Stream, r.err)
}

// judge compares the signal with the lag limits; the policy decides about an unknown
// one. It reports once when the signal becomes known or unknown.
func (g *guard) judge(set *settings, r *reading, now time.Time) (is level, signal int64) {
	signal, known := r.signal(set.LagSignal)
	g.tellKnown(set, r, known)
	switch {
	case known:
	case set.LagUnknown == UnknownHold:
		if set.LagPause >= 0 || set.LagWarn >= 0 {
			return critical, signal
		}
		return nominal, signal
	case set.LagUnknown == UnknownDecay:
		signal = r.decayed(set.LagSignal, now, set.LagTTL)
	default:
		return nominal, signal
	}
	switch {
	case set.LagPause >= 0 && signal > set.LagPause:
		return critical, signal
	case set.LagWarn >= 0 && signal > set.LagWarn:
		return elevated, signal
	}
	return nominal, signal
}

// tellKnown counts each change between a known and an unknown signal, and logs them.
func (g *guard) tellKnown(set *settings, r *reading, known bool) {
	state := int32(signalUnknown)
	if known {
		state = signalKnown
	}
	if before := g.known.Load(); before != state && g.known.CompareAndSwap(before, state) && g.hooks.SignalKnown != nil {
		g.hooks.SignalKnown(g.name, known)
	}
	if known {
		if g.blind.ends() {
			set.Logger.Info("the guard's signal is known again", "stream", g.name.Stream)
		}
		return
	}
	if !g.blind.begins() {
		return
	}
	if errors.Is(r.err, ErrForbidden) {
		set.Logger.Info("publishing without a guard: this user or key may not read the load of the queue",
			"stream", g.name.Stream, "policy", string(set.LagUnknown), "reason", r.err.Error())
		return
	}
	why := "no worker is running, or none publishes it"
	switch {
	case r.err != nil:
		why = r.err.Error()
	case set.LagSignal == SignalBacklog:
		why = "the backend does not know how many messages are waiting"
	}
	set.Logger.Warn("the guard's signal is not known",
		"stream", g.name.Stream, "policy", string(set.LagUnknown), "reason", why)
}

// softSleep is how long a publish sleeps above the soft limit.
func (s *settings) softSleep(signal int64) time.Duration {
	if s.rules != GuardProportional {
		return s.LagWarnSleep
	}
	d := float64(s.LagWarnSleep) * float64(signal) / float64(max(s.LagWarn, 1))
	return time.Duration(min(d, float64(max(maxSoftSleep, s.LagWarnSleep))))
}

// halt makes a publish above the hard limit wait, or refuses it if it may not wait.
func (g *guard) halt(set *settings, v *visit) error {
	if err := g.overWith(v.r); err != nil {
		return err
	}
	if v.try {
		if v.r.err != nil {
			return fmt.Errorf("publish to %q: %w: nothing is stored, the load cannot be read and lag_unknown is %s: %v",
				g.name.Stream, ErrUnavailable, set.LagUnknown, v.r.err)
		}
		what := set.aboveHard(v.r)
		g.note(stageBackpressure, set, v, event{text: "publish refused: " + what, decision: string(QueueFull)})
		return g.refusal(set, v, QueueFull, what, set.LagPoll, nil)
	}
	return g.pause(set, v)
}

// bufferPoll is how long a publish waits at most before it looks at a full buffer again.
const bufferPoll = 200 * time.Millisecond

// again makes a publish that found no room wait before its next check, the try-th, or
// refuses it. If the server had no room, server is its error, whose delay is the wait
// then. A full buffer of the client itself is no refusal of anybody's: a publish that may
// wait waits for it as long as its context allows.
func (g *guard) again(v *visit, try int, server *backend.FullError) error {
	set := g.settings.Load()
	delay, reason := jittered(set.BackpressureBaseDelay<<min(try-1, 20)), QueueFull
	var cause error
	if server != nil {
		reason, cause = Reason(server.Reason), server
		switch {
		case server.RetryAfter > 0:
			delay = server.RetryAfter
		case reason == BufferFull:
			delay = min(delay, bufferPoll)
		}
	}
	once := set.rules == GuardAdaptive && server == nil // what it holds is the wait; a depth is no reason to look again
	what, stage := "the server has no room", stageBackpressure
	switch {
	case server == nil:
		what = set.noRoom(v)
	case reason == LoadShedding: // so does the server: it has decided
		once, stage, what = true, stageShedding, "the server refuses what the workers cannot do in time"
	}
	if v.try || reason != BufferFull && (set.shadow || set.rules == GuardOff || once || try > set.BackpressureRetries) {
		g.note(stage, set, v, event{text: "publish refused: " + what, decision: string(reason)})
		return g.refusal(set, v, reason, what, delay, cause)
	}
	if v.why = what; server != nil {
		v.why = server.Error()
	}
	g.note(stageRetry, set, v, event{text: "publish waits for room in the queue", decision: string(DepthWait), try: try, wait: delay})
	if err := g.sleep(v, DepthWait, delay); err != nil {
		return err
	}
	if g.hooks.BackpressureRetry != nil {
		g.hooks.BackpressureRetry(g.name, try)
	}
	return g.newer(v)
}

// sleep delays a publish by d and reports how long it took.
func (g *guard) sleep(v *visit, kind SlowKind, d time.Duration) error {
	began := time.Now()
	g.slowing(v, kind)
	err := g.wait(v, d)
	g.slowed(v, kind, began, err)
	return err
}

// wait returns after d, or at once when the context ends or the producer is closed.
func (g *guard) wait(v *visit, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-v.ctx.Done():
		return g.stopped(v, v.ctx.Err())
	case <-g.owner.life.Done():
		return g.stopped(v, ErrClosed)
	}
}

// stopped is the error of a publish that ended while it was waiting.
func (g *guard) stopped(v *visit, err error) error {
	if errors.Is(err, ErrClosed) {
		return fmt.Errorf("publish to %q: producer %w", g.name.Stream, err)
	}
	if context.Cause(v.ctx) == errWorthless {
		err = ErrExpired
	}
	if v.why == "" {
		return fmt.Errorf("publish to %q ended while waiting, nothing is stored: %w", g.name.Stream, err)
	}
	return fmt.Errorf("publish to %q ended while waiting (%s), nothing is stored: %w", g.name.Stream, v.why, err)
}

// slowing reports a delay that begins.
func (g *guard) slowing(v *visit, kind SlowKind) {
	if g.hooks.Slowing != nil {
		g.hooks.Slowing(g.name, kind, v.why)
	}
}

// slowed reports a delay that has ended, early with an error.
func (g *guard) slowed(v *visit, kind SlowKind, began time.Time, err error) {
	if g.hooks.Slowed != nil {
		g.hooks.Slowed(g.name, kind, time.Since(began))
	}
	if g.tracing.Waited != nil {
		g.tracing.Waited(v.ctx, g.name, Wait{Kind: kind, Why: v.why, Began: began, Err: err})
	}
}

// note fills in what the visit knows and gives the event to the log of stages;
// in shadow it counts the decision.
func (g *guard) note(which stage, set *settings, v *visit, e event) {
	e.logger, e.shadow, e.max = set.Logger, set.shadow, set.MaxDepth
	e.depth, _ = v.r.depth()
	e.signal, _ = v.r.signal(set.LagSignal)
	if set.shadow && g.hooks.Shadowed != nil {
		g.hooks.Shadowed(g.name, e.decision)
	}
	g.stages.note(which, e)
}

// jittered is d ± 50 %.
func jittered(d time.Duration) time.Duration {
	return time.Duration(float64(d) * (0.5 + rand.Float64()))
}

// owner holds the goroutines of one Producer.
type owner struct {
	life context.Context
	end  context.CancelFunc

	mu     sync.Mutex
	closed bool
	wg     sync.WaitGroup
}

func newOwner() *owner {
	o := &owner{}
	o.life, o.end = context.WithCancel(context.Background())
	return o
}

// start runs do in a goroutine of its own unless the owner is closed.
func (o *owner) start(do func(life context.Context)) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return false
	}
	o.wg.Go(func() { do(o.life) })
	return true
}

// close ends all goroutines and waits for them.
func (o *owner) close() {
	o.mu.Lock()
	o.closed = true
	o.mu.Unlock()
	o.end()
	o.wg.Wait()
}
