package rounds

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weirmq/weir/tests/oracle"
)

// routing is a set of topics with routers between them: every record of a log
// is copied once, and from there on into another; those with one tag go into a
// queue without their nodes; what is in memory goes into a queue that may be full.
type routing struct {
	targets []*target
	routers []oracle.Router
}

// newRouting names the next set.
func (l *Loop) newRouting() *routing {
	l.names++
	r := &routing{}
	add := func(role string, cfg oracle.Config) *target {
		t := &target{name: fmt.Sprintf("%s.%d", role, l.names), role: role, cfg: cfg}
		r.targets = append(r.targets, t)
		return t
	}
	route := func(from, to *target, with oracle.Router) {
		with.Name, with.Source, with.Dest = from.name+"-to-"+to.name, from.name, to.name
		r.routers = append(r.routers, with)
	}
	src := add("src-disk", oracle.Config{Class: oracle.Disk})
	mem := add("src-memory", oracle.Config{Class: oracle.Memory})
	once := add("rt-once", oracle.Config{Class: oracle.Disk})
	route(src, once, oracle.Router{ExactlyOnce: true})
	route(once, add("rt-chain", oracle.Config{Class: oracle.Fsync}), oracle.Router{})
	route(src, add("rtq-some", oracle.Config{Queue: true, Class: oracle.Fsync, LeaseMS: 200}), oracle.Router{Tag: "t1", DropNode: true})
	full := oracle.Config{Queue: true, Class: oracle.Disk, CapRecords: 150, Reject: true, LeaseMS: 200}
	route(mem, add("rtq-full", full), oracle.Router{ExactlyOnce: true})
	return r
}

// prepareRoutes makes the set of routers, now and then anew.
func (l *Loop) prepareRoutes(ctx context.Context) error {
	if l.routing != nil {
		if l.rnd.IntN(10) > 0 {
			return nil
		}
		if err := l.retireRoutes(ctx); err != nil {
			return err
		}
	}
	l.routing = l.newRouting()
	for _, t := range l.routing.targets {
		if err := l.must(l.client.Put(ctx, t.name, t.cfg)); err != nil {
			return err
		}
	}
	for _, r := range l.routing.routers {
		if err := l.must(l.client.PutRouter(ctx, r)); err != nil {
			return err
		}
	}
	l.targets = append(l.targets, l.routing.targets...)
	return nil
}

// retireRoutes ends the set: what it holds is read once more and deleted.
func (l *Loop) retireRoutes(ctx context.Context) error {
	old := l.routing
	l.routing = nil
	var names []string
	kept := l.targets[:0]
	for _, t := range l.targets {
		if t.routed() {
			names = append(names, t.name)
		} else {
			kept = append(kept, t)
		}
	}
	l.targets = kept
	if err := l.judgeAndDrop(ctx, names); err != nil {
		return err
	}
	for _, r := range old.routers {
		l.goneRouters = append(l.goneRouters, r.Name)
	}
	return nil
}

// routersStay checks that routers are there, and that deleted ones are not.
func (l *Loop) routersStay(ctx context.Context) error {
	l.goneRouters = l.goneRouters[max(0, len(l.goneRouters)-rememberGone):]
	for _, name := range l.goneRouters {
		if there, err := l.client.hasRouter(ctx, name); err != nil || there {
			return errors.Join(err, fmt.Errorf("router %s was deleted, and is there after a restart: %v", name, there))
		}
	}
	if l.routing == nil {
		return nil
	}
	for _, r := range l.routing.routers {
		if there, err := l.client.hasRouter(ctx, r.Name); err != nil || !there {
			return errors.Join(err, fmt.Errorf("router %s was created, and is there after a restart: %v", r.Name, there))
		}
	}
	return nil
}

// rewirer makes a router into a topic of its own, reads there, and takes it away.
func (a *actor) rewirer(ctx context.Context, sources []*target) {
	for n := 0; ctx.Err() == nil && a.pause(ctx, 30*time.Millisecond); n++ {
		r := oracle.Router{Name: fmt.Sprintf("rw%d.%d", a.id, n), Source: sources[a.rnd.IntN(len(sources))].name, Dest: fmt.Sprintf("rwd%d.%d", a.id, n)}
		r.ExactlyOnce = a.rnd.IntN(2) == 0
		a.rewired = append(a.rewired, rewired{router: r.Name})
		a.churned = append(a.churned, churned{name: r.Dest})
		if !a.record(a.client.PutRouter(ctx, r)) || !a.pause(ctx, 20*time.Millisecond) {
			return
		}
		e, _, err := a.client.Diff(ctx, r.Dest, 0, 200)
		if !a.record(e, err) {
			return
		}
		if a.rnd.IntN(2) == 0 { // else it goes with its topic
			e, err := a.client.DropRouter(ctx, r)
			a.rewired[n].dropped = e.Outcome == oracle.OK
			if !a.record(e, err) {
				return
			}
		}
		e, err = a.client.Drop(ctx, r.Dest)
		a.churned[n].dropped = e.Outcome == oracle.OK
		a.rewired[n].dropped = a.rewired[n].dropped || e.Outcome == oracle.OK
		if !a.record(e, err) {
			return
		}
	}
}
