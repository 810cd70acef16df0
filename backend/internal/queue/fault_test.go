package queue_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/backend/internal/queue"
	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/internal/client"
)

// faulty passes calls on to a server, and lets one fail.
type faulty struct {
	queue.Service
	calls []string
	at    int // the call that fails, from 1; 0: none
	how   fault
}

// fault is how a call fails.
type fault struct {
	made bool // only its answer is lost
	err  error
}

var faults = []fault{
	{false, fmt.Errorf("%w: nobody there", backend.ErrUnavailable)},
	{true, &client.Unreachable{Err: io.ErrUnexpectedEOF}},
	{false, api.Errorf(api.CodeInternal, "a fault")},
	{false, api.Errorf(api.CodeTopicNotFound, "the topic was deleted")},
}

func through[T any](f *faulty, name string, call func() (T, error)) (none T, _ error) {
	f.calls = append(f.calls, name)
	if len(f.calls) != f.at {
		return call()
	}
	if f.how.made {
		_, _ = call()
	}
	return none, f.how.err
}

func (f *faulty) Topic(ctx context.Context, name string) (api.TopicState, error) {
	return through(f, "topic", func() (api.TopicState, error) { return f.Service.Topic(ctx, name) })
}

func (f *faulty) PutTopic(ctx context.Context, name string, cfg api.Config) error {
	_, err := through(f, "put topic", func() (any, error) { return nil, f.Service.PutTopic(ctx, name, cfg) })
	return err
}

func (f *faulty) Write(ctx context.Context, name string, req *api.WriteRequest) (api.WriteResult, error) {
	return through(f, "write", func() (api.WriteResult, error) { return f.Service.Write(ctx, name, req) })
}

func (f *faulty) WriteEach(ctx context.Context, name string, reqs []api.WriteRequest) ([]api.WriteOutcome, error) {
	out, err := through(f, "write each", func() ([]api.WriteOutcome, error) { return f.Service.WriteEach(ctx, name, reqs) })
	if !api.IsCode(err, api.CodeTopicNotFound) {
		return out, err
	}
	out = make([]api.WriteOutcome, len(reqs)) // a server says so of each
	for i := range out {
		out[i].Err = err
	}
	return out, nil
}

func (f *faulty) Claim(ctx context.Context, name string, req *api.ClaimRequest) ([]api.HeldJob, time.Duration, error) {
	jobs, err := through(f, "claim", func() (jobs []api.HeldJob, err error) {
		jobs, _, err = f.Service.Claim(ctx, name, req)
		return jobs, err
	})
	return jobs, 0, err
}

func (f *faulty) Settle(ctx context.Context, name string, req *api.Settlement) ([]uint64, error) {
	return through(f, "settle", func() ([]uint64, error) { return f.Service.Settle(ctx, name, req) })
}

func (f *faulty) Diff(ctx context.Context, name string, req *api.DiffRequest) ([]api.Record, api.DiffResult, error) {
	var res api.DiffResult
	records, err := through(f, "diff", func() (records []api.Record, err error) {
		records, res, err = f.Service.Diff(ctx, name, req)
		return records, err
	})
	if err != nil {
		return nil, api.DiffResult{}, err
	}
	return records, res, nil
}

func (f *faulty) Delete(ctx context.Context, name string, req *api.DeleteRequest) (uint64, error) {
	return through(f, "delete", func() (uint64, error) { return f.Service.Delete(ctx, name, req) })
}

func (f *faulty) Tally(ctx context.Context, name string, add []uint32) (api.TallyResult, error) {
	return through(f, "tally", func() (api.TallyResult, error) { return f.Service.Tally(ctx, name, add) })
}

func (f *faulty) Pause(ctx context.Context, name string, paused bool) error {
	_, err := through(f, "pause", func() (any, error) { return nil, f.Service.Pause(ctx, name, paused) })
	return err
}

