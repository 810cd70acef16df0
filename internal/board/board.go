// Package board puts streams of any kind on the dashboard: it reads them through the
// library, and does to their dead letters what somebody asks for there.
package board

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/weirmq/weir"
	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/internal/dash"
)

const (
	// patience is how long a stream has to answer: one that hangs must not hold up the
	// numbers of the others for long.
	patience = 3 * time.Second
	// again is how long after a failed attempt a stream is opened again.
	again = 5 * time.Second
	// attended is how long after a sign of a worker it is believed to be there, where
	// workers do not say so: the lag_ttl of a pool.
	attended = 10 * time.Second
)

// Board is a list of streams.
type Board struct{ streams []*Stream }

// Stream is one stream on a board, which opens it when it is needed first and again as
// long as that fails.
type Stream struct {
	id   string
	info backend.Info // what is known of it before it is open
	open func(context.Context) (*weir.Stream, error)

	mu     sync.Mutex
	stream *weir.Stream
	why    error     // the last attempt to open it failed
	next   time.Time // when it is tried again

	finished float64   // as it was read last
	busy     time.Time // when there was a sign of a worker last
}

// Add opens streams, all at once. One that cannot be reached now is opened later; what is
// wrong with a URL is an error, and bad the place of its opener.
func (b *Board) Add(ctx context.Context, open ...func(context.Context) (*weir.Stream, error)) (bad int, err error) {
	added, errs := make([]*Stream, len(open)), make([]error, len(open))
	var opening sync.WaitGroup
	for i, o := range open {
		s := &Stream{open: o}
		added[i] = s
		opening.Go(func() { errs[i] = s.identify(ctx) })
	}
	opening.Wait()
	for i, s := range added {
		if err == nil && errs[i] != nil {
			bad, err = i, errs[i]
		}
		s.id = b.free(s.info)
		b.streams = append(b.streams, s)
	}
	return bad, err
}

// identify finds out what a stream is called.
func (s *Stream) identify(ctx context.Context) error {
	opened, err := s.get(ctx)
	unreached, away := errors.AsType[*backend.OpenError](err)
	switch {
	case err == nil:
		s.info = opened.Info()
	case away:
		s.info = unreached.Info
	default:
		return err
	}
	return nil
}

// free returns an ID that no other stream has: the stream's name, with its group and a
// number if that is needed.
func (b *Board) free(info backend.Info) string {
	taken := func(id string) bool {
		return slices.ContainsFunc(b.streams, func(s *Stream) bool { return s.id == id })
	}
	id := cmp.Or(info.Stream, info.Kind)
	if taken(id) {
		id += " · " + info.Group
	}
	for n, first := 2, id; taken(id); n++ {
		id = first + " · " + strconv.Itoa(n)
	}
	return id
}

// Close closes the streams.
func (b *Board) Close() error {
	var errs []error
	for _, s := range b.streams {
		s.mu.Lock()
		if s.stream != nil {
			errs = append(errs, s.stream.Close())
		}
		s.mu.Unlock()
	}
	return errors.Join(errs...)
}

// ErrUnknown says that no stream on the board has an ID.
var ErrUnknown = errors.New("there is no such stream on the dashboard")

// Find returns the stream of an ID.
func (b *Board) Find(ctx context.Context, id string) (*weir.Stream, error) {
	for _, s := range b.streams {
		if s.id == id {
			return s.get(ctx)
		}
	}
	return nil, ErrUnknown
}

// get returns the stream, open.
func (s *Stream) get(ctx context.Context) (*weir.Stream, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stream != nil || time.Now().Before(s.next) {
		return s.stream, s.why
	}
	limited, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	s.stream, s.why = s.open(limited)
	if s.why != nil && !errors.Is(ctx.Err(), context.Canceled) { // whoever has left says nothing of the stream
		s.next = time.Now().Add(again)
	}
	return s.stream, s.why
}

// Read reads all streams at once. What is wrong with one of them is in its row.
func (b *Board) Read(ctx context.Context) (dash.Reading, error) {
	r := dash.Reading{Streams: make([]dash.Stream, len(b.streams))}
	var reading sync.WaitGroup
	for i, s := range b.streams {
		reading.Go(func() { r.Streams[i] = s.read(ctx) })
	}
	reading.Wait()
	return r, ctx.Err()
}

// Each returns the streams one by one, each with what reads it alone: one that hangs holds
// up no other.
func (b *Board) Each() iter.Seq2[string, dash.Source] {
	return func(yield func(string, dash.Source) bool) {
		for _, s := range b.streams {
			if !yield(s.id, func(ctx context.Context) (dash.Reading, error) {
				return dash.Reading{Streams: []dash.Stream{s.read(ctx)}}, ctx.Err()
			}) {
				return
			}
		}
	}
}

func (s *Stream) read(ctx context.Context) dash.Stream {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	row := dash.Stream{ID: s.id, Name: s.info.Stream, Group: s.info.Group, Kind: s.info.Kind, In: math.NaN(), Out: math.NaN(), Refused: math.NaN()}
	stream, err := s.get(ctx)
	if err == nil {
		info := stream.Info()
		row.Server, row.Durability = info.Server, info.Durability
		err = s.measure(ctx, stream, &row)
	}
	if err != nil {
		row.Error = err.Error()
		if errors.Is(err, context.DeadlineExceeded) {
			row.Error = fmt.Sprintf("it has not answered within %s", patience)
		}
	}
	return row
}

// measure fills in the numbers. What the backend does not know stays unknown.
func (s *Stream) measure(ctx context.Context, stream *weir.Stream, row *dash.Stream) error {
	p, err := stream.Pressure(ctx)
	if err != nil {
		return err
	}
	row.Paused = p.Paused
	row.Stored, row.Pending, row.Lag, row.Dead = &p.XLen, &p.Pending, p.Lag, p.DeadLetters
	if p.PendingUnknown {
		row.Pending = nil
	}
	if p.OldestSource != backend.AgeUnknown {
		ms := p.OldestAge.Milliseconds()
		row.OldestMS = &ms
	}
	if p.Workers != nil {
		n := int(*p.Workers)
		row.Workers = &n
	}
	signaler, signals := stream.Backend().(backend.Signaler)
	if !signals {
		return nil
	}
	sig, err := signaler.Signal(ctx, 0)
	if err != nil {
		return err
	}
	row.Signal = sig.Workers
	if sig.Finished != nil {
		row.Out = float64(*sig.Finished)
		if sig.Lag != nil {
			row.In = row.Out + float64(sig.Pending+*sig.Lag)
		}
	}
	if sig.Counted {
		s.attend(row, &sig)
	}
	return nil
}

// attend judges whether somebody works, where the signal is always known: something is
// held, or was done a moment ago.
func (s *Stream) attend(row *dash.Stream, sig *backend.Signal) {
	now := time.Now()
	if sig.Pending > 0 || !s.busy.IsZero() && row.Out > s.finished {
		s.busy = now
	} else if s.busy.IsZero() {
		s.busy = now.Add(-attended)
	}
	s.finished = row.Out
	if now.Sub(s.busy) >= attended {
		row.Signal = nil
	}
}
