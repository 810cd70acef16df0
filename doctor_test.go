package weir

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/weirmq/weir/backend"
)

// Delayed messages are kept beside the stream, which MAXLEN does not touch.
func TestTheDoctorCountsForMaxLenWhatItCutsOff(t *testing.T) {
	for delayed, want := range map[int64]int{0: 1, 90: 0} {
		var d Diagnosis
		d.judge(&Pressure{Stats: backend.Stats{XLen: 95, Delayed: delayed, Lag: known(0)}}, Exam{MaxLen: 100})
		if len(d.Findings) != want {
			t.Errorf("%d of 95 are not due: %+v", delayed, d.Findings)
		}
	}
}

// said are the findings as codes with their severities.
func said(found []Finding) (text []string) {
	for _, f := range found {
		text = append(text, f.Severity+" "+f.Code)
	}
	return text
}

func TestWhatTheDoctorSaysOfAReading(t *testing.T) {
	slo := Exam{WaitSLO: time.Minute}
	room := Exam{MaxLen: 100}
	for _, c := range []struct {
		stats backend.Stats
		exam  Exam
		want  []string
	}{
		{backend.Stats{OldestAge: time.Minute, Pending: 1}, slo, nil},
		{backend.Stats{OldestAge: time.Minute + 1, Pending: 1}, slo, []string{"warning pending_old", "warning age_over_objective"}},
		{backend.Stats{OldestAge: time.Minute + 1, Lag: known(1)}, slo, []string{"warning age_over_objective"}},
		{backend.Stats{OldestAge: 10*time.Minute - 1, Lag: known(1)}, slo, []string{"warning age_over_objective"}},
		{backend.Stats{OldestAge: 10 * time.Minute, Lag: known(1)}, slo, []string{"error age_over_objective"}},
		{backend.Stats{OldestAge: time.Hour, Pending: 1}, Exam{}, nil},
		{backend.Stats{Paused: true}, Exam{}, []string{"warning paused"}},
		{backend.Stats{XLen: 89, Lag: known(89)}, room, nil},
		{backend.Stats{XLen: 90, Lag: known(89)}, room, []string{"warning maxlen_near"}},
		{backend.Stats{XLen: 90, Lag: known(80), Pending: 10}, room, []string{"error maxlen_near"}},
		{backend.Stats{XLen: 90, Behind: 90}, room, []string{"error maxlen_near"}},
		{backend.Stats{XLen: 1e6, Lag: known(1e6)}, Exam{}, nil},
	} {
		var d Diagnosis
		d.judge(&Pressure{Stats: c.stats}, c.exam)
		if got := said(d.Findings); !slices.Equal(got, c.want) {
			t.Errorf("%+v, %+v: %v, want %v", c.stats, c.exam, got, c.want)
		}
	}
}

// A lag rises if there was one before, and not all of it came since.
func TestWhenTheLagRises(t *testing.T) {
	at := time.Now()
	first := func(lag int64) backend.Stats { return backend.Stats{At: at, Lag: known(lag)} }
	second := func(lag int64, age time.Duration, source backend.AgeSource) backend.Stats {
		return backend.Stats{At: at.Add(time.Second), Lag: known(lag), OldestAge: age, OldestSource: source}
	}
	for _, c := range []struct {
		a, b  backend.Stats
		rises bool
	}{
		{first(0), second(9, time.Minute, backend.AgeBacklog), false},
		{first(5), second(5, time.Minute, backend.AgeBacklog), false},
		{first(5), second(6, time.Minute, backend.AgeBacklog), true},
		{first(5), second(6, time.Second, backend.AgeBacklog), true},
		{first(5), second(6, time.Second-1, backend.AgeBacklog), false},
		{first(5), second(6, 0, backend.AgeUnknown), true},
		{backend.Stats{At: at, Behind: 5}, backend.Stats{At: at.Add(time.Second), Behind: 6, OldestAge: time.Minute, OldestSource: backend.AgeBacklog}, true},
	} {
		var d Diagnosis
		d.compare(&Pressure{Stats: c.a}, &Pressure{Stats: c.b})
		if got := len(d.Findings) == 1 && d.Findings[0].Code == "lag_rising" && d.Findings[0].Severity == backend.SeverityWarning; got != c.rises || len(d.Findings) > 1 {
			t.Errorf("%+v, then %+v: %v", c.a, c.b, said(d.Findings))
		}
	}
}

// pinged is a server whose round trips take what it says, one after the other.
type pinged []time.Duration

func (p *pinged) Ping(context.Context) (time.Duration, error) {
	next := (*p)[0]
	*p = (*p)[1:]
	return next, nil
}
func (p *pinged) Examine(context.Context) ([]Finding, error) { return nil, nil }
func (p *pinged) Command(string) string                      { return "" }

// One slow round trip, or two, of five is no slow server.
func TestTheRoundTripIsTheMedian(t *testing.T) {
	const ms = time.Millisecond
	for _, c := range []struct {
		trips pinged
		want  time.Duration
		slow  bool
	}{
		{pinged{900 * ms, 1 * ms, 800 * ms, 2 * ms, 20 * ms}, 20 * ms, false},
		{pinged{21 * ms, 1 * ms, 800 * ms, 2 * ms, 22 * ms}, 21 * ms, true},
	} {
		var d Diagnosis
		if err := d.measure(t.Context(), &c.trips); err != nil || *d.RoundTrip != c.want || (len(d.Findings) == 1) != c.slow {
			t.Errorf("%v, %s, want %s: %v", err, d.RoundTrip, c.want, said(d.Findings))
		}
	}
}
