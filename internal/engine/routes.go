package engine

import (
	"slices"
	"sort"
	"sync"
	"sync/atomic"

	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/internal/op"
)

// router copies what is committed to its source into its destination.
type router struct {
	id           uint64
	name         string
	source, dest *entry

	cfg     atomic.Pointer[api.RouterConfig]
	turn    turn          // held by whoever moves it; see letGo
	passed  atomic.Bool   // a visit has come while somebody else had the turn
	pos     atomic.Uint64 // last number of the source dealt with; moved under turn
	gaveUp  atomic.Uint64 // up to here it waits for nothing that a cap took: its destination was full
	total   atomic.Uint64 // copies made
	gone    atomic.Bool   // it was deleted, or one of its topics was
	begun   atomic.Bool   // its creation is durable: before, it copies nothing
	stopped atomic.Bool   // the next copy is larger than its destination may ever hold
	waiting atomic.Bool   // its destination had no room
	next    atomic.Uint64 // number in the source of the record that had none
	size    atomic.Uint32 // of its copy
}

// routed is what a topic keeps of its routers.
type routed struct {
	out    atomic.Pointer[[]*router] // that have it as their source; nil if there is none
	in     atomic.Pointer[[]*router] // that have it as their destination; nil if there is none
	behind *behind                   // what caps took before the routers came to it; nil until they did
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

// waitFor says for which record of its source the router has no room. Whoever makes room looks at
// that, so it is said under the lock under which there was none, or before another look.
func (r *router) waitFor(seq uint64, size uint32) {
	r.next.Store(seq)
	r.size.Store(size)
	r.waiting.Store(true)
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

func (x *routes) edges() []edge {
	x.mu.RLock()
	defer x.mu.RUnlock()
	edges := make([]edge, 0, len(x.byName))
	for _, r := range x.byName {
		edges = append(edges, edge{Router: r.name, Source: r.source.Name, Dest: r.dest.Name})
	}
	return edges
}

// add lets a router work; the locks of its topics are held, or nobody else is
// there yet.
func (x *routes) add(r *router) {
	x.mu.Lock()
	x.byName[r.name] = r
	x.mu.Unlock()
	link(&r.source.routes.out, r)
	link(&r.dest.routes.in, r)
	r.source.rank.task.SetRouted(true)
}

// remove takes a router out.
func (x *routes) remove(r *router) {
	r.gone.Store(true)
	x.mu.Lock()
	if x.byName[r.name] == r {
		delete(x.byName, r.name)
	}
	x.mu.Unlock()
	unlink(&r.source.routes.out, r)
	unlink(&r.dest.routes.in, r)
	r.source.rank.task.SetRouted(r.source.hasRouters())
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

// routersOf returns the routers that have the topic as source or destination.
func (t *entry) routersOf() []*router {
	return append(append([]*router(nil), listOf(&t.routes.out)...), listOf(&t.routes.in)...)
}
