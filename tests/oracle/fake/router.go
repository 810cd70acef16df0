package fake

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
)

// Router is a router as the fake knows it: it copies within the write.
type Router struct {
	Name         string   `json:"-"`
	Source       string   `json:"source"`
	Dest         string   `json:"dest"`
	Filter       []string `json:"filter"`
	PreserveNode bool     `json:"preserve_node"`
	Guarantee    string   `json:"guarantee"`

	pos uint64
}

// PutRouter creates a router between topics that are there.
func (s *Server) PutRouter(r Router) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.topics[r.Dest] == nil {
		s.topics[r.Dest] = newTopic(Config{Durability: "disk"})
	}
	r.pos = s.topics[r.Source].head
	s.routers[r.Name] = &r
	s.topics[r.Source].routed, s.topics[r.Dest].routed = true, true
}

// forward lets all routers copy what they can. s.mu is held.
func (s *Server) forward() {
	for again := true; again; {
		again = false
		for _, id := range slices.Sorted(maps.Keys(s.routers)) {
			r := s.routers[id]
			for _, rec := range s.topics[r.Source].live {
				if rec.Seq <= r.pos {
					continue
				}
				if !s.forwardOne(r, rec) {
					break
				}
				r.pos, again = rec.Seq, true
			}
		}
	}
}

// forwardOne copies a record if the router has to; false if there is no room.
func (s *Server) forwardOne(r *Router, rec *Record) bool {
	d := s.topics[r.Dest]
	if len(r.Filter) == 3 && (rec.Tag == nil || *rec.Tag != r.Filter[2]) || s.Break == SkipCopy && s.rng.IntN(50) == 0 {
		return true
	}
	c := r.copy(rec)
	if d.cfg.Discard == "reject" && d.over(uint64(len(d.live))+1, d.bytes()+uint64(len(c.Data)+len(c.Meta))) {
		return false
	}
	d.append(c, s.ms())
	if s.Break == CopyTwice && s.rng.IntN(50) == 0 {
		d.append(c, s.ms())
	}
	d.evict(false)
	return true
}

func (r *Router) copy(rec *Record) Record {
	c := *rec
	if !r.PreserveNode {
		c.Node = nil
	}
	if r.Guarantee == "exactly_once" {
		mark := fmt.Sprintf(`"_topics_router":{"idempotency_key":"k","router":%q,"source_topic":%q,"source_seq":%d}}`, r.Name, r.Source, rec.Seq)
		if c.Meta == "" {
			c.Meta = "{" + mark
		} else {
			c.Meta = c.Meta[:len(c.Meta)-1] + "," + mark
		}
	}
	return c
}

// router answers the calls of /v0/routers.
func (s *Server) router(w http.ResponseWriter, req *http.Request, name string) {
	switch req.Method {
	case http.MethodPut:
		r := Router{Name: name, PreserveNode: true}
		if err := json.NewDecoder(req.Body).Decode(&r); err != nil {
			refuse(w, 400, "invalid_request", err.Error())
			return
		}
		s.PutRouter(r)
	case http.MethodDelete:
		s.mu.Lock()
		delete(s.routers, name)
		s.mu.Unlock()
	default:
		s.mu.Lock()
		_, ok := s.routers[name]
		s.mu.Unlock()
		if !ok {
			refuse(w, 404, "router_not_found", "no router "+name)
			return
		}
	}
	answer(w, 200, object{"router": name})
}

// Copy is a server with the state of this one: a backup, restored.
func (s *Server) Copy() *Server {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := New(s.now)
	c.leases = s.leases
	for id, r := range s.routers {
		k := *r
		c.routers[id] = &k
	}
	for name, t := range s.topics {
		k := *t
		k.live, k.keys, k.jobs = slices.Clone(t.live), maps.Clone(t.keys), map[uint64]*job{}
		k.crashed = slices.Clone(t.crashed)
		late := s.Break == LateBackup && len(name)%2 == 0
		if n := len(k.live); n > 0 && (late || s.Break == PartialBackup) {
			k.live = k.live[:n-1]
		}
		c.topics[name] = &k
	}
	return c
}
