package queue_test

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/internal/api"
)

func TestStatsAreTheNumbersOfTheQueue(t *testing.T) {
	everywhere(t, func(t *testing.T, h *host) {
		b := h.open(fresh())
		if s, err := b.Stats(t.Context()); err != nil || !errors.Is(s.Missing, backend.ErrStreamNotFound) {
			t.Errorf("stats of what is not there: %v", err)
		}
		if s, err := b.Signal(t.Context(), 100); err != nil || *s.Workers != 0 || *s.Lag != 0 {
			t.Errorf("signal of what is not there: %+v, %v", s, err)
		}
		check := func(when string, stored, pending, lag int64, source backend.AgeSource, approx bool) {
			t.Helper()
			s, err := b.Stats(t.Context())
			if err != nil || s.Lag == nil || s.DeadLetters == nil {
				t.Fatalf("%s: %+v, %v", when, s, err)
			}
			if s.XLen != stored || s.Pending != pending || *s.Lag != lag || s.OldestSource != source || s.Approx != approx || s.OldestAge < 0 || s.OldestAge > time.Minute {
				t.Errorf("%s: %+v, lag %d", when, s, *s.Lag)
			}
			sig, err := b.Signal(t.Context(), 100)
			if err != nil || *sig.Workers != pending || sig.Pending != pending || *sig.Lag != lag || sig.XLen != stored {
				t.Errorf("%s: signal %+v, %v", when, sig, err)
			}
		}
		take(t, b, nil)
		check("empty", 0, 0, 0, backend.AgeNone, false)
		publish(t, b, "a", "b", "c")
		check("nothing claimed", 3, 0, 3, backend.AgeBacklog, true)
		got := take(t, b, func(r *backend.ClaimRequest) { r.Max = 2 }).Deliveries
		check("two claimed", 3, 2, 1, backend.AgePending, false)
		giveBack(t, b, got[0], time.Hour)
		check("one put off", 3, 1, 2, backend.AgePending, false)
		mustAck(t, b, got[1])
		check("one done", 2, 0, 2, backend.AgeBacklog, true)
	})
}

// What nobody can begin has to be told from what waits, in either way of reading.
func TestAReadingSaysWhatIsNotDue(t *testing.T) {
	everywhere(t, func(t *testing.T, h *host) {
		b := h.open(fresh())
		publish(t, b, "a", "b")
		if _, err := b.Append(t.Context(), []backend.Message{{Data: []byte("later"), Delay: time.Hour}}); err != nil {
			t.Fatal(err)
		}
		giveBack(t, b, take(t, b, func(r *backend.ClaimRequest) { r.Max = 1 }).Deliveries[0], time.Hour)
		signal, err := b.Signal(t.Context(), 100)
		if err != nil {
			t.Fatal(err)
		}
		_, counted, err := b.Tally(t.Context(), make([]uint32, 1))
		if err != nil {
			t.Fatal(err)
		}
		for name, s := range map[string]*backend.Signal{"the signal": &signal, "a count": counted} {
			if s.Pending != 0 || *s.Lag != 2 || s.Retrying != 1 || s.Delayed != 1 || s.XLen != 3 {
				t.Errorf("%s: %+v, lag %d; want two that are left, of which one is to be tried again, and one for later", name, *s, *s.Lag)
			}
		}
	})
}

// logTopic makes a log on an http host.
func logTopic(t *testing.T, h *host) string {
	t.Helper()
	name := fresh()
	if _, err := h.eng.PutTopic(t.Context(), name, api.DefaultConfig()); err != nil {
		t.Fatal(err)
	}
	return name
}

func TestALogIsWrittenAndReadButHasNoWork(t *testing.T) {
	h := &host{t: t, kind: "http"}
	h.serve("")
	b := h.open(logTopic(t, h))
	publish(t, b, "a", "b")
	if _, err := b.Claim(t.Context(), request); !errors.Is(err, backend.ErrGroupNotFound) {
		t.Errorf("claim: %v", err)
	}
	if _, err := b.Stats(t.Context()); !errors.Is(err, backend.ErrGroupNotFound) {
		t.Errorf("stats: %v", err)
	}
	if s, err := b.Signal(t.Context(), 100); err != nil || *s.Lag != 0 || s.XLen != 2 {
		t.Errorf("signal: %+v, %v", s, err)
	}
	got, err := b.Read(t.Context(), backend.ReadRequest{Max: 10})
	if err != nil || len(got.Records) != 2 || string(got.Records[1].Data) != "b" || got.Next != "2" || got.Gap != nil {
		t.Errorf("read: %+v, %v", got, err)
	}
}

