package engine

import (
	"fmt"
	"testing"

	"github.com/weirmq/weir/internal/op"
)

func TestALoopIsNamedFromItsSource(t *testing.T) {
	edges := []edge{{"1", "a", "b"}, {"2", "b", "c"}, {"3", "b", "d"}}
	for _, c := range []struct{ source, dest, want string }{
		{"c", "a", "[c a b c]"}, {"b", "a", "[b a b]"}, {"a", "c", "[]"}, {"d", "a", "[d a b d]"}, {"x", "a", "[]"},
	} {
		if got := fmt.Sprint(cycleOf(edges, c.source, c.dest)); got != c.want {
			t.Errorf("%s to %s: %s, want %s", c.source, c.dest, got, c.want)
		}
	}
}

func TestOnlyAnotherRouterFromAnotherSourceIsFanIn(t *testing.T) {
	edges := []edge{{"r", "a", "d"}}
	for e, want := range map[edge]bool{{"s", "b", "d"}: true, {"r", "b", "d"}: false, {"s", "a", "d"}: false, {"s", "b", "e"}: false} {
		if _, got := fanIn(edges, e); got != want {
			t.Errorf("%v: %v", e, got)
		}
	}
}

func TestWhatACapTookIsReadBeforeItIsLost(t *testing.T) {
	var b behind
	b.take(2, 5, []op.Range{{From: 3, To: 3}, {From: 5, To: 5}})
	b.take(5, 6, []op.Range{{From: 6, To: 6}})
	if lost, r, ok := b.next(0, 6); lost != 2 || r.From != 3 || !ok {
		t.Fatal(lost, r, ok)
	}
	if lost, r, ok := b.next(3, 6); lost != 0 || r.From != 5 || !ok {
		t.Fatal(lost, r, ok)
	}
	b.release(6)
	if lost, _, ok := b.next(4, 6); lost != 2 || ok || !b.empty() {
		t.Fatal(lost, ok)
	}
}

// What a cap took is kept for routers up to a bound: beyond it, and where it does not follow what is kept, they have lost
// the earlier part.
func TestWhatACapTookIsBounded(t *testing.T) {
	const half = maxBehind / 2
	all := func(from, to uint64) []op.Range { return []op.Range{{From: from, To: to}} }
	for what, c := range map[string]struct {
		takes       [][2]uint64 // from, to
		passed      uint64      // by all routers, in front of the last
		pos, lost   uint64
		from, until uint64 // what is read next; 0: nothing is left
	}{
		"as much as may be":              {takes: [][2]uint64{{0, half}, {half, maxBehind}}, from: 1, until: half},
		"more":                           {takes: [][2]uint64{{0, half}, {half, maxBehind + 1}}, lost: half, from: half + 1, until: maxBehind + 1},
		"more, of which some was passed": {takes: [][2]uint64{{0, half}, {half, maxBehind}, {maxBehind, maxBehind + half}}, passed: half, pos: half, from: half + 1, until: maxBehind},
		"further behind":                 {takes: [][2]uint64{{2, 5}, {7, 9}}, pos: 2, lost: 5, from: 8, until: 9},
		"too much at once":               {takes: [][2]uint64{{0, maxBehind + 1}}, lost: maxBehind + 1},
		"too much behind something":      {takes: [][2]uint64{{0, 4}, {4, maxBehind + 5}}, pos: 2, lost: maxBehind + 3},
	} {
		var b behind
		for i, take := range c.takes {
			if i == len(c.takes)-1 {
				b.release(c.passed)
			}
			b.take(take[0], take[1], all(take[0]+1, take[1]))
		}
		loss := c.takes[len(c.takes)-1][1]
		lost, r, ok := b.next(c.pos, loss)
		if want := (op.Range{From: c.from, To: c.until}); lost != c.lost || ok != (c.from > 0) || ok && r != want || !ok && (r.From != loss+1 || !b.empty()) {
			t.Errorf("%s: lost %d and then %+v (%t), want %d and %+v", what, lost, r, ok, c.lost, want)
		}
	}
}
