// Package slots makes a replica.Log of a store that can do one thing: create an
// object if there is none of its name.
//
// The objects are
//
//	FORMAT                       the format, and an id of the copy
//	term/<number>                who leads; whoever creates one takes that term
//	log/<position>               the entries
//	trim/<position>-<term>-<next> entries up to position may be gone
//
// A leader creates its entries at one position after the other, up to
// replica.Window at once. The first position that is empty is where the log ends;
// whoever begins a term does it there. Its own entries go on replica.Window
// behind: an older leader has nothing on its way beyond that, so nobody's
// leavings are ever in the way of a leader. What lies in between does not count.
//
// Whether an entry counts follows from the one in front of it, so a reader walks
// from entry to entry. A position that was trimmed could be created again by a
// leader that has slept for days; hence the trim objects, written before anything
// is removed, at which leaders and readers look when they have not been in touch
// for a while.
package slots

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"time"

	"github.com/weirmq/weir/internal/replica"
)

// Objects is such a store. Get and Delete are those of replica.Files.
type Objects interface {
	// Create stores data under name, whole, or returns ErrExists. After any other
	// error it is not known whether it has.
	Create(ctx context.Context, name string, data []byte) error
	// Get returns the content, or replica.ErrNotFound.
	Get(ctx context.Context, name string) (io.ReadCloser, error)
	// ListAfter returns the first max objects whose names begin with prefix and are
	// greater than after, ordered by name. What was created before is there.
	ListAfter(ctx context.Context, prefix, after string, max int) ([]replica.File, error)
	// Delete removes the object, if it is there.
	Delete(ctx context.Context, name string) error
}

var (
	// ErrExists is returned by Create for a name that is there.
	ErrExists = errors.New("replica: the name is taken")
	// ErrNoConditionalPut says that a store does not keep to Create.
	ErrNoConditionalPut = errors.New("no_conditional_put")
)

// Format is what FORMAT holds.
type Format struct {
	Format int    `json:"format"`
	LogID  string `json:"log_id"`
}

const formatName = "FORMAT"

// How long one attempt may take; more for an object of many MiB.
const attempt = 15 * time.Second

// again calls f until it succeeds, says that the name is taken or not there, is
// refused, or ctx ends.
func (l *Log) again(ctx context.Context, size int, f func(context.Context) error) error {
	limit := attempt + time.Duration(size>>20)*time.Second
	for wait := 20 * time.Millisecond; ; wait = min(2*wait, 2*time.Second) {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		once, cancel := context.WithTimeout(ctx, limit)
		err := f(once)
		cancel()
		if err == nil || errors.Is(err, ErrExists) || errors.Is(err, replica.ErrNotFound) || errors.Is(err, replica.ErrRefused) {
			return err
		}
		if ctx.Err() == nil {
			l.opt.Trouble(err)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w; the last attempt: %v", ctx.Err(), err)
		case <-time.After(wait/2 + rand.N(wait)):
		}
	}
}

// takenError is about an object that somebody else has created.
type takenError struct {
	name string
	data []byte // what it holds
}

func (e *takenError) Error() string { return "replica: " + e.name + " is taken" }

// create creates the object, or finds that it is there with the same bytes. It
// returns a takenError if it has others.
func (l *Log) create(ctx context.Context, name string, data []byte) error {
	err := l.again(ctx, len(data), func(ctx context.Context) error { return l.objects.Create(ctx, name, data) })
	if !errors.Is(err, ErrExists) {
		return err
	}
	got, err := l.get(ctx, name)
	if err == nil && !bytes.Equal(got, data) { // what one answer says may have been damaged on its way
		got, err = l.get(ctx, name)
	}
	switch {
	case errors.Is(err, replica.ErrNotFound): // trimmed meanwhile
		return &takenError{name: name}
	case err == nil && !bytes.Equal(got, data):
		return &takenError{name, got}
	}
	return err
}

// get reads an object.
func (l *Log) get(ctx context.Context, name string) (data []byte, err error) {
	err = l.again(ctx, 64<<20, func(ctx context.Context) error {
		data, err = read(ctx, l.objects, name)
		return err
	})
	return data, err
}

func read(ctx context.Context, objects Objects, name string) ([]byte, error) {
	in, err := objects.Get(ctx, name)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	return io.ReadAll(in)
}

// list is ListAfter.
func (l *Log) list(ctx context.Context, prefix, after string, most int) (files []replica.File, err error) {
	err = l.again(ctx, 0, func(ctx context.Context) error {
		files, err = l.objects.ListAfter(ctx, prefix, after, most)
		return err
	})
	return files, err
}

// ReadFormat returns what FORMAT says; replica.ErrNotFound if there is no copy.
func ReadFormat(ctx context.Context, objects Objects) (Format, error) {
	data, err := read(ctx, objects, formatName)
	if err != nil {
		return Format{}, err
	}
	return decodeFormat(data)
}

func decodeFormat(data []byte) (f Format, err error) {
	if err := json.Unmarshal(data, &f); err != nil {
		return f, fmt.Errorf("%w: %s: %v", replica.ErrDamaged, formatName, err)
	}
	if f.Format != 1 {
		return f, fmt.Errorf("the copy has format %d, this program knows 1: use a newer weir", f.Format)
	}
	return f, nil
}
