package engine

import (
	"context"
	"strings"

	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/internal/wal"
)

// PutRouter creates a router, or replaces those fields of an existing one that
// can change. Topics that are missing are created with it, in one operation.
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

// checkRouter refuses a router that the graph of routers does not allow.
func (e *Engine) checkRouter(name string, cfg *api.RouterConfig, have *router) error {
	if !cfg.CreateDest && !e.TopicExists(cfg.Dest) {
		return api.TopicNotFound(cfg.Dest)
	}
	edges := e.routes.edges()
	if other, ok := fanIn(edges, edge{Router: name, Source: cfg.Source, Dest: cfg.Dest}); ok {
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
	if cycle := cycleOf(edges, cfg.Source, cfg.Dest); cycle != nil && !cfg.AllowCycle {
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
	defer e.letGo(r)
	part := r.part(cfg)
	if err := e.logControl(part.Encode(nil)); err != nil {
		return err
	}
	r.cfg.Store(cfg)
	e.mark(r.source) // it may have waited to copy what it does not copy any more
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
	e.catchUp(ctx, r.dest.Name)
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

// RouterEnds returns the topics of a router, for callers that check who may see
// it.
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
	defer e.letGo(r)
	if err := e.copyLast(ctx, r); err != nil {
		return false, err
	}
	part := r.dropPart()
	if err := e.logControl(part.Encode(nil)); err != nil {
		return false, err
	}
	e.routes.remove(r)
	e.releaseBehind(r.source)
	return true, nil
}
