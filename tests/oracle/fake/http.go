package fake

import (
	"encoding/json"
	"net/http"
	"strings"
)

type object = map[string]any

// ServeHTTP answers the /v0 calls the fake knows.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/v0/ready" {
		answer(w, 200, object{"status": "ready"})
		return
	}
	if name, ok := strings.CutPrefix(r.URL.Path, "/v0/routers/"); ok {
		s.router(w, r, name)
		return
	}
	name, verb, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/v0/topics/"), "/")
	var body request
	if r.Method == http.MethodPost || r.Method == http.MethodPut {
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			refuse(w, 400, "invalid_request", err.Error())
			return
		}
	}
	s.calls.Lock()
	defer s.calls.Unlock()
	switch {
	case r.Method == http.MethodPut:
		s.Put(name, body.Config)
		answer(w, 201, object{"topic": name})
	case r.Method == http.MethodDelete:
		s.Drop(name)
		answer(w, 200, object{"topic": name, "deleted": true})
	case r.Method == http.MethodGet && name == "":
		s.list(w)
	case r.Method == http.MethodPost && verb == "" && (body.Create == nil || *body.Create):
		s.write(w, name, &body)
	default:
		s.mu.Lock()
		known := s.topics[name] != nil
		s.mu.Unlock()
		if !known {
			refuse(w, 404, "topic_not_found", "no topic "+name)
			return
		}
		s.existing(w, name, verb, &body)
	}
}

type request struct {
	Config
	Records []struct {
		Data json.RawMessage `json:"data"`
		Tag  *string         `json:"tag"`
		Node *string         `json:"node"`
		Meta json.RawMessage `json:"meta"`

		DelayMS int64 `json:"delay_ms"`
	} `json:"records"`
	Key      string   `json:"idempotency_key"`
	Create   *bool    `json:"create"`
	From     uint64   `json:"from_seq"`
	Limit    int      `json:"limit"`
	Before   uint64   `json:"before_seq"`
	Match    []string `json:"match"`
	Node     string   `json:"node"`
	Max      int      `json:"max"`
	Seqs     []uint64 `json:"seqs"`
	LeaseIDs []string `json:"lease_ids"`
	DelayMS  int64    `json:"delay_ms"`
}

func (s *Server) existing(w http.ResponseWriter, name, verb string, body *request) {
	switch verb {
	case "":
		if body.Records != nil {
			s.write(w, name, body)
			return
		}
		s.state(w, name)
	case "diff":
		s.diff(w, name, body)
	case "delete":
		var tag *string
		if len(body.Match) == 3 {
			tag = &body.Match[2]
		}
		n := s.Delete(name, body.Before, tag)
		s.mu.Lock()
		t := s.topics[name]
		reply := object{"topic": name, "deleted": n, "earliest_seq": t.earliest(), "head_seq": t.head, "count": len(t.live), "bytes": t.bytes()}
		s.mu.Unlock()
		answer(w, 200, reply)
	case "claim":
		out := []object{}
		for _, c := range s.Claim(name, body.Node, max(body.Max, 1), body.LeaseMS) {
			o := c.object(false)
			o["lease_id"], o["deadline"], o["deliveries"] = c.Lease, c.Deadline, c.Deliveries
			out = append(out, o)
		}
		answer(w, 200, object{"topic": name, "claimed": out, "count": len(out)})
	case "ack", "nack", "extend":
		skipped, deadline := s.Settle(verb, name, body.Node, body.Seqs, body.LeaseIDs, body.DelayMS, max(body.LeaseMS, 100))
		deadlines := object{}
		for _, seq := range body.Seqs {
			deadlines[jsonNumber(seq)] = deadline
		}
		for _, seq := range skipped {
			delete(deadlines, jsonNumber(seq))
		}
		answer(w, 200, object{"topic": name, verb + "ed": len(body.Seqs) - len(skipped), "skipped": skipped, "deadlines": deadlines})
	default:
		refuse(w, 404, "not_found", "no such path")
	}
}

func (s *Server) write(w http.ResponseWriter, name string, body *request) {
	recs := make([]Record, len(body.Records))
	for i, r := range body.Records {
		recs[i] = Record{Data: string(r.Data), Tag: r.Tag, Node: r.Node, Meta: string(r.Meta), Delay: r.DelayMS}
	}
	first, last, head, deduped, ok := s.Write(name, body.Key, recs)
	if !ok {
		refuse(w, 422, "topic_full", "no room")
		return
	}
	answer(w, 200, object{"topic": name, "first_seq": first, "last_seq": last, "head_seq": head, "count": len(recs), "deduped": deduped})
}

func (s *Server) diff(w http.ResponseWriter, name string, body *request) {
	if body.Limit == 0 {
		body.Limit = 256
	}
	recs, next, head, earliest, gapTo, reason, _ := s.Diff(name, body.From, min(body.Limit, 1000))
	out := []object{}
	for i := range recs {
		out = append(out, recs[i].object(true))
	}
	var tomb any
	if gapTo > 0 || reason == "recreated" {
		tomb = object{"gap_from": body.From + 1, "gap_to": gapTo, "reason": reason}
	}
	answer(w, 200, object{"topic": name, "records": out, "next_from_seq": next, "head_seq": head,
		"earliest_seq": earliest, "caught_up": next == head, "tombstone": tomb})
}

func (s *Server) state(w http.ResponseWriter, name string) {
	s.mu.Lock()
	t := s.topic(name)
	if t == nil {
		s.mu.Unlock()
		refuse(w, 404, "topic_not_found", "no topic "+name)
		return
	}
	reply := object{"topic": name, "type": t.cfg.Type, "head_seq": t.head, "earliest_seq": t.earliest(), "count": len(t.live), "bytes": t.bytes(), "config": t.cfg}
	s.mu.Unlock()
	answer(w, 200, reply)
}

func (s *Server) list(w http.ResponseWriter) {
	s.mu.Lock()
	out := []object{}
	for name := range s.topics {
		out = append(out, object{"topic": name})
	}
	s.mu.Unlock()
	answer(w, 200, object{"topics": out})
}

func (r *Record) object(node bool) object {
	o := object{"$seq": r.Seq, "$ts": r.TS, "data": json.RawMessage(r.Data)}
	if r.Tag != nil {
		o["$tag"] = *r.Tag
	}
	if r.Node != nil && node {
		o["$node"] = *r.Node
	}
	if r.Meta != "" {
		o["meta"] = json.RawMessage(r.Meta)
	}
	return o
}

func jsonNumber(n uint64) string {
	b, _ := json.Marshal(n) // a number always encodes
	return string(b)
}

func answer(w http.ResponseWriter, status int, body object) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(body) // the client has gone
}

func refuse(w http.ResponseWriter, status int, code, text string) {
	answer(w, status, object{"error": object{"code": code, "message": text}})
}
