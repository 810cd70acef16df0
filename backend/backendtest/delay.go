package backendtest

import (
	"fmt"
	"time"

	"github.com/weirmq/weir/backend"
)

// delayed is how long the suite's messages are kept back. It is a lot for a claim, and little
// for a test.
const delayed = 400 * time.Millisecond

func (s *suite) delayCases() []testCase {
	if d, ok := s.offered.(backend.Delayer); !ok || !d.Delays() {
		return []testCase{{"a delayed message is refused where there are no delays", delayRefused}}
	}
	_, letters := s.offered.(backend.DeadLetters)
	_, places := s.offered.(backend.PlaceKeeper)
	cases := []testCase{
		{"a delayed message comes when it is due and no earlier", delayKept},
		{"a claim that waits gets a message once it is due", delayWakes},
		{"a claim with a long lease gets a message once it is due", delayWakesLong},
		{"each message of an append has its own delay", delayEach},
		{"a delayed message survives the handle that stored it", delaySurvives},
		{"a point in time is a delay unless it has passed", delayUntil},
		{"a message with an invalid delay is not stored", delayInvalid},
		{"a delayed message is counted apart until it is due", delayCounted},
		{"many delayed messages come once each", delayMany},
	}
	cases = append(cases, only(!s.h.NoKeys, testCase{"a delayed message with a key is stored once", delayKeyed})...)
	cases = append(cases, only(letters, testCase{"what is sent back is due at once", delayLetter})...)
	return append(cases, only(places, testCase{"the messages of a source can be delayed", delaySource})...)
}

func delayRefused(f *fixture) {
	b := f.open()
	f.nothing(b, request("a", 1), "the stream is new")
	for _, m := range []backend.Message{{Delay: time.Hour}, {NotBefore: time.Now().Add(time.Hour)}} {
		got, err := b.Append(f.ctx(), []backend.Message{m})
		if err == nil || backend.Retryable(err) || len(got) > 0 && got[0].ID != "" {
			f.Errorf("append with Delay %s and NotBefore %s: %+v, %v", m.Delay, m.NotBefore, got, err)
		}
	}
	f.done(b)
}

// next claims one message, which may come now, and says how long after start it came.
func (f *fixture) next(b backend.Backend, start time.Time) (*backend.Delivery, time.Duration) {
	f.Helper()
	d := f.claim(b, "a", 1)[0]
	return d, time.Since(start)
}

// due checks that a message came neither before its time nor long after it. Servers keep
// time in milliseconds.
func (f *fixture) due(took, delay time.Duration) {
	f.Helper()
	if took < delay-5*time.Millisecond || took > delay+f.prompt() {
		f.Errorf("a message that was delayed by %s came after %s", delay, took)
	}
}

// nowAndLate claims and acks the message now, which is due at start, and late, which is due delayed later:
// on a machine so slow that both are due in any order. It returns the latter.
func (f *fixture) nowAndLate(b backend.Backend, start time.Time) (late *backend.Delivery, took time.Duration) {
	f.Helper()
	for n := range 2 {
		d, after := f.next(b, start)
		f.ack(b, d)
		if string(d.Data) == "now" && (n == 0 || late != nil) {
			continue
		}
		if string(d.Data) != "late" || late != nil {
			f.Fatalf("after %s came %q", after, d.Data)
		}
		f.due(after, delayed)
		late, took = d, after
	}
	return late, took
}

func delayKept(f *fixture) {
	a, b := f.two()
	f.nothing(b, request("a", 1), "the stream is new")
	start := time.Now()
	f.publish(a, backend.Message{Data: []byte("late"), Headers: map[string]string{"k": "v"}, Priority: backend.High, Delay: delayed})
	f.publish(a, text("now")...)
	d, took := f.nowAndLate(b, start)
	if d.Attempt != 1 || d.Headers["k"] != "v" || d.Headers[backend.HeaderPriority] != "high" || len(d.Headers) != 2 {
		f.Errorf("the delayed message came as %q, attempt %d, headers %v", d.Data, d.Attempt, d.Headers)
	}
	if !d.Enqueued.IsZero() && time.Since(d.Enqueued) > took+f.prompt() {
		f.Errorf("it was published %s ago", time.Since(d.Enqueued))
	}
	f.done(b)
}

func delayWakes(f *fixture) {
	a, b := f.two()
	f.nothing(b, request("a", 1), "the stream is new")
	got := make(chan error, 1)
	var start time.Time
	ctx, begun := f.ctx(), make(chan struct{})
	go func() {
		req := request("a", 1)
		req.Block = patience
		close(begun)
		claimed, err := b.Claim(ctx, req)
		if err == nil && len(claimed.Deliveries) != 1 {
			err = fmt.Errorf("it gave %s", describe(claimed.Deliveries))
		}
		got <- err
	}()
	<-begun
	time.Sleep(delayed / 4) // it waits by now, or all of this shows less
	start = time.Now()
	f.publish(a, backend.Message{Data: []byte("x"), Delay: delayed})
	if err := <-got; err != nil {
		f.Fatalf("the claim: %v", err)
	}
	f.due(time.Since(start), delayed)
}

