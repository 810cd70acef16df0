package server

import (
	"errors"
	"net/http"
	"slices"

	"github.com/weirmq/weir/internal/api"
)

// putRouter creates a router or replaces the fields that may change.
func (q *request) putRouter() error {
	name := q.path.seg[2]
	cfg, err := api.DecodeRouter(q.body, &q.warnings)
	if err != nil {
		return err
	}
	if err := q.strict(); err != nil {
		return err
	}
	if err := q.key.allowsEnds(cfg.Source, cfg.Dest); err != nil {
		return err
	}
	if q.checkEnds() != nil { // the existing router, whose topics the client did not name
		return api.Errorf(api.CodeForbidden, "the router has a topic outside the prefixes of the key")
	}
	if err := api.CheckRouter(name, &cfg); err != nil {
		return err
	}
	res, err := q.eng.PutRouter(q.r.Context(), name, cfg)
	if err != nil {
		return q.key.withoutNames(err)
	}
	q.out = api.AppendPutRouter(q.out[:0], name, &res, q.millis())
	status := http.StatusOK
	if res.Created {
		status = http.StatusCreated
	}
	return q.send(status)
}

// allowsEnds refuses a router with a topic outside the key's prefixes.
func (k *apiKey) allowsEnds(source, dest string) error {
	if !k.allows(source) {
		return errBodyPrefix("source", source)
	}
	if !k.allows(dest) {
		return errBodyPrefix("dest", dest)
	}
	return nil
}

// checkEnds is allowsEnds for the router in the path, if it exists.
func (q *request) checkEnds() error {
	if source, dest, ok := q.eng.RouterEnds(q.path.seg[2]); ok {
		return q.key.allowsEnds(source, dest)
	}
	return nil
}

// withoutNames removes other keys' routers and topics from a refusal by the router
// graph, if the key may not know them.
func (k *apiKey) withoutNames(err error) error {
	e, ok := errors.AsType[*api.Error](err)
	if !ok || !k.limited() {
		return err
	}
	switch {
	case e.Code == api.CodeRouterCycle:
		names, _ := e.Detail["cycle"].([]string)
		own := slices.DeleteFunc(slices.Clone(names), func(name string) bool { return !k.allows(name) })
		if len(own) < len(names) {
			return api.Errorf(e.Code, "the router is part of a loop, some of it outside the prefixes of the key; send \"allow_cycle\": true if that is meant").
				With("cycle", own)
		}
	case e.Detail["reason"] == "router_dest_fan_in":
		return &api.Error{Code: e.Code, Message: "another router already feeds dest; give each source its own destination", Detail: e.Detail}
	}
	return err
}

// getRouter answers with the state of a router.
func (q *request) getRouter() error {
	if err := q.checkEnds(); err != nil {
		return err
	}
	state, err := q.eng.Router(q.r.Context(), q.path.seg[2])
	if err != nil {
		return err
	}
	q.out = api.AppendRouterState(q.out[:0], &state, q.millis())
	return q.send(http.StatusOK)
}

// listRouters answers with one page of the routers that the key may see.
func (q *request) listRouters() error {
	p, err := q.page()
	if err != nil {
		return err
	}
	list := q.eng.Routers(p.prefix, p.query.Get("source"), p.query.Get("dest"), p.after, p.size, p.allowed)
	q.out = api.AppendRouterList(q.out[:0], &list, q.millis())
	return q.send(http.StatusOK)
}

// deleteRouter deletes a router; its copies stay.
func (q *request) deleteRouter() error {
	if err := q.checkEnds(); err != nil {
		return err
	}
	name := q.path.seg[2]
	deleted, err := q.eng.DeleteRouter(q.r.Context(), name)
	if err != nil {
		return err
	}
	q.out = api.AppendDeleteRouter(q.out[:0], name, deleted, q.millis())
	return q.send(http.StatusOK)
}
