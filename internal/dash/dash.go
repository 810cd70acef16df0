package dash

import (
	"cmp"
	"context"
	"encoding/json"
	"math"
	"slices"
	"sync"
	"time"
)

// tick is how often the numbers are read while somebody looks at them.
const tick = time.Second

// Source reads the numbers. An error of a single stream belongs into its Stream.
type Source func(ctx context.Context) (Reading, error)

// Config says what the page compares the signal of a stream with.
type Config struct {
	LagWarn, LagPause int64 // messages, less than 1 if there is no such limit; see docs/BACKPRESSURE.md
}

// Dash reads a source and keeps what it read. It is safe for concurrent use.
type Dash struct {
	read Source

	mu      sync.Mutex
	cfg     Config
	state   State
	at      time.Time
	shift   int64 // steps by which the clock was set back
	totals  map[string]totals
	server  *ring
	streams map[string]*ring
	viewers map[*Viewer]struct{}
	wake    chan struct{} // a viewer came: the next reading is due
}

// totals are the counters of a stream when it was read last.
type totals struct {
	in, out, refused float64
	reasons          map[string]float64
	tiers            []Tier
}

// New returns a dashboard of what read returns. Run has to be called.
func New(read Source, cfg Config) *Dash {
	return &Dash{
		read: read, cfg: cfg, totals: make(map[string]totals), server: newRing(len(serverSeries)),
		streams: make(map[string]*ring), viewers: make(map[*Viewer]struct{}), wake: make(chan struct{}, 1),
		state: State{Streams: []Stream{}, Findings: []Finding{}, LagWarn: cfg.LagWarn, LagPause: cfg.LagPause},
	}
}

// Configure replaces what the page compares with, from the next reading on.
func (d *Dash) Configure(cfg Config) {
	d.mu.Lock()
	d.cfg = cfg
	d.mu.Unlock()
}

// Run reads until ctx ends: each second while there is a viewer, and otherwise as often
// as the history needs it.
func (d *Dash) Run(ctx context.Context) { d.run(ctx, func(State) {}) }

// Watch is Run for a single viewer, whom it tells each reading.
func (d *Dash) Watch(ctx context.Context, tell func(State)) {
	v := d.Open("", nil)
	defer v.Close()
	<-d.wake // the first reading is due anyway
	d.run(ctx, tell)
}

func (d *Dash) run(ctx context.Context, tell func(State)) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-d.wake:
		}
		if r, err := d.read(ctx); err == nil {
			d.took(r, time.Now())
			tell(d.State(nil))
		}
		timer.Reset(d.pause(time.Now()))
	}
}

// pause is the time until the next reading: at the next second, or the next step.
func (d *Dash) pause(now time.Time) time.Duration {
	every := Step
	d.mu.Lock()
	if len(d.viewers) > 0 {
		every = tick
	}
	d.mu.Unlock()
	return now.Truncate(every).Add(every).Sub(now)
}

// took takes over a reading.
func (d *Dash) took(r Reading, now time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	dt := now.Sub(d.at).Seconds()
	if d.at.IsZero() || dt <= 0 {
		dt = math.NaN()
	}
	d.rates(&r, dt)
	d.at = now
	d.state = State{
		At: now.UnixMilli(), LagWarn: d.cfg.LagWarn, LagPause: d.cfg.LagPause,
		Server: r.Server, Streams: r.Streams, More: r.More, Findings: findings(&r, d.cfg),
	}
	if slot := d.slot(now); slot > d.server.slot {
		d.remember(&r, slot)
	}
	for v := range d.viewers {
		v.notify()
	}
}

