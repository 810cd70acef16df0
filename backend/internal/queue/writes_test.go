package queue_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/backend/internal/queue"
	"github.com/weirmq/weir/internal/api"
)

// writes is a service that notes what it is asked to write.
type writes struct {
	queue.Service
	many   bool              // it knows many writes in one request
	fails  func(n int) error // of the n-th write; nil: none
	absent int               // writes that find no topic
	most   int               // records in one request; 0: any number
	beyond error             // the answer to more
	got    [][]api.Record    // as they were passed
	data   []string          // of all records, as they were then
	keys   []string

	refused int // requests that had more
}

func (w *writes) Topic(context.Context, string) (api.TopicState, error) { return api.TopicState{}, nil }

func (w *writes) Write(_ context.Context, _ string, req *api.WriteRequest) (api.WriteResult, error) {
	if w.absent > 0 && !*req.Create {
		w.absent--
		return api.WriteResult{}, api.Errorf(api.CodeTopicNotFound, "absent")
	}
	if w.tooMany(len(req.Records)) {
		return api.WriteResult{}, w.beyond
	}
	first := uint64(len(w.data) + 1)
	w.got, w.keys = append(w.got, req.Records), append(w.keys, string(req.IdempotencyKey))
	for _, r := range req.Records {
		w.data = append(w.data, string(r.Data))
	}
	if w.fails != nil {
		if err := w.fails(len(w.got)); err != nil {
			return api.WriteResult{}, err
		}
	}
	return api.WriteResult{FirstSeq: first, LastSeq: uint64(len(w.data)), Count: len(req.Records)}, nil
}

func (w *writes) WriteEach(ctx context.Context, name string, reqs []api.WriteRequest) (out []api.WriteOutcome, _ error) {
	if !w.many {
		return nil, errors.ErrUnsupported
	}
	if w.tooMany(len(reqs)) {
		return nil, w.beyond
	}
	for i := range reqs {
		res, err := w.Write(ctx, name, &reqs[i])
		out = append(out, api.WriteOutcome{WriteResult: res, Err: err})
	}
	return out, nil
}

func (w *writes) tooMany(n int) bool {
	if w.most == 0 || n <= w.most {
		return false
	}
	w.refused++
	return true
}

