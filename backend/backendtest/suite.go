package backendtest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/tests/stall"
)

// Harness is what the suite has to know about a backend. Name and Open are required.
type Harness struct {
	Name string // of the backend, for humans: "redis 7.0.15"

	// Open opens a handle on a stream and the group "weir"; a new name is an empty
	// stream. Names contain a-z, 0-9 and "-". The suite closes the handles.
	Open func(t testing.TB, stream string) backend.Backend
	// OpenGroup opens a handle on another group of the stream; nil: there is only one
	// group.
	OpenGroup func(t testing.TB, stream, group string) backend.Backend
	// Faulty opens a handle whose answers can be lost: from lose to heal, calls reach
	// the server but nothing comes back. nil: that cannot happen.
	Faulty func(t testing.TB, stream string) (b backend.Backend, lose func() (heal func()))
	// Unreachable opens a handle whose server can be made unreachable in the same way:
	// no call gets there. nil: that cannot happen.
	Unreachable func(t testing.TB, stream string) (b backend.Backend, cut func() (heal func()))
	// Clogged opens a handle over a link that can be clogged: what is sent is held, and
	// gets to the server once that is over. nil: that cannot happen.
	Clogged func(t testing.TB, stream string) (b backend.Backend, clog func() (heal func()))

	// ReclaimAfter is a short one the backend supports; 300ms if it is 0.
	ReclaimAfter time.Duration
	// CreatesStream says that opening or reading a stream creates it, so that none is missing.
	CreatesStream bool
	// NoLag says that the server never knows the lag, except when nothing is waiting.
	NoLag bool
	// Unordered says that messages of different appends may overtake each other, and
	// orphans.
	Unordered bool
	// CountsItself says that the server itself counts what is pending, so that the
	// workers' signal is known even if none has published it.
	CountsItself bool
	// NoKeys says that an IdempotencyKey has no effect.
	NoKeys bool
	// LocalLeases says that only the handle that claimed a message can settle it.
	LocalLeases bool
	// OneOwner says that a handle has all messages of the group for itself until it is
	// closed: another can claim none of them, orphans and what was given back included.
	OneOwner bool
	// ReleasesOnClose says that a closed handle gives back what it holds.
	ReleasesOnClose bool
	// CountsUnstarted says that a delivery that no handler started counts.
	CountsUnstarted bool
	// MaxDeliveries is how often a message is delivered that has no limit; 0: for ever.
	MaxDeliveries int
	// Late is how old the pending count of another handle may be. If it is more than 0, one
	// reading may fail with ErrUnavailable.
	Late time.Duration
	// KeepsErrors says that the error of a Return is in the dead letter a later claim
	// makes of the message.
	KeepsErrors bool
}

// atOnce is how many cases run at the same time; most of them wait.
const atOnce = 8

// How long the suite waits. A busy machine needs more than a call takes.
const (
	held     = 30 * time.Second // ReclaimAfter of claims that no one may take over
	patience = 30 * time.Second // for what has to happen
	prompt   = 5 * time.Second  // for what has to happen soon
)

// Run puts a backend through every case its harness allows and prints how many there
// were.
func Run(t *testing.T, h Harness) {
	if h.ReclaimAfter == 0 {
		h.ReclaimAfter = 300 * time.Millisecond
	}
	probe := h.Open(t, "probe")
	s := &suite{h: h, stalled: stall.Meter(t), offered: probe, unique: fmt.Sprintf("%x", time.Now().UnixNano()&0xffffff)}
	if err := probe.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
	var all []testCase
	for _, group := range []func(*suite) []testCase{
		(*suite).appendCases, (*suite).payloadCases, (*suite).claimCases, (*suite).reclaimCases, (*suite).settleCases,
		(*suite).placeCases, (*suite).tallyCases, (*suite).budgetCases, (*suite).nackCases, (*suite).delayCases, (*suite).deadCases, (*suite).letterCases, (*suite).statsCases, (*suite).pauseCases, (*suite).removeCases, (*suite).readCases,
		(*suite).contextCases, (*suite).outageCases, (*suite).propertyCases, (*suite).modelCases,
	} {
		all = append(all, group(s)...)
	}
	todo := make(chan testCase)
	var workers sync.WaitGroup
	for range atOnce {
		workers.Go(func() {
			for c := range todo {
				s.run(t, c)
			}
		})
	}
	for _, c := range all {
		todo <- c
	}
	close(todo)
	workers.Wait()
	s.run(t, testCase{"a closed handle leaves no goroutine", noGoroutineLeft})
	fmt.Printf("backendtest: %d cases on %s\n", s.ran.Load(), h.Name)
}

