package engine

import (
	"slices"

	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/internal/op"
	"github.com/weirmq/weir/internal/wal"
)

// createRouter logs a router together with those of its topics that do not
// exist yet, all or nothing.
func (e *Engine) createRouter(name string, cfg *api.RouterConfig) error {
	for {
		again, err := e.tryCreateRouter(name, cfg)
		if !again {
			return err
		}
	}
}

// tryCreateRouter is one attempt; again says that a topic changed under it.
func (e *Engine) tryCreateRouter(name string, cfg *api.RouterConfig) (again bool, err error) {
	var p pair
	defer func() { p.end(e) }()
	// New topics have the highest numbers and nobody waits for them while
	// holding another, so their locks may come first.
	for i, topic := range [2]string{cfg.Source, cfg.Dest} {
		if p.t[i] = e.reg.get(topic); p.t[i] != nil {
			continue
		}
		t, created, err := e.register(topic, api.DefaultConfig())
		if err != nil {
			return false, err
		}
		if !created {
			t.mu.Unlock()
			return true, nil
		}
		p.t[i], p.fresh[i] = t, true
	}
	if wait, t := p.lockOld(e); t != nil {
		p.end(e)
		e.unblock(t, wait)
		return true, nil
	}
	e.routes.lastID++
	r := newRouter(&op.Route{ID: e.routes.lastID, Name: name, Config: *cfg, Pos: p.t[0].Head}, p.t[0], p.t[1])
	tk, err := e.logRouter(&p, r, cfg)
	if err != nil {
		return e.again(e.stop, 1, err)
	}
	e.routes.add(r)
	p.unlock()
	if err := e.wait(tk); err != nil {
		e.routes.remove(r)
		e.releaseBehind(r.source)
		for i, t := range p.t {
			if p.fresh[i] {
				e.unblock(t, tk)
			}
		}
		return false, storageError(err)
	}
	for i, t := range p.t {
		if p.fresh[i] {
			e.commit(t, tk)
		}
	}
	r.begun.Store(true)
	e.mark(r.source)
	return false, nil
}

// logRouter puts the beginning of the topics and of the router into the log.
func (e *Engine) logRouter(p *pair, r *router, cfg *api.RouterConfig) (ticket, error) {
	var head []byte
	for i, t := range p.t {
		if p.fresh[i] {
			head, _ = e.reserveHead(createParts(head, t), t, t.PlannedHead())
		}
	}
	part := r.part(cfg)
	head = part.Encode(head)
	gen := e.log.Gen()
	lsn, _, err := e.log.AppendUnslotted(gen, head, nil, noFrames, wal.Synced)
	if err != nil {
		return ticket{}, storageOr(err)
	}
	for i, t := range p.t {
		if p.fresh[i] {
			t.reserve.logged(lsn, gen)
			e.stageCreate(t, lsn, gen)
			p.logged = true
		}
	}
	return ticket{lsn, gen, wal.Synced}, nil
}

// pair is the source and the destination of a router in the making, with their
// locks held.
type pair struct {
	t      [2]*entry
	fresh  [2]bool // registered just now, in no log yet
	held   [2]bool // an old one whose lock is held
	logged bool
	done   bool
}

// lockOld takes the locks of the topics that were there already, in the order
// of their numbers; a topic that is blocked is returned with what to wait
// for.
func (p *pair) lockOld(e *Engine) (ticket, *entry) {
	order := [2]int{0, 1}
	if p.t[0].ID > p.t[1].ID {
		order = [2]int{1, 0}
	}
	for _, i := range order {
		if p.fresh[i] {
			continue
		}
		t := p.t[i]
		t.mu.Lock()
		p.held[i] = true
		if wait, ok := t.blocked(); ok {
			return wait, t
		}
		e.advance(t)
	}
	return ticket{}, nil
}

func (p *pair) unlock() {
	p.done = true
	for i, t := range p.t {
		if t != nil && (p.fresh[i] || p.held[i]) {
			t.mu.Unlock()
		}
	}
}

// end gives back everything that was not logged.
func (p *pair) end(e *Engine) {
	if p.done {
		return
	}
	for i, t := range p.t {
		if p.fresh[i] && !p.logged {
			t.dropped = true
		}
	}
	p.unlock()
	for i, t := range p.t {
		if p.fresh[i] && !p.logged {
			e.reg.remove(t)
		}
	}
}

// restore takes in a router of the store; recovery is single.
func (x *routes) restore(r op.Route) {
	x.recovered[r.ID] = &r
	x.lastID = max(x.lastID, r.ID)
}

// replay applies a part of the log if it is one of a router's. A cursor of an
// unknown router is from a copy that was under way when it ended.
func (x *routes) replay(p *op.Part) bool {
	switch p.Kind {
	case op.KindRouter:
		x.restore(*p.Route)
	case op.KindRouterDrop:
		delete(x.recovered, p.Router)
	case op.KindCursor:
		if r := x.recovered[p.Router]; r != nil {
			r.Apply(p)
		}
	default:
		return false
	}
	return true
}

// adoptRouters starts those recovered routers whose two topics exist.
func (e *Engine) adoptRouters() {
	for _, r := range e.routes.recovered {
		source, dest := e.reg.byID[r.Source], e.reg.byID[r.Dest]
		if source != nil && dest != nil {
			known := newRouter(r, source, dest)
			known.begun.Store(true)
			e.routes.add(known)
			e.mark(source)
		}
	}
	e.routes.recovered = nil
}

// dropParts encodes the end of a topic and of its routers.
func dropParts(t *entry, routers []*router) []byte {
	var dst []byte
	for _, r := range routers {
		part := r.dropPart()
		dst = part.Encode(dst)
	}
	part := op.Part{Kind: op.KindDrop, Topic: t.ID}
	return part.Encode(dst)
}

// removeRouters takes routers out and returns their names in order.
func (e *Engine) removeRouters(routers []*router) []string {
	names := make([]string, 0, len(routers))
	for _, r := range routers {
		e.routes.remove(r)
		e.releaseBehind(r.source)
		names = append(names, r.name)
	}
	slices.Sort(names)
	return names
}
