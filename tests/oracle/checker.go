package oracle

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"
)

// Violation is one broken promise.
type Violation struct {
	Rule  string // D1 … D8, Q1 … Q6, "cap", "ttl", "config", "life", "route", "backup", "delay", "idempotency", "order", "state"
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

// Tally counts records by durability class, and what else was judged.
type Tally struct {
	Acked   map[string]int // acknowledged
	Lost    map[string]int // acknowledged or shown, and taken by a crash
	Copies  int            // records that a router had to copy, and did
	Lives   int            // of topics that were made again
	Changes int            // of a configuration
	Backups int            // with records in them
	Delayed int            // records with a delay that were claimed
}

// Checker holds a history against the promises. Events are added in any order
// between two crashes; a crash is added after everything sent before it and
// before everything sent after it.
type Checker struct {
	// DiskFlush is the longest time a disk record may stay unsynced.
	diskFlush time.Duration

	topics  map[string]*topic   // by name, the life that is or may be there
	ended   map[string][]*topic // while settling: lives that ended meanwhile
	feeds   map[string]*route   // by destination
	seen    map[string]bool     // names that were ever created
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
		feeds:     map[string]*route{},
		seen:      map[string]bool{},
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
	var backups []*Event
	for i := range events {
		e := &events[i]
		switch {
		case e.Kind == Route && e.Outcome != Fail:
			c.feeds[e.Router.Dest] = &route{Router: *e.Router, lo: e.Invoke, hi: e.Return, until: math.MaxInt64, life: c.life}
		case e.Kind == Unroute && e.Outcome != Fail:
			if f := c.feeds[e.Router.Dest]; f != nil && f.Name == e.Router.Name {
				f.until = e.Invoke
			}
		case e.Kind == Route || e.Kind == Unroute:
		case e.Kind == Backup:
			backups = append(backups, e)
		case e.Topic != "":
			byTopic[e.Topic] = append(byTopic[e.Topic], e)
		}
	}
	c.ended = map[string][]*topic{}
	var parts []life
	for name, list := range byTopic {
		parts = append(parts, c.livesOf(name, list)...)
	}
	// What a router copies is known before its copies are.
	slices.SortStableFunc(parts, func(a, b life) int { return cmp.Compare(c.depth(a.t.name), c.depth(b.t.name)) })
	for i := range parts {
		parts[i].t.feed = c.feeds[parts[i].t.name]
		parts[i].t.bindAll(parts[i].events)
	}
	for i := range parts {
		parts[i].t.removals(parts[i].events)
	}
	for i := range parts {
		parts[i].t.judge(parts[i].events)
		parts[i].t.settled(parts[i].events)
	}
	c.judgeRoutes()
	for _, e := range backups {
		c.judgeBackup(e, parts)
	}
	for i := range parts {
		if l := &parts[i]; l.over && c.topics[l.t.name] == l.t {
			delete(c.topics, l.t.name)
			delete(c.feeds, l.t.name)
		}
	}
	c.ended = nil
}

func (c *Checker) topic(name string) *topic {
	t := c.topics[name]
	if t == nil {
		t = newTopic(c, name)
		c.topics[name] = t
	}
	return t
}

func (t *topic) violation(rule string, seq uint64, format string, args ...any) {
	if len(t.c.found) < maxViolations {
		t.c.found = append(t.c.found, Violation{rule, t.name, seq, fmt.Sprintf(format, args...)})
	}
}