// delayWakesLong waits for a message that is published while it waits, with a lease so long
// that nothing else ends the wait. The stream has had a delayed message before.
func delayWakesLong(f *fixture) {
	a, b := f.two()
	req := request("a", 1)
	req.Block, req.ReclaimAfter = patience, time.Hour
	f.nothing(b, request("a", 1), "the stream is new")
	f.publish(a, backend.Message{Data: []byte("first"), Delay: time.Millisecond})
	f.ack(b, f.gather(b, req, 1).Deliveries[0])
	for _, delay := range []time.Duration{delayed, delayed / 2} {
		got := make(chan error, 1)
		go func() {
			claimed, err := b.Claim(f.ctx(), req)
			if err == nil && len(claimed.Deliveries) != 1 {
				err = fmt.Errorf("it gave %s", describe(claimed.Deliveries))
			}
			if err == nil {
				_, err = b.Ack(f.ctx(), []backend.Lease{claimed.Deliveries[0].Lease})
			}
			got <- err
		}()
		time.Sleep(delayed / 4) // it waits by now, or all of this shows less
		start := time.Now()
		f.publish(a, backend.Message{Data: []byte("tomorrow"), Delay: 24 * time.Hour}, backend.Message{Data: []byte("x"), Delay: delay})
		if err := <-got; err != nil {
			f.Fatalf("the claim: %v", err)
		}
		f.due(time.Since(start), delay)
	}
}

func delayEach(f *fixture) {
	b := f.open()
	start := time.Now()
	want := map[string]time.Duration{"a": 2 * delayed, "b": delayed, "c": 0, "d": 3 * delayed / 2}
	f.publish(b,
		backend.Message{Data: []byte("a"), Delay: want["a"]}, backend.Message{Data: []byte("b"), Delay: want["b"]},
		backend.Message{Data: []byte("c")}, backend.Message{Data: []byte("d"), Delay: want["d"]})
	for range len(want) {
		d, took := f.next(b, start)
		delay, known := want[string(d.Data)]
		if !known {
			f.Fatalf("%q came again", d.Data)
		}
		delete(want, string(d.Data))
		f.due(took, delay)
		f.ack(b, d)
	}
	f.done(b)
}

func delaySurvives(f *fixture) {
	if f.h.OneOwner {
		f.Skip("the other handle gets nothing")
	}
	a, b := f.open(), f.open()
	start := time.Now()
	f.publish(a, backend.Message{Data: []byte("x"), Delay: delayed}, backend.Message{Data: []byte("y"), Delay: delayed, IdempotencyKey: "k"})
	if err := a.Close(); err != nil {
		f.Fatal(err)
	}
	for range 2 {
		d, took := f.next(b, start)
		f.due(took, delayed)
		f.ack(b, d)
	}
	f.done(b)
}

func delayUntil(f *fixture) {
	b := f.open()
	start := time.Now()
	f.publish(b, backend.Message{Data: []byte("late"), NotBefore: start.Add(delayed)}, backend.Message{Data: []byte("now"), NotBefore: start.Add(-time.Hour)})
	f.nowAndLate(b, start)
	f.done(b)
}

func delayInvalid(f *fixture) {
	b := f.open()
	f.nothing(b, request("a", 1), "the stream is new")
	for _, m := range []backend.Message{
		{Delay: -time.Second}, {Delay: backend.MaxDelay + time.Millisecond}, {Delay: time.Second, NotBefore: time.Now()}, {NotBefore: time.Now().Add(2 * backend.MaxDelay)},
	} {
		if got, err := b.Append(f.ctx(), []backend.Message{m}); err == nil || backend.Retryable(err) || len(got) > 0 && got[0].ID != "" {
			f.Errorf("append with Delay %s and NotBefore %s: %+v, %v", m.Delay, m.NotBefore, got, err)
		}
	}
	f.done(b)
}

