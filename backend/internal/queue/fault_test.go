package queue_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/backend/internal/queue"
	"github.com/weirmq/weir/internal/api"
)

// faulty passes calls on to a server, and lets one fail.
type faulty struct {
	server http.Handler

	mu    sync.Mutex
	calls []string
	at    int // the call that fails, from 1; 0: none
	how   fault
}

// fault is how a call fails.
type fault int

const (
	away fault = iota // it is not carried out
	lost              // its answer is lost
	ill               // the server is
	gone              // its topic has been deleted
	howMany
)

// begin lets the call at fail.
func (f *faulty) begin(at int, how fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls, f.at, f.how = nil, at, how
}

// end lets none fail any more, and returns the name of the one that did.
func (f *faulty) end() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	at := f.at
	f.at = 0
	if at > len(f.calls) {
		return ""
	}
	return f.calls[at-1]
}

func (f *faulty) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_, verb, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/v0/topics/"), "/")
	f.mu.Lock()
	f.calls = append(f.calls, strings.TrimSpace(r.Method+" "+verb))
	fails, how := len(f.calls) == f.at, f.how
	f.mu.Unlock()
	switch {
	case !fails:
		f.server.ServeHTTP(w, r)
	case how == lost:
		f.server.ServeHTTP(httptest.NewRecorder(), r)
		w.Header().Set("Content-Length", "50")
		_, _ = w.Write([]byte("{")) // net/http makes some calls again that had no answer at all
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	case how == gone && verb == "writes": // which says so of each
		r.URL.Path = "/v0/topics/gone/writes"
		f.server.ServeHTTP(w, r)
	default:
		code := []api.Code{away: api.CodeNotReady, ill: api.CodeInternal, gone: api.CodeTopicNotFound}[how]
		w.WriteHeader(code.Status())
		fmt.Fprintf(w, `{"error":{"code":%q,"message":"it fails"}}`, code)
	}
}

// single claims one message.
func single(t *testing.T, b backend.Backend) *backend.Delivery {
	t.Helper()
	got := take(t, b, func(r *backend.ClaimRequest) { r.Max = 1 })
	if len(got.Deliveries) != 1 {
		t.Fatalf("claimed %+v", got)
	}
	return got.Deliveries[0]
}

// told is what an error says of what became of a call.
func told(err error) string {
	switch {
	case err == nil:
		return "done"
	case errors.Is(err, backend.ErrOutcomeUnknown):
		return "unknown"
	case errors.Is(err, backend.ErrUnavailable):
		return "unavailable"
	case errors.Is(err, backend.ErrLeaseLost):
		return "lost"
	case errors.Is(err, backend.ErrStreamNotFound):
		return "absent"
	case errors.Is(err, backend.ErrNotFound):
		return "not there"
	}
	return err.Error()
}

// verb is a call of a backend, on a queue with two messages of which a worker has claimed the first,
// for the second time, and has given it back if back is set, or made a dead letter of it.
type verb struct {
	name       string
	back, dead bool
	do         func(b *queue.Backend, d *backend.Delivery) error
}

