package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirmq/weir/tests/capture"
)

// fakeServer is as much of a /v0 server as the commands call, with switches for
// what a real one does only on bad days.
type fakeServer struct {
	*httptest.Server

	mu     sync.Mutex
	topics map[string]*fakeTopic
	wake   chan struct{} // closed and replaced at each change

	fault   func(verb string) fault // asked once per request
	verbs   map[string]int          // requests by verb
	refuse  string                  // a write with this text in a record is 400
	authz   []string                // Authorization headers seen
	window  int                     // the topics' idempotency_window_ms
	forgets bool                    // reported leases are skipped, as after a restart
	watches []fakeWatch             // watch sessions; the wid is the number
}

// fakeWatch is a watch session of one topic.
type fakeWatch struct {
	topic string
	from  int
}

// fault is what happens to one request.
type fault int

const (
	faultNone       fault = iota
	faultDrop             // the connection breaks before anything is done
	faultLoseAnswer       // it is done and the connection breaks
	faultThrottle         // 429
	faultNotReady         // 503
	faultUnreadable       // 500: a record cannot be read
	faultLog              // 500: the log cannot be written
)

type fakeTopic struct {
	config  map[string]any
	records []json.RawMessage // by seq−1; nil = deleted
	keys    map[string]map[string]any
	jobs    map[uint64]*fakeLease
	gaps    []map[string]any // tombstones to hand out, first come
	dead    int
}

type fakeLease struct {
	id         string
	node       string
	until      time.Time
	due        time.Time
	deliveries int
	held       bool
}

func newFakeServer(t *testing.T) *fakeServer {
	f := &fakeServer{
		topics: map[string]*fakeTopic{}, verbs: map[string]int{},
		wake: make(chan struct{}), window: 120_000,
		fault: func(string) fault { return faultNone },
	}
	f.Server = httptest.NewServer(f)
	t.Cleanup(f.Close)
	return f
}

func (f *fakeServer) topic(name string) *fakeTopic {
	t := f.topics[name]
	if t == nil {
		t = &fakeTopic{keys: map[string]map[string]any{}, jobs: map[uint64]*fakeLease{}, config: map[string]any{}}
		f.topics[name] = t
	}
	return t
}

// data are the live records of a topic in order.
func (f *fakeServer) data(name string) []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []string
	for _, r := range f.topic(name).records {
		if r != nil {
			out = append(out, string(r))
		}
	}
	return out
}

func (f *fakeServer) add(name string, values ...string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	t := f.topic(name)
	for _, v := range values {
		t.records = append(t.records, json.RawMessage(v))
	}
	f.changed()
}

func (f *fakeServer) changed() {
	close(f.wake)
	f.wake = make(chan struct{})
}

func (f *fakeServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name, verb, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/v0/topics/"), "/")
	if verb == "" {
		verb = r.Method
	}
	if strings.HasPrefix(r.URL.Path, "/v0/watch") {
		name, verb = strings.TrimPrefix(r.URL.Path, "/v0/watch/"), "watch"
	}
	var body map[string]json.RawMessage
	_ = json.NewDecoder(r.Body).Decode(&body)
	f.mu.Lock()
	f.verbs[verb]++
	f.authz = append(f.authz, r.Header.Get("Authorization"))
	trouble := f.fault(verb)
	f.mu.Unlock()
	switch trouble {
	case faultDrop:
		panic(http.ErrAbortHandler)
	case faultThrottle:
		w.Header().Set("Retry-After", "1")
		answerError(w, 429, "throttled", map[string]any{"retry_after_ms": 20})
		return
	case faultNotReady:
		answerError(w, 503, "not_ready", nil)
		return
	case faultUnreadable:
		answerError(w, 500, "internal", map[string]any{"storage": map[string]any{"operation": "read", "error": "EIO"}})
		return
	case faultLog:
		answerError(w, 500, "internal", map[string]any{"storage": map[string]any{"operation": "write", "error": "EIO"}})
		return
	}
	switch {
	case verb == "diff":
		f.waitFor(r, name, body)
	case verb == "watch" && r.Method == http.MethodGet:
		f.stream(w, r, name)
		return
	}
	f.mu.Lock()
	status, out := f.handle(name, verb, body)
	f.mu.Unlock()
	if trouble == faultLoseAnswer {
		panic(http.ErrAbortHandler)
	}
	if status/100 != 2 {
		answerError(w, status, out["code"].(string), nil)
		return
	}
	if verb != "watch" {
		out["topic"] = name
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(out)
}

func answerError(w http.ResponseWriter, status int, code string, detail map[string]any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]any{"error": map[string]any{"code": code, "message": "as the test wants it", "detail": detail}})
}

