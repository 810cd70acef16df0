// Package router holds what routers have to think about and nothing else: the
// graph of topics that they make, and which numbers of a source are still to be
// had after a cap took them. No I/O, clock or lock.
package router

// Edge is a router between two topics.
type Edge struct{ Router, Source, Dest string }

// FanIn returns a router other than the one named that feeds dest from another
// source, and whether there is one.
func FanIn(edges []Edge, e Edge) (Edge, bool) {
	for _, have := range edges {
		if have.Dest == e.Dest && have.Source != e.Source && have.Router != e.Router {
			return have, true
		}
	}
	return Edge{}, false
}

// Cycle returns the loop that the edge from source to dest closes over the
// others: source, dest, …, source; nil if there is none.
func Cycle(edges []Edge, source, dest string) []string {
	next := make(map[string][]string)
	for _, e := range edges {
		next[e.Source] = append(next[e.Source], e.Dest)
	}
	before := map[string]string{dest: source}
	for todo := []string{dest}; len(todo) > 0; todo = todo[1:] {
		at := todo[0]
		if at == source {
			return loop(before, source, dest)
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

// loop walks back from source to dest and turns the way round.
func loop(before map[string]string, source, dest string) []string {
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
