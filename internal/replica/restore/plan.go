package restore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/weirmq/weir/internal/replica"
)

// Point is what a directory is built as of: an operation, or a time of the
// leader's clock; the zero Point is the newest.
type Point struct {
	LSN  uint64
	Time time.Time
}

// Plan is what it takes to build a directory, and what would be in it.
type Plan struct {
	Base   replica.Base
	Groups int    // of the log behind the base
	Bytes  int64  // to be read, of base and groups
	Until  uint64 // position of the last of the groups
	LSN    uint64 // last operation of the result
	terms  []uint64
	newest *replica.Base
	at     Point
	broken []replica.BaseFile // that no base may have

	// What the copy can be restored to: Oldest is its oldest base, Newest the time of
	// its last group.
	OldestLSN, NewestLSN uint64
	// LostEnd says that the log ends in front of the newest base: the store has lost entries, and maybe
	// some behind it.
	LostEnd        bool
	Oldest, Newest time.Time
}

// Plan reads the copy to find out how a directory as of p is built.
func (c Copy) Plan(ctx context.Context, p Point) (*Plan, error) { return c.plan(ctx, p, nil) }

// plan is Plan without the bases that have one of the broken files.
func (c Copy) plan(ctx context.Context, p Point, broken []replica.BaseFile) (*Plan, error) {
	names, err := c.baseNames(ctx)
	if err != nil {
		return nil, err
	}
	plan := &Plan{at: p, broken: broken}
	if err := plan.choose(ctx, c, names, p); err != nil {
		return nil, err
	}
	plan.Bytes = sizeOf(&plan.Base)
	plan.terms = []uint64{plan.Base.Term}
	plan.Until, plan.LSN = plan.Base.After, plan.Base.LSN
	plan.NewestLSN, plan.Newest = plan.Base.LSN, plan.Base.Taken
	at, err := plan.scan(ctx, c, p)
	if err == nil && at == plan.newest.After { // it has nothing behind it
		plan.LostEnd, err = c.endsBefore(ctx, at)
	}
	return plan, err
}

// endsBefore reports whether the log ends in front of a place that it had.
func (c Copy) endsBefore(ctx context.Context, pos uint64) (bool, error) {
	if c.began > 0 {
		return c.began <= pos, nil
	}
	end, err := c.Log.End(ctx)
	if err != nil {
		return false, fmt.Errorf("the end of the copy's log: %w", err)
	}
	return end < pos, nil
}

// choose takes the newest base that is not behind p.
func (plan *Plan) choose(ctx context.Context, c Copy, names []string, p Point) error {
	var failed, unread error // unread are those that may be whole
	found := false
	for _, name := range slices.Backward(names) {
		b, err := c.readBase(ctx, name)
		if errors.Is(err, errUnused) || err == nil && needs(b, plan.broken) {
			continue
		}
		if err != nil {
			if failed = errors.Join(failed, err); !errors.Is(err, replica.ErrDamaged) {
				unread = errors.Join(unread, err)
			}
			continue
		}
		plan.Oldest, plan.OldestLSN = b.Taken, b.LSN
		if plan.newest == nil {
			plan.newest = b
		}
		if !found && (p.LSN == 0 || b.LSN <= p.LSN) && (p.Time.IsZero() || !b.Taken.After(p.Time)) {
			plan.Base, found = *b, true
			if p == (Point{}) {
				break
			}
		}
	}
	if found {
		return errors.Join(c.reads(&plan.Base), plan.begins(ctx, c, names))
	}
	switch {
	case unread != nil:
		return unread
	case failed != nil:
		return failed
	}
	if plan.Oldest.IsZero() {
		if len(plan.broken) > 0 {
			return errNoOther
		}
		return ErrEmpty
	}
	return fmt.Errorf("the copy begins at LSN %d, %s; --at must not be in front of it", plan.OldestLSN, plan.Oldest.UTC().Format(time.RFC3339))
}