func field[T any](body map[string]json.RawMessage, name string) (v T) {
	if raw, ok := body[name]; ok {
		if err := json.Unmarshal(raw, &v); err != nil {
			panic(fmt.Sprintf("field %s: %v", name, err))
		}
	}
	return v
}

func (f *fakeServer) waitFor(r *http.Request, name string, body map[string]json.RawMessage) {
	end := time.After(time.Duration(field[int](body, "wait_ms")) * time.Millisecond)
	for {
		f.mu.Lock()
		t := f.topics[name]
		ready := t == nil || uint64(len(t.records)) > field[uint64](body, "from_seq") || len(t.gaps) > 0
		wake := f.wake
		f.mu.Unlock()
		if ready {
			return
		}
		select {
		case <-wake:
		case <-end:
			return
		case <-r.Context().Done():
			return
		}
	}
}

func (f *fakeServer) handle(name, verb string, body map[string]json.RawMessage) (int, map[string]any) {
	t := f.topics[name]
	if verb == "watch" {
		return f.openWatch(body)
	}
	if t == nil && verb != "PUT" && verb != "POST" {
		return 404, map[string]any{"code": "topic_not_found"}
	}
	switch verb {
	case "PUT":
		f.topic(name).config = fieldsOf(body)
		return 201, map[string]any{}
	case "GET":
		return 200, f.state(t, name)
	case "POST":
		return f.write(name, body)
	case "diff":
		return 200, t.diff(body)
	case "claim":
		if t.config["type"] == "log" {
			return 409, map[string]any{"code": "not_a_queue"}
		}
		return 200, f.claim(name, t, body)
	default:
		return 200, f.settle(t, verb, body)
	}
}

func fieldsOf(body map[string]json.RawMessage) map[string]any {
	out := map[string]any{}
	for k, raw := range body {
		var v any
		_ = json.Unmarshal(raw, &v)
		out[k] = v
	}
	return out
}

func (f *fakeServer) state(t *fakeTopic, name string) map[string]any {
	count, leased := 0, 0
	for i, r := range t.records {
		if r == nil {
			continue
		}
		count++
		if j := t.jobs[uint64(i+1)]; j != nil && j.held && time.Now().Before(j.until) {
			leased++
		}
	}
	kind := "queue"
	if t.config["type"] == "log" {
		kind = "log"
	}
	return map[string]any{"topic": name, "type": kind, "head_seq": len(t.records), "count": count,
		"config": map[string]any{"type": kind, "idempotency_window_ms": f.window},
		"queue":  map[string]any{"dead_lettered": t.dead, "in_flight": leased, "ready": count - leased}}
}

func (f *fakeServer) write(name string, body map[string]json.RawMessage) (int, map[string]any) {
	records := field[[]struct{ Data json.RawMessage }](body, "records")
	for _, r := range records {
		if f.refuse != "" && strings.Contains(string(r.Data), f.refuse) {
			return 400, map[string]any{"code": "invalid_request"}
		}
	}
	if f.topics[name] == nil {
		if raw, ok := body["create"]; ok && string(raw) == "false" {
			return 404, map[string]any{"code": "topic_not_found"}
		}
		f.topic(name).config = field[map[string]any](body, "config")
	}
	t := f.topic(name)
	key := field[string](body, "idempotency_key")
	if first, ok := t.keys[key]; ok && key != "" {
		first["deduped"] = true
		return 200, first
	}
	for _, r := range records {
		t.records = append(t.records, r.Data)
	}
	out := map[string]any{"count": len(records), "first_seq": len(t.records) - len(records) + 1, "last_seq": len(t.records)}
	t.keys[key] = out
	f.changed()
	return 200, out
}

