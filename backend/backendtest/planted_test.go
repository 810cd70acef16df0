package backendtest

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirmq/weir/backend"
)

// plantedVar names the fault that a run of this test binary carries.
const plantedVar = "BACKENDTEST_PLANTED"

// faults are named mistakes of a backend and the cases that have to find them.
var faults = map[string]struct {
	cases string // pattern of their names
	plant func(*flawed)
}{
	"bytes are made text":          {"payload_comes_back:_not_UTF-8", func(f *flawed) { f.data = func(d []byte) []byte { return bytes.ToValidUTF8(d, []byte("?")) } }},
	"keys are forgotten":           {"a_key_stores_its_message_once$", func(f *flawed) { f.message = func(m *backend.Message) { m.IdempotencyKey = "" } }},
	"headers are dropped":          {"headers_come_back", func(f *flawed) { f.message = func(m *backend.Message) { m.Headers = nil } }},
	"priorities are dropped":       {"priority_and_fair", func(f *flawed) { f.message = func(m *backend.Message) { m.Priority = 0 } }},
	"deadlines are dropped":        {"a_deadline_comes_back", func(f *flawed) { f.message = func(m *backend.Message) { m.Deadline = time.Time{} } }},
	"delayed messages come early":  {"a_delayed_message_comes", func(f *flawed) { f.message = func(m *backend.Message) { m.Delay = 0 } }},
	"delayed messages are lost":    {"a_delayed_message_comes", func(f *flawed) { f.lateLost = true }},
	"delays end with the handle":   {"survives_the_handle", func(f *flawed) { f.lateWithHandle = true }},
	"a repeat is delayed again":    {"a_delayed_message_with_a_key", func(f *flawed) { f.message = func(m *backend.Message) { m.IdempotencyKey = "" } }},
	"delays are kept for letters":  {"sent_back_is_due", func(f *flawed) { f.lateAgain = true }},
	"delayed messages are lag":     {"is_counted_apart", func(f *flawed) { f.lateIsLag = true }},
	"waits miss what becomes due":  {"a_claim_with_a_long_lease", func(f *flawed) { f.lateAsleep = true }},
	"data is kept":                 {"an_append_neither_keeps", func(f *flawed) { f.keep = true }},
	"orphans are taken early":      {"an_orphan_is_not_taken", func(f *flawed) { f.Inject(OpClaim, Fault{Repeat: true}) }},
	"one delivery too many":        {"is_delivered_as_often", func(f *flawed) { f.request = func(r *backend.ClaimRequest) { r.MaxDeliveries++ } }},
	"one delivery too few":         {"a_message_that_fails", func(f *flawed) { f.request = func(r *backend.ClaimRequest) { r.MaxDeliveries-- } }},
	"claims give too much":         {"a_claim_gives_no_more", func(f *flawed) { f.request = func(r *backend.ClaimRequest) { r.Max++ } }},
	"claims do not wait":           {"a_claim_waits_no_shorter", func(f *flawed) { f.request = func(r *backend.ClaimRequest) { r.Block = 0 } }},
	"attempts are not counted":     {"an_orphan_goes_to_another", func(f *flawed) { f.delivery = func(d *backend.Delivery) { d.Attempt = 1 } }},
	"acks are not fenced":          {"a_superseded_ack", func(f *flawed) { f.unfenced = true }},
	"acks do nothing":              {"an_acked_message", func(f *flawed) { f.noAck = true }},
	"extends do nothing":           {"a_lease_that_is_extended", func(f *flawed) { f.noExtend = true }},
	"delays are ignored":           {"a_nack_delay", func(f *flawed) { f.back = func(r *backend.Return) { r.Delay = 0 } }},
	"a history repeats too early":  {"every_answer", func(f *flawed) { f.back = func(r *backend.Return) { r.Delay = 0 } }},
	"a history has one too many":   {"every_answer", func(f *flawed) { f.request = func(r *backend.ClaimRequest) { r.MaxDeliveries++ } }},
	"a history stores keys twice":  {"every_answer", func(f *flawed) { f.message = func(m *backend.Message) { m.IdempotencyKey = "" } }},
	"a history settles only one":   {"every_answer", func(f *flawed) { f.one = true }},
	"what was not started counts":  {"what_no_handler", func(f *flawed) { f.back = func(r *backend.Return) { r.NotStarted = false } }},
	"letters are lost":             {"a_poisoned_message", func(f *flawed) { f.bury = buryNowhere }},
	"letters follow the ack":       {"in_the_letters_before", func(f *flawed) { f.bury = buryLate }},
	"letters are moved unfenced":   {"a_dead_letter_by_a_lost", func(f *flawed) { f.bury = buryUnfenced }},
	"unknown is called done":       {"an_append_whose_answer", func(f *flawed) { f.unknownAs = nil; f.hidden = true }},
	"unknown is called undone":     {"without_a_key_whose", func(f *flawed) { f.unknownAs = backend.ErrUnavailable; f.hidden = true }},
	"contexts are not looked at":   {"no_call_begins", func(f *flawed) { f.deaf = true }},
	"closing does nothing":         {"closed_handle_says", func(f *flawed) { f.stays = true }},
	"an unknown number is 0":       {"the_numbers_follow", func(f *flawed) { f.zeroes = true }},
	"a goroutine is left":          {"leaves_no_goroutine", func(f *flawed) { f.leaks = true }},
	"letters sent back are copies": {"a_letter_sent_back_is", func(f *flawed) { f.copies = true }},
	"pauses do nothing":            {"a_paused_group", func(f *flawed) { f.restless = true }},
	"pauses do not hold orphans":   {"a_pause_holds_orphans", func(f *flawed) { f.restless = true }},
	"waits end in a pause":         {"a_claim_that_waits_when", func(f *flawed) { f.restless = true }},
}

