package oracle

import (
	"math"
	"slices"
	"strings"
)

// life is one life of a topic, and what was done to it since the last time.
type life struct {
	t        *topic
	from, to int64 // sent its creation, answered its end
	born     int64 // answered its creation
	dying    int64 // sent its end
	over     bool  // surely
	events   []*Event
}

// livesOf shares the events of a name out to its lives. What overlaps with two
// of them may have happened in either.
func (c *Checker) livesOf(name string, events []*Event) []life {
	lives := c.boundaries(name, events)
	for _, e := range events {
		switch {
		case e.Kind == Put || e.Kind == Drop:
		case e.Kind == State && e.Quiet && (e.Outcome != OK || len(lives) == 0):
		default:
			c.attribute(name, lives, e)
		}
	}
	for i := range lives[:max(len(lives), 1)-1] {
		c.ended[name] = append(c.ended[name], lives[i].t)
	}
	return lives
}

// boundaries finds where lives begin and end.
func (c *Checker) boundaries(name string, events []*Event) []life {
	var lives []life
	if c.topics[name] != nil || !c.seen[name] && events[0].Kind != Put {
		lives = append(lives, life{t: c.topic(name), from: math.MinInt64, born: math.MinInt64, to: math.MaxInt64, dying: math.MaxInt64})
	}
	for _, e := range events {
		k := len(lives) - 1
		switch {
		case e.Kind == Put && e.Outcome != Fail:
			if k < 0 || lives[k].over {
				t := newTopic(c, name)
				if t.again = k >= 0 || c.seen[name]; t.again {
					c.tally.Lives++
				}
				t.maybe = e.Outcome == Unknown
				lives = append(lives, life{t: t, from: e.Invoke, born: e.Return, to: math.MaxInt64, dying: math.MaxInt64})
				c.topics[name] = t
				k++
			} else if len(lives[k].t.settings) > 0 {
				c.tally.Changes++
			}
			c.seen[name] = true
			lives[k].t.set(e)
		case e.Kind == Drop && e.Outcome != Fail && k >= 0 && !lives[k].over:
			lives[k].dying, lives[k].to = e.Invoke, e.Return
			lives[k].over = e.Outcome == OK
			if !lives[k].over {
				lives[k].t.maybe, lives[k].to = true, math.MaxInt64
			}
		case e.Kind == State && e.Quiet && k >= 0:
			lives[k].present(e)
		case e.Kind == State && e.Quiet && e.Outcome == OK:
			newTopic(c, name).violation("life", 0, "deleted, and there again")
		}
	}
	return lives
}

// present learns from a quiet state whether the topic is there.
func (l *life) present(e *Event) {
	switch {
	case e.Outcome == OK && l.over:
		l.t.violation("life", 0, "deleted, and there again")
	case e.Outcome == OK:
		l.t.maybe, l.dying = false, math.MaxInt64
	case e.Outcome != Fail || l.over:
	case !l.t.maybe:
		l.t.violation("life", 0, "gone, although nothing deleted it: %s", e.Note)
		fallthrough
	default:
		l.over, l.dying, l.to = true, min(l.dying, e.Invoke), e.Return
	}
}

// attribute gives an event to the life in which it happened.
func (c *Checker) attribute(name string, lives []life, e *Event) {
	var may []*life
	for i := range lives {
		if l := &lives[i]; l.from < e.Return && e.Invoke < l.to {
			may = append(may, l)
		}
	}
	switch {
	case len(may) == 0:
		if e.Outcome == OK {
			newTopic(c, name).violation("life", e.First, "a %s was answered although the topic was deleted and not made again", e.Kind)
		}
	case len(may) == 1:
		may[0].judgeMissing(e)
		may[0].events = append(may[0].events, e)
	case e.Outcome == Fail:
	case e.Kind == Claim:
		for _, l := range may {
			for _, j := range e.Jobs {
				l.t.loose[j.Lease] = true
			}
		}
	case e.Kind == Read || e.Kind == State:
	default:
		for _, l := range may {
			l.events = append(l.events, perhaps(e))
		}
	}
}

// perhaps is an event that happened in this life or in another.
func perhaps(e *Event) *Event {
	p := *e
	p.Outcome, p.First, p.Last, p.Head, p.Deduped = Unknown, 0, 0, 0, false
	p.Items = slices.Clone(e.Items)
	for i := range p.Items {
		p.Items[i].Accepted = false
	}
	return &p
}

// judgeMissing finds an answer that says that a living topic is not there.
func (l *life) judgeMissing(e *Event) {
	if e.Outcome == Fail && strings.HasPrefix(e.Note, "404") && !l.t.maybe && l.born <= e.Invoke && e.Return <= l.dying {
		l.t.violation("life", 0, "a %s was answered that the topic is not there: %s", e.Kind, e.Note)
	}
}

// lifeWith is the life of a name that a batch was written in, nil if none is known.
func (c *Checker) lifeWith(name string, b BatchID) *topic {
	if t := c.topics[name]; t != nil && t.batches[b] != nil {
		return t
	}
	for _, t := range c.ended[name] {
		if t.batches[b] != nil {
			return t
		}
	}
	return nil
}