func (t *fakeTopic) diff(body map[string]json.RawMessage) map[string]any {
	from, limit := field[uint64](body, "from_seq"), field[int](body, "limit")
	out := map[string]any{"tombstone": nil, "head_seq": len(t.records)}
	if len(t.gaps) > 0 {
		out["tombstone"] = t.gaps[0]
		from = uint64(t.gaps[0]["gap_to"].(int))
		t.gaps = t.gaps[1:]
	}
	records := []map[string]any{}
	for from < uint64(len(t.records)) && len(records) < limit {
		from++
		if r := t.records[from-1]; r != nil {
			records = append(records, map[string]any{"$seq": from, "$ts": 1, "data": r})
		}
	}
	out["records"], out["next_from_seq"], out["caught_up"] = records, from, from == uint64(len(t.records))
	return out
}

func (f *fakeServer) openWatch(body map[string]json.RawMessage) (int, map[string]any) {
	for topic, o := range field[map[string]map[string]int](body, "topics") {
		if f.topics[topic] == nil {
			return 404, map[string]any{"code": "topic_not_found"}
		}
		f.watches = append(f.watches, fakeWatch{topic, o["from_seq"]})
	}
	return 200, map[string]any{"wid": strconv.Itoa(len(f.watches) - 1)}
}

// stream pushes one record a frame until the connection or the topic ends; ids
// are the positions. With a fault it breaks behind the next frame.
func (f *fakeServer) stream(w http.ResponseWriter, r *http.Request, wid string) {
	f.mu.Lock()
	n, err := strconv.Atoi(wid)
	if err != nil || n >= len(f.watches) {
		f.mu.Unlock()
		answerError(w, 404, "not_found", nil)
		return
	}
	watch := f.watches[n]
	f.mu.Unlock()
	at := watch.from
	if last, err := strconv.Atoi(r.Header.Get("Last-Event-ID")); err == nil {
		at = last
	}
	w.Header().Set("Content-Type", "text/event-stream")
	fmt.Fprint(w, "retry: 50\n\n")
	for {
		w.(http.Flusher).Flush()
		f.mu.Lock()
		frame, next := f.nextFrame(watch.topic, at)
		if frame != "" {
			f.verbs["frame"]++
		}
		wake, trouble := f.wake, f.fault("frame")
		f.mu.Unlock()
		if frame == "" {
			select {
			case <-wake:
				continue
			case <-r.Context().Done():
				return
			}
		}
		at = next
		fmt.Fprintf(w, "id: %d\n%s\n\n", at, frame)
		if next < 0 {
			return
		}
		if trouble != faultNone {
			fmt.Fprint(w, "event: record\ndata: {\"topic\":")
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		}
	}
}

// nextFrame is the frame behind the position at, empty if there is none yet; a
// position of -1 is the end.
func (f *fakeServer) nextFrame(name string, at int) (frame string, next int) {
	t := f.topics[name]
	switch {
	case t == nil:
		return fmt.Sprintf("event: topic-deleted\ndata: {\"topic\":%q,\"head_seq\":0,\"reason\":\"deleted\"}", name), -1
	case len(t.gaps) > 0:
		gap := t.gaps[0]
		t.gaps = t.gaps[1:]
		return fmt.Sprintf("event: tombstone\ndata: {\"topic\":%q,\"reason\":%q,\"gap_from\":%d,\"gap_to\":%d,\"earliest_seq\":%d,\"head_seq\":%d}",
			name, gap["reason"], gap["gap_from"], gap["gap_to"], gap["gap_to"].(int)+1, len(t.records)), gap["gap_to"].(int)
	case at >= len(t.records):
		return "", at
	}
	return fmt.Sprintf("event: record\ndata: {\"topic\":%q,\"from_seq\":%d,\"to_seq\":%d,\"head_seq\":%d,\"records\":[{\"$seq\":%d,\"$ts\":1,\"data\":%s}]}",
		name, at, at+1, len(t.records), at+1, t.records[at]), at + 1
}

