// Package audit lists what a copy holds, and reads all of it to find what is broken.
package audit

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/weirmq/weir/internal/replica"
)

// Copy is what is looked at.
type Copy struct {
	Log   replica.Log
	Files replica.Files
	// Read counts the bytes that are read of files and log; nil: nobody does.
	Read io.Writer
}

func (c Copy) read() io.Writer {
	if c.Read == nil {
		return io.Discard
	}
	return c.Read
}

// Base is a base and where it is.
type Base struct {
	Name string `json:"name"`
	replica.Base
	Bytes int64 `json:"bytes"`
}

// Groups are entries of the log that follow each other.
type Groups struct {
	Entries int       `json:"entries"`
	First   uint64    `json:"first"` // position
	Last    uint64    `json:"last"`
	Bytes   int64     `json:"bytes"`
	LSN     uint64    `json:"lsn"` // up to which the log is whole
	Term    uint64    `json:"term"`
	Written time.Time `json:"written"` // by the leader's clock; zero if only terms begin
}

// termed is a log that knows all terms.
type termed interface {
	Terms(ctx context.Context) ([]replica.Term, error)
}

// Terms returns all terms if the log knows them, else the newest.
func (c Copy) Terms(ctx context.Context) ([]replica.Term, error) {
	if all, ok := c.Log.(termed); ok {
		return all.Terms(ctx)
	}
	newest, err := c.Log.Newest(ctx)
	if err != nil || newest.Number == 0 {
		return nil, err
	}
	return []replica.Term{newest}, nil
}

// Bases returns the bases, oldest first. broken is told of those that cannot be read.
func (c Copy) Bases(ctx context.Context, broken func(error)) (all []Base, err error) {
	files, err := c.Files.List(ctx, replica.BasePrefix)
	if err != nil {
		return nil, err
	}
	for _, f := range files {
		b := Base{Name: f.Name}
		err := again(ctx, func() error { return c.base(ctx, &b) })
		if err != nil && !replica.IsBroken(err) {
			return nil, err
		}
		if err != nil {
			broken(err)
			continue
		}
		all = append(all, b)
	}
	return all, nil
}

const (
	attempts = 3 // to read something
	pause    = 200 * time.Millisecond
)

// again reads something until that succeeds. One answer may be damaged on its way or break off,
// and what is called broken is removed from the store by whoever believes it.
func again(ctx context.Context, read func() error) error {
	for n := 1; ; n++ {
		err := read()
		if err == nil || errors.Is(err, replica.ErrNotFound) || errors.Is(err, replica.ErrRefused) || n == attempts {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(pause):
		}
	}
}

func (c Copy) base(ctx context.Context, b *Base) error {
	in, err := c.Files.Get(ctx, b.Name)
	if err != nil {
		return err
	}
	defer in.Close()
	text, err := io.ReadAll(in)
	if err != nil {
		return fmt.Errorf("%s: %w", b.Name, err)
	}
	if b.Base, err = replica.DecodeBase(b.Name, text); err != nil {
		return err
	}
	for _, f := range b.Files {
		b.Bytes += f.Size
	}
	return nil
}

// Start returns the place from which the log can be read: its beginning, or the
// oldest base behind which it is still there.
func (c Copy) Start(ctx context.Context, bases []Base) (uint64, error) {
	after := uint64(0)
	for i := 0; ; i++ {
		_, err := c.Log.Read(ctx, after)
		if !errors.Is(err, replica.ErrTrimmed) || i == len(bases) {
			return after, nil // any other error comes again
		}
		after = bases[i].After
	}
}

// Whole reads all of the log that the bases, oldest first, make use of. Where it is broken it
// goes on behind the next base, and tells broken of each such place.
func (c Copy) Whole(ctx context.Context, bases []Base, broken func(error)) (Groups, error) {
	after, err := c.Start(ctx, bases)
	if err != nil {
		return Groups{}, err
	}
	all, err := c.Entries(ctx, after)
	for _, b := range bases {
		if err == nil || ctx.Err() != nil {
			break
		}
		if b.After <= max(after, all.Last) {
			continue
		}
		broken(err)
		after = b.After
		var g Groups
		g, err = c.Entries(ctx, after)
		all.join(g)
	}
	switch {
	case err != nil && ctx.Err() == nil:
		broken(err)
		err = nil
	case err == nil && len(bases) > 0 && all.Last < bases[len(bases)-1].After:
		err = c.reaches(ctx, bases[len(bases)-1], broken)
	}
	return all, err
}

