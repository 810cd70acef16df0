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

// GuardMode says how a producer answers to pressure.
type GuardMode string

// The modes of a guard.
const (
	GuardStatic       GuardMode = "static"       // fixed limits, a fixed sleep above the soft one
	GuardProportional GuardMode = "proportional" // the sleep grows with the signal
	GuardOff          GuardMode = "off"          // publishes straight through, still measures
	GuardShadow       GuardMode = "shadow"       // decides as ShadowOf says, does nothing, counts and logs
	GuardAdaptive     GuardMode = "adaptive"     // holds the wait below WaitSLO; not built yet, so it is refused
)

// SignalKind is the number that the lag limits are compared with.
type SignalKind string

// The signals.
const (
	SignalPending SignalKind = "pending" // what workers have taken and not finished
	SignalBacklog SignalKind = "backlog" // that and what nobody has taken yet
)

// UnknownPolicy is what a guard does while the signal is not known.
type UnknownPolicy string

// The policies.
const (
	UnknownOpen  UnknownPolicy = "open"  // publish: a paused producer does not help dead workers
	UnknownHold  UnknownPolicy = "hold"  // wait as above the hard limit
	UnknownDecay UnknownPolicy = "decay" // the last known value, halved every LagTTL
)

// TrimMode says whether a pool removes what every group has acknowledged from a stream
// that keeps it until it is told.
type TrimMode string

// The modes.
const (
	TrimAuto TrimMode = "auto" // if weir itself made the stream, a minute later
	TrimOn   TrimMode = "on"   // from any stream
	TrimOff  TrimMode = "off"  // never
)

// ShedScope is whose requests a window counts.
type ShedScope string

// The scopes.
const (
	ShedProcess ShedScope = "process" // those of all producers of the stream in this process
	ShedStream  ShedScope = "stream"  // those of all processes
)

// ProducerConfig configures a Producer and its guard. The zero value of a field
// is its default, given behind it; -1 switches a limit off where it says so.
type ProducerConfig struct {
	Guard    GuardMode // static
	ShadowOf GuardMode // static; used with GuardShadow

	LagWarn      int64         // 50: above it a publish sleeps once; -1 = off
	LagWarnSleep time.Duration // 500ms
	LagPause     int64         // 200: above it a publish waits until the signal is not; -1 = off
	LagPoll      time.Duration // 100ms: how often a waiting publish looks
	LagTTL       time.Duration // 10s: how long the workers' signal stays valid
	LagSignal    SignalKind    // pending
	LagUnknown   UnknownPolicy // open
	LagCache     time.Duration // 100ms: how old a reading may be; -1 = read before every publish

	MaxDepth              int64         // 10000 messages
	BackpressureThreshold float64       // 0.8: the share of MaxDepth from which a publish waits
	BackpressureRetries   int           // 3: looks at the depth before the publish is refused; -1 = none
	BackpressureBaseDelay time.Duration // 100ms before the first, doubled for each further one, ±50 %

	DisableLoadShedding     bool          // false
	LoadSheddingMaxRequests int           // 1000 requests in a window
	ShedWindow              time.Duration // 1s
	ShedScope               ShedScope     // process; stream: all processes of the stream share one window
	ShedWait                bool          // false; true: Publish sleeps until the window ends instead of being refused
	ShedConcurrency         int           // 0 = off: most publishes under way at once

	// WaitSLO is how long a message may wait for a worker: 30s. It is the goal of
	// the adaptive guard; the other modes do not use it.
	WaitSLO time.Duration

	Hooks  Hooks
	Logger *slog.Logger // slog.Default(); stages of trouble, each at most once a second
}

// WithDefaults returns the configuration with every zero field replaced.
func (c ProducerConfig) WithDefaults() ProducerConfig {
	or(&c.Guard, GuardStatic)
	or(&c.ShadowOf, GuardStatic)
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
	or(&c.LoadSheddingMaxRequests, 1000)
	or(&c.ShedWindow, time.Second)
	or(&c.ShedScope, ShedProcess)
	or(&c.WaitSLO, 30*time.Second)
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return c
}

// Validate returns the first error of a configuration with defaults; it names
// the field and what it may be.
func (c ProducerConfig) Validate() error {
	modes := []GuardMode{GuardStatic, GuardProportional, GuardOff, GuardShadow}
	return firstError(
		built("Guard", c.Guard), built("ShadowOf", c.ShadowOf),
		oneOf("Guard", c.Guard, modes...),
		oneOf("ShadowOf", c.ShadowOf, modes[:3]...),
		oneOf("LagSignal", c.LagSignal, SignalPending, SignalBacklog),
		oneOf("LagUnknown", c.LagUnknown, UnknownOpen, UnknownHold, UnknownDecay),
		between("LagWarn", c.LagWarn, -1, 1<<40),
		between("LagWarnSleep", c.LagWarnSleep, time.Millisecond, time.Hour),
		between("LagPause", c.LagPause, -1, 1<<40),
		ordered("LagWarn", c.LagWarn, "LagPause", c.LagPause),
		between("LagPoll", c.LagPoll, time.Millisecond, time.Minute),
		between("LagTTL", c.LagTTL, time.Second, 24*time.Hour),
		between("LagCache", c.LagCache, -1, time.Minute),
		between("MaxDepth", c.MaxDepth, 1, 1<<40),
		between("BackpressureThreshold", c.BackpressureThreshold, 0.01, 1),
		between("BackpressureRetries", c.BackpressureRetries, -1, 20),
		between("BackpressureBaseDelay", c.BackpressureBaseDelay, time.Millisecond, time.Minute),
		between("LoadSheddingMaxRequests", c.LoadSheddingMaxRequests, 1, 1<<30),
		between("ShedWindow", c.ShedWindow, time.Millisecond, time.Hour),
		oneOf("ShedScope", c.ShedScope, ShedProcess, ShedStream),
		between("ShedConcurrency", c.ShedConcurrency, 0, 1<<20),
		between("WaitSLO", c.WaitSLO, time.Millisecond, 24*time.Hour),
	)
}

