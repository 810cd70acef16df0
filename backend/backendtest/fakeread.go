package backendtest

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"strconv"
	"time"

	"github.com/weirmq/weir/backend"
)

// Pretend makes Signal and Stats return these numbers; nil ends that.
func (f *Fake) Pretend(signal *backend.Signal) {
	f.state.Lock()
	defer f.state.Unlock()
	f.pretended = nil
	if signal != nil {
		copied := *signal
		f.pretended = &copied
	}
}

// SetLagUnknown makes the lag nil, as a server that lost count does.
func (f *Fake) SetLagUnknown(unknown bool) {
	f.state.Lock()
	defer f.state.Unlock()
	f.lagUnknown = unknown
}

// ExpireSignal forgets what the workers published.
func (f *Fake) ExpireSignal() {
	f.state.Lock()
	defer f.state.Unlock()
	f.signal = nil
}

// Acked returns the IDs of the acknowledged messages, in order of acknowledgement.
func (f *Fake) Acked() []string {
	f.state.Lock()
	defer f.state.Unlock()
	return append([]string(nil), f.acked...)
}

// Stats reads the stream.
func (f *Fake) Stats(ctx context.Context) (stats backend.Stats, err error) {
	err = f.call(ctx, OpStats, func(*injected) error {
		f.state.Lock()
		defer f.state.Unlock()
		signal := f.numbers()
		stats = backend.Stats{At: time.Now(), XLen: signal.XLen, Pending: signal.Pending, Lag: signal.Lag, Behind: signal.Behind, Delayed: signal.Delayed, OldestSource: backend.AgeNone}
		stats.OldestAge, stats.OldestSource = f.age(stats.At)
		workers, letters := int64(len(f.workers)), int64(len(f.letters[f.info.DeadLetter]))
		stats.Workers, stats.DeadLetters, stats.Paused = &workers, &letters, signal.Paused
		return nil
	})
	return stats, err
}

func (s *fakeStream) age(now time.Time) (time.Duration, backend.AgeSource) {
	for _, p := range s.held() {
		return now.Sub(p.entry.at), backend.AgePending
	}
	for _, e := range s.entries {
		if e.number > s.delivered {
			return now.Sub(e.at), backend.AgeBacklog
		}
	}
	return 0, backend.AgeNone
}

// Signal reads what a guard needs.
func (f *Fake) Signal(ctx context.Context, _ int64) (signal backend.Signal, err error) {
	err = f.call(ctx, OpSignal, func(*injected) error {
		f.state.Lock()
		defer f.state.Unlock()
		signal = f.numbers()
		return nil
	})
	return signal, err
}

// numbers is the load, the pretended one if there is one.
func (s *fakeStream) numbers() backend.Signal {
	if s.pretended != nil {
		return *s.pretended
	}
	s.release(time.Now())
	signal := backend.Signal{Pending: int64(len(s.pending)), Delayed: int64(len(s.later)), XLen: int64(len(s.entries)), Paused: s.paused}
	if s.signal != nil && time.Now().Before(s.signalEnds) {
		workers := *s.signal
		signal.Workers = &workers
	}
	if lag := int64(s.next - s.delivered); s.lagUnknown {
		signal.Behind = lag
	} else {
		signal.Lag = &lag
	}
	return signal
}

// PublishSignal counts the pending messages and stores the number for ttl.
func (f *Fake) PublishSignal(ctx context.Context, ttl time.Duration) error {
	return f.call(ctx, OpPublishSignal, func(*injected) error {
		f.state.Lock()
		defer f.state.Unlock()
		pending := int64(len(f.pending))
		f.signal, f.signalEnds = &pending, time.Now().Add(ttl)
		return nil
	})
}

// Read returns the records after a cursor.
func (f *Fake) Read(ctx context.Context, req backend.ReadRequest) (records backend.Records, err error) {
	end := time.NewTimer(req.Block)
	defer end.Stop()
	err = f.call(ctx, OpRead, func(*injected) error {
		after := req.After
		for {
			var wake <-chan struct{}
			if records, wake, err = f.read(after, req.Max); err != nil {
				return err
			}
			if len(records.Records) > 0 || req.Block <= 0 {
				return nil
			}
			after = records.Next // the end of now, if that is where it starts
			select {
			case <-wake:
			case <-end.C:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			case <-f.closed:
				return backend.ErrClosed
			}
		}
	})
	return records, err
}

func (f *Fake) read(cursor string, limit int) (records backend.Records, wake <-chan struct{}, err error) {
	f.state.Lock()
	defer f.state.Unlock()
	after := 0
	switch cursor {
	case backend.CursorStart:
	case backend.CursorEnd:
		after = f.next
	default:
		if after, err = strconv.Atoi(cursor); err != nil {
			return records, nil, fmt.Errorf("fake: cursor %q is not one of this stream", cursor)
		}
	}
	first := f.next + 1
	if len(f.entries) > 0 {
		first = f.entries[0].number
	}
	if missed := int64(first - 1 - after); cursor != backend.CursorStart && missed > 0 {
		records.Gap = &backend.Gap{From: cursor, To: strconv.Itoa(first - 1), Reason: "trimmed", Missed: &missed}
	}
	for _, e := range f.entries {
		if e.number > after && len(records.Records) < limit {
			after = e.number
			records.Records = append(records.Records, backend.Record{ID: e.id, Data: bytes.Clone(e.data), Headers: maps.Clone(e.header), At: e.at})
		}
	}
	records.Next = strconv.Itoa(after)
	return records, f.wake, nil
}

// Trim removes what is acknowledged, or the oldest beyond a length. The stream has no owner.
func (f *Fake) Trim(ctx context.Context, req backend.TrimRequest) (trimmed backend.Trimmed, err error) {
	err = f.call(ctx, OpTrim, func(*injected) error {
		f.state.Lock()
		defer f.state.Unlock()
		for len(f.entries) > 0 && !req.OwnOnly {
			e := f.entries[0]
			open := e.number > f.delivered || f.pending[e.id] != nil
			if open && (req.MaxLen <= 0 || int64(len(f.entries)) <= req.MaxLen) {
				break
			}
			if e.number > f.delivered {
				f.delivered = e.number
			}
			if open {
				trimmed.Dropped++
			}
			trimmed.Removed++
			f.entries = f.entries[1:]
		}
		return nil
	})
	return trimmed, err
}
