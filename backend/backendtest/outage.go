package backendtest

import (
	"bytes"
	"context"
	"errors"
	"time"

	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/tests/stall"
)

func (s *suite) outageCases() []testCase {
	var cases []testCase
	if s.h.Faulty != nil {
		cases = append(cases,
			testCase{"an append whose answer is lost is unknown, its repeat stores nothing twice", untilSent(lostAppend)},
			testCase{"a batch with keys is stored once, wherever its answers break off", lostKeyedBatch},
			testCase{"an append without a key whose answer is lost is unknown", untilSent(lostPlainAppend)},
			testCase{"an ack whose answer is lost can be repeated", untilSent(lostAck)},
			testCase{"a claim whose answer is lost leaves its messages to others", lostClaim},
			testCase{"a dead letter whose answer is lost is there once", untilSent(lostDeadLetter)},
			testCase{"every call ends with its context while nothing answers", contextEndsSilence},
		)
	}
	if _, shown := s.offered.(backend.DeadLetters); shown && s.h.Faulty != nil {
		cases = append(cases, testCase{"a redrive whose answer is lost sends back once", untilSent(lostRedrive)})
	}
	if s.h.Clogged != nil {
		cases = append(cases, testCase{"a message is the caller's again when its append has returned", dataIsTheCallers})
	}
	if s.h.Unreachable != nil {
		cases = append(cases, testCase{"what did not reach the server is an error and never done, and then all goes on", unreachable})
	}
	return cases
}

// How long a call waits for an answer that does not come, and how long one does
// that the server is to have finished.
const (
	silence     = 300 * time.Millisecond
	longSilence = 800 * time.Millisecond
	overdue     = 50 * time.Millisecond // how much later than its context a call may end
)

// faulty opens a handle that can lose answers, and another that cannot.
func (f *fixture) faulty() (bad, good backend.Backend, lose func() (heal func())) {
	f.Helper()
	bad, lose = f.h.Faulty(f, f.stream)
	f.Cleanup(func() { bad.Close() })
	good = f.open()
	f.nothing(bad, request("a", 1), "the stream is new") // has its connection and its group now
	return bad, good, lose
}

// untilSent runs a case, on a fresh stream each time, until its call was sent before its time was over.
func untilSent(do func(*fixture) (sent bool)) func(*fixture) {
	return func(f *fixture) { f.untilQuick(10, "a call", func() bool { return do(f) }) }
}

// unanswered makes a call that gets no answer and checks that it ends with its
// context and says that its outcome is not known. On a machine that stalled it may not
// have been sent.
func (f *fixture) unanswered(what string, lose func() func(), do func(ctx context.Context) error) (sent bool) {
	f.Helper()
	before := f.late()
	ctx, cancel := context.WithTimeout(f.ctx(), longSilence)
	defer cancel()
	heal := lose()
	start := time.Now()
	err := do(ctx)
	took := time.Since(start)
	heal()
	late := f.late() - before
	if late > longSilence/4 && errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, backend.ErrOutcomeUnknown) {
		return false
	}
	if !errors.Is(err, backend.ErrOutcomeUnknown) {
		f.Errorf("%s without an answer: %v, want ErrOutcomeUnknown", what, err)
	}
	if took > longSilence+prompt/2+late {
		f.Errorf("%s without an answer took %s, its context %s", what, took, longSilence)
	}
	return true
}

func lostAppend(f *fixture) (sent bool) {
	bad, good, lose := f.faulty()
	msgs := []backend.Message{{Data: []byte("a"), IdempotencyKey: "a"}, {Data: []byte("b"), IdempotencyKey: "b"}}
	if !f.unanswered("an append", lose, func(ctx context.Context) error {
		results, err := bad.Append(ctx, msgs)
		for _, r := range results {
			if r.Err == nil {
				f.Errorf("a message whose answer is lost is said to be stored: %+v", r)
			}
		}
		return err
	}) {
		return false
	}
	got, err := bad.Append(f.ctx(), msgs)
	if err != nil || len(got) != 2 || got[0].ID == "" || got[1].ID == "" {
		f.Fatalf("the repeat: %+v, %v", got, err)
	}
	if !got[0].Deduped { // the second one may have a round trip of its own
		f.Errorf("the server had stored the first, the repeat says %+v", got)
	}
	f.ack(good, f.claim(good, "a", 2)...)
	f.done(good)
	return true
}

