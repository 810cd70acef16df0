package weir

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"strings"
	"time"
)

// GuardMode says how a producer responds to pressure.
type GuardMode string

// The modes of a guard.
const (
	GuardStatic       GuardMode = "static"       // fixed limits, a fixed sleep above the soft one
	GuardProportional GuardMode = "proportional" // the sleep grows with the signal
	GuardOff          GuardMode = "off"          // publishes straight through, still measures
	GuardShadow       GuardMode = "shadow"       // decides as ShadowOf would, acts on nothing, counts and logs
	GuardAdaptive     GuardMode = "adaptive"     // holds the wait: refuses at once what would wait too long, by priority and key
)

// SignalKind is the number that the lag limits are compared with.
type SignalKind string

// The signals.
const (
	SignalPending SignalKind = "pending" // messages that workers have claimed and not finished
	SignalBacklog SignalKind = "backlog" // those, and the ones that nobody has claimed yet
)

// UnknownPolicy is what a guard does while the signal is unknown.
type UnknownPolicy string

// The policies.
const (
	UnknownOpen  UnknownPolicy = "open"  // publish: a paused producer does not help dead workers
	UnknownHold  UnknownPolicy = "hold"  // wait as above the hard limit
	UnknownDecay UnknownPolicy = "decay" // the last known value, halved every LagTTL
)

// TrimMode says whether a pool removes what every group has acknowledged, on a
// backend that otherwise keeps it.
type TrimMode string

// The modes.
const (
	TrimAuto TrimMode = "auto" // if weir itself created the stream, a minute after publication
	TrimOn   TrimMode = "on"   // from any stream
	TrimOff  TrimMode = "off"  // never
)

// ExpiredMode says what a pool does with a message whose deadline has passed before a
// handler could begin.
type ExpiredMode string

// The modes.
const (
	ExpiredDeadLetter ExpiredMode = "dead_letter" // to the dead letters, with the reason expired
	ExpiredDrop       ExpiredMode = "drop"        // acknowledge it away
)

// ShedScope says whose requests a window counts.
type ShedScope string

// The scopes.
const (
	ShedProcess ShedScope = "process" // all producers of the stream in this process
	ShedStream  ShedScope = "stream"  // all producers of the stream in all processes, on Redis; elsewhere as process
)

// ProducerConfig configures a Producer and its guard. A zero field means its
// default, given in its comment; -1 disables a limit where the comment says so. A setting that
// the guard does not use, as LagPause with GuardAdaptive or WaitSLO with GuardStatic, is a
// line in the log.
type ProducerConfig struct {
	// Guard is adaptive, or static if a setting is given that only static and
	// proportional use: LagWarn, LagWarnSleep, LagPause, LagSignal, BackpressureRetries
	// or BackpressureBaseDelay. ShadowOf, used with GuardShadow, has the same default.
	Guard    GuardMode
	ShadowOf GuardMode

	LagWarn      int64         // 50: above it a publish sleeps once; -1 = off
	LagWarnSleep time.Duration // 500ms
	LagPause     int64         // 200: above it a publish waits until the signal has fallen; -1 = off
	LagPoll      time.Duration // 100ms: how often a waiting publish checks
	LagTTL       time.Duration // 10s: how long the workers' signal stays valid
	LagSignal    SignalKind    // pending: what LagWarn and LagPause are compared with
	LagUnknown   UnknownPolicy // open: what a publish does while the signal is unknown
	LagCache     time.Duration // 100ms: how old a reading may be; -1 = read before every publish

	MaxDepth              int64         // 10000: the most messages that may be unfinished
	BackpressureThreshold float64       // 0.8: the share of MaxDepth from which a publish waits
	BackpressureRetries   int           // 3: checks of the depth before the publish is refused; -1 = none
	BackpressureBaseDelay time.Duration // 100ms before the first check, doubled for each further one, ±50 %

	DisableLoadShedding     bool          // false; true: no window of requests, whatever LoadSheddingMaxRequests says
	LoadSheddingMaxRequests int           // 1000 requests per window; with GuardAdaptive 0, which is none
	ShedWindow              time.Duration // 1s
	ShedScope               ShedScope     // process: whose requests a window counts
	ShedWait                bool          // false; true: Publish sleeps until the window ends instead of being refused
	ShedConcurrency         int           // 0 = off: most publishes in progress at once

	// DisableGathering appends every publish on its own. Otherwise those that come while
	// others are under way share one request, on Redis, a weir server and the embedded engine.
	DisableGathering bool // false

	// WaitSLO is how long a message may wait; used with GuardAdaptive. Of the producers of a
	// stream in this process, the shortest of those that are not closed holds for all.
	WaitSLO time.Duration // 30s

	// Budget names a budget that this stream shares with others: for the guard they are
	// one, with BudgetMaxDepth (10000) as the limit of all their messages together. Give
	// every producer of these streams the same two.
	Budget         string
	BudgetMaxDepth int64

	Hooks   Hooks
	Tracing Tracing
	Logger  *slog.Logger // slog.Default(); at most one line per stage and second
}