func verbs(ctx context.Context) []verb {
	plain := []backend.Message{{Data: []byte("3")}, {Data: []byte("4")}}
	appended := func(out []backend.Appended, err error) error {
		for i := range out {
			if told(out[i].Err) != told(err) || (out[i].ID == "") == (err == nil) {
				return fmt.Errorf("%v, and message %d %+v", err, i, out[i])
			}
		}
		return err
	}
	settled := func(lost []string, err error) error {
		if err == nil && len(lost) > 0 {
			return fmt.Errorf("%w: %v", backend.ErrLeaseLost, lost)
		}
		return err
	}
	return []verb{
		{name: "append", do: func(b *queue.Backend, _ *backend.Delivery) error { return appended(b.Append(ctx, plain)) }},
		{name: "append with keys", do: func(b *queue.Backend, _ *backend.Delivery) error { return appended(b.Append(ctx, keyedMessages(0, 2))) }},
		{name: "append at", do: func(b *queue.Backend, _ *backend.Delivery) error {
			_, err := b.AppendAt(ctx, "source", 7, plain)
			return err
		}},
		{name: "claim", do: func(b *queue.Backend, _ *backend.Delivery) error {
			_, err := b.Claim(ctx, request)
			return err
		}},
		{name: "ack", do: func(b *queue.Backend, d *backend.Delivery) error { return settled(b.Ack(ctx, leases(d))) }},
		{name: "extend", do: func(b *queue.Backend, d *backend.Delivery) error {
			return settled(b.Extend(ctx, leases(d), time.Minute))
		}},
		{name: "nack", do: func(b *queue.Backend, d *backend.Delivery) error {
			return settled(b.Nack(ctx, []backend.Return{{Lease: d.Lease}}))
		}},
		{name: "dead letter", do: func(b *queue.Backend, d *backend.Delivery) error {
			return b.DeadLetter(ctx, d, "", backend.Cause{Reason: backend.ReasonPoison})
		}},
		{name: "claim past the limit", back: true, do: func(b *queue.Backend, d *backend.Delivery) error {
			got, err := b.Claim(ctx, backend.ClaimRequest{Consumer: "w2", Max: 1, ReclaimAfter: time.Minute, MaxDeliveries: 2})
			if err == nil && len(got.Deliveries)+len(got.Dead) == 0 {
				return errors.New("nothing claimed")
			}
			return err
		}},
		{name: "stats", do: func(b *queue.Backend, _ *backend.Delivery) error {
			st, err := b.Stats(ctx)
			if err == nil && st.DeadLetters == nil {
				return errors.New("dead letters unknown")
			}
			return err
		}},
		{name: "signal", do: func(b *queue.Backend, _ *backend.Delivery) error {
			_, err := b.Signal(ctx, 1)
			return err
		}},
		{name: "tally", do: func(b *queue.Backend, _ *backend.Delivery) error {
			_, sig, err := b.Tally(ctx, []uint32{1})
			if (sig == nil) == (err == nil) {
				return fmt.Errorf("a reading %v, %w", sig, err)
			}
			return err
		}},
		{name: "read", do: func(b *queue.Backend, _ *backend.Delivery) error {
			_, err := b.Read(ctx, backend.ReadRequest{After: backend.CursorEnd, Max: 1})
			return err
		}},
		{name: "observe", do: func(b *queue.Backend, _ *backend.Delivery) error {
			_, err := b.Observe(ctx, 3)
			return err
		}},
		{name: "key window", do: func(b *queue.Backend, _ *backend.Delivery) error {
			_, err := b.KeyWindow(ctx)
			return err
		}},
		{name: "ping", do: func(b *queue.Backend, _ *backend.Delivery) error {
			_, err := b.Ping(ctx)
			return err
		}},
		{name: "shards", do: func(b *queue.Backend, _ *backend.Delivery) error {
			_, err := b.Shards(ctx, 3)
			return err
		}},
		{name: "pause", do: func(b *queue.Backend, _ *backend.Delivery) error { return b.Pause(ctx, true) }},
		{name: "remove", do: func(b *queue.Backend, _ *backend.Delivery) error { return b.Remove(ctx) }},
		{name: "list", dead: true, do: func(b *queue.Backend, _ *backend.Delivery) error {
			_, err := b.List(ctx, "", "", 10)
			return err
		}},
		{name: "redrive", dead: true, do: func(b *queue.Backend, _ *backend.Delivery) error {
			return b.Redrive(ctx, "", backend.DeadLetter{ID: "1"})
		}},
		{name: "purge", dead: true, do: func(b *queue.Backend, _ *backend.Delivery) error {
			_, err := b.Purge(ctx, "", []string{"1"})
			return err
		}},
	}
}

// Whichever call of a verb fails, the verb says so, and whether what it was to do may have been done. Behind
// each of the answers stands how many messages are then in the queue and how many are dead.
func TestWhateverCallFailsTheVerbSaysSo(t *testing.T) {
	t.Setenv("WEIR_TEST_PRESSURE", "0") // a busy machine is not what is tested
	h := &host{t: t, kind: "http"}
	h.serve("")
	f := &faulty{server: httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: h.addr})}
	front := behind(t, f)
	// play returns the name of the call that failed, empty if the verb needs no such.
	play := func(v verb, at int, how fault) (call, became string) {
		name := fresh()
		b, direct := front.open(name), h.open(name)
		defer b.Close()
		defer direct.Close()
		publish(t, b, "1", "2")
		giveBack := func(d *backend.Delivery) {
			if lost, err := b.Nack(t.Context(), []backend.Return{{Lease: d.Lease}}); err != nil || len(lost) > 0 {
				t.Fatal(lost, err)
			}
		}
		giveBack(single(t, b))
		d := single(t, b)
		switch {
		case v.back:
			giveBack(d)
		case v.dead:
			if err := b.DeadLetter(t.Context(), d, "", backend.Cause{Reason: backend.ReasonPoison}); err != nil {
				t.Fatal(err)
			}
		}
		f.begin(at, how)
		err := v.do(b, d)
		if call = f.end(); call == "" {
			if err != nil {
				t.Errorf("%s, and nothing fails: %v", v.name, err)
			}
			return "", ""
		}
		st, wrong := direct.Stats(t.Context())
		if wrong != nil || st.DeadLetters == nil {
			t.Fatal(st, wrong)
		}
		return call, fmt.Sprintf("%s %d %d", told(err), st.XLen, *st.DeadLetters)
	}
	var got strings.Builder
	for _, v := range verbs(t.Context()) {
		for at := 1; ; at++ {
			line := make([]string, howMany)
			var call string
			for how := range howMany {
				call, line[how] = play(v, at, how)
			}
			if call == "" {
				break
			}
			fmt.Fprintf(&got, "%s, %s: %s\n", v.name, call, strings.Join(line, ", "))
		}
	}
	if got.String() != becomes {
		t.Errorf("what becomes of each verb:\n%s, want\n%s", got.String(), becomes)
	}
}