// lostKeyedBatch loses the answers before the append and at moments in it. What it
// says is stored has to be there, and the repeat brings the rest.
func lostKeyedBatch(f *fixture) {
	bad, good, lose := f.faulty()
	const n = 60
	told := map[string]bool{}
	for _, after := range []time.Duration{0, 500 * time.Microsecond, time.Millisecond, 2 * time.Millisecond, 4 * time.Millisecond} {
		msgs := numbered(len(told), len(told)+n)
		for i := range msgs {
			msgs[i].IdempotencyKey = string(msgs[i].Data)
			told[msgs[i].IdempotencyKey] = false
		}
		f.publish(good, msgs[7], msgs[30]) // these were stored before
		ctx, cancel := context.WithTimeout(f.ctx(), silence)
		healed := make(chan func())
		go func() {
			time.Sleep(after) // a moment of the call, whichever it is
			healed <- lose()
		}()
		got, err := bad.Append(ctx, msgs)
		(<-healed)()
		cancel()
		unknown := 0
		for i, r := range got {
			told[msgs[i].IdempotencyKey] = r.Err == nil
			if errors.Is(r.Err, backend.ErrOutcomeUnknown) {
				unknown++
			}
		}
		if err == nil && unknown > 0 || errors.Is(err, backend.ErrOutcomeUnknown) && unknown == 0 && len(got) > 0 {
			f.Errorf("answers lost after %s: %d of %d unknown, error %v", after, unknown, n, err)
		}
		again, err := good.Append(f.ctx(), msgs)
		if err != nil {
			f.Fatalf("the repeat: %v", err)
		}
		for i, r := range again {
			if key := msgs[i].IdempotencyKey; told[key] && (!r.Deduped || r.ID != got[i].ID) {
				f.Errorf("%s was said to be stored as %+v, its repeat says %+v", key, got[i], r)
			}
		}
	}
	f.eachOnce(good, len(told))
}

func lostPlainAppend(f *fixture) (sent bool) {
	bad, good, lose := f.faulty()
	if !f.unanswered("an append", lose, func(ctx context.Context) error {
		_, err := bad.Append(ctx, text("x"))
		return err
	}) {
		return false
	}
	f.ack(good, f.claim(good, "a", 1)...)
	f.done(good)
	return true
}

func lostAck(f *fixture) (sent bool) {
	bad, good, lose := f.faulty()
	f.publish(bad, text("x")...)
	d := f.claim(bad, "a", 1)
	if !f.unanswered("an ack", lose, func(ctx context.Context) error {
		_, err := bad.Ack(ctx, leases(d))
		return err
	}) {
		return false
	}
	if _, err := bad.Ack(f.ctx(), leases(d)); err != nil {
		f.Errorf("the repeat: %v", err)
	}
	f.done(good)
	return true
}

func lostClaim(f *fixture) {
	bad, good, lose := f.faulty()
	f.publish(bad, numbered(0, 3)...)
	ctx, cancel := context.WithTimeout(f.ctx(), silence)
	defer cancel()
	heal := lose()
	got, err := bad.Claim(ctx, f.shortRequest("a", 3))
	heal()
	if err == nil || len(got.Deliveries) > 0 {
		f.Errorf("a claim without an answer gave %s, %v", describe(got.Deliveries), err)
	}
	start := time.Now()
	f.finish(good, f.shortRequest("b", 3), f.gather(good, f.shortRequest("b", 3), 3).Deliveries...)
	if took := time.Since(start); took > f.short+f.prompt() {
		f.Errorf("they came after %s", took)
	}
	f.done(good)
}

func lostDeadLetter(f *fixture) (sent bool) {
	bad, good, lose := f.faulty()
	f.publish(bad, text("x")...)
	d := f.claim(bad, "a", 1)[0]
	cause := backend.Cause{Reason: backend.ReasonPoison}
	if !f.unanswered("a dead letter", lose, func(ctx context.Context) error { return bad.DeadLetter(ctx, d, "", cause) }) {
		return false
	}
	if err := bad.DeadLetter(f.ctx(), d, "", cause); err != nil && !errors.Is(err, backend.ErrLeaseLost) {
		f.Errorf("the repeat: %v", err)
	}
	if list, can := f.letters(good, ""); can && len(list) != 1 {
		f.Errorf("one message is dead, the letters are %+v", list)
	}
	f.done(good)
	return true
}

func lostRedrive(f *fixture) (sent bool) {
	bad, good, lose := f.faulty()
	shelf := bad.(backend.DeadLetters)
	letter := f.bury(bad, numbered(0, 1)...)[0]
	if !f.unanswered("a redrive", lose, func(ctx context.Context) error { return shelf.Redrive(ctx, "", letter) }) {
		return false
	}
	if err := shelf.Redrive(f.ctx(), "", letter); err != nil && !errors.Is(err, backend.ErrNotFound) {
		f.Errorf("the repeat: %v", err)
	}
	if list, _ := f.letters(good, ""); len(list) > 0 {
		f.Errorf("the letter is still there: %+v", list)
	}
	f.ack(good, f.claim(good, "a", 1)...)
	f.done(good)
	return true
}

func contextEndsSilence(f *fixture) {
	bad, _, lose := f.faulty()
	f.publish(bad, text("x")...)
	d := f.claim(bad, "a", 1)[0]
	heal := lose()
	defer heal()
	for _, c := range calls(d) {
		if c.name == "publish signal" && f.h.CountsItself {
			continue // asks nobody
		}
		if took, err := quickest(f, c, bad); err == nil || took > silence+overdue {
			f.Errorf("%s without an answer: %v after %s at best, its context %s", c.name, err, took, silence)
		} else if backend.Retryable(err) && !errors.Is(err, context.DeadlineExceeded) {
			f.Errorf("%s without an answer: %v, want context.DeadlineExceeded, whatever its context's cause", c.name, err)
		}
	}
}

