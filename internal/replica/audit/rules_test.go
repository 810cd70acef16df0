package audit_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/weirmq/weir/internal/replica"
	"github.com/weirmq/weir/internal/replica/audit"
)

// entries is a log that holds these, and had others in front of the first one.
type entries struct {
	replica.Log
	all     []replica.Entry
	trimmed uint64 // up to this position
}

func (l entries) Read(_ context.Context, after uint64) (replica.Entry, error) {
	if after < l.trimmed {
		return replica.Entry{}, replica.ErrTrimmed
	}
	for _, e := range l.all {
		if e.Pos > after {
			return e, nil
		}
	}
	return replica.Entry{}, io.EOF
}

func (l entries) End(context.Context) (uint64, error) {
	if len(l.all) == 0 {
		return l.trimmed, nil
	}
	return l.all[len(l.all)-1].Pos, nil
}

func entry(pos, term uint64, g replica.Group) replica.Entry {
	return replica.Entry{Pos: pos, Term: term, Data: g.Encode(nil)}
}

// Entries that are whole, each by itself, may not make a log.
func TestEntriesThatDoNotFollowEachOtherAreNamed(t *testing.T) {
	before := []replica.Entry{{Pos: 1, Term: 2}, entry(5, 2, replica.Group{Term: 2, Last: 10})}
	for what, c := range map[string]struct {
		last replica.Entry
		want string
	}{
		"of an older term":      {entry(6, 1, replica.Group{Term: 1, Last: 20}), "position 6 is of term 1, behind one of term 2"},
		"with another's group":  {entry(6, 2, replica.Group{Term: 1, Last: 20}), "position 6 is of term 2, and its group of term 1"},
		"that goes back":        {entry(6, 2, replica.Group{Term: 2, Last: 9}), "position 6 ends at LSN 9, behind one that ends at 10"},
		"that holds no group":   {replica.Entry{Pos: 6, Term: 2, Data: []byte("?")}, "position 6"},
		"of a term that begins": {replica.Entry{Pos: 6, Term: 3}, ""},
		"that goes on":          {entry(6, 2, replica.Group{Term: 2, Last: 10}), ""},
	} {
		log := entries{all: append(before[:2:2], c.last)}
		g, err := audit.Copy{Log: log}.Entries(t.Context(), 0)
		switch {
		case c.want == "" && (err != nil || g.Last != 6):
			t.Errorf("an entry %s: %+v, %v", what, g, err)
		case c.want != "" && (!errors.Is(err, replica.ErrDamaged) || !strings.Contains(err.Error(), c.want)):
			t.Errorf("an entry %s: %+v, %v, want %q", what, g, err, c.want)
		}
	}
}

// A log that was trimmed is read from the oldest base on behind which it is still whole.
func TestATrimmedLogIsReadFromTheFirstBaseThatItGoesOnBehind(t *testing.T) {
	var bases []audit.Base
	for _, after := range []uint64{2, 4, 6, 8} {
		bases = append(bases, audit.Base{Base: replica.Base{After: after}})
	}
	for trimmed, want := range map[uint64]uint64{0: 0, 1: 2, 2: 2, 3: 4, 5: 6, 8: 8, 9: 8} {
		if at, err := (audit.Copy{Log: entries{trimmed: trimmed}}).Start(t.Context(), bases); err != nil || at != want {
			t.Errorf("trimmed up to %d: begin behind %d, %v, want %d", trimmed, at, err, want)
		}
	}
}

// countedFiles counts what is read.
type countedFiles struct {
	replica.Files
	gets map[string]int
}

func (c countedFiles) Get(ctx context.Context, name string) (io.ReadCloser, error) {
	c.gets[name]++
	return c.Files.Get(ctx, name)
}

// A base under the name of another one is broken, and a file that two bases have is read once.
func TestBasesAreWhatTheirNamesSay(t *testing.T) {
	c := build(t, t.TempDir())
	bases, err := c.Bases(t.Context(), func(err error) { t.Error(err) })
	if err != nil || len(bases) != 1 {
		t.Fatal(bases, err)
	}
	b := bases[0].Base
	text, err := json.Marshal(b)
	if err == nil {
		err = c.Files.Put(t.Context(), replica.BaseName(b.After+4), int64(len(text)), strings.NewReader(string(text)))
	}
	if err != nil {
		t.Fatal(err)
	}
	if got := verify(t, c); len(got) != 1 || !strings.Contains(got[0], replica.BaseName(b.After+4)+" holds the base of position 1") {
		t.Errorf("broken: %q", got)
	}
	files := countedFiles{c.Files, map[string]int{}}
	seen := map[replica.BaseFile]bool{}
	for range 2 {
		if err := (audit.Copy{Files: files}).Check(t.Context(), bases[0], seen, func(err error) { t.Error(err) }); err != nil {
			t.Fatal(err)
		}
	}
	if files.gets["kv/1"] != 1 {
		t.Errorf("a file was read %d times", files.gets["kv/1"])
	}
}

// A log that was emptied looks like one without entries: a base that goes on behind more says that it is none.
func TestALogThatEndsInFrontOfABaseIsBroken(t *testing.T) {
	bases := []audit.Base{{Name: "base/5", Base: replica.Base{After: 5}}}
	whole := []replica.Entry{{Pos: 1, Term: 1}, entry(5, 1, replica.Group{Term: 1, Last: 9})}
	for what, c := range map[string]struct {
		log    entries
		broken bool
	}{
		"whole":               {entries{all: whole}, false},
		"trimmed up to there": {entries{trimmed: 5}, false},
		"without its last":    {entries{all: whole[:1]}, true},
		"emptied":             {entries{}, true},
	} {
		var broken []error
		if _, err := (audit.Copy{Log: c.log}).Whole(t.Context(), bases, func(err error) { broken = append(broken, err) }); err != nil {
			t.Errorf("a log %s: %v", what, err)
		}
		if c.broken != (len(broken) == 1 && errors.Is(broken[0], replica.ErrDamaged)) || len(broken) > 1 {
			t.Errorf("of a log %s is broken: %v", what, broken)
		}
	}
}