func (w *writes) open(t *testing.T) *queue.Backend {
	t.Helper()
	b, err := queue.New(t.Context(), w, queue.Options{Topic: "q", Limits: api.DefaultLimits()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	return b
}

// A server takes no more than so many records, or bytes, in one request.
func TestALargeBatchGoesInSeveralWrites(t *testing.T) {
	for size, n := range map[int]int{10: 2500, 300_000: 40} {
		w := &writes{}
		b := w.open(t)
		msgs := make([]backend.Message, n)
		for i := range msgs {
			msgs[i].Data = fmt.Appendf(nil, `{"n":%d,"pad":"%0*d"}`, i, size, 0)
		}
		out, err := b.Append(t.Context(), msgs)
		if err != nil {
			t.Fatal(err)
		}
		for i, records := range w.got {
			bytes := 0
			for j := range records {
				bytes += records[j].Size()
			}
			if len(records) > 1000 || bytes > 4<<20 {
				t.Errorf("write %d of %d has %d records with %d bytes", i, len(w.got), len(records), bytes)
			}
		}
		if len(w.got) > 4 {
			t.Errorf("%d messages of %d bytes took %d writes", n, size, len(w.got))
		}
		for i := range out {
			if out[i].ID != fmt.Sprint(i+1) || w.data[i] != string(msgs[i].Data) {
				t.Fatalf("message %d has the ID %s", i, out[i].ID)
			}
		}
	}
}

// A server may be set to take fewer records, or bytes, than a batch has.
func TestABatchGoesInWritesAsSmallAsTheServerTakes(t *testing.T) {
	plain, keyed := make([]backend.Message, 20), make([]backend.Message, 20)
	for i := range plain {
		plain[i].Data = fmt.Append(nil, i)
		keyed[i] = backend.Message{Data: plain[i].Data, IdempotencyKey: fmt.Sprint("key ", i)}
	}
	tooMany, tooLong := api.Errorf(api.CodeBatchTooLarge, "too many"), api.Errorf(api.CodePayloadTooLarge, "too long")
	proxys := fmt.Errorf("%w: a proxy has a limit of its own", backend.ErrTooLarge)
	for _, c := range []struct {
		beyond  error
		msgs    []backend.Message
		refused int // in two rounds: how many are too many is known in the second one
	}{
		{tooMany, plain, 3},
		{tooMany, keyed, 3},
		{tooLong, plain, 14},
		{tooLong, keyed, 40},
		{proxys, plain, 14},
		{proxys, keyed, 40},
	} {
		w := &writes{many: true, most: 3, beyond: c.beyond}
		b := w.open(t)
		for range 2 {
			w.data = nil
			out, err := b.Append(t.Context(), c.msgs)
			if err != nil || len(w.data) != len(c.msgs) {
				t.Fatalf("%v: %d of %d messages are stored: %v", c.beyond, len(w.data), len(c.msgs), err)
			}
			for i := range out {
				if out[i].ID != fmt.Sprint(i+1) || w.data[i] != string(c.msgs[i].Data) {
					t.Errorf("%v: message %d has the ID %s, and stored there is %s", c.beyond, i, out[i].ID, w.data[i])
				}
			}
		}
		if w.refused > c.refused {
			t.Errorf("%v: %d requests were refused, want %d at most", c.beyond, w.refused, c.refused)
		}
		w.most, w.got = 0, nil
		if _, err := b.Append(t.Context(), plain); err != nil || len(w.got) > 1 && c.beyond != tooMany { // that says nothing about shorter ones
			t.Errorf("%v: the next batch went in %d writes: %v", c.beyond, len(w.got), err)
		}
	}
	for most, msgs := range map[int][]backend.Message{2: plain, 4: keyed} { // are sent in one request that fails, or of which the second write does
		w := &writes{many: true, most: 4, beyond: tooMany, fails: func(n int) error {
			if n == 2 {
				return api.Errorf(api.CodeShuttingDown, "going")
			}
			return nil
		}}
		out, _ := w.open(t).Append(t.Context(), msgs)
		for i, r := range out {
			if r.Err != nil && !backend.Retryable(r.Err) {
				t.Errorf("behind a write that fails: message %d: %v", i, r.Err)
			}
		}
		if len(w.data) > most+4 || out[19].Err == nil {
			t.Errorf("%d records are sent, though the second write has failed; the last message: %v", len(w.data), out[19].Err)
		}
	}
}

// turns alternates messages with and without keys, each of which is a write of its own.
func turns(n int) (msgs []backend.Message) {
	for i := range n {
		m := backend.Message{Data: fmt.Append(nil, i)}
		if i%2 == 1 {
			m.IdempotencyKey = fmt.Sprint("key ", i)
		}
		msgs = append(msgs, m)
	}
	return msgs
}

// Behind a write that fails nothing more is sent, or messages would overtake it when it is sent
// again. A refusal for a message's priority or key is about that message alone.
func TestNothingIsSentBehindAWriteThatFails(t *testing.T) {
	shed := api.Errorf(api.CodeThrottled, "too much").With(api.DetailReason, api.ReasonLoadShedding)
	for _, c := range []struct {
		err  error
		sent []string
	}{
		{api.Errorf(api.CodeShuttingDown, "going"), []string{"0", "1"}},
		{api.Errorf(api.CodeTopicFull, "full"), []string{"0", "1"}},
		{api.Errorf(api.CodeInvalidRequest, "no"), []string{"0", "1", "2", "3"}},
		{shed, []string{"0", "1", "2", "3"}},
	} {
		w := &writes{fails: func(n int) error {
			if n == 2 {
				return c.err
			}
			return nil
		}}
		out, err := w.open(t).Append(t.Context(), turns(4))
		if !errors.Is(err, c.err) || !errors.Is(out[1].Err, c.err) || out[0].Err != nil {
			t.Errorf("%v: the batch ends with %v", c.err, err)
		}
		if !slices.Equal(w.data, c.sent) {
			t.Errorf("%v: sent %q, want %q", c.err, w.data, c.sent)
		}
		for i, r := range out[2:] {
			if sent := len(c.sent) > 2; sent != (r.Err == nil) || !sent && (!errors.Is(r.Err, backend.ErrUnavailable) || errors.Is(r.Err, backend.ErrOutcomeUnknown)) {
				t.Errorf("%v: message %d: %v", c.err, i+2, r.Err)
			}
		}
	}
}

// A service whose caller has left may still read what it was given.
func TestAWriteKeepsItsRecords(t *testing.T) {
	w := &writes{}
	msgs := append(turns(6), backend.Message{Data: []byte("6"), IdempotencyKey: "as it is", Headers: map[string]string{backend.HeaderJSON: "1"}})
	if _, err := w.open(t).Append(t.Context(), msgs); err != nil {
		t.Fatal(err)
	}
	for i := range msgs {
		msgs[i].Data[0] = 'x' // the caller's again
	}
	for i, records := range w.got {
		if len(records) != 1 || string(records[0].Data) != fmt.Sprint(i) {
			t.Errorf("write %d now has %d records, the first with %s", i, len(records), records[0].Data)
		}
	}
}

// A topic that is deleted while messages with keys are on their way is made again, and every
// message is stored.
func TestAQueueDeletedBetweenTwoWritesIsMadeAgain(t *testing.T) {
	w := &writes{many: true, absent: 2}
	out, err := w.open(t).Append(t.Context(), keyedMessages(0, 5))
	if err != nil {
		t.Fatal(err)
	}
	for i := range out {
		if out[i].Err != nil || out[i].ID == "" {
			t.Errorf("message %d: %+v", i, out[i])
		}
	}
	if slices.Sort(w.data); len(slices.Compact(w.data)) != 5 {
		t.Errorf("stored %q", w.data)
	}
}

// A key is sent as it is if a server takes it so: another version of the library sends the same.
func TestAKeyIsSentAsItIsIfAServerTakesIt(t *testing.T) {
	longest := strings.Repeat("k", api.MaxIdempotencyKeyBytes)
	w := &writes{}
	b := w.open(t)
	keys := []string{"a", longest, longest + "k", longest + "l", "\xff", "\xfe"}
	for _, key := range keys {
		if _, err := b.Append(t.Context(), []backend.Message{{Data: []byte("1"), IdempotencyKey: key}}); err != nil {
			t.Fatal(err)
		}
	}
	seen := map[string]bool{}
	for i, key := range keys {
		sent := w.keys[i]
		if good := len(key) <= api.MaxIdempotencyKeyBytes && utf8.ValidString(key); good && sent != key || len(sent) > api.MaxIdempotencyKeyBytes || !utf8.ValidString(sent) {
			t.Errorf("the key %.20q of %d bytes is sent as %q", key, len(key), sent)
		}
		seen[sent] = true
	}
	if len(seen) != len(keys) {
		t.Errorf("%d keys are sent as %d", len(keys), len(seen))
	}
}
