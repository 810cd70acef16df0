package engine

import (
	"context"
	"slices"
	"sort"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/weirmq/weir/internal/api"
	rooms "github.com/weirmq/weir/internal/engine/router"
	"github.com/weirmq/weir/internal/op"
	"github.com/weirmq/weir/internal/wal"
)

// router copies what is committed to its source into its destination.
type router struct {
	id           uint64
	name         string
	source, dest *entry

	cfg     atomic.Pointer[api.RouterConfig]
	turn    turn          // held by whoever moves it
	pos     atomic.Uint64 // last number of the source dealt with; moved under turn
	total   atomic.Uint64 // copies made
	gone    atomic.Bool   // it was deleted, or one of its topics was
	begun   atomic.Bool   // its creation is durable: before, it copies nothing
	stopped atomic.Bool   // the next copy is larger than its destination may ever hold
	waiting atomic.Bool   // its destination had no room
}

func newRouter(r *op.Route, source, dest *entry) *router {
	x := &router{id: r.ID, name: r.Name, source: source, dest: dest, turn: make(turn, 1)}
	cfg := r.Config
	cfg.Source, cfg.Dest = source.Name, dest.Name
	x.cfg.Store(&cfg)
	x.pos.Store(r.Pos)
	x.total.Store(r.Total)
	return x
}

func (r *router) state() api.RouterState {
	return api.RouterState{Router: r.name, Config: *r.cfg.Load(), ForwardedTotal: r.total.Load()}
}

// part is what the log says of the router when it begins or changes.
func (r *router) part(cfg *api.RouterConfig) op.Part {
	return op.Part{Kind: op.KindRouter, Topic: r.source.ID, Router: r.id, Route: &op.Route{ID: r.id, Source: r.source.ID, Dest: r.dest.ID,
		Name: r.name, Config: *cfg, Pos: r.pos.Load(), Total: r.total.Load()}}
}

func (r *router) dropPart() op.Part {
	return op.Part{Kind: op.KindRouterDrop, Topic: r.source.ID, Router: r.id}
}

// routes are all routers. A change of them holds change throughout, the lock of
// the map only for a moment.
type routes struct {
	change turn
	lastID uint64 // guarded by change

	mu     sync.RWMutex
	byName map[string]*router

	recovered map[uint64]*op.Route // during recovery, by number
}

func (x *routes) init() {
	x.change = make(turn, 1)
	x.byName = make(map[string]*router)
	x.recovered = make(map[uint64]*op.Route)
}

func (x *routes) get(name string) *router {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.byName[name]
}

func (x *routes) len() int {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return len(x.byName)
}

// sorted returns all routers in the order of their names.
func (x *routes) sorted() []*router {
	x.mu.RLock()
	all := make([]*router, 0, len(x.byName))
	for _, r := range x.byName {
		all = append(all, r)
	}
	x.mu.RUnlock()
	sort.Slice(all, func(i, j int) bool { return all[i].name < all[j].name })
	return all
}

func (x *routes) edges() []rooms.Edge {
	x.mu.RLock()
	defer x.mu.RUnlock()
	edges := make([]rooms.Edge, 0, len(x.byName))
	for _, r := range x.byName {
		edges = append(edges, rooms.Edge{Router: r.name, Source: r.source.Name, Dest: r.dest.Name})
	}
	return edges
}

// add lets a router work; the locks of its topics are held, or nobody else is
// there yet.
func (x *routes) add(r *router) {
	x.mu.Lock()
	x.byName[r.name] = r
	x.mu.Unlock()
	link(&r.source.routers, r)
	link(&r.dest.feeders, r)
	r.source.task.SetRouted(true)
}

// remove takes a router out.
func (x *routes) remove(r *router) {
	r.gone.Store(true)
	x.mu.Lock()
	if x.byName[r.name] == r {
		delete(x.byName, r.name)
	}
	x.mu.Unlock()
	unlink(&r.source.routers, r)
	unlink(&r.dest.feeders, r)
	r.source.task.SetRouted(r.source.hasRouters())
}

// link and unlink replace a list, since others read it; change is held.
func link(list *atomic.Pointer[[]*router], r *router) {
	next := append(slices.Clone(listOf(list)), r)
	list.Store(&next)
}

func unlink(list *atomic.Pointer[[]*router], r *router) {
	next := slices.DeleteFunc(slices.Clone(listOf(list)), func(o *router) bool { return o == r })
	if len(next) == 0 {
		list.Store(nil)
		return
	}
	list.Store(&next)
}

func listOf(list *atomic.Pointer[[]*router]) []*router {
	if p := list.Load(); p != nil {
		return *p
	}
	return nil
}