func delayCounted(f *fixture) {
	b := f.open()
	f.nothing(b, request("a", 1), "the stream is new")
	start := time.Now()
	f.publish(b, backend.Message{Data: []byte("x"), Delay: delayed}, backend.Message{Data: []byte("y"), Delay: time.Hour})
	check := func(stats backend.Stats, delayed, lag int64) {
		f.Helper()
		if stats.Delayed != delayed || stats.Pending != 0 || value(stats.Lag) != lag && !f.h.NoLag {
			f.Errorf("%d are delayed, lag %s, pending %d; want %d and %d", stats.Delayed, number(stats.Lag), stats.Pending, delayed, lag)
		}
	}
	if stats := f.stats(b); time.Since(start) < delayed {
		check(stats, 2, 0)
		if stats.OldestSource != backend.AgeNone || stats.OldestAge != 0 {
			f.Errorf("nothing waits for a worker, and the oldest has waited %s (%s)", stats.OldestAge, stats.OldestSource)
		}
	}
	if signaler, ok := b.(backend.Signaler); ok {
		if signal, err := signaler.Signal(f.ctx(), 100); time.Since(start) < delayed && (err != nil || signal.Delayed != 2 || value(signal.Lag)+signal.Behind != 0) {
			f.Errorf("the signal is %+v, %v", signal, err)
		}
	}
	if counter, ok := b.(backend.Tallier); ok { // an adaptive guard reads with it
		if _, now, err := counter.Tally(f.ctx(), make([]uint32, 1)); now != nil && time.Since(start) < delayed && (now.Delayed != 2 || value(now.Lag)+now.Behind != 0) {
			f.Errorf("a count says %+v (lag %s), %v", now, number(now.Lag), err)
		}
	}
	d, _ := f.next(b, start)
	f.ack(b, d)
	check(f.statsWhen(b, func(s backend.Stats) bool { return s.Delayed == 1 && s.Pending == 0 }), 1, 0)
	f.nothing(b, request("a", 1), "one is delayed for an hour")
}

// delayMany has more become due at once than one step takes, with workers that compete.
func delayMany(f *fixture) {
	const n = 300
	a, b := f.two()
	msgs := numbered(0, n)
	for i := range msgs {
		msgs[i].Delay = delayed
	}
	start := time.Now()
	f.publish(a, msgs...)
	seen := map[string]bool{}
	for from := a; len(seen) < n; {
		for _, d := range f.gather(from, request("a", 50), 1).Deliveries {
			if seen[string(d.Data)] || d.Attempt != 1 {
				f.Fatalf("%q came again, attempt %d", d.Data, d.Attempt)
			}
			seen[string(d.Data)] = true
			f.ack(from, d)
		}
		if a, b, from = b, a, b; time.Since(start) > f.patience() {
			f.Fatalf("%d of %d messages came", len(seen), n)
		}
	}
	f.done(b)
}

func delayKeyed(f *fixture) {
	b := f.open()
	m := backend.Message{Data: []byte("x"), Delay: delayed, IdempotencyKey: "k"}
	start := time.Now()
	first := f.publish(b, m)
	again, err := b.Append(f.ctx(), []backend.Message{m})
	if err != nil || !again[0].Deduped || again[0].ID != first[0] {
		f.Errorf("a repeat of %s: %+v, %v", first[0], again, err)
	}
	d, took := f.next(b, start)
	f.due(took, delayed)
	f.ack(b, d)
	if again, err = b.Append(f.ctx(), []backend.Message{m}); err != nil || !again[0].Deduped {
		f.Errorf("a repeat when it is done: %+v, %v", again, err)
	}
	f.done(b)
}

func delayLetter(f *fixture) {
	b := f.open()
	start := time.Now()
	f.publish(b, backend.Message{Data: []byte("x"), Headers: map[string]string{"k": "v"}, Delay: delayed})
	d, _ := f.next(b, start)
	if err := b.DeadLetter(f.ctx(), d, "", backend.Cause{Reason: backend.ReasonPoison}); err != nil {
		f.Fatal(err)
	}
	letters, err := b.(backend.DeadLetters).List(f.ctx(), "", "", 10)
	if err != nil || len(letters) != 1 || len(letters[0].Headers) != 1 || letters[0].Headers["k"] != "v" {
		f.Fatalf("letters %+v, %v", letters, err)
	}
	if err := b.(backend.DeadLetters).Redrive(f.ctx(), "", letters[0]); err != nil {
		f.Fatal(err)
	}
	sent := time.Now()
	d, took := f.next(b, sent)
	if string(d.Data) != "x" || took > f.prompt() {
		f.Errorf("what was sent back came as %q after %s", d.Data, took)
	}
	f.ack(b, d)
	f.done(b)
}

func delaySource(f *fixture) {
	b := f.open()
	start := time.Now()
	for range 2 { // the repeat stores nothing
		placed, err := b.(backend.PlaceKeeper).AppendAt(f.ctx(), "file", 0, []backend.Message{
			{Data: []byte("x"), Delay: delayed}, {Data: []byte("y"), Delay: delayed}})
		if err != nil || placed.Next != 2 || placed.LastID == "" {
			f.Fatalf("append of a source: %+v, %v", placed, err)
		}
	}
	for range 2 {
		d, took := f.next(b, start)
		f.due(took, delayed)
		f.ack(b, d)
	}
	f.done(b)
}
