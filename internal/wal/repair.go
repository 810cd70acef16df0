package wal

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"
)

const skipName = "skip"

// Damage is a place of the log that cannot be read although it was durable.
type Damage struct {
	File     string
	Segment  uint32
	Offset   int64
	From, To uint64 // LSNs that are lost; none if To is From-1
	Next     int64  // offset where the segment can be read again
	Reason   string
}

// Inspect reads the whole log behind after, changes nothing, and returns every
// place at which Open would refuse to start. Each reading begins with a call of
// begin, which returns what replays the operations and what is told of gaps, as
// for Open. The error is the replay's, or for damage that cannot be marked: of a
// segment's header or length.
func Inspect(opt Options, after uint64, begin func() (replay func(Op) error, gap func(from, to uint64, bytes int64))) ([]Damage, error) {
	opt = opt.WithDefaults()
	var found []Damage
	for {
		var replay func(Op) error
		replay, opt.Gap = begin()
		r := &recovery{opt: opt, after: after, extra: found}
		err := r.readLog(replay)
		var bad *CorruptError
		if !errors.As(err, &bad) || r.badFile == nil {
			r.close()
			return found, err
		}
		d, err := r.damage(bad)
		r.close()
		if err != nil {
			return found, err
		}
		if len(found) > 0 && found[len(found)-1] == d {
			return found, bad // to skip it does not help
		}
		found = append(found, d)
	}
}

// damage says how far the log cannot be read at the place where cut refused.
func (r *recovery) damage(bad *CorruptError) (Damage, error) {
	f := r.badFile
	d := Damage{File: f.name, Segment: f.number, Offset: f.end, From: r.next, Next: f.end, Reason: bad.Reason}
	d.To = max(r.durable, r.next-1)
	if f.limit > 0 {
		d.To = f.limit - 1
	}
	g := groupReader{file: f.file, seed: r.seed, off: f.end + 1, size: f.size}
	err := g.search(func(off int64, h groupHeader, whole func() bool) bool {
		if h.segment != f.number || h.epoch < f.epoch || h.first < r.next || f.limit > 0 && h.first >= f.limit {
			return true
		}
		if f.limit == 0 {
			d.To = max(d.To, h.durable)
		}
		if !whole() {
			return true
		}
		d.To, d.Next = h.first-1, off
		return false
	})
	return d, err
}

// MarkLost notes damage as accepted: Open skips it from then on and tells
// Options.Gap. The log must not be open.
func MarkLost(opt Options, damage []Damage) error {
	opt = opt.WithDefaults()
	path := opt.FS.PathJoin(opt.Dir, skipName)
	old, err := readSkips(opt.FS, path)
	if err != nil {
		return err
	}
	var b strings.Builder
	for _, d := range append(old, damage...) {
		fmt.Fprintf(&b, "%d %d %d %d %d\n", d.Segment, d.Offset, d.From, d.To, d.Next)
	}
	temp := path + ".tmp"
	f, err := opt.FS.Create(temp, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	_, err = f.Write([]byte(b.String()))
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err = opt.FS.Rename(temp, path); err != nil {
		return err
	}
	l := &Log{opt: opt}
	return l.syncDir()
}

func readSkips(fsys vfs.FS, path string) ([]Damage, error) {
	f, err := fsys.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(f)
	if err != nil {
		return nil, err
	}
	var list []Damage
	for line := range strings.Lines(string(text)) {
		var d Damage
		if _, err := fmt.Sscanf(line, "%d %d %d %d %d\n", &d.Segment, &d.Offset, &d.From, &d.To, &d.Next); err != nil {
			return nil, fmt.Errorf("wal: %s: line %q: %w", path, line, err)
		}
		list = append(list, d)
	}
	return list, nil
}

// skip returns the accepted damage at this place, if any.
func skip(accepted []Damage, segment uint32, offset int64, next uint64) (Damage, bool) {
	for _, d := range accepted {
		if d.Segment == segment && d.Offset == offset && d.From == next && (d.To >= d.From || d.Next > offset) {
			return d, true
		}
	}
	return Damage{}, false
}