// drop deletes a topic.
func (f *fakeServer) drop(name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.topics, name)
	f.changed()
}

func (f *fakeServer) claim(name string, t *fakeTopic, body map[string]json.RawMessage) map[string]any {
	node, maximum := field[string](body, "node"), field[int](body, "max")
	lease := time.Duration(field[int](body, "lease_ms")) * time.Millisecond
	limit, _ := t.config["max_deliveries"].(float64)
	now := time.Now()
	claimed := []map[string]any{}
	for i, r := range t.records {
		seq := uint64(i + 1)
		j := t.jobs[seq]
		if j == nil {
			j = &fakeLease{}
			t.jobs[seq] = j
		}
		if r == nil || len(claimed) == maximum || j.held && now.Before(j.until) || now.Before(j.due) {
			continue
		}
		if limit > 0 && j.deliveries >= int(limit) {
			dead, _ := t.config["dead_letter"].(string)
			d := f.topic(dead)
			d.records = append(d.records, r)
			t.records[i] = nil
			t.dead++
			continue
		}
		j.deliveries++
		j.id = fmt.Sprintf("lease_%x", seq<<8+uint64(j.deliveries))
		j.node, j.held, j.until = node, true, now.Add(lease)
		claimed = append(claimed, map[string]any{"$seq": seq, "lease_id": j.id, "deliveries": j.deliveries,
			"deadline": j.until.UnixMilli(), "data": r, "$tag": "a tag", "meta": map[string]any{"k": "v"}})
	}
	return map[string]any{"topic": name, "claimed": claimed, "count": len(claimed), "ready": 0}
}

func (f *fakeServer) settle(t *fakeTopic, verb string, body map[string]json.RawMessage) map[string]any {
	leases := field[[]string](body, "lease_ids")
	skipped := []uint64{}
	now := time.Now()
	for i, seq := range field[[]uint64](body, "seqs") {
		j := t.jobs[seq]
		if f.forgets || j == nil || !j.held || now.After(j.until) || j.id != leases[i] || j.node != field[string](body, "node") || t.records[seq-1] == nil {
			skipped = append(skipped, seq)
			continue
		}
		switch verb {
		case "ack":
			t.records[seq-1] = nil
		case "nack":
			j.held = false
			j.due = now.Add(time.Duration(field[int](body, "delay_ms")) * time.Millisecond)
			if raw, ok := body["started"]; ok && string(raw) == "false" {
				j.deliveries--
			}
		case "extend":
			j.until = now.Add(time.Duration(field[int](body, "lease_ms")) * time.Millisecond)
		}
	}
	return map[string]any{"skipped": skipped}
}

// setFault changes what happens to the requests from now on.
func (f *fakeServer) setFault(fault func(verb string) fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fault = fault
}

// count is how many requests of a verb have come.
func (f *fakeServer) count(verb string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.verbs[verb]
}

// result is what a command printed and returned.
type result struct {
	stdout, stderr string
	err            error
}

// runWeir runs a command line in this process.
func runWeir(t *testing.T, stdin string, args ...string) result {
	t.Helper()
	var out, errOut capture.Buffer
	root := newRoot()
	root.SetArgs(args)
	root.SetIn(strings.NewReader(stdin))
	root.SetOut(&out)
	root.SetErr(&errOut)
	err := root.ExecuteContext(t.Context())
	return result{out.String(), errOut.String(), err}
}
