package sim

import (
	"fmt"

	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/internal/engine"
)

// Two routers copy from one topic, which nothing but a write or a delete
// changes: all of it, and what has a tag, without its nodes.
const (
	routed   = "routed"
	copies   = "routed-all"
	filtered = "routed-some"
	passTag  = "t1"
)

// createRoutes makes the topics and their routers.
func (s *sim) createRoutes(e *engine.Engine) {
	cfg := api.DefaultConfig()
	cfg.Durability = api.Fsync
	for _, name := range []string{routed, copies, filtered} {
		if _, err := e.PutTopic(bg, name, cfg); err != nil {
			s.fail("%s: %v", name, err)
		}
		s.topics[name] = newTopic(cfg)
		s.journal.base[name] = s.topics[name]
	}
	for _, c := range []api.RouterConfig{
		{Dest: copies, PreserveNode: true, PreserveTag: true},
		{Dest: filtered, PreserveTag: true, Filter: &api.Predicate{Value: passTag}},
	} {
		c.Source = routed
		if _, err := e.PutRouter(bg, "to-"+c.Dest, c); err != nil {
			s.fail("router to %s: %v", c.Dest, err)
		}
	}
}

// writeRouted writes to the source; its copies are there with the answer.
func (s *sim) writeRouted() *call {
	req := &api.WriteRequest{Records: s.records(1 + s.rng.IntN(5))}
	s.count["routed"]++
	var res api.WriteResult
	c := &call{name: fmt.Sprintf("write %d to %s", len(req.Records), routed), topics: []string{routed, copies, filtered}}
	c.do = func(e *engine.Engine) (err error) { res, err = e.Write(bg, routed, req); return err }
	c.plan = func(c *call) plan {
		src, all, some := s.now(c, routed), s.now(c, copies), s.now(c, filtered)
		for i := range req.Records {
			r := recOf(&req.Records[i])
			r.ts = unknownTS
			src.append([]rec{r})
			all.append([]rec{r})
			if r.hasTag && r.tag == passTag {
				r.hasNode, r.node = false, ""
				some.append([]rec{r})
			}
		}
		want := src.head
		return plan{code: ok, after: map[string]*topic{routed: src, copies: all, filtered: some}, class: api.Fsync, check: func() error {
			if res.LastSeq != want || res.Count != len(req.Records) {
				return fmt.Errorf("%+v, want last %d", res, want)
			}
			return nil
		}}
	}
	return c
}
