package engine

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/weirmq/weir/internal/api"
)

func route(source, dest string, with ...func(*api.RouterConfig)) api.RouterConfig {
	c := api.RouterConfig{Source: source, Dest: dest, PreserveNode: true, PreserveTag: true, CreateDest: true}
	for _, f := range with {
		f(&c)
	}
	return c
}

func putRouter(t testing.TB, e *Engine, name, source, dest string, with ...func(*api.RouterConfig)) {
	t.Helper()
	if _, err := e.PutRouter(bg, name, route(source, dest, with...)); err != nil {
		t.Fatal(err)
	}
}

func wantFull(t testing.TB, e *Engine, topic, records, gaps string) {
	t.Helper()
	r, g := mustFull(t, e, topic)
	if fmt.Sprint(r) != records || fmt.Sprint(g) != gaps {
		t.Fatalf("topic %s holds %v with gaps %v, want %s and %s", topic, r, g, records, gaps)
	}
}

func forwarded(t testing.TB, e *Engine, router string) uint64 {
	t.Helper()
	s, err := e.Router(bg, router)
	if err != nil {
		t.Fatal(err)
	}
	return s.ForwardedTotal
}

func TestAReadOfTheDestinationHasEveryAcknowledgedWrite(t *testing.T) {
	e := openOn(t, vfs.NewMem(), "1")
	write(t, e, "in", "0")
	putRouter(t, e, "r", "in", "mid")
	putRouter(t, e, "s", "mid", "out")
	for i := range 20 {
		write(t, e, "in", fmt.Sprint(i))
		if s := stateOf(t, e, "out"); s.HeadSeq != uint64(i+1) {
			t.Fatalf("after %d writes the end of the chain is at %d", i+1, s.HeadSeq)
		}
	}
	if n := forwarded(t, e, "r"); n != 20 {
		t.Fatal(n)
	}
}

func TestARouterGoesOnAfterARestart(t *testing.T) {
	for _, sealed := range []bool{false, true} {
		fs := vfs.NewMem()
		e := openOn(t, fs, "1")
		putRouter(t, e, "r", "in", "out", func(c *api.RouterConfig) { c.Guarantee = api.ExactlyOnce })
		putRouter(t, e, "gone", "in", "out")
		write(t, e, "in", "1", "2")
		mustFull(t, e, "out")
		if _, err := e.DeleteRouter(bg, "gone"); err != nil {
			t.Fatal(err)
		}
		if sealed {
			sealNow(t, e)
		}
		write(t, e, "in", "3")
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
		e = openOn(t, fs, "1")
		write(t, e, "in", "4")
		if s := stateOf(t, e, "out"); s.HeadSeq != 6 {
			t.Fatal("sealed", sealed, s.HeadSeq)
		}
		if n := forwarded(t, e, "r"); n != 4 {
			t.Fatal(n)
		}
		if e.Metrics().Routers != 1 {
			t.Fatal(e.Metrics().Routers)
		}
	}
}

func TestALoopOfRoutersEnds(t *testing.T) {
	fs := vfs.NewMem()
	e := openOn(t, fs, "1")
	putRouter(t, e, "ab", "a", "b")
	_, err := e.PutRouter(bg, "ba", route("b", "a"))
	if !api.IsCode(err, api.CodeRouterCycle) || fmt.Sprint(err.(*api.Error).Detail["cycle"]) != "[b a b]" {
		t.Fatal(err)
	}
	putRouter(t, e, "ba", "b", "a", func(c *api.RouterConfig) { c.AllowCycle = true })
	write(t, e, "a", "1")
	for range 10 {
		stateOf(t, e, "a")
		stateOf(t, e, "b")
	}
	sealNow(t, e)
	for range 10 {
		stateOf(t, e, "a")
		stateOf(t, e, "b")
	}
	if a, b := stateOf(t, e, "a").HeadSeq, stateOf(t, e, "b").HeadSeq; a+b != 1+api.MaxHops {
		t.Fatalf("one write has become %d and %d records", a, b)
	}
}

func TestARefusedRouterCreatesNothing(t *testing.T) {
	e := openOn(t, vfs.NewMem(), "1", func(o *Options) {
		o.Limits = api.DefaultLimits()
		o.Limits.MaxTopics, o.Limits.MaxRouters = 3, 1
	})
	_, err := e.PutRouter(bg, "r", route("in", "out", func(c *api.RouterConfig) { c.CreateDest = false }))
	if !api.IsCode(err, api.CodeTopicNotFound) {
		t.Fatal(err)
	}
	put(t, e, "a", api.DefaultConfig())
	put(t, e, "b", api.DefaultConfig())
	if _, err := e.PutRouter(bg, "r", route("in", "out")); !api.IsCode(err, api.CodeThrottled) {
		t.Fatal(err)
	}
	if n := e.Metrics(); n.Topics != 2 || n.Routers != 0 {
		t.Fatal(n.Topics, n.Routers)
	}
	putRouter(t, e, "r", "a", "b")
	for name, cfg := range map[string]api.RouterConfig{
		"router_dest_fan_in": route("c", "b"), "max_routers": route("a", "c"),
	} {
		if _, err := e.PutRouter(bg, "s", cfg); err == nil || !strings.Contains(fmt.Sprint(err.(*api.Error).Detail), name) {
			t.Fatal(name, err)
		}
	}
	if _, err := e.PutRouter(bg, "r", route("a", "c")); err == nil || err.(*api.Error).Detail["existing_dest"] != "b" {
		t.Fatal(err)
	}
}

func TestADeletedTopicTakesItsRoutersAlong(t *testing.T) {
	fs := vfs.NewMem()
	e := openOn(t, fs, "1")
	putRouter(t, e, "z", "a", "b")
	putRouter(t, e, "y", "b", "c")
	res, err := e.DeleteTopic(bg, "b", false)
	if err != nil || fmt.Sprint(res.RoutersRemoved) != "[y z]" {
		t.Fatal(res, err)
	}
	write(t, e, "b", "1")
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	e = openOn(t, fs, "1")
	write(t, e, "a", "1")
	if n := e.Metrics().Routers; n != 0 || stateOf(t, e, "b").HeadSeq != 1 {
		t.Fatal(n)
	}
}

func TestAFilterLetsMatchingTagsPass(t *testing.T) {
	e := openOn(t, vfs.NewMem(), "1")
	putRouter(t, e, "r", "in", "out", func(c *api.RouterConfig) {
		c.Filter, c.PreserveNode = &api.Predicate{Glob: true, Value: "a"}, false
	})
	for _, tag := range []string{"a1", "b1", "a2"} {
		_, err := e.Write(bg, "in", &api.WriteRequest{Records: []api.Record{{Data: []byte(`"` + tag + `"`), HasTag: true, Tag: []byte(tag), HasNode: true, Node: []byte("n")}}})
		if err != nil {
			t.Fatal(err)
		}
	}
	write(t, e, "in", "1")
	wantFull(t, e, "out", `[1="a1" 2="a2"]`, "[]")
	if n := forwarded(t, e, "r"); n != 2 {
		t.Fatal(n)
	}
}