// testCase is a statement and what demonstrates it.
type testCase struct {
	name string
	do   func(*fixture)
}

type suite struct {
	h       Harness
	stalled func() time.Duration // the machine, since the suite began
	// offered is a closed handle; the optional interfaces it implements get cases too.
	offered backend.Backend

	unique string
	ran    atomic.Int64
	number atomic.Int64
}

func (s *suite) run(t *testing.T, c testCase) {
	t.Run(c.name, func(t *testing.T) {
		s.ran.Add(1)
		c.do(s.fixture(t))
	})
}

func (s *suite) fixture(t *testing.T) *fixture {
	return &fixture{T: t, h: s.h, suite: s, before: s.stalled(), stream: s.name(), short: s.h.ReclaimAfter}
}

// only returns cases if there is what they need.
func only(there bool, cases ...testCase) []testCase {
	if !there {
		return nil
	}
	return cases
}

func (s *suite) name() string { return fmt.Sprintf("t%s-%d", s.unique, s.number.Add(1)) }

// fixture is a case's own stream.
type fixture struct {
	*testing.T
	h      Harness
	suite  *suite
	before time.Duration // the machine had stalled when the case began
	stream string
	short  time.Duration // ReclaimAfter of claims that run out
}

// fresh goes on with another, empty stream.
func (f *fixture) fresh() { f.stream = f.suite.name() }

// open returns another handle on the case's stream.
func (f *fixture) open() backend.Backend {
	f.Helper()
	b := f.h.Open(f, f.stream)
	f.Cleanup(func() { b.Close() })
	return b
}

// two returns two handles on the case's stream that get what the other leaves; it is the
// same handle if one has all of them.
func (f *fixture) two() (a, b backend.Backend) {
	f.Helper()
	a = f.open()
	if f.h.OneOwner {
		return a, a
	}
	return a, f.open()
}

// late is for how long the machine has stalled since the case began.
func (f *fixture) late() time.Duration { return f.suite.stalled() - f.before }

// prompt is what a bound on time allows for what has to happen soon.
func (f *fixture) prompt() time.Duration { return prompt + f.late() }

// patience is the same for what has to happen.
func (f *fixture) patience() time.Duration { return patience + f.late() }

// ctx ends a call that does not come back.
func (f *fixture) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	f.Cleanup(cancel)
	return ctx
}

// publish appends messages and returns their IDs.
func (f *fixture) publish(b backend.Backend, msgs ...backend.Message) []string {
	f.Helper()
	got, err := b.Append(f.ctx(), msgs)
	if err != nil {
		f.Fatalf("append of %d messages: %v", len(msgs), err)
	}
	if len(got) != len(msgs) {
		f.Fatalf("append of %d messages gave %d results", len(msgs), len(got))
	}
	ids := make([]string, len(got))
	for i, a := range got {
		if a.Err != nil || a.ID == "" {
			f.Fatalf("append without an error: result %d is %+v", i, a)
		}
		ids[i] = a.ID
	}
	return ids
}

// text makes messages of texts.
func text(texts ...string) []backend.Message {
	msgs := make([]backend.Message, len(texts))
	for i, data := range texts {
		msgs[i].Data = []byte(data)
	}
	return msgs
}

// numbered makes messages with the texts of from, from+1 … to-1.
func numbered(from, to int) []backend.Message {
	var msgs []backend.Message
	for i := from; i < to; i++ {
		msgs = append(msgs, backend.Message{Data: fmt.Appendf(nil, "message %d", i)})
	}
	return msgs
}

// request is a claim that nobody takes over within the case.
func request(consumer string, limit int) backend.ClaimRequest {
	return backend.ClaimRequest{Consumer: consumer, Max: limit, Block: 50 * time.Millisecond, ReclaimAfter: held}
}

