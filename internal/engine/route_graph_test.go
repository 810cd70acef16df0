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