// take waits for a turn, or for the end of ctx.
func (t turn) take(ctx context.Context) error {
	select {
	case t <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// PutRouter creates a router or replaces the fields of an existing one that may
// change. Topics that are missing are created with it, in one operation.
func (e *Engine) PutRouter(ctx context.Context, name string, cfg api.RouterConfig) (api.PutRouterResult, error) {
	defer guard()
	if err := e.usable(); err != nil {
		return api.PutRouterResult{}, err
	}
	if err := api.CheckRouter(name, &cfg); err != nil {
		return api.PutRouterResult{}, err
	}
	if err := e.routes.change.take(ctx); err != nil {
		return api.PutRouterResult{}, err
	}
	defer e.routes.change.Unlock()
	have := e.routes.get(name)
	if err := e.checkRouter(name, &cfg, have); err != nil {
		return api.PutRouterResult{}, err
	}
	cfg.CreateDest = true
	var err error
	if have != nil {
		err = e.changeRouter(ctx, have, &cfg)
	} else {
		err = e.createRouter(name, &cfg)
	}
	if err != nil {
		return api.PutRouterResult{}, err
	}
	return api.PutRouterResult{Created: have == nil, Config: cfg}, nil
}

// checkRouter refuses what the graph of routers does not allow.
func (e *Engine) checkRouter(name string, cfg *api.RouterConfig, have *router) error {
	if !cfg.CreateDest && !e.TopicExists(cfg.Dest) {
		return api.TopicNotFound(cfg.Dest)
	}
	edges := e.routes.edges()
	edge := rooms.Edge{Router: name, Source: cfg.Source, Dest: cfg.Dest}
	if other, ok := rooms.FanIn(edges, edge); ok {
		return api.Errorf(api.CodeTopicExistsIncompatible, "topic %q is fed from %q by router %q already; give each source a destination of its own", cfg.Dest, other.Source, other.Router).
			With("topic", cfg.Dest).With("reason", "router_dest_fan_in")
	}
	if have != nil && (have.source.Name != cfg.Source || have.dest.Name != cfg.Dest) {
		return api.Errorf(api.CodeTopicExistsIncompatible, "router %q copies from %q to %q; delete it before it can have other topics", name, have.source.Name, have.dest.Name).
			With("router", name).With("reason", "router_repoint_forbidden").
			With("existing_source", have.source.Name).With("existing_dest", have.dest.Name)
	}
	if limit := e.opt.Limits.MaxRouters; have == nil && limit > 0 && int64(len(edges)) >= limit {
		return api.OverLimit("max_routers", limit)
	}
	if cycle := rooms.Cycle(edges, cfg.Source, cfg.Dest); cycle != nil && !cfg.AllowCycle {
		return api.Errorf(api.CodeRouterCycle, "the router is part of a loop: %s; send \"allow_cycle\": true if that is meant", strings.Join(cycle, " to ")).
			With("cycle", cycle)
	}
	return nil
}

// changeRouter logs other fields of a router; nothing is copied meanwhile.
func (e *Engine) changeRouter(ctx context.Context, r *router, cfg *api.RouterConfig) error {
	if err := r.turn.take(ctx); err != nil {
		return err
	}
	defer r.turn.Unlock()
	part := r.part(cfg)
	if err := e.logControl(part.Encode(nil)); err != nil {
		return err
	}
	r.cfg.Store(cfg)
	return nil
}

// logControl logs a change of routers and returns once it is synced.
func (e *Engine) logControl(parts []byte) error {
	gen := e.log.Gen()
	lsn, _, err := e.log.AppendUnslotted(gen, parts, nil, noFrames, wal.Synced)
	if err != nil {
		return storageError(err)
	}
	return storageError(e.wait(ticket{lsn, gen, wal.Synced}))
}

// Router returns the state of a router, with all that was acknowledged in its
// source counted.
func (e *Engine) Router(ctx context.Context, name string) (api.RouterState, error) {
	defer guard()
	if err := e.usable(); err != nil {
		return api.RouterState{}, err
	}
	r := e.routes.get(name)
	if r == nil {
		return api.RouterState{}, api.RouterNotFound(name)
	}
	e.pull(ctx, r.dest.Name)
	return r.state(), nil
}

// Routers returns one page of the routers in the order of their names: names
// with the prefix, behind the name after, from source to dest (empty: any), all
// of whose names allowed accepts (nil: all).
func (e *Engine) Routers(prefix, source, dest, after string, pageSize int, allowed func(string) bool) api.RouterList {
	defer guard()
	var list api.RouterList
	for _, r := range e.routes.sorted() {
		if r.name <= after || !strings.HasPrefix(r.name, prefix) || source != "" && r.source.Name != source || dest != "" && r.dest.Name != dest {
			continue
		}
		if allowed != nil && !(allowed(r.name) && allowed(r.source.Name) && allowed(r.dest.Name)) {
			continue
		}
		if len(list.Routers) == pageSize {
			list.More = true
			break
		}
		list.Routers = append(list.Routers, r.state())
		list.Last = r.name
	}
	return list
}

// RouterEnds returns the topics of a router, for those who limit who may see it.
func (e *Engine) RouterEnds(name string) (source, dest string, ok bool) {
	defer guard()
	if r := e.routes.get(name); r != nil {
		return r.source.Name, r.dest.Name, true
	}
	return "", "", false
}

// DeleteRouter ends a router; an absent one is no error. Its copies stay.
func (e *Engine) DeleteRouter(ctx context.Context, name string) (deleted bool, err error) {
	defer guard()
	if err := e.usable(); err != nil {
		return false, err
	}
	if err := e.routes.change.take(ctx); err != nil {
		return false, err
	}
	defer e.routes.change.Unlock()
	r := e.routes.get(name)
	if r == nil {
		return false, nil
	}
	if err := r.turn.take(ctx); err != nil {
		return false, err
	}
	defer r.turn.Unlock()
	part := r.dropPart()
	if err := e.logControl(part.Encode(nil)); err != nil {
		return false, err
	}
	e.routes.remove(r)
	e.releaseBehind(r.source)
	return true, nil
}
