package restore

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/weirmq/weir/internal/replica"
)

// Standby says how a server waits to lead.
type Standby struct {
	Silence time.Duration // how long the log does not grow before the server takes over
	Poll    time.Duration // how often it looks
}

const (
	// rebaseBytes is how much of the log may be behind the base of a mirror before
	// a newer base takes its place: a takeover replays it.
	rebaseBytes = 256 << 20
	rebaseEvery = time.Minute
)

// follower mirrors a copy.
type follower struct {
	d     *Directory
	m     *Mirror
	other bool      // m is in the second of the two places
	based time.Time // when a newer base was looked for
	bad   string    // the newest base when the copy was found to be damaged
	why   error     // how it is; nil: it is not
	found time.Time
	at    uint64 // position, while there is no mirror
	alone bool   // there is none, and the leader has something
	grown time.Time
	told  string
}

// Stand mirrors the copy until its leader has stopped or was silent for long, or it has
// never had one, and leads then.
func (d *Directory) Stand(ctx context.Context, s Standby) (Led, error) {
	h, err := d.look(ctx)
	if err == nil {
		err = d.Copy.readable(ctx)
	}
	if err != nil {
		return Led{}, err
	}
	f := &follower{d: d, grown: time.Now()}
	defer f.drop()
	tick := time.NewTicker(s.Poll)
	defer tick.Stop()
	for {
		switch why := f.step(ctx, h, s.Silence); {
		case ctx.Err() != nil:
			return Led{}, ctx.Err()
		case f.m != nil && h.used && h.note == nil: // the copy had no base when the directory was looked at
			return Led{}, d.neverLed()
		case why != "":
			d.Logger.Warn("this server takes over", "why", why)
			return d.take(ctx, h, f.m)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return Led{}, ctx.Err()
		}
	}
}

// step reads what is new. It says why the server has to take over; empty: it has not to.
func (f *follower) step(ctx context.Context, h *held, silence time.Duration) (takeOver string) {
	grown, err := f.read(ctx)
	if grown {
		f.grown = time.Now()
	}
	if err != nil {
		// While the log cannot be read, nobody knows whether it grows.
		f.grown = time.Now()
		f.tell(ctx, "the copy cannot be followed", err)
		return ""
	}
	silent := time.Since(f.grown) >= silence
	switch {
	case f.m != nil && f.m.Ended:
		return "the leader has stopped"
	case f.unled(ctx):
		return "nobody has led this copy yet"
	case silent && f.alone && !f.led(ctx, h):
		f.tell(ctx, "this server cannot take over", errAlone)
		return ""
	case silent:
		return "the leader gives no sign of life"
	}
	f.told = ""
	return ""
}

var errAlone = errors.New("the leader gives no sign of life, and the copy has no base yet: what that server has is in its own data directory alone. Start it again; a server without --standby would begin with nothing")

// tell logs what is in the way, once.
func (f *follower) tell(ctx context.Context, what string, err error) {
	if err.Error() != f.told && ctx.Err() == nil {
		f.d.Logger.Warn(what, "error", err)
	}
	f.told = err.Error()
}

// led reports whether it was a server on this directory that led last.
func (f *follower) led(ctx context.Context, h *held) bool {
	newest, err := f.d.Copy.Log.Newest(ctx)
	return err == nil && h.ledLast(newest)
}

// read takes in what is new in the log.
func (f *follower) read(ctx context.Context) (grown bool, err error) {
	if f.m == nil {
		if err := f.stillDamaged(ctx); err != nil {
			return false, err
		}
		m, err := f.d.Copy.Begin(ctx, f.d.FS, f.d.mirror("a"), nil)
		if errors.Is(err, ErrEmpty) {
			return f.watch(ctx)
		}
		if err != nil {
			return false, f.damaged(ctx, err)
		}
		f.m, f.other, f.alone, grown = m, false, false, true
	}
	if err := f.rebase(ctx); err != nil {
		return grown, err
	}
	before := f.m.At
	err = f.m.Follow(ctx, 0)
	grown = grown || f.m.At != before
	var bad *DamagedError
	if errors.As(err, &bad) {
		tried := replica.BaseName(f.m.Base.After)
		f.drop() // a newer base may be whole
		f.bad, f.why, f.found = tried, err, time.Now()
	}
	return grown, err
}

// damaged notes that an error is about a damaged copy.
func (f *follower) damaged(ctx context.Context, err error) error {
	if !errors.Is(err, replica.ErrDamaged) {
		return err
	}
	names, failed := f.d.Copy.baseNames(ctx)
	if failed == nil && len(names) > 0 {
		f.bad, f.why, f.found = names[len(names)-1], err, time.Now()
	}
	return err
}

// stillDamaged returns what was noted until there is a newer base, or a while has passed: a
// base is fetched whole.
func (f *follower) stillDamaged(ctx context.Context) error {
	if f.why == nil {
		return nil
	}
	names, err := f.d.Copy.baseNames(ctx)
	switch {
	case err != nil:
		return err
	case len(names) > 0 && names[len(names)-1] == f.bad && time.Since(f.found) < rebaseEvery:
		return f.why
	}
	f.why = nil
	return nil
}

// rebase goes over to a newer base if there is much behind the one of the mirror.
func (f *follower) rebase(ctx context.Context) error {
	if f.m.Behind < rebaseBytes || time.Since(f.based) < rebaseEvery {
		return nil
	}
	f.based = time.Now()
	if newer, err := f.d.Copy.newerThan(ctx, &f.m.Base); err != nil || newer == "" {
		return err
	}
	to := "b"
	if f.other {
		to = "a"
	}
	m, err := f.d.Copy.Begin(ctx, f.d.FS, f.d.mirror(to), f.m)
	if err != nil {
		return err
	}
	f.m.Close()
	err = f.d.FS.RemoveAll(f.m.dir)
	f.m, f.other = m, !f.other
	return err
}

// unled reports whether nobody has led the copy, as far as is known.
func (f *follower) unled(ctx context.Context) bool {
	if f.m != nil || f.at > 0 {
		return false
	}
	newest, err := f.d.Copy.Log.Newest(ctx)
	return err == nil && newest.Number == 0
}

// watch looks whether a log without a base grows.
func (f *follower) watch(ctx context.Context) (grown bool, err error) {
	for {
		e, err := f.d.Copy.Log.Read(ctx, f.at)
		if errors.Is(err, io.EOF) {
			return grown, nil
		}
		if err != nil {
			return grown, err
		}
		g, _ := replica.DecodeGroup(e.Data) // an entry without data begins a term
		f.at, f.alone, grown = e.Pos, g.Alone(), true
	}
}

func (f *follower) drop() {
	if f.m != nil {
		f.m.Close()
		f.m = nil
	}
}