// RemoveTopic is for queue.remover.
func (f *faulty) RemoveTopic(ctx context.Context, name string) error {
	_, err := through(f, "remove topic", func() (any, error) {
		return nil, f.Service.(interface {
			RemoveTopic(context.Context, string) error
		}).RemoveTopic(ctx, name)
	})
	return err
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
		var each []string
		for i := range out {
			each = append(each, told(out[i].Err))
			if (out[i].ID == "") == (out[i].Err == nil) {
				each = append(each, fmt.Sprintf("with the ID %q", out[i].ID))
			}
		}
		if err == nil {
			return nil
		}
		return fmt.Errorf("%w, %s", err, strings.Join(each, ", "))
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
	server := client.New("http://"+h.addr, "")
	defer server.Close()
	count := func(name string) uint64 {
		st, err := server.Topic(t.Context(), name)
		if err != nil && !api.IsCode(err, api.CodeTopicNotFound) {
			t.Fatal(err)
		}
		return st.Count
	}
	// play returns the name of the call that failed, empty if the verb needs no such.
	play := func(v verb, at int, how fault) (call, became string) {
		name := fresh()
		f := &faulty{Service: server}
		b, err := queue.New(t.Context(), f, queue.Options{
			Topic: name, Config: api.Config{Type: api.TypeQueue, IdempotencyWindowMS: 60_000}, Limits: api.DefaultLimits(), Kind: "http",
		})
		if err != nil {
			t.Fatal(err)
		}
		defer b.Close()
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
		f.calls, f.at, f.how = nil, at, how
		err = v.do(b, d)
		if at > len(f.calls) {
			if err != nil {
				t.Errorf("%s, and nothing fails: %v", v.name, err)
			}
			return "", ""
		}
		return f.calls[at-1], fmt.Sprintf("%s %d %d", told(err), count(name), count(name+".dlq"))
	}
	var got strings.Builder
	for _, v := range verbs(t.Context()) {
		for at := 1; ; at++ {
			line := make([]string, len(faults))
			var call string
			for i, how := range faults {
				call, line[i] = play(v, at, how)
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

// becomes is told of calls that nobody got, whose answer was lost, that met a fault of the server, or
// whose topic was deleted.
const becomes = `append, write: unavailable 2 0, unknown 4 0, unknown 2 0, done 4 0
append with keys, write each: unavailable 2 0, unknown 4 0, unknown 2 0, done 4 0
append at, write: unavailable 2 0, unknown 4 0, unknown 2 0, done 4 0
claim, claim: unavailable 2 0, unavailable 2 0, unavailable 2 0, done 2 0
ack, settle: unavailable 2 0, unknown 1 0, unknown 2 0, lost 2 0
extend, settle: unavailable 2 0, unknown 2 0, unknown 2 0, lost 2 0
nack, settle: unavailable 2 0, unknown 2 0, unknown 2 0, lost 2 0
dead letter, settle: unavailable 2 0, unknown 2 0, unknown 2 0, lost 2 0
dead letter, diff: unavailable 2 0, unavailable 2 0, unavailable 2 0, lost 2 0
dead letter, write: unavailable 2 0, unknown 2 0, unknown 2 0, done 1 1
dead letter, write: unavailable 2 0, unknown 2 1, unknown 2 0, absent 2 0
dead letter, settle: unavailable 2 1, unknown 1 1, unknown 2 1, unknown 2 1
claim past the limit, claim: unavailable 2 0, unavailable 2 0, unavailable 2 0, done 1 1
claim past the limit, diff: unavailable 2 0, unavailable 2 0, unavailable 2 0, done 2 0
claim past the limit, write: unavailable 2 0, unknown 2 0, unknown 2 0, done 1 1
claim past the limit, write: unavailable 2 0, unknown 2 1, unknown 2 0, absent 2 0
claim past the limit, settle: unavailable 2 1, unknown 1 1, unknown 2 1, unknown 2 1
claim past the limit, claim: done 1 1, done 1 1, done 1 1, done 1 1
stats, topic: unavailable 2 0, unavailable 2 0, unavailable 2 0, done 2 0
stats, diff: unavailable 2 0, unavailable 2 0, unavailable 2 0, absent 2 0
stats, topic: dead letters unknown 2 0, dead letters unknown 2 0, dead letters unknown 2 0, done 2 0
signal, topic: unavailable 2 0, unavailable 2 0, unavailable 2 0, done 2 0
tally, tally: unavailable 2 0, unavailable 2 0, unavailable 2 0, absent 2 0
read, topic: unavailable 2 0, unavailable 2 0, unavailable 2 0, absent 2 0
read, diff: unavailable 2 0, unavailable 2 0, unavailable 2 0, absent 2 0
observe, topic: unavailable 2 0, unavailable 2 0, unavailable 2 0, absent 2 0
observe, diff: unavailable 2 0, unavailable 2 0, unavailable 2 0, absent 2 0
key window, topic: unavailable 2 0, unavailable 2 0, unavailable 2 0, done 2 0
ping, topic: unavailable 2 0, unavailable 2 0, unavailable 2 0, done 2 0
shards, diff: unavailable 2 0, unavailable 2 0, unavailable 2 0, done 2 0
shards, topic: unavailable 2 0, unknown 2 0, unknown 2 0, done 2 0
shards, put topic: unavailable 2 0, unknown 2 0, unknown 2 0, absent 2 0
shards, write: unavailable 2 0, unknown 2 0, unknown 2 0, absent 2 0
shards, diff: unavailable 2 0, unavailable 2 0, unavailable 2 0, done 2 0
pause, pause: unavailable 2 0, unknown 2 0, unknown 2 0, done 2 0
remove, remove topic: unavailable 2 0, unknown 0 0, unknown 2 0, absent 2 0
list, diff: unavailable 1 1, unavailable 1 1, unavailable 1 1, done 1 1
redrive, diff: unavailable 1 1, unknown 1 1, unknown 1 1, not there 1 1
redrive, delete: unavailable 1 1, unavailable 1 1, unavailable 1 1, absent 1 1
redrive, write: unavailable 1 1, unknown 2 1, unknown 1 1, done 2 0
redrive, delete: unavailable 2 1, unknown 2 0, unknown 2 1, absent 2 1
purge, diff: unavailable 1 1, unavailable 1 1, unavailable 1 1, done 1 1
purge, delete: unavailable 1 1, unknown 1 0, unknown 1 1, absent 1 1
`