// WithDefaults returns a copy of c in which every zero field has its default.
func (c ProducerConfig) WithDefaults() ProducerConfig {
	mode := GuardAdaptive
	if c.LagWarn != 0 || c.LagWarnSleep != 0 || c.LagPause != 0 || c.LagSignal != "" || c.BackpressureRetries != 0 || c.BackpressureBaseDelay != 0 {
		mode = GuardStatic
	}
	or(&c.Guard, mode)
	or(&c.ShadowOf, mode)
	or(&c.LagPause, 200)
	if c.LagWarn == 0 && c.LagPause > 0 {
		c.LagWarn = min(50, c.LagPause)
	}
	or(&c.LagWarn, 50)
	or(&c.LagWarnSleep, 500*time.Millisecond)
	or(&c.LagPoll, 100*time.Millisecond)
	or(&c.LagTTL, 10*time.Second)
	or(&c.LagSignal, SignalPending)
	or(&c.LagUnknown, UnknownOpen)
	or(&c.LagCache, 100*time.Millisecond)
	or(&c.MaxDepth, 10_000)
	or(&c.BackpressureThreshold, 0.8)
	or(&c.BackpressureRetries, 3)
	or(&c.BackpressureBaseDelay, 100*time.Millisecond)
	if c.decides() != GuardAdaptive {
		or(&c.LoadSheddingMaxRequests, 1000)
	}
	or(&c.ShedWindow, time.Second)
	or(&c.ShedScope, ShedProcess)
	or(&c.WaitSLO, 30*time.Second)
	or(&c.BudgetMaxDepth, 10_000)
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return c
}

// decides is the mode by which decisions are made: never GuardShadow.
func (c *ProducerConfig) decides() GuardMode {
	if c.Guard == GuardShadow {
		return c.ShadowOf
	}
	return c.Guard
}

// unused names the settings in c, without its defaults, that count for nothing with its guard. A
// guard that is off may have any: it is turned off for a while.
func (c ProducerConfig) unused() (names []string) {
	full := c.WithDefaults()
	note := func(field string, given bool) {
		if given {
			names = append(names, field)
		}
	}
	switch full.decides() {
	case GuardAdaptive:
		note("LagWarn", c.LagWarn > 0)
		note("LagWarnSleep", c.LagWarnSleep != 0)
		note("LagPause", c.LagPause > 0)
		note("LagSignal", c.LagSignal != "")
	case GuardStatic, GuardProportional:
		note("WaitSLO", c.WaitSLO != 0)
	}
	note("ShadowOf", c.ShadowOf != "" && full.Guard != GuardShadow && full.Guard != GuardOff)
	note("BudgetMaxDepth", c.BudgetMaxDepth != 0 && c.Budget == "")
	return names
}

// tellUnused logs the settings that count for nothing.
func (c ProducerConfig) tellUnused(stream string) {
	names := c.unused()
	if len(names) == 0 {
		return
	}
	full := c.WithDefaults()
	guard := string(full.Guard)
	if c.Guard == "" && full.Guard == GuardStatic {
		guard = "static, since a setting is given that only fixed limits have"
	}
	full.Logger.Warn("settings that this guard does not use", "stream", stream, "guard", guard, "unused", strings.Join(names, ", "))
}

// Validate returns an error that names the first invalid field and its valid
// values. Call it on a configuration WithDefaults.
func (c ProducerConfig) Validate() error {
	modes := []GuardMode{GuardStatic, GuardProportional, GuardAdaptive, GuardOff, GuardShadow}
	least := 1
	if c.decides() == GuardAdaptive {
		least = 0
	}
	return firstError(
		oneOf("Guard", c.Guard, modes...),
		oneOf("ShadowOf", c.ShadowOf, modes[:4]...),
		oneOf("LagSignal", c.LagSignal, SignalPending, SignalBacklog),
		oneOf("LagUnknown", c.LagUnknown, UnknownOpen, UnknownHold, UnknownDecay),
		between("LagWarn", c.LagWarn, -1, 1<<40),
		between("LagWarnSleep", c.LagWarnSleep, time.Millisecond, time.Hour),
		between("LagPause", c.LagPause, -1, 1<<40),
		ordered("LagWarn", c.LagWarn, "LagPause", c.LagPause),
		between("LagPoll", c.LagPoll, time.Millisecond, time.Minute),
		between("LagTTL", c.LagTTL, time.Second, 24*time.Hour),
		offOrBetween("LagCache", c.LagCache, -1, time.Millisecond, time.Minute),
		between("MaxDepth", c.MaxDepth, 1, 1<<40),
		between("BackpressureThreshold", c.BackpressureThreshold, 0.01, 1),
		between("BackpressureRetries", c.BackpressureRetries, -1, 20),
		between("BackpressureBaseDelay", c.BackpressureBaseDelay, time.Millisecond, time.Minute),
		between("LoadSheddingMaxRequests", c.LoadSheddingMaxRequests, least, 1<<30),
		between("ShedWindow", c.ShedWindow, time.Millisecond, time.Hour),
		oneOf("ShedScope", c.ShedScope, ShedProcess, ShedStream),
		between("ShedConcurrency", c.ShedConcurrency, 0, 1<<20),
		named("Budget", c.Budget),
		between("BudgetMaxDepth", c.BudgetMaxDepth, 1, 1<<40),
		between("WaitSLO", c.WaitSLO, time.Millisecond, 24*time.Hour),
	)
}