// shortRequest is one that runs out soon.
func (f *fixture) shortRequest(consumer string, limit int) backend.ClaimRequest {
	req := request(consumer, limit)
	req.ReclaimAfter = f.short
	return req
}

// gather claims until n messages have come, delivered, dead or lost. One whose lease has run out before
// the last came, because the machine stalled, is the one that has come again.
func (f *fixture) gather(b backend.Backend, req backend.ClaimRequest, n int) backend.Claimed {
	f.Helper()
	var all backend.Claimed
	for start := time.Now(); len(all.Deliveries)+len(all.Dead)+len(all.Lost) < n; {
		if time.Since(start) > f.patience() {
			f.Fatalf("%d of %d messages came in %s: %d deliveries, dead %v, lost %v",
				len(all.Deliveries)+len(all.Dead)+len(all.Lost), n, time.Since(start), len(all.Deliveries), all.Dead, all.Lost)
		}
		began := time.Now()
		got, err := b.Claim(f.ctx(), req)
		if errors.Is(err, backend.ErrOutcomeUnknown) && time.Since(began) > req.ReclaimAfter/2 {
			continue // a lease ran out while its message was on its way to the letters: the next claim moves it again
		}
		if err != nil {
			f.Fatalf("claim: %v", err)
		}
		if len(got.Deliveries) > req.Max {
			f.Fatalf("a claim of %d gave %d", req.Max, len(got.Deliveries))
		}
		for _, d := range got.Deliveries {
			at := slices.IndexFunc(all.Deliveries, func(old *backend.Delivery) bool { return old.ID == d.ID })
			if at < 0 {
				all.Deliveries = append(all.Deliveries, d)
				continue
			}
			if age := time.Since(all.Deliveries[at].Since); age < req.ReclaimAfter/2 { // the new lease may have begun later than its Since
				f.Fatalf("message %s came again %s after its claim", d.ID, age)
			}
			all.Deliveries[at] = d
		}
		all.Dead = append(all.Dead, got.Dead...)
		all.Lost = append(all.Lost, got.Lost...)
		all.Reclaimed += got.Reclaimed
	}
	return all
}

// claim gathers n deliveries that nobody takes over, and no more.
func (f *fixture) claim(b backend.Backend, consumer string, n int) []*backend.Delivery {
	f.Helper()
	var all []*backend.Delivery
	for start := time.Now(); len(all) < n; {
		got := f.gather(b, request(consumer, n-len(all)), 1)
		if all = append(all, got.Deliveries...); len(got.Dead)+len(got.Lost) > 0 || time.Since(start) > f.patience() {
			f.Fatalf("asked for %d deliveries, got %d, dead %v, lost %v", n, len(all), got.Dead, got.Lost)
		}
	}
	return all
}

// nothing checks that there is nothing to claim now.
func (f *fixture) nothing(b backend.Backend, req backend.ClaimRequest, why string) {
	f.Helper()
	req.Block = 0
	got, err := b.Claim(f.ctx(), req)
	if err != nil || len(got.Deliveries)+len(got.Dead)+len(got.Lost) > 0 {
		f.Fatalf("%s, but a claim gave %s, dead %v, lost %v, error %v", why, describe(got.Deliveries), got.Dead, got.Lost, err)
	}
}

// ack completes deliveries that are held.
func (f *fixture) ack(b backend.Backend, deliveries ...*backend.Delivery) {
	f.Helper()
	if lost, err := b.Ack(f.ctx(), leases(deliveries)); err != nil || len(lost) > 0 {
		f.Fatalf("ack of %s: lost %v, error %v", describe(deliveries), lost, err)
	}
}

// finish completes deliveries whose leases run out soon: one that did, because
// the machine stalled, is claimed again with req and completed then.
func (f *fixture) finish(b backend.Backend, req backend.ClaimRequest, deliveries ...*backend.Delivery) {
	f.Helper()
	for start := time.Now(); len(deliveries) > 0; {
		lost, err := b.Ack(f.ctx(), leases(deliveries))
		if err != nil || time.Since(start) > f.patience() {
			f.Fatalf("ack of %s: lost %v, error %v", describe(deliveries), lost, err)
		}
		var again []*backend.Delivery
		for _, d := range deliveries {
			if age := time.Since(d.Since); slices.Contains(lost, d.ID) && age < req.ReclaimAfter/2 {
				f.Fatalf("message %s was lost %s after its claim", d.ID, age)
			}
		}
		if len(lost) > 0 {
			again = f.gather(b, req, len(lost)).Deliveries
		}
		deliveries = again
	}
}

