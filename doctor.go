package weir

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/weirmq/weir/backend"
)

// Finding is one problem of a stream and what to do about it.
type Finding = backend.Finding

// Exam says what Examine checks a stream against.
type Exam struct {
	// Interval is the time between the two readings that show a rising lag; 0 takes
	// only one reading.
	Interval time.Duration
	// WaitSLO is how old an unfinished message may be; 0 = any age.
	WaitSLO time.Duration
	// MaxLen is the MAXLEN to which producers trim the stream; 0 = none.
	MaxLen int64
}

// Diagnosis is what Examine found.
type Diagnosis struct {
	Pressure  *Pressure      // the last reading; nil if the stream or group is missing
	RoundTrip *time.Duration // to the server; nil if unknown
	Findings  []Finding      // in the order in which to look
}

// From these values on, Examine reports a problem.
const (
	farOver   = 10                    // times WaitSLO: an error
	nearLimit = 0.9                   // of MaxLen
	slowTrip  = 20 * time.Millisecond // round trip
	pings     = 5
)

// Examine looks for known problems of the stream and changes nothing. It returns
// ErrUnsupported if the backend knows none.
func (s *Stream) Examine(ctx context.Context, e Exam) (Diagnosis, error) {
	doctor, ok := s.backend.(backend.Doctor)
	if !ok {
		return Diagnosis{}, fmt.Errorf("weir: doctor on a %s stream: %w", s.info.Kind, ErrUnsupported)
	}
	d := Diagnosis{Findings: []Finding{}}
	if err := d.measure(ctx, doctor); err != nil {
		return d, err
	}
	unread := d.read(ctx, s, e)
	found, err := doctor.Examine(ctx)
	if err != nil {
		return d, err
	}
	if unread != nil && !slices.ContainsFunc(found, explains) {
		return d, unread
	}
	d.Findings = append(d.Findings, found...)
	slices.SortStableFunc(d.Findings, func(a, b Finding) int { return int(a.Concern - b.Concern) })
	for i, f := range d.Findings {
		if f.Command == "" {
			d.Findings[i].Command = doctor.Command(f.Code)
		}
	}
	return d, nil
}

// explains reports whether a finding says why a stream cannot be read.
func explains(f Finding) bool {
	return f.Concern == backend.OfStream || f.Concern == backend.OfServer && f.Severity == backend.SeverityError
}

func (d *Diagnosis) add(concern backend.Concern, code, severity, advice, problem string, args ...any) {
	d.Findings = append(d.Findings, Finding{
		Code: code, Severity: severity, Problem: fmt.Sprintf(problem, args...), Advice: advice, Concern: concern,
	})
}

// measure takes the median of some round trips.
func (d *Diagnosis) measure(ctx context.Context, doctor backend.Doctor) error {
	trips := make([]time.Duration, 0, pings)
	for range pings {
		took, err := doctor.Ping(ctx)
		if errors.Is(err, ErrUnsupported) {
			return nil
		}
		if err != nil {
			return err
		}
		trips = append(trips, took)
	}
	slices.Sort(trips)
	d.RoundTrip = &trips[pings/2]
	if *d.RoundTrip > slowTrip {
		d.add(backend.OfServer, "slow_round_trip", backend.SeverityWarning,
			"look for slow commands, a busy processor or swapping on the server, and check the network in between",
			"a call that does nothing takes %s; every claim and ack takes at least that long", d.RoundTrip.Round(time.Millisecond/10))
	}
	return nil
}

// read takes the readings and judges them. It leaves it to the backend to find out why
// a stream cannot be read.
func (d *Diagnosis) read(ctx context.Context, s *Stream, e Exam) error {
	first, err := s.Pressure(ctx)
	if err == nil && first.Missing != nil {
		err = first.Missing
	}
	if err == nil && e.Interval > 0 {
		if err := pause(ctx, e.Interval); err != nil {
			return err
		}
		var second Pressure
		if second, err = s.Pressure(ctx); err == nil {
			d.compare(&first, &second)
			first = second
		}
	}
	if err != nil {
		return err
	}
	d.Pressure = &first
	d.judge(&first, e)
	return nil
}

// waiting is what nobody has taken yet, as far as it is known.
func (p *Pressure) waiting() int64 {
	if p.Lag == nil {
		return p.Behind
	}
	return *p.Lag
}

// compare looks for a rising lag. If everything that is left came after the first
// reading, that is normal traffic.
func (d *Diagnosis) compare(a, b *Pressure) {
	before, now, between := a.waiting(), b.waiting(), b.At.Sub(a.At)
	known := b.OldestSource != backend.AgeUnknown
	if before == 0 || now <= before || known && b.OldestAge < between {
		return
	}
	d.add(backend.OfWorkers, "lag_rising", backend.SeverityWarning,
		"check that all workers are alive and claim messages; then start more of them",
		"the lag rises: %d messages that nobody has claimed, %d more than %s before", now, now-before, between.Round(time.Millisecond))
}

// judge looks at one reading.
func (d *Diagnosis) judge(p *Pressure, e Exam) {
	if p.Paused {
		d.add(backend.OfWorkers, "paused", backend.SeverityWarning, "weir queue resume lets the workers go on",
			"the group is paused: no worker is given a message, %d wait", p.waiting())
	}
	over := e.WaitSLO > 0 && p.OldestAge > e.WaitSLO
	age := p.OldestAge.Round(time.Second)
	if over && p.Pending > 0 {
		d.add(backend.OfPending, "pending_old", backend.SeverityWarning,
			"find out what the handlers wait for: slow database queries and timeouts, long runs, failing acks",
			"%d messages are claimed and not finished, the oldest was published %s ago", p.Pending, age)
	}
	if over {
		severity := backend.SeverityWarning
		if p.OldestAge >= farOver*e.WaitSLO {
			severity = backend.SeverityError
		}
		d.add(backend.OfPending, "age_over_objective", severity,
			"start workers, or more of them; if this age is acceptable, raise --wait-slo",
			"the oldest unfinished message was published %s ago, the objective is %s; %d are waiting, %d are claimed", age, e.WaitSLO, p.waiting(), p.Pending)
	}
	near := int64(nearLimit * float64(e.MaxLen))
	work, _ := p.Backlog()
	entries := p.XLen - p.Delayed // what is not due is beside the stream, where nothing cuts it off
	switch {
	case e.MaxLen <= 0 || entries < near:
	case work >= near:
		d.add(backend.OfStorage, "maxlen_near", backend.SeverityError,
			"raise the producers' MAXLEN, slow them down, or start more workers",
			"%d messages are not finished and producers trim to %d: unfinished ones are cut off next", work, e.MaxLen)
	default:
		d.add(backend.OfStorage, "maxlen_near", backend.SeverityWarning,
			"raise the producers' MAXLEN, or remove finished entries (trim=on); a burst larger than the number of finished entries loses messages",
			"%d entries are stored and producers trim to %d: if the backlog grows by %d more, it is cut off unread", entries, e.MaxLen, e.MaxLen-work)
	}
}