// AutoWorkers as PoolConfig.Workers makes a pool look for the number itself, from the
// number of CPUs to MaxWorkers, and follow when it changes.
const AutoWorkers = -1

// PoolConfig configures a Pool. A zero field means its default, given in its
// comment.
type PoolConfig struct {
	Workers       int           // handlers running at once: the number of CPUs; AutoWorkers: as many as do more than fewer would
	MaxWorkers    int           // 100: the most of AutoWorkers
	Batch         int           // 10: most messages per claim, and most claimed ahead of the workers: as many as they begin within 100 ms
	Block         time.Duration // 2s: longest wait per claim
	ReclaimAfter  time.Duration // 30s without a sign of life until others may take a message over
	MaxDeliveries int           // 3: then a message is moved to the dead letters; -1 = no limit
	DeadLetter    string        // the stream of the dead letters: the backend's default, see Info
	Consumer      string        // the pool's name, unique in the group: host-pid-random
	Expired       ExpiredMode   // dead_letter: what becomes of messages past their Deadline

	HandlerTimeout time.Duration // 10m: how long a handler may run; -1 = without end
	DrainTimeout   time.Duration // 30s for running handlers once Run's context has ended
	AckLinger      time.Duration // 5ms: how long a finished message waits to be acked together with others, ReclaimAfter/4 at most; -1 = not at all
	RetryBase      time.Duration // 1s after the first failed delivery, doubled with each further one, ±50 %
	RetryMax       time.Duration // 5m: the longest of these delays
	LagTTL         time.Duration // 10s: how long the published signal stays valid
	// Trim says whether what every group has acknowledged is removed from the stream.
	// The default is auto, or on if TrimEvery is set; under auto the stream's URL
	// decides if it says anything. A weir server always removes it.
	Trim      TrimMode
	TrimEvery time.Duration // 10s: how often to trim; -1 = never
	// UntilEmpty ends Run once the stream has had no undelivered and no pending
	// messages for this long; 0 = never. Messages that are not due yet (Message.Delay) stay.
	UntilEmpty time.Duration

	Hooks   Hooks
	Tracing Tracing
	Logger  *slog.Logger // slog.Default()
}

// WithDefaults returns a copy of c in which every zero field has its default.
func (c PoolConfig) WithDefaults() PoolConfig {
	or(&c.Workers, runtime.NumCPU())
	or(&c.MaxWorkers, 100)
	or(&c.Batch, 10)
	or(&c.Block, 2*time.Second)
	or(&c.ReclaimAfter, 30*time.Second)
	or(&c.MaxDeliveries, 3)
	if c.Consumer == "" {
		c.Consumer = newConsumer()
	}
	or(&c.Expired, ExpiredDeadLetter)
	or(&c.HandlerTimeout, 10*time.Minute)
	or(&c.DrainTimeout, 30*time.Second)
	or(&c.AckLinger, 5*time.Millisecond)
	or(&c.RetryBase, time.Second)
	or(&c.RetryMax, 5*time.Minute)
	or(&c.LagTTL, 10*time.Second)
	switch {
	case c.TrimEvery < 0:
		c.Trim = TrimOff
	case c.TrimEvery > 0:
		or(&c.Trim, TrimOn)
	}
	or(&c.Trim, TrimAuto)
	or(&c.TrimEvery, 10*time.Second)
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return c
}