// nack gives one delivery back that is held.
func (f *fixture) nack(b backend.Backend, r backend.Return) {
	f.Helper()
	if lost, err := b.Nack(f.ctx(), []backend.Return{r}); err != nil || len(lost) > 0 {
		f.Fatalf("nack of %s: lost %v, error %v", r.ID, lost, err)
	}
}

// stats reads the stats. A backend whose readings are late may miss one, as weir's readers may.
func (f *fixture) stats(b backend.Backend) backend.Stats {
	f.Helper()
	stats, err := b.Stats(f.ctx())
	for n := 1; n < 6 && f.h.Late > 0 && errors.Is(err, backend.ErrUnavailable); n++ { // a busy server
		stats, err = b.Stats(f.ctx())
	}
	if err != nil {
		f.Fatalf("stats: %v", err)
	}
	return stats
}

// statsWhen reads the stats until they are as wished or could not be late any more.
func (f *fixture) statsWhen(b backend.Backend, wished func(backend.Stats) bool) backend.Stats {
	f.Helper()
	for start := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		if stats := f.stats(b); wished(stats) || time.Since(start) >= f.h.Late {
			return stats
		}
	}
}

// another opens another handle, or returns b if only that one can settle what it claims.
func (f *fixture) another(b backend.Backend) backend.Backend {
	f.Helper()
	if f.h.LocalLeases {
		return b
	}
	return f.open()
}

// done checks that no work is left: nothing pending, nothing to claim.
func (f *fixture) done(b backend.Backend) {
	f.Helper()
	f.nothing(b, request("done", 10), "all work is done")
	stats := f.statsWhen(b, func(s backend.Stats) bool { return s.Pending == 0 && value(s.Lag) == 0 })
	if stats.Pending != 0 || stats.Lag != nil && *stats.Lag != 0 {
		f.Errorf("all work is done, but pending is %d and lag %s", stats.Pending, number(stats.Lag))
	}
}

// inTime runs do, on a fresh stream each time, until it shows something: do
// returns what is wrong and how long it depended on a lease that runs out. What is
// wrong counts only if that was well within the lease; a stalled machine gets another try.
func (f *fixture) inTime(lease time.Duration, do func() (wrong string, took time.Duration)) {
	f.Helper()
	f.untilQuick(30, fmt.Sprintf("a lease of %s", lease), func() bool {
		wrong, took := do()
		if wrong != "" && took < lease/2 {
			f.Fatal(wrong)
		}
		return wrong == ""
	})
}

// untilQuick runs do, on a fresh stream each time, until it reports that the machine was quick enough
// to show something.
func (f *fixture) untilQuick(tries int, what string, do func() bool) {
	f.Helper()
	for range tries {
		if do() {
			return
		}
		f.fresh()
	}
	f.Fatalf("in %d tries the machine was never quick enough for %s", tries, what)
}

// inOrder returns deliveries of messages with these IDs as they are; in the order of the
// IDs if the backend may change it.
func (f *fixture) inOrder(deliveries []*backend.Delivery, ids []string) []*backend.Delivery {
	if f.h.Unordered {
		slices.SortFunc(deliveries, func(a, b *backend.Delivery) int { return slices.Index(ids, a.ID) - slices.Index(ids, b.ID) })
	}
	return deliveries
}

func leases(deliveries []*backend.Delivery) []backend.Lease {
	list := make([]backend.Lease, len(deliveries))
	for i, d := range deliveries {
		list[i] = d.Lease
	}
	return list
}

func describe(deliveries []*backend.Delivery) string {
	list := ""
	for i, d := range deliveries {
		if i == 5 {
			return fmt.Sprintf("%d deliveries:%s …", len(deliveries), list)
		}
		list += fmt.Sprintf(" %s (attempt %d, %s)", d.ID, d.Attempt, d.Consumer)
	}
	return fmt.Sprintf("%d deliveries:%s", len(deliveries), list)
}

func number(n *int64) string {
	if n == nil {
		return "unknown"
	}
	return fmt.Sprint(*n)
}