func TestSuiteFindsPlantedFaults(t *testing.T) {
	if os.Getenv(plantedVar) != "" {
		t.Fatal("a planted run must be of one case")
	}
	for _, name := range slices.Sorted(maps.Keys(faults)) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			run := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestFakePassesTheSuite$/"+faults[name].cases)
			run.Env = append(os.Environ(), plantedVar+"="+name)
			out, err := run.CombinedOutput()
			var exit *exec.ExitError
			if !errors.As(err, &exit) || exit.ExitCode() != 1 || !strings.Contains(string(out), "--- FAIL") || strings.Contains(string(out), "panic:") {
				t.Errorf("the cases %s did not find it: %v\n%s", faults[name].cases, err, out)
			}
		})
	}
}

// flawed is a fake with one mistake.
type flawed struct {
	*Fake
	data      func([]byte) []byte
	message   func(*backend.Message)
	request   func(*backend.ClaimRequest)
	delivery  func(*backend.Delivery)
	back      func(*backend.Return)
	bury      func(*flawed, context.Context, *backend.Delivery, string, backend.Cause) error
	unknownAs error
	hidden    bool

	keep, unfenced, noAck, noExtend, one, deaf, stays, zeroes, leaks, copies, restless bool
	lateLost, lateWithHandle, lateAgain, lateIsLag, lateAsleep                         bool
}

// plant returns f with the named fault.
func plant(f *Fake, name string) backend.Backend {
	fault, known := faults[name]
	if !known {
		return f
	}
	bad := &flawed{Fake: f}
	fault.plant(bad)
	return bad
}

func (f *flawed) Append(ctx context.Context, msgs []backend.Message) ([]backend.Appended, error) {
	msgs = slices.Clone(msgs)
	for i := range msgs {
		if f.data != nil {
			msgs[i].Data = f.data(msgs[i].Data)
		}
		if f.message != nil {
			f.message(&msgs[i])
		}
	}
	got, err := f.Fake.Append(ctx, msgs)
	if f.lateLost {
		f.dropLater()
	}
	if f.keep {
		f.state.Lock()
		f.entries[len(f.entries)-1].data = msgs[len(msgs)-1].Data
		f.state.Unlock()
	}
	if f.hidden && errors.Is(err, backend.ErrOutcomeUnknown) {
		return make([]backend.Appended, len(msgs)), f.unknownAs
	}
	return got, err
}

func (f *flawed) dropLater() {
	f.state.Lock()
	defer f.state.Unlock()
	f.later = nil
}