// quickest makes a call that gets no answer until it is over in time, at most ten
// times: a machine may be late now and then, a backend that is late always is. What the
// machine was seen to stand still meanwhile does not count.
func quickest(f *fixture, c call, b backend.Backend) (best time.Duration, err error) {
	for try := 0; try < 10 && (try == 0 || best > silence+overdue); try++ {
		stalled := stall.Watch()
		ctx, cancel := context.WithTimeoutCause(f.ctx(), silence, errors.New("the caller's cause"))
		start := time.Now()
		err = c.do(ctx, b)
		took := time.Since(start) - stalled()
		cancel()
		if err == nil {
			return took, nil
		}
		if try == 0 || took < best {
			best = took
		}
	}
	return best, err
}

func unreachable(f *fixture) {
	bad, cut := f.h.Unreachable(f, f.stream)
	f.Cleanup(func() { bad.Close() })
	good := f.open()
	f.publish(bad, text("before")...)
	d := f.claim(bad, "a", 1)[0]
	heal := cut()
	for _, c := range calls(d) {
		if c.name == "publish signal" && f.h.CountsItself {
			continue // asks nobody
		}
		ctx, cancel := context.WithTimeout(f.ctx(), silence)
		start := time.Now()
		err := c.do(ctx, bad)
		took := time.Since(start)
		cancel()
		if err == nil || took > silence+prompt/2+f.late() {
			f.Errorf("%s of an unreachable server: %v after %s", c.name, err, took)
		}
	}
	var err error // a busy machine may not get to asking in time
	for try := 0; try < 10 && !errors.Is(err, backend.ErrUnavailable) && !errors.Is(err, backend.ErrOutcomeUnknown); try++ {
		ctx, cancel := context.WithTimeout(f.ctx(), silence)
		_, err = bad.Append(ctx, text("lost"))
		cancel()
	}
	if !errors.Is(err, backend.ErrUnavailable) && !errors.Is(err, backend.ErrOutcomeUnknown) {
		f.Errorf("an append to an unreachable server: %v, want ErrUnavailable or ErrOutcomeUnknown", err)
	}
	if stats := f.stats(good); stats.Pending != 1 || stats.Lag != nil && *stats.Lag != 0 {
		f.Errorf("one message is held and nothing came since: pending %d, lag %s", stats.Pending, number(stats.Lag))
	}
	heal()
	for start := time.Now(); ; {
		ctx, cancel := context.WithTimeout(f.ctx(), silence)
		_, err := bad.Append(ctx, []backend.Message{{Data: []byte("after"), IdempotencyKey: "after"}})
		cancel()
		if err == nil {
			break
		}
		if time.Since(start) > patience/2+f.late() {
			f.Fatalf("%s after the server is back: %v", time.Since(start), err)
		}
		time.Sleep(20 * time.Millisecond)
	}
	f.ack(bad, f.claim(bad, "a", 1)...)
	f.ack(bad, d)
	f.done(good)
}

// dataIsTheCallers overwrites the data of appends that were left while they were being
// sent: what is stored of them is what was given.
func dataIsTheCallers(f *fixture) {
	b, clog := f.h.Clogged(f, f.stream)
	f.Cleanup(func() { b.Close() })
	good := f.open()
	ids := f.publish(b, text("the connection is there")...)
	// More than the buffers of two connections hold.
	const parts, size = 16, 1 << 20
	msgs := make([]backend.Message, parts)
	data := bytes.Repeat([]byte{'a'}, parts*size-parts*1024)
	for i := range msgs {
		n := len(data) / parts
		msgs[i].Data = data[i*n : (i+1)*n : (i+1)*n]
	}
	ctx, cancel := context.WithTimeout(f.ctx(), silence)
	defer cancel()
	heal := clog()
	_, err := b.Append(ctx, msgs)
	for i := range data {
		data[i] = 'b'
	}
	heal()
	if err == nil {
		f.Fatal("an append over a clogged link succeeded")
	}
	f.publish(b, text("and goes on")...)
	seen := 0
	for end := time.Now().Add(patience); seen < 2 && time.Now().Before(end); {
		got, err := good.Claim(f.ctx(), request("a", 100))
		if err != nil {
			f.Fatal(err)
		}
		for _, d := range got.Deliveries {
			if len(d.Data) < size/2 {
				seen++
			} else if n := bytes.Count(d.Data, []byte{'b'}); n > 0 {
				f.Errorf("%d of %d bytes stored are from after the append", n, len(d.Data))
			}
		}
		f.ack(good, got.Deliveries...)
	}
	if seen != 2 {
		f.Errorf("%d of the messages around %v came, want 2", seen, ids)
	}
}
