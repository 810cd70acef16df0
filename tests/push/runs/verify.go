package runs

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/weirmq/weir/bench/load"
)

// verify reads a topic from its beginning to its head and compares it with what
// was acknowledged: the same numbers, each with its record, and nothing else.
// Of a capped topic the newest cap records are left behind one tombstone.
func (g *given) verify(c *caller) error {
	slices.SortFunc(g.batches, func(a, b batch) int { return cmp.Compare(a.first, b.first) })
	next := uint64(1)
	for _, b := range g.batches {
		if b.first != next {
			return fmt.Errorf("topic %s: a write was acknowledged at %d, the one before ended at %d", g.name, b.first, next-1)
		}
		next += uint64(b.count)
	}
	walk := expected{batches: g.batches}
	lost := uint64(0)
	if total := next - 1; g.cap > 0 && total > g.cap {
		lost = total - g.cap
		walk.skip(lost)
	}
	return eachPage(c, g.name, func(page []byte) error {
		if gap, _, ok := load.Number(page, "gap_to"); ok && gap != lost {
			return fmt.Errorf("topic %s: a tombstone up to %d, lost are %d", g.name, gap, lost)
		}
		return eachRecord(page, func(seq, n uint64) error {
			wantSeq, wantN, ok := walk.next()
			if !ok || seq != wantSeq || n != wantN {
				return fmt.Errorf("topic %s: record %d at %d, want record %d at %d", g.name, n, seq, wantN, wantSeq)
			}
			return nil
		})
	}, walk.done)
}

// verifyCopy checks that a router's destination has the records of its source in
// their order, each once.
func (g *given) verifyCopy(c *caller, dest string) error {
	walk := expected{batches: g.batches}
	position := uint64(0)
	return eachPage(c, dest, func(page []byte) error {
		return eachRecord(page, func(seq, n uint64) error {
			position++
			_, wantN, ok := walk.next()
			if !ok || n != wantN || seq != position {
				return fmt.Errorf("topic %s: record %d at %d, want record %d at %d", dest, n, seq, wantN, position)
			}
			return nil
		})
	}, walk.done)
}

// expected walks over acknowledged records in the order of their numbers.
type expected struct {
	batches []batch
	i       int // in the first batch
}

func (e *expected) next() (seq, n uint64, ok bool) {
	for len(e.batches) > 0 && e.i == e.batches[0].count {
		e.batches, e.i = e.batches[1:], 0
	}
	if len(e.batches) == 0 {
		return 0, 0, false
	}
	b := e.batches[0]
	e.i++
	return b.first + uint64(e.i-1), b.n + uint64(e.i-1), true
}

func (e *expected) skip(n uint64) {
	for range n {
		e.next()
	}
}

// done says what is missing at the head of a topic.
func (e *expected) done(topic string) error {
	if seq, n, ok := e.next(); ok {
		return fmt.Errorf("topic %s: record %d, acknowledged as %d, is missing and all after it", topic, n, seq)
	}
	return nil
}

// eachPage reads a topic by diff from 0 to its head.
func eachPage(c *caller, topic string, use func(page []byte) error, done func(topic string) error) error {
	for from := uint64(0); ; {
		body := fmt.Appendf(nil, `{"from_seq":%d,"limit":1000}`, from)
		page, err := c.do("POST", "/v0/topics/"+topic+"/diff", body)
		if err != nil {
			return err
		}
		if err := use(page); err != nil {
			return err
		}
		next, _, ok := load.Number(page, "next_from_seq")
		head, _, ok2 := load.Number(page, "head_seq")
		if !ok || !ok2 {
			return fmt.Errorf("diff of %s from %d: %.200s", topic, from, page)
		}
		if next == head {
			return done(topic)
		}
		if next <= from {
			return fmt.Errorf("diff of %s from %d does not move on", topic, from)
		}
		from = next
	}
}

// eachRecord finds the number of every record of a page and the n in its data.
func eachRecord(page []byte, use func(seq, n uint64) error) error {
	for {
		seq, rest, ok := load.Number(page, "$seq")
		if !ok {
			return nil
		}
		n, rest, ok := load.Number(rest, "n")
		if !ok {
			return fmt.Errorf("record %d has no n", seq)
		}
		if err := use(seq, n); err != nil {
			return err
		}
		page = rest
	}
}