// PoolConfig configures a Pool. The zero value of a field is its default, given
// behind it.
type PoolConfig struct {
	Workers       int           // the number of CPUs
	Batch         int           // 10: most messages of one claim
	Block         time.Duration // 2s: longest wait of one claim
	ReclaimAfter  time.Duration // 30s without a sign of life, and a message is anybody's
	MaxDeliveries int           // 3; -1 = no limit
	DeadLetter    string        // the backend's default
	Consumer      string        // host-pid-random; unique in the group

	HandlerTimeout time.Duration // 10m; -1 = none
	DrainTimeout   time.Duration // 30s for handlers under way once Run's context has ended
	AckLinger      time.Duration // 5ms: how long a finished message waits for others to be acked with
	RetryBase      time.Duration // 1s after the first failed delivery, doubled with each, ±50 %
	RetryMax       time.Duration // 5m
	LagTTL         time.Duration // 10s: how long the published signal stays valid
	// Trim is whether what every group has acknowledged is removed from the stream: auto,
	// or on if TrimEvery is given. A URL may say otherwise for auto. A weir server removes
	// it anyway.
	Trim      TrimMode
	TrimEvery time.Duration // 10s: how often that is done; -1 = never
	// UntilEmpty ends Run once the stream has had no work for this long, neither
	// undelivered nor pending: 0 = never.
	UntilEmpty time.Duration

	Hooks  Hooks
	Logger *slog.Logger // slog.Default()
}

// WithDefaults returns the configuration with every zero field replaced.
func (c PoolConfig) WithDefaults() PoolConfig {
	or(&c.Workers, runtime.NumCPU())
	or(&c.Batch, 10)
	or(&c.Block, 2*time.Second)
	or(&c.ReclaimAfter, 30*time.Second)
	or(&c.MaxDeliveries, 3)
	if c.Consumer == "" {
		c.Consumer = newConsumer()
	}
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

// Validate returns the first error of a configuration with defaults; it names
// the field and what it may be.
func (c PoolConfig) Validate() error {
	err := firstError(
		between("Workers", c.Workers, 1, 10_000),
		between("Batch", c.Batch, 1, 1000),
		between("Block", c.Block, 10*time.Millisecond, 30*time.Second),
		between("ReclaimAfter", c.ReclaimAfter, 100*time.Millisecond, 24*time.Hour),
		between("MaxDeliveries", c.MaxDeliveries, -1, 1<<30),
		between("HandlerTimeout", c.HandlerTimeout, -1, 24*time.Hour),
		between("DrainTimeout", c.DrainTimeout, time.Millisecond, 24*time.Hour),
		between("AckLinger", c.AckLinger, 0, time.Second),
		between("RetryBase", c.RetryBase, time.Millisecond, 24*time.Hour),
		between("RetryMax", c.RetryMax, time.Millisecond, 24*time.Hour),
		between("LagTTL", c.LagTTL, time.Second, 24*time.Hour),
		oneOf("Trim", c.Trim, TrimAuto, TrimOn, TrimOff),
		between("TrimEvery", c.TrimEvery, -1, 24*time.Hour),
		between("UntilEmpty", c.UntilEmpty, 0, 24*time.Hour),
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

// maxConsumerBytes is the limit of a node's name on a weir server.
const maxConsumerBytes = 128

// newConsumer makes a name that no other pool has.
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

func built(field string, mode GuardMode) error {
	if mode != GuardAdaptive {
		return nil
	}
	return fmt.Errorf("%s %q is not built yet: use %q or %q", field, mode, GuardProportional, GuardStatic)
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

func between[T int | int64 | float64 | time.Duration](field string, value, low, high T) error {
	// A negative bound only stands for "off"; what is between it and 0 is nothing.
	if value >= low && value <= high && (value >= 0 || value == low) {
		return nil
	}
	return fmt.Errorf("%s %v is out of range: use %v to %v", field, value, low, high)
}

// ordered refuses a soft limit that can never be reached before the hard one; a
// negative one is off.
func ordered(soft string, warn int64, hard string, pause int64) error {
	if pause < 0 || warn <= pause {
		return nil
	}
	return fmt.Errorf("%s %d is above %s %d, so it would never be reached: lower it, or turn it off with -1", soft, warn, hard, pause)
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
