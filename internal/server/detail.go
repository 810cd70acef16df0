package server

import (
	"maps"
	"slices"
	"strconv"

	"github.com/weirmq/weir"
	"github.com/weirmq/weir/backend/embedded"
	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/internal/board"
)

// maxHeld bounds the jobs and nodes on a topic's page, and maxDrawn the routers.
const (
	maxHeld  = 12
	maxDrawn = 60
)

// getDetail answers with what the page of a stream shows besides its numbers.
func (q *request) getDetail() error {
	name, ctx := q.topic(), q.r.Context()
	if q.s.board != nil {
		s, err := q.s.board.Find(ctx, name)
		if err != nil {
			return asAPI(err)
		}
		d, err := board.Examine(ctx, s)
		return q.sendJSON(&d, err)
	}
	state, err := q.eng.Topic(name, false)
	if err != nil {
		return err
	}
	b, err := embedded.On(ctx, q.eng, name)
	if err != nil {
		return asAPI(err)
	}
	s := weir.New(b)
	defer s.Close()
	d, err := board.Examine(ctx, s)
	if err != nil {
		return asAPI(err)
	}
	if state.Config.Type == api.TypeQueue {
		if err := q.addHeld(&d); err != nil {
			return err
		}
	}
	q.addRouters(&d)
	return q.sendJSON(&d, nil)
}

// addHeld adds the jobs under a lease and the nodes that hold them.
func (q *request) addHeld(d *board.Detail) error {
	held, nodes, err := q.eng.Held(q.topic(), maxHeld)
	if err != nil {
		return err
	}
	d.Held, d.Workers = []board.Held{}, []board.Worker{}
	for _, h := range held {
		left := h.Ends.Milliseconds()
		d.Held = append(d.Held, board.Held{ID: strconv.FormatUint(h.Seq, 10), Worker: h.Node, Deliveries: int64(h.Deliveries), LeaseMS: &left})
	}
	for _, node := range slices.Sorted(maps.Keys(nodes))[:min(len(nodes), maxHeld)] {
		d.Workers = append(d.Workers, board.Worker{Name: node, Holds: int64(nodes[node])})
	}
	return nil
}

// addRouters adds the routers that lead to or from the topic, on any number of steps, as far
// as the key may see them.
func (q *request) addRouters(d *board.Detail) {
	list := q.eng.Routers("", "", "", "", maxDrawn*10, q.allowed()).Routers
	near := map[string]bool{q.topic(): true}
	for grown := true; grown; {
		grown = false
		for i := range list {
			c := &list[i].Config
			if near[c.Source] != near[c.Dest] {
				near[c.Source], near[c.Dest], grown = true, true, true
			}
		}
	}
	for i := range list {
		r := &list[i]
		if near[r.Config.Source] && len(d.Routers) < maxDrawn {
			out := board.Router{Name: r.Router, Source: r.Config.Source, Dest: r.Config.Dest, Forwarded: r.ForwardedTotal}
			if f := r.Config.Filter; f != nil {
				if out.Filter = f.Value; f.Glob {
					out.Filter += "*"
				}
			}
			d.Routers = append(d.Routers, out)
		}
	}
}
