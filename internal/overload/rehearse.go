package overload

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/weirmq/weir"
	"github.com/weirmq/weir/backend"
)

// Rehearsal is what an arm would have done with the messages of a live stream.
type Rehearsal struct {
	Arm      string                `json:"arm"`
	Offered  int                   `json:"offered"`
	Stored   int                   `json:"stored"`  // let through, delayed or not
	Refused  map[weir.Reason]int   `json:"refused"` // by reason
	GaveUp   int                   `json:"gave_up"` // a caller's deadline ended its wait
	Slowed   map[weir.SlowKind]int `json:"slowed"`  // delays
	Took     Spread                `json:"took"`    // until the answer, in seconds
	Tiers    map[string][2]int     `json:"tiers"`   // let through and offered, by priority
	Failures map[string]int        `json:"failures,omitempty"`
}

// ghost is a live stream whose appends store nothing. It never shares room or requests
// out, which would take them from the producers there are.
type ghost struct{ backend.Backend }

func (g ghost) Append(_ context.Context, msgs []backend.Message) ([]backend.Appended, error) {
	all := make([]backend.Appended, len(msgs))
	for i := range all {
		all[i].ID = "0"
	}
	return all, nil
}

// signalGhost is a ghost of a backend where workers report their load.
type signalGhost struct {
	ghost
	signaler backend.Signaler
}

func (g signalGhost) Signal(ctx context.Context, most int64) (backend.Signal, error) {
	return g.signaler.Signal(ctx, most)
}

// PublishSignal is for workers; there are none here.
func (g signalGhost) PublishSignal(context.Context, time.Duration) error { return nil }

func newGhost(b backend.Backend) backend.Backend {
	if s, ok := b.(backend.Signaler); ok {
		return signalGhost{ghost{b}, s}
	}
	return ghost{b}
}

// rehearser is one arm at work beside a live stream.
type rehearser struct {
	producer *weir.Producer
	mu       sync.Mutex
	result   Rehearsal
	took     []float64
}

// Rehearse follows a live stream for a time and asks each arm about every message that
// is published there: what it would have done with it, by the load as it is. It
// publishes nothing. Callers would give up after deadline.
//
// What an arm refuses is stored all the same, so the load is that of the guard in use.
func Rehearse(ctx context.Context, live *weir.Stream, arms []Arm, deadline, length time.Duration) ([]Rehearsal, error) {
	reader, ok := live.Backend().(backend.Reader)
	if !ok {
		return nil, fmt.Errorf("following %q: %w", live.Info().Stream, weir.ErrUnsupported)
	}
	all := make([]*rehearser, len(arms))
	for i, arm := range arms {
		r := &rehearser{result: Rehearsal{Arm: arm.Name, Refused: map[weir.Reason]int{}, Slowed: map[weir.SlowKind]int{}, Tiers: map[string][2]int{}, Failures: map[string]int{}}}
		c := arm.Config
		c.Logger = slog.New(slog.DiscardHandler)
		c.Hooks.Slowed = r.slowed
		var err error
		if r.producer, err = weir.NewProducer(weir.New(newGhost(live.Backend())), c); err != nil {
			return nil, err
		}
		defer r.producer.Close()
		all[i] = r
	}
	follow, cancel := context.WithTimeout(ctx, length)
	defer cancel()
	var callers sync.WaitGroup
	err := follows(follow, reader, func(record *backend.Record) {
		for _, r := range all {
			callers.Go(func() { r.ask(ctx, record, deadline) })
		}
	})
	callers.Wait()
	if follow.Err() == nil {
		return nil, err
	}
	results := make([]Rehearsal, len(all))
	for i, r := range all {
		r.result.Took = spread(r.took)
		results[i] = r.result
	}
	return results, ctx.Err()
}

// follows calls do with each record that is stored from now on, until ctx ends or a read
// fails.
func follows(ctx context.Context, reader backend.Reader, do func(*backend.Record)) error {
	cursor := backend.CursorEnd
	for {
		got, err := reader.Read(ctx, backend.ReadRequest{After: cursor, Max: 1000, Block: time.Second})
		if err != nil {
			return err
		}
		if got.Next != "" {
			cursor = got.Next
		}
		for i := range got.Records {
			do(&got.Records[i])
		}
	}
}

// ask publishes a record's likeness, which stores nothing.
func (r *rehearser) ask(ctx context.Context, record *backend.Record, deadline time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	m := weir.Message{Priority: priorityOf(record.Headers), FairKey: record.Headers[backend.HeaderFairKey]}
	began := time.Now()
	err := r.producer.Publish(ctx, m)
	took := time.Since(began)

	r.mu.Lock()
	defer r.mu.Unlock()
	r.result.Offered++
	tier := r.result.Tiers[m.Priority.String()]
	tier[1]++
	var full *weir.QueueFullError
	switch {
	case err == nil:
		r.result.Stored++
		tier[0]++
	case errors.As(err, &full):
		r.result.Refused[full.Reason]++
	case outcomeOf(err) == gaveUp:
		r.result.GaveUp++
	default:
		r.result.Failures[err.Error()]++
	}
	r.result.Tiers[m.Priority.String()] = tier
	r.took = append(r.took, took.Seconds())
}

func (r *rehearser) slowed(_ weir.StreamName, kind weir.SlowKind, _ time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.result.Slowed[kind]++
}

func priorityOf(headers map[string]string) weir.Priority {
	for p := weir.Background; p <= weir.Critical; p++ {
		if p.String() == headers[backend.HeaderPriority] {
			return p
		}
	}
	return weir.Normal
}

// rehearsed are the rows of the table.
var rehearsed = []struct {
	name string
	show func(r *Rehearsal) string
}{
	{"messages", func(r *Rehearsal) string { return fmt.Sprint(r.Offered) }},
	{"let through", func(r *Rehearsal) string { return fmt.Sprint(r.Stored) }},
	{"refused, load_shedding", func(r *Rehearsal) string { return fmt.Sprint(r.Refused[weir.LoadShedding]) }},
	{"refused, queue_full", func(r *Rehearsal) string { return fmt.Sprint(r.Refused[weir.QueueFull]) }},
	{"waited in vain", func(r *Rehearsal) string { return fmt.Sprint(r.GaveUp) }},
	{"sleeps", func(r *Rehearsal) string { return fmt.Sprint(r.Slowed[weir.SoftSleep]) }},
	{"pauses", func(r *Rehearsal) string { return fmt.Sprint(r.Slowed[weir.HardPause]) }},
	{"waits for room", func(r *Rehearsal) string { return fmt.Sprint(r.Slowed[weir.DepthWait]) }},
	{"answer p50, p99", func(r *Rehearsal) string { return r.Took.P50.span() + " " + r.Took.P99.span() }},
	{"errors", func(r *Rehearsal) string { return fmt.Sprint(len(r.Failures)) }},
}

// RehearsalTable writes rehearsals side by side.
func RehearsalTable(w io.Writer, results []Rehearsal) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	line := func(name string, show func(r *Rehearsal) string) {
		fmt.Fprint(t, name, "\t")
		for i := range results {
			fmt.Fprint(t, show(&results[i]), "\t")
		}
		fmt.Fprintln(t)
	}
	line("", func(r *Rehearsal) string { return r.Arm })
	for _, row := range rehearsed {
		line(row.name, row.show)
	}
	for p := weir.Critical; p >= weir.Background; p-- {
		if results[0].Tiers[p.String()][1] > 0 {
			line(p.String(), func(r *Rehearsal) string {
				n := r.Tiers[p.String()]
				return ratio(n[0], n[1]).percent()
			})
		}
	}
	return t.Flush()
}
