package oracle

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// Violation is one broken promise.
type Violation struct {
	Rule  string // D1 … D8, Q1 … Q6, "cap", "idempotency", "order"
	Topic string
	Seq   uint64 // 0 if it is not about one record
	Text  string
}

func (v Violation) String() string {
	if v.Seq == 0 {
		return fmt.Sprintf("%s %s: %s", v.Rule, v.Topic, v.Text)
	}
	return fmt.Sprintf("%s %s seq %d: %s", v.Rule, v.Topic, v.Seq, v.Text)
}

// maxViolations bounds what is kept: the first ones tell the story.
const maxViolations = 200

// clockSlack is how far times that server and client took may disagree, in ms:
// both cut to whole milliseconds.
const clockSlack = 2

// Tally counts records by durability class.
type Tally struct {
	Acked map[string]int // acknowledged
	Lost  map[string]int // acknowledged or shown, and taken by a crash
}

// Checker holds a history against the promises. Events are added in any order
// between two crashes; a crash is added after everything sent before it and
// before everything sent after it.
type Checker struct {
	// DiskFlush is the longest time a disk record may stay unsynced.
	diskFlush time.Duration

	topics  map[string]*topic
	pending []Event
	found   []Violation
	life    int // crashes so far
	tally   Tally
}

// New returns a checker for a server that syncs disk records within diskFlush.
func New(diskFlush time.Duration) *Checker {
	return &Checker{
		diskFlush: diskFlush,
		topics:    map[string]*topic{},
		tally:     Tally{Acked: map[string]int{}, Lost: map[string]int{}},
	}
}

// Check holds a whole history, in the order of its crashes, against the promises.
func Check(events []Event, diskFlush time.Duration) []Violation {
	c := New(diskFlush)
	for _, e := range events {
		c.Add(e)
	}
	c.Settle()
	return c.Violations()
}

// Add takes one more event.
func (c *Checker) Add(e Event) {
	if e.Kind != Crash {
		c.pending = append(c.pending, e)
		return
	}
	c.Settle()
	c.life++
	for _, t := range c.topics {
		t.crash(&e)
	}
}

// Violations are the broken promises found so far, at most 200.
func (c *Checker) Violations() []Violation { return c.found }

// Tally returns the counts so far.
func (c *Checker) Tally() Tally { return c.tally }

// Topics is how many topics the checker follows.
func (c *Checker) Topics() int { return len(c.topics) }

// Settle checks everything added since the last time. No operation may be
// under way: what an operation did is only known once all answers are there.
func (c *Checker) Settle() {
	events := c.pending
	c.pending = nil
	slices.SortStableFunc(events, func(a, b Event) int { return cmp.Compare(a.Return, b.Return) })
	byTopic := map[string][]*Event{}
	for i := range events {
		e := &events[i]
		if e.Topic == "" {
			continue
		}
		t := c.topic(e.Topic)
		if e.Kind == Put && e.Outcome != Fail {
			c.configure(t, e.Config)
		}
		byTopic[e.Topic] = append(byTopic[e.Topic], e)
	}
	for name, list := range byTopic {
		c.topics[name].bindAll(list)
	}
	for name, list := range byTopic {
		c.topics[name].removals(list)
	}
	for name, list := range byTopic {
		c.topics[name].judge(list)
	}
	for name, list := range byTopic {
		if slices.ContainsFunc(list, func(e *Event) bool { return e.Kind == Drop && e.Outcome != Fail }) {
			delete(c.topics, name)
		}
	}
}

func (c *Checker) topic(name string) *topic {
	t := c.topics[name]
	if t == nil {
		t = newTopic(c, name)
		c.topics[name] = t
	}
	return t
}

func (c *Checker) configure(t *topic, cfg *Config) {
	t.cfg = *cfg
	if cfg.CapRecords > 0 && !cfg.Reject && (t.minCap == 0 || cfg.CapRecords < t.minCap) {
		t.minCap = cfg.CapRecords
	}
	if cfg.DeadLetter != "" {
		c.topic(cfg.DeadLetter).deadLetters = true
	}
}

func (t *topic) violation(rule string, seq uint64, format string, args ...any) {
	if len(t.c.found) < maxViolations {
		t.c.found = append(t.c.found, Violation{rule, t.name, seq, fmt.Sprintf(format, args...)})
	}
}