// becomes is told of calls to a server that is away, whose answer was lost, that met a fault of the server,
// or whose topic was deleted.
const becomes = `append, POST: unavailable 2 0, unknown 4 0, unknown 2 0, done 4 0
append with keys, POST writes: unavailable 2 0, unknown 4 0, unknown 2 0, done 4 0
append at, POST: unavailable 2 0, unknown 4 0, unknown 2 0, done 4 0
claim, POST claim: unavailable 2 0, unavailable 2 0, unavailable 2 0, done 2 0
ack, POST ack: unavailable 2 0, unknown 1 0, unknown 2 0, lost 2 0
extend, POST extend: unavailable 2 0, unknown 2 0, unknown 2 0, lost 2 0
nack, POST nack: unavailable 2 0, unknown 2 0, unknown 2 0, lost 2 0
dead letter, POST extend: unavailable 2 0, unknown 2 0, unknown 2 0, lost 2 0
dead letter, POST diff: unavailable 2 0, unavailable 2 0, unavailable 2 0, lost 2 0
dead letter, POST: unavailable 2 0, unknown 2 0, unknown 2 0, done 1 1
dead letter, POST: unavailable 2 0, unknown 2 1, unknown 2 0, absent 2 0
dead letter, POST ack: unavailable 2 1, unknown 1 1, unknown 2 1, unknown 2 1
claim past the limit, POST claim: unavailable 2 0, unavailable 2 0, unavailable 2 0, done 1 1
claim past the limit, POST diff: unavailable 2 0, unavailable 2 0, unavailable 2 0, done 2 0
claim past the limit, POST: unavailable 2 0, unknown 2 0, unknown 2 0, done 1 1
claim past the limit, POST: unavailable 2 0, unknown 2 1, unknown 2 0, absent 2 0
claim past the limit, POST ack: unavailable 2 1, unknown 1 1, unknown 2 1, unknown 2 1
claim past the limit, POST claim: done 1 1, done 1 1, done 1 1, done 1 1
stats, GET: unavailable 2 0, unavailable 2 0, unavailable 2 0, done 2 0
stats, POST diff: unavailable 2 0, unavailable 2 0, unavailable 2 0, absent 2 0
stats, GET: dead letters unknown 2 0, dead letters unknown 2 0, dead letters unknown 2 0, done 2 0
signal, GET: unavailable 2 0, unavailable 2 0, unavailable 2 0, done 2 0
tally, POST offered: unavailable 2 0, unavailable 2 0, unavailable 2 0, absent 2 0
read, GET: unavailable 2 0, unavailable 2 0, unavailable 2 0, absent 2 0
read, POST diff: unavailable 2 0, unavailable 2 0, unavailable 2 0, absent 2 0
observe, GET: unavailable 2 0, unavailable 2 0, unavailable 2 0, absent 2 0
observe, POST diff: unavailable 2 0, unavailable 2 0, unavailable 2 0, absent 2 0
key window, GET: unavailable 2 0, unavailable 2 0, unavailable 2 0, done 2 0
ping, GET: unavailable 2 0, unavailable 2 0, unavailable 2 0, done 2 0
shards, POST diff: unavailable 2 0, unavailable 2 0, unavailable 2 0, done 2 0
shards, GET: unavailable 2 0, unknown 2 0, unknown 2 0, done 2 0
shards, PUT: unavailable 2 0, unknown 2 0, unknown 2 0, absent 2 0
shards, POST: unavailable 2 0, unknown 2 0, unknown 2 0, absent 2 0
shards, POST diff: unavailable 2 0, unavailable 2 0, unavailable 2 0, done 2 0
pause, POST pause: unavailable 2 0, unknown 2 0, unknown 2 0, done 2 0
remove, DELETE: unavailable 2 0, unknown 0 0, unknown 2 0, absent 2 0
list, POST diff: unavailable 1 1, unavailable 1 1, unavailable 1 1, done 1 1
redrive, POST diff: unavailable 1 1, unknown 1 1, unknown 1 1, not there 1 1
redrive, POST delete: unavailable 1 1, unavailable 1 1, unavailable 1 1, absent 1 1
redrive, POST: unavailable 1 1, unknown 2 1, unknown 1 1, done 2 0
redrive, POST delete: unavailable 2 1, unknown 2 0, unknown 2 1, absent 2 1
purge, POST diff: unavailable 1 1, unavailable 1 1, unavailable 1 1, done 1 1
purge, POST delete: unavailable 1 1, unknown 1 0, unknown 1 1, absent 1 1
`