// Validate returns an error that names the first invalid field and its valid
// values. Call it on a configuration WithDefaults.
func (c PoolConfig) Validate() error {
	err := firstError(
		workers(c.Workers),
		between("MaxWorkers", c.MaxWorkers, 1, 10_000),
		between("Batch", c.Batch, 1, 1000),
		between("Block", c.Block, 10*time.Millisecond, 30*time.Second),
		between("ReclaimAfter", c.ReclaimAfter, 100*time.Millisecond, 24*time.Hour),
		between("MaxDeliveries", c.MaxDeliveries, -1, 1<<30),
		oneOf("Expired", c.Expired, ExpiredDeadLetter, ExpiredDrop),
		offOrBetween("HandlerTimeout", c.HandlerTimeout, -1, time.Millisecond, 24*time.Hour),
		between("DrainTimeout", c.DrainTimeout, time.Millisecond, 24*time.Hour),
		offOrBetween("AckLinger", c.AckLinger, -1, time.Millisecond, time.Second),
		between("RetryBase", c.RetryBase, time.Millisecond, 24*time.Hour),
		between("RetryMax", c.RetryMax, time.Millisecond, 24*time.Hour),
		between("LagTTL", c.LagTTL, time.Second, 24*time.Hour),
		oneOf("Trim", c.Trim, TrimAuto, TrimOn, TrimOff),
		offOrBetween("TrimEvery", c.TrimEvery, -1, time.Millisecond, 24*time.Hour),
		offOrBetween("UntilEmpty", c.UntilEmpty, 0, time.Millisecond, 24*time.Hour),
	)
	switch {
	case err != nil:
		return err
	case c.RetryMax < c.RetryBase:
		return fmt.Errorf("RetryMax %s is less than RetryBase %s", c.RetryMax, c.RetryBase)
	case len(c.Consumer) > maxConsumerBytes:
		return fmt.Errorf("Consumer is longer than %d bytes", maxConsumerBytes)
	}
	return nil
}

func workers(n int) error {
	err := between("Workers", n, 1, 10_000)
	if n == AutoWorkers || err == nil {
		return nil
	}
	return fmt.Errorf("%w, or %d (AutoWorkers)", err, AutoWorkers)
}

// firstWorkers is with how many workers a pool begins.
func (c *PoolConfig) firstWorkers() int {
	if c.Workers == AutoWorkers {
		return min(runtime.NumCPU(), c.MaxWorkers)
	}
	return c.Workers
}

// mostWorkers is how many it ever has.
func (c *PoolConfig) mostWorkers() int {
	if c.Workers == AutoWorkers {
		return c.MaxWorkers
	}
	return c.Workers
}

// maxConsumerBytes is the limit of a node's name on a weir server.
const maxConsumerBytes = 128

// newConsumer returns a name that no other pool has.
func newConsumer() string {
	host, err := os.Hostname()
	if err != nil || host == "" {
		host = "host"
	}
	var unique [4]byte
	_, _ = rand.Read(unique[:]) // never fails
	return fmt.Sprintf("%s-%d-%s", host[:min(len(host), maxConsumerBytes/2)], os.Getpid(), hex.EncodeToString(unique[:]))
}

func or[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

func oneOf[T ~string](field string, value T, known ...T) error {
	names := make([]string, len(known))
	for i, k := range known {
		if value == k {
			return nil
		}
		names[i] = string(k)
	}
	return fmt.Errorf("%s %q is unknown; known: %s", field, value, strings.Join(names, ", "))
}

// named checks a name that becomes part of a key.
func named(field, value string) error {
	if len(value) > 128 || strings.ContainsFunc(value, func(r rune) bool { return r <= ' ' || r == 0x7f || r == '{' || r == '}' }) {
		return fmt.Errorf("%s %q is not a name: at most 128 bytes, without spaces, control characters and braces", field, value)
	}
	return nil
}

func between[T int | int64 | float64 | time.Duration](field string, value, low, high T) error {
	// A negative bound only stands for "off"; other negative values are invalid.
	if value >= low && value <= high && (value >= 0 || value == low) {
		return nil
	}
	if low < 0 {
		return fmt.Errorf("%s %v is out of range: use 1 to %v, or %v to turn it off", field, value, high, low)
	}
	return fmt.Errorf("%s %v is out of range: use %v to %v", field, value, low, high)
}

// offOrBetween is between for a time of which one value is off. A bare number, which Go takes
// for nanoseconds, is out of its range.
func offOrBetween(field string, value, off, low, high time.Duration) error {
	if value == off || value >= low && value <= high {
		return nil
	}
	return fmt.Errorf("%s %v is out of range: use %v to %v, or %d to turn it off", field, value, low, high, int(off))
}

// ordered refuses a soft limit above the hard one, where it would never be reached. A
// negative limit is off.
func ordered(soft string, warn int64, hard string, pause int64) error {
	if pause < 0 || warn <= pause {
		return nil
	}
	return fmt.Errorf("%s %d is above %s %d, so it would never be reached: lower it, or disable it with -1", soft, warn, hard, pause)
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