// rates computes what happened per second since the last reading.
func (d *Dash) rates(r *Reading, dt float64) {
	seen := make(map[string]totals, len(r.Streams))
	for i := range r.Streams {
		s := &r.Streams[i]
		now := totals{in: s.In, out: s.Out, refused: s.Refused, reasons: s.Reasons}
		if s.Control != nil {
			now.tiers = s.Control.Tiers
		}
		if last, ok := d.totals[s.ID]; ok && s.Error == "" {
			s.InRate, s.OutRate, s.Refusals = rate(now.in-last.in, dt), rate(now.out-last.out, dt), rate(now.refused-last.refused, dt)
			s.refusals(&last, dt)
		}
		seen[s.ID] = now
	}
	d.totals = seen
	if s, last := r.Server, d.state.Server; s != nil && last != nil {
		s.FsyncMS = rate(s.FsyncTotal-last.FsyncTotal, float64(s.Fsyncs-last.Fsyncs))
		s.PushMS = rate(s.PushTotal-last.PushTotal, float64(s.Pushes-last.Pushes))
	}
}

// refusals computes what was refused per second by reason and by tier.
func (s *Stream) refusals(last *totals, dt float64) {
	for reason, n := range s.Reasons {
		if r := rate(n-last.reasons[reason], dt); r != nil && *r > 0 {
			if s.RefusedBy == nil {
				s.RefusedBy = map[string]float64{}
			}
			s.RefusedBy[reason] = *r
		}
	}
	if s.Control == nil || len(last.tiers) != len(s.Control.Tiers) {
		return
	}
	var offered, refused float64
	for i := range s.Control.Tiers {
		t := &s.Control.Tiers[i]
		offers, refusals := t.Offered-last.tiers[i].Offered, t.Refused-last.tiers[i].Refused
		t.Offers, t.Refusals = rate(offers, dt), rate(refusals, dt)
		offered, refused = offered+offers, refused+refusals
	}
	if offered > 0 && refused >= 0 {
		s.Control.Refused = min(1, refused/offered) // of what really came
	}
}

// rate is n/d, nil if that is no number or less than nothing: a counter began anew.
func rate(n, d float64) *float64 {
	if v := n / d; v >= 0 && !math.IsInf(v, 0) {
		return &v
	}
	return nil
}

// slot is the step of the history that a time is in: after a step back of the clock it goes on from
// where it was.
func (d *Dash) slot(now time.Time) int64 {
	slot := slotOf(now) + d.shift
	if back := d.server.slot - slot; back > 0 {
		d.shift += back
		return d.server.slot
	}
	return slot
}

// remember adds a point to the history.
func (d *Dash) remember(r *Reading, slot int64) {
	var in, out, backlog float64
	alive := make(map[string]bool, len(r.Streams))
	for i := range r.Streams {
		s := &r.Streams[i]
		h := d.streams[s.ID]
		if h == nil && len(d.streams) < maxStreams {
			h = newRing(len(streamSeries))
			d.streams[s.ID] = h
		}
		if alive[s.ID] = true; h != nil {
			h.put(slot, []float64{value(s.Lag), value(s.Pending), value(s.Signal), value(s.OldestMS), value(s.InRate), value(s.OutRate), value(s.Refusals)})
		}
		if s.InRate != nil {
			in += *s.InRate
		}
		if s.OutRate != nil {
			out += *s.OutRate
		}
		if s.Lag != nil && s.Kind != "log" && s.Letters == "" {
			backlog += float64(*s.Lag)
		}
	}
	for id, h := range d.streams {
		if !alive[id] && slot-h.slot > int64(Points) {
			delete(d.streams, id)
		}
	}
	point := []float64{math.NaN(), math.NaN(), math.NaN(), in, out, backlog, math.NaN()}
	if s := r.Server; s != nil {
		point[0], point[1], point[2], point[6] = s.Pressure, value(s.FsyncMS), value(s.PushMS), float64(s.Connections)
	}
	d.server.put(slot, point)
}

// ServerHistory is the last hour of all streams together.
func (d *Dash) ServerHistory() History {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.server.history(serverSeries, d.slot(time.Now()), time.Now())
}