// reaches tells broken of a log that ends in front of the newest base: behind that there may have been more.
func (c Copy) reaches(ctx context.Context, newest Base, broken func(error)) error {
	end, err := c.Log.End(ctx)
	if err == nil && end < newest.After {
		broken(fmt.Errorf("%w: the log ends at position %d, and %s goes on behind %d: the store has lost what it had confirmed", replica.ErrDamaged, end, newest.Name, newest.After))
	}
	return err
}

// join adds entries further behind.
func (g *Groups) join(next Groups) {
	if next.Entries == 0 {
		return
	}
	if g.Entries > 0 {
		next.First, next.Entries, next.Bytes = g.First, g.Entries+next.Entries, g.Bytes+next.Bytes
	}
	*g = next
}

// Entries reads the log behind after. It stops at what is broken.
func (c Copy) Entries(ctx context.Context, after uint64) (g Groups, err error) {
	for {
		e, err := replica.Next(ctx, c.Log, after)
		if errors.Is(err, io.EOF) {
			return g, nil
		}
		if err != nil {
			return g, err
		}
		if _, err := c.read().Write(e.Data); err != nil {
			return g, err
		}
		if err := g.add(e); err != nil {
			return g, err
		}
		after = e.Pos
	}
}

func (g *Groups) add(e replica.Entry) error {
	if g.Entries == 0 {
		g.First = e.Pos
	}
	if e.Term < g.Term {
		return fmt.Errorf("%w: the entry at position %d is of term %d, behind one of term %d", replica.ErrDamaged, e.Pos, e.Term, g.Term)
	}
	g.Entries, g.Last, g.Term, g.Bytes = g.Entries+1, e.Pos, e.Term, g.Bytes+int64(len(e.Data))
	if len(e.Data) == 0 {
		return nil
	}
	group, err := replica.DecodeGroup(e.Data)
	switch {
	case err != nil:
		return fmt.Errorf("the entry at position %d: %w", e.Pos, err)
	case group.Term != e.Term:
		return fmt.Errorf("%w: the entry at position %d is of term %d, and its group of term %d", replica.ErrDamaged, e.Pos, e.Term, group.Term)
	case group.Last < g.LSN:
		return fmt.Errorf("%w: the entry at position %d ends at LSN %d, behind one that ends at %d", replica.ErrDamaged, e.Pos, group.Last, g.LSN)
	}
	g.LSN, g.Written = group.Last, time.UnixMilli(group.TimeMS).UTC()
	return nil
}

// Check reads the files of a base, but those in seen, and tells broken of each that is
// not as the base says.
func (c Copy) Check(ctx context.Context, b Base, seen map[replica.BaseFile]bool, broken func(error)) error {
	for _, f := range b.Files {
		kind := replica.BaseFile{Object: f.Object, Size: f.Size, SHA256: f.SHA256}
		if seen[kind] {
			continue
		}
		seen[kind] = true
		err := again(ctx, func() error { return c.check(ctx, f) })
		if err != nil && !replica.IsBroken(err) {
			return fmt.Errorf("%s: %w", b.Name, err)
		}
		if err != nil {
			broken(fmt.Errorf("%s: %w", b.Name, err))
		}
	}
	return nil
}

func (c Copy) check(ctx context.Context, f replica.BaseFile) error {
	in, err := c.Files.Get(ctx, f.Object)
	if err != nil {
		return fmt.Errorf("%s (%s): %w", f.Object, f.Name, err)
	}
	defer in.Close()
	sum := sha256.New()
	n, err := io.Copy(io.MultiWriter(sum, c.read()), in)
	switch {
	case err != nil:
		return fmt.Errorf("%s (%s): %w", f.Object, f.Name, err)
	case n != f.Size:
		return fmt.Errorf("%w: %s (%s) has %d bytes, the base says %d", replica.ErrDamaged, f.Object, f.Name, n, f.Size)
	case hex.EncodeToString(sum.Sum(nil)) != f.SHA256:
		return fmt.Errorf("%w: %s (%s) has another sha256 than the base says", replica.ErrDamaged, f.Object, f.Name)
	}
	return nil
}