// begins notes what the oldest base is.
func (plan *Plan) begins(ctx context.Context, c Copy, names []string) error {
	for _, name := range names {
		b, err := c.readBase(ctx, name)
		if err == nil && needs(b, plan.broken) {
			continue
		}
		if err == nil {
			plan.Oldest, plan.OldestLSN = b.Taken, b.LSN
			return nil
		}
		if ctx.Err() != nil {
			return err
		}
	}
	return nil
}

// scan reads the log behind the base. It returns the position that it ends at.
func (plan *Plan) scan(ctx context.Context, c Copy, p Point) (at uint64, err error) {
	check, at := newChain(&plan.Base), plan.Base.After
	base := plan.Bytes
	groups, read := 0, base
	found := p.LSN > 0 && p.LSN <= plan.Base.LSN // p, behind which nothing has to be whole
	over := false                                // something is missing, behind p
	for {
		e, err := replica.Next(ctx, c.Log, at)
		if errors.Is(err, io.EOF) {
			break
		}
		var g replica.Group
		if err == nil {
			g, err = check.next(&e)
		}
		if errors.Is(err, replica.ErrDamaged) {
			if over = found; !found {
				return at, &DamagedError{at, plan.NewestLSN, err}
			}
			if plan.newest.After < at || plan.newest.LSN <= check.last {
				break
			}
			check, at = newChain(plan.newest), plan.newest.After
			plan.NewestLSN, plan.Newest = plan.newest.LSN, plan.newest.Taken
			continue
		}
		if err != nil {
			return at, fmt.Errorf("reading the copy behind position %d of its log: %w", at, err)
		}
		c.progress(read+int64(len(e.Data))-base, 0)
		if e.Term > plan.terms[len(plan.terms)-1] {
			plan.terms = append(plan.terms, e.Term)
		}
		at, groups, read = e.Pos, groups+1, read+int64(len(e.Data))
		if plan.NewestLSN = max(plan.NewestLSN, g.Last); g.TimeMS > 0 {
			plan.Newest = time.UnixMilli(g.TimeMS)
		}
		switch {
		case over:
			continue
		case p.LSN > 0:
			if found || plan.NewestLSN < p.LSN {
				continue
			}
			plan.LSN, found = p.LSN, true
		case !p.Time.IsZero() && plan.Newest.After(p.Time):
			found = true
			continue
		default:
			plan.LSN = plan.NewestLSN
		}
		plan.Until, plan.Groups, plan.Bytes = at, groups, read
	}
	if p.LSN > 0 && !found {
		return at, fmt.Errorf("the copy ends at LSN %d, %s; --at must not be behind it", plan.NewestLSN, plan.Newest.UTC().Format(time.RFC3339))
	}
	return at, nil
}

// Build builds dir, which must be empty, as planned. If the planned base turns out to be broken
// it plans anew with an older one, behind which the log leads to the same state. A nil fs is the
// operating system's.
func (c Copy) Build(ctx context.Context, plan *Plan, fs vfs.FS, dir string) error {
	if fs == nil {
		fs = vfs.Default
	}
	begin := func() (*Mirror, error) {
		return c.begin(ctx, &plan.Base, plan.Bytes-sizeOf(&plan.Base), fs, dir, nil)
	}
	m, err := begin()
	for f := asBroken(err); f != nil; f = asBroken(err) {
		older, failed := c.plan(ctx, plan.at, append(plan.broken, *f))
		if failed != nil {
			return fmt.Errorf("%w; with another base: %w", err, failed)
		}
		if c.Trouble != nil {
			c.Trouble(fmt.Errorf("%w; with %s", err, replica.BaseName(older.Base.After)))
		}
		*plan = *older
		m, err = begin()
	}
	if err != nil {
		return err
	}
	defer m.Close()
	if plan.Until > m.At {
		if err := m.Follow(ctx, plan.Until); err != nil {
			return err
		}
	}
	return m.Finish(plan.LSN)
}