// StreamHistory is the last hour of a stream; ok is false if there is no such stream. One
// that is new, or one too many, has a history in which nothing is known.
func (d *Dash) StreamHistory(id string) (h History, ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	r := d.streams[id]
	if r == nil {
		if _, ok := d.totals[id]; !ok {
			return History{}, false
		}
		r = newRing(len(streamSeries))
	}
	return r.history(streamSeries, d.slot(time.Now()), time.Now()), true
}

// State returns what was read last, of the streams that allowed accepts (nil: all).
func (d *Dash) State(allowed func(stream string) bool) State {
	d.mu.Lock()
	s := d.state
	d.mu.Unlock()
	if allowed != nil {
		s.Streams = slices.DeleteFunc(slices.Clone(s.Streams), func(v Stream) bool { return !allowed(v.ID) })
		s.Findings = slices.DeleteFunc(slices.Clone(s.Findings), func(f Finding) bool { return f.Stream != "" && !allowed(f.Stream) })
	}
	return s
}

// Fresh is State after the next reading, or what was read last if none comes until ctx ends.
func (d *Dash) Fresh(ctx context.Context, allowed func(stream string) bool) State {
	v := d.Open("", allowed)
	defer v.Close()
	<-v.ready // of Open
	select {
	case <-v.ready:
	case <-ctx.Done():
	}
	return d.State(allowed)
}

// Viewer is one page that is open. Its methods but Close are for one goroutine.
type Viewer struct {
	d       *Dash
	key     string
	allowed func(string) bool
	ready   chan struct{}
	sent    int64
}

// Open begins to show the dashboard to somebody who may see the streams that allowed
// accepts (nil: all); key names the key, empty if none is needed. The Viewer has to be
// closed.
func (d *Dash) Open(key string, allowed func(string) bool) *Viewer {
	v := &Viewer{d: d, key: key, allowed: allowed, ready: make(chan struct{}, 1)}
	v.notify()
	d.mu.Lock()
	d.viewers[v] = struct{}{}
	d.mu.Unlock()
	select {
	case d.wake <- struct{}{}:
	default:
	}
	return v
}

// Close ends the viewer.
func (v *Viewer) Close() {
	v.d.mu.Lock()
	delete(v.d.viewers, v)
	v.d.mu.Unlock()
}

func (v *Viewer) notify() {
	select {
	case v.ready <- struct{}{}:
	default:
	}
}

// Ready receives when Next has something.
func (v *Viewer) Ready() <-chan struct{} { return v.ready }

// Next appends the newest state as an event, if it has not been sent yet.
func (v *Viewer) Next(_ context.Context, dst []byte) ([]byte, error) {
	s := v.d.State(v.allowed)
	if s.At == 0 || s.At == v.sent {
		return dst, nil
	}
	s.Key, s.Page = v.key, digest()
	body, err := json.Marshal(&s)
	if err != nil {
		return dst, err
	}
	v.sent = s.At
	dst = append(append(dst, "data: "...), body...)
	return append(dst, "\n\n"...), nil
}

// Sent and Ended complete what a server needs to send a Viewer as an event stream.
func (v *Viewer) Sent() {}

// Ended is false: a page is open until somebody closes it.
func (v *Viewer) Ended() bool { return false }

// alike is how many findings of one kind come before those of other kinds.
const alike = 3

// sortFindings puts errors first, but lets no kind of trouble that many streams have hide
// the others.
func sortFindings(list []Finding) {
	slices.SortStableFunc(list, func(a, b Finding) int { return cmp.Compare(a.Severity, b.Severity) })
	seen, late := map[string]int{}, map[string]bool{}
	for _, f := range list {
		if seen[f.Do]++; seen[f.Do] > alike {
			late[f.Stream+f.Do] = true
		}
	}
	slices.SortStableFunc(list, func(a, b Finding) int {
		switch x, y := late[a.Stream+a.Do], late[b.Stream+b.Do]; {
		case x == y:
			return 0
		case x:
			return 1
		}
		return -1
	})
}
