package engine

// edge is a router between two topics.
type edge struct{ Router, Source, Dest string }

// fanIn returns a router other than the one named that feeds dest from another
// source, and whether there is one.
func fanIn(edges []edge, e edge) (edge, bool) {
	for _, have := range edges {
		if have.Dest == e.Dest && have.Source != e.Source && have.Router != e.Router {
			return have, true
		}
	}
	return edge{}, false
}

// cycleOf returns the loop that the edge from source to dest closes over the
// others: source, dest, …, source; nil if there is none.
func cycleOf(edges []edge, source, dest string) []string {
	next := make(map[string][]string)
	for _, e := range edges {
		next[e.Source] = append(next[e.Source], e.Dest)
	}
	before := map[string]string{dest: source}
	for todo := []string{dest}; len(todo) > 0; todo = todo[1:] {
		at := todo[0]
		if at == source {
			return loopBack(before, source, dest)
		}
		for _, to := range next[at] {
			if _, seen := before[to]; !seen {
				before[to] = at
				todo = append(todo, to)
			}
		}
	}
	return nil
}

// loopBack walks back from source to dest and returns the way in the right
// order.
func loopBack(before map[string]string, source, dest string) []string {
	back := []string{source}
	for at := before[source]; at != dest; at = before[at] {
		back = append(back, at)
	}
	cycle := []string{source, dest}
	for i := len(back) - 1; i >= 0; i-- {
		cycle = append(cycle, back[i])
	}
	return cycle
}
