package weir

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/weirmq/weir/backend"
)

// Finding is one trouble of a stream and what to do about it.
type Finding = backend.Finding

// Exam says what Examine holds a stream against.
type Exam struct {
	// Interval is the time between the two readings that tell a rising lag; 0 takes
	// one reading.
	Interval time.Duration
	// WaitSLO is how old a message that is not done may be; 0: any age.
	WaitSLO time.Duration
	// MaxLen is the MAXLEN that producers of the stream trim it to; 0: none.
	MaxLen int64
}

// Diagnosis is what Examine found.
type Diagnosis struct {
	Pressure  *Pressure      // the last reading; nil: there is no such stream or group
	RoundTrip *time.Duration // to the server; nil: not known
	Findings  []Finding      // in the order in which to look
}

// From where on Examine calls something a trouble.
const (
	farOver   = 10                    // times WaitSLO: an error
	nearLimit = 0.9                   // of MaxLen
	slowTrip  = 20 * time.Millisecond // round trip
	pings     = 5
)

// Examine looks for known troubles of the stream and changes nothing. It returns
// ErrUnsupported where the backend knows none.
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
	if unread != nil && !slices.ContainsFunc(found, func(f Finding) bool { return f.Concern == backend.OfStream }) {
		return d, unread
	}
	d.Findings = append(d.Findings, found...)
	slices.SortStableFunc(d.Findings, func(a, b Finding) int { return int(a.Concern - b.Concern) })
	for i, f := range d.Findings {
		d.Findings[i].Command = doctor.Command(f.Code)
	}
	return d, nil
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
			"look for slow commands, a busy processor or swapping there, and for the network between",
			"a call that does nothing takes %s there and back; every claim and ack takes at least that", d.RoundTrip.Round(time.Millisecond/10))
	}
	return nil
}

// read takes the readings and says what they tell. What keeps a stream from being
// read is the backend's to find.
func (d *Diagnosis) read(ctx context.Context, s *Stream, e Exam) error {
	first, err := s.Pressure(ctx)
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

// compare looks for a lag that rises. Where all that is left came after the first
// reading, it is the traffic that comes and goes.
func (d *Diagnosis) compare(a, b *Pressure) {
	before, now, between := a.waiting(), b.waiting(), b.At.Sub(a.At)
	known := b.OldestSource != backend.AgeUnknown
	if before == 0 || now <= before || known && b.OldestAge < between {
		return
	}
	d.add(backend.OfWorkers, "lag_rising", backend.SeverityWarning,
		"look whether all workers are alive and take messages; then start more of them",
		"the lag rises: %d messages that nobody has taken, %d more than %s before", now, now-before, between.Round(time.Millisecond))
}

// judge looks at one reading.
func (d *Diagnosis) judge(p *Pressure, e Exam) {
	over := e.WaitSLO > 0 && p.OldestAge > e.WaitSLO
	age := p.OldestAge.Round(time.Second)
	if over && p.Pending > 0 {
		d.add(backend.OfPending, "pending_old", backend.SeverityWarning,
			"look at what the handlers wait for: slow queries and timeouts of their database, the time of a run, acks that fail",
			"%d messages are taken and not finished, the oldest was published %s ago", p.Pending, age)
	}
	if over {
		severity := backend.SeverityWarning
		if p.OldestAge >= farOver*e.WaitSLO {
			severity = backend.SeverityError
		}
		d.add(backend.OfPending, "age_over_objective", severity,
			"start workers, or more of them; if that much time is as it should be, say so with --wait-slo",
			"the oldest message that is not done was published %s ago, the objective is %s; %d wait, %d are taken", age, e.WaitSLO, p.waiting(), p.Pending)
	}
	near := int64(nearLimit * float64(e.MaxLen))
	work, _ := p.Backlog()
	switch {
	case e.MaxLen <= 0 || p.XLen < near:
	case work >= near:
		d.add(backend.OfStorage, "maxlen_near", backend.SeverityError,
			"raise the MAXLEN of the producers, hold them back, or start more workers",
			"%d messages are not done and producers trim to %d: those nobody has done are cut off next", work, e.MaxLen)
	default:
		d.add(backend.OfStorage, "maxlen_near", backend.SeverityWarning,
			"raise the MAXLEN of the producers, or remove what is done before; a burst of more than what is done loses messages",
			"%d entries are stored and producers trim to %d: a backlog that grows by %d more is cut off unread", p.XLen, e.MaxLen, e.MaxLen-work)
	}
}