func (f *flawed) Claim(ctx context.Context, req backend.ClaimRequest) (backend.Claimed, error) {
	if f.request != nil {
		f.request(&req)
	}
	if f.lateAsleep && req.ReclaimAfter > time.Minute {
		req.Block = 0
	}
	got, err := f.Fake.Claim(ctx, req)
	for _, d := range got.Deliveries {
		if f.delivery != nil {
			f.delivery(d)
		}
	}
	return got, err
}

// current gives leases the token that is valid now.
func (f *flawed) current(leases []backend.Lease) []backend.Lease {
	leases = slices.Clone(leases)
	f.state.Lock()
	defer f.state.Unlock()
	for i, lease := range leases {
		if p := f.pending[lease.ID]; p != nil {
			leases[i].Token = p.token()
		}
	}
	return leases
}

func (f *flawed) Ack(ctx context.Context, leases []backend.Lease) ([]string, error) {
	if f.noAck {
		return nil, nil
	}
	if f.unfenced {
		leases = f.current(leases)
	}
	return f.Fake.Ack(ctx, leases)
}

func (f *flawed) Extend(ctx context.Context, leases []backend.Lease, d time.Duration) ([]string, error) {
	if f.noExtend {
		return nil, nil
	}
	return f.Fake.Extend(ctx, leases, d)
}

func (f *flawed) Nack(ctx context.Context, returns []backend.Return) ([]string, error) {
	returns = slices.Clone(returns)
	if f.one {
		returns = returns[:1]
	}
	for i := range returns {
		if f.back != nil {
			f.back(&returns[i])
		}
	}
	return f.Fake.Nack(ctx, returns)
}

func (f *flawed) DeadLetter(ctx context.Context, d *backend.Delivery, to string, cause backend.Cause) error {
	if f.bury != nil {
		return f.bury(f, ctx, d, to, cause)
	}
	return f.Fake.DeadLetter(ctx, d, to, cause)
}

func buryNowhere(f *flawed, ctx context.Context, d *backend.Delivery, _ string, _ backend.Cause) error {
	_, err := f.Fake.Ack(ctx, []backend.Lease{d.Lease})
	return err
}

func buryLate(f *flawed, ctx context.Context, d *backend.Delivery, to string, cause backend.Cause) error {
	f.state.Lock()
	p := f.pending[d.ID]
	delete(f.pending, d.ID)
	f.state.Unlock()
	time.Sleep(10 * time.Millisecond)
	f.state.Lock()
	f.pending[d.ID] = p
	f.Fake.bury(p, f.target(to), cause, time.Now())
	f.state.Unlock()
	return nil
}

func buryUnfenced(f *flawed, ctx context.Context, d *backend.Delivery, to string, cause backend.Cause) error {
	d = &backend.Delivery{Lease: f.current([]backend.Lease{d.Lease})[0]}
	return f.Fake.DeadLetter(ctx, d, to, cause)
}

func (f *flawed) Stats(ctx context.Context) (backend.Stats, error) {
	if f.deaf {
		ctx = context.WithoutCancel(ctx)
	}
	stats, err := f.Fake.Stats(ctx)
	if f.zeroes {
		stats.Lag = new(int64)
	}
	if f.lateIsLag && stats.Lag != nil {
		*stats.Lag += stats.Delayed
	}
	return stats, err
}

func (f *flawed) Redrive(ctx context.Context, from string, letter backend.DeadLetter) error {
	if f.copies {
		_, err := f.Fake.Append(ctx, []backend.Message{{Data: letter.Data, Headers: letter.Headers}})
		return err
	}
	if f.lateAgain {
		_, err := f.Fake.Append(ctx, []backend.Message{{Data: letter.Data, Headers: letter.Headers, Delay: 10 * time.Second}})
		return err
	}
	return f.Fake.Redrive(ctx, from, letter)
}

func (f *flawed) Pause(ctx context.Context, paused bool) error {
	if paused && f.restless {
		return nil
	}
	return f.Fake.Pause(ctx, paused)
}

func (f *flawed) Close() error {
	if f.stays {
		return nil
	}
	if f.lateWithHandle {
		f.dropLater()
	}
	if f.leaks {
		go func() { select {} }()
	}
	return f.Fake.Close()
}