func TestAGapIsShown(t *testing.T) {
	h := &host{t: t, kind: "http"}
	h.serve("")
	name := fresh()
	cfg := api.DefaultConfig()
	cfg.CapRecords = 2
	if _, err := h.eng.PutTopic(t.Context(), name, cfg); err != nil {
		t.Fatal(err)
	}
	b := h.open(name)
	publish(t, b, "a", "b", "c", "d", "e")
	got, err := b.Read(t.Context(), backend.ReadRequest{After: "1", Max: 10})
	if err != nil || got.Gap == nil || got.Gap.From != "2" || got.Gap.To != "3" || got.Gap.Reason != "cap" || *got.Gap.Missed != 2 || len(got.Records) != 2 {
		t.Errorf("read %+v with gap %+v, %v", got, got.Gap, err)
	}
}

func TestTheDoctorFindsWhatLosesMessages(t *testing.T) {
	h := &host{t: t, kind: "http"}
	h.serve("")
	for want, change := range map[string]func(*api.Config){
		"queue_ttl":                 func(c *api.Config) { c.TTLMS = 1000_000 },
		"queue_cap_evicts":          func(c *api.Config) { c.CapRecords = 3 },
		"messages_lost":             func(c *api.Config) { c.CapRecords = 1 },
		"queue_cap_refuses":         func(c *api.Config) { c.CapBytes, c.Discard = 1000, api.DiscardReject },
		"limit_without_dead_letter": func(c *api.Config) { c.MaxDeliveries = 5 },
		"server_moves_dead_letters": func(c *api.Config) { c.MaxDeliveries, c.DeadLetter, c.HasDeadLetter = 5, "d", true },
		"no_idempotency":            func(c *api.Config) { c.IdempotencyWindowMS = 0 },
		"not_durable":               func(c *api.Config) { c.Durability = api.Memory },
		"leases_not_durable":        func(c *api.Config) { c.LeasesDurable = false },
	} {
		name, cfg := fresh(), api.DefaultConfig()
		cfg.Type, cfg.LeasesDurable = api.TypeQueue, true
		change(&cfg)
		if _, err := h.eng.PutTopic(t.Context(), name, cfg); err != nil {
			t.Fatal(err)
		}
		b := h.open(name)
		publish(t, b, "a", "b")
		found, err := b.Examine(t.Context())
		if codes := codesOf(found); err != nil || !slices.Contains(codes, want) || len(codes) > 2 {
			t.Errorf("want %s, found %v, %v", want, codes, err)
		}
		for _, f := range found {
			if f.Problem == "" || f.Advice == "" || f.Severity == "" {
				t.Errorf("finding %+v", f)
			}
		}
	}
	if found, err := h.open(logTopic(t, h)).Examine(t.Context()); err != nil || fmt.Sprint(codesOf(found)) != "[log_topic]" {
		t.Errorf("a log: %v, %v", found, err)
	}
}

// A window or a TTL may be longer than a time.Duration can say; it must not turn
// into a short one.
func TestTimesOfAConfigurationNeverOverflow(t *testing.T) {
	h := &host{t: t, kind: "http"}
	h.serve("")
	for _, ms := range []uint64{1 << 44, 1 << 63, 1<<63 + 1<<46, math.MaxUint64} { // the first are 557 years
		name, cfg := fresh(), api.DefaultConfig()
		cfg.Type, cfg.LeasesDurable, cfg.IdempotencyWindowMS, cfg.TTLMS = api.TypeQueue, true, ms, ms
		if _, err := h.eng.PutTopic(t.Context(), name, cfg); err != nil {
			t.Fatal(err)
		}
		b := h.open(name)
		const most = math.MaxInt64 / time.Millisecond * time.Millisecond
		if window, err := b.KeyWindow(t.Context()); err != nil || window != most {
			t.Errorf("a window of %d ms: %s, %v; want %s", ms, window, err, most)
		}
		found, err := b.Examine(t.Context())
		if err != nil || len(found) != 1 || !strings.Contains(found[0].Problem, most.String()) {
			t.Errorf("a TTL of %d ms: %+v, %v", ms, found, err)
		}
	}
}

func TestAHealthyQueueHasNoFinding(t *testing.T) {
	everywhere(t, func(t *testing.T, h *host) {
		b := h.open(fresh())
		found, err := b.Examine(t.Context())
		if err != nil || fmt.Sprint(codesOf(found)) != "[stream_missing]" {
			t.Errorf("what is not there: %+v, %v", found, err)
		}
		publish(t, b, "a", "b")
		found, err = b.Examine(t.Context())
		if err != nil || h.kind != "mem" && len(found) > 0 || h.kind == "mem" && fmt.Sprint(codesOf(found)) != "[not_durable]" {
			t.Errorf("%+v, %v", found, err)
		}
		if err := b.DeadLetter(t.Context(), take(t, b, nil).Deliveries[0], "", backend.Cause{Reason: backend.ReasonPoison}); err != nil {
			t.Fatal(err)
		}
		if found, err := b.Examine(t.Context()); err != nil || !slices.Contains(codesOf(found), "dead_letters") {
			t.Errorf("with a dead letter: %+v, %v", found, err)
		}
	})
}

func codesOf(found []backend.Finding) []string {
	var codes []string
	for _, f := range found {
		codes = append(codes, f.Code)
	}
	return codes
}
