package replicatest

import (
	"errors"
	"io"
	"slices"
	"sync"

	"github.com/weirmq/weir/internal/replica"
)

var trims = []check{
	{"trim removes what is in front, and nothing else", trim},
	{"a trimmed log goes on", trimmedGoesOn},
	{"a reader sees all, or that it was trimmed", trimWhileReading},
	{"trimming too much, or twice, does no harm", trimTooMuch},
	{"a trim removes all that it may, however many", trimMany},
}

func trim(r *run) {
	log := r.open()
	log.lead()
	all := numbered("entry", 20+r.h.Keeps)
	positions := log.must(all...)
	if err := log.Trim(r.ctx, positions[9]); err != nil {
		r.Fatal(err)
	}
	for _, h := range []*handle{log, r.open()} {
		if e, err := h.Read(r.ctx, 0); !errors.Is(err, replica.ErrTrimmed) {
			r.Errorf("Read from the beginning returns %+v, %v, want ErrTrimmed", e, err)
		}
		for i := 9; i < 14; i++ {
			if got := texts(h.entries(positions[i])); !slices.Equal(got, all[i+1:]) {
				r.Errorf("behind %d: %q, want %q", positions[i], got, all[i+1:])
			}
		}
	}
}

func trimmedGoesOn(r *run) {
	log := r.open()
	log.lead()
	all := numbered("entry", 20+r.h.Keeps)
	positions := log.must(all...)
	if err := log.Trim(r.ctx, positions[9]); err != nil {
		r.Fatal(err)
	}
	log.must("more")
	young := r.open()
	if lead := young.lead(); lead.End <= positions[len(positions)-1] {
		r.Errorf("term %d begins at %d, in front of %d", lead.Term, lead.End, positions[len(positions)-1])
	}
	young.must("young")
	if got, want := texts(r.open().entries(positions[9])), append(all[10:], "more", "young"); !slices.Equal(got, want) {
		r.Errorf("the log holds %q, want %q", got, want)
	}
}

func trimWhileReading(r *run) {
	log, reader := r.open(), r.open()
	log.lead()
	all := numbered("entry", 30+r.h.Keeps)
	positions := log.must(all...)
	next := map[uint64]string{}
	for i, pos := range positions[:len(positions)-1] {
		next[pos] = all[i+1]
	}
	var both sync.WaitGroup
	both.Go(func() {
		for i := 0; i < 20; i += 3 {
			if err := log.Trim(r.ctx, positions[i]); err != nil {
				r.Errorf("Trim: %v", err)
			}
		}
	})
	for after := positions[0]; ; {
		e, err := reader.Read(r.ctx, after)
		if errors.Is(err, io.EOF) {
			break
		}
		if errors.Is(err, replica.ErrTrimmed) {
			after = positions[slices.Index(positions, after)+1]
			continue
		}
		if err != nil || string(e.Data) != next[after] {
			r.Errorf("behind %d: %q, %v, want %q", after, e.Data, err, next[after])
			break
		}
		after = e.Pos
	}
	both.Wait()
}

func trimTooMuch(r *run) {
	log := r.open()
	log.lead()
	if err := log.Trim(r.ctx, 0); err != nil {
		r.Errorf("Trim(0): %v", err)
	}
	positions := log.must(numbered("entry", 10+r.h.Keeps)...)
	last := positions[len(positions)-1]
	for range 2 {
		if err := log.Trim(r.ctx, last); err != nil {
			r.Fatal(err)
		}
	}
	if end, err := r.open().End(r.ctx); err != nil || end != last {
		r.Errorf("End returns %d, %v, want %d", end, err, last)
	}
	if got := r.open().entries(last); len(got) > 0 {
		r.Errorf("behind the last entry there is %+v", got)
	}
	if got := log.must("more"); got[0] <= last {
		r.Errorf("position %d follows %d", got[0], last)
	}
	if got := texts(r.open().entries(last)); !slices.Equal(got, []string{"more"}) {
		r.Errorf("behind %d there is %q", last, got)
	}
}

func trimMany(r *run) {
	const many = 250
	log := r.open()
	log.lead()
	positions := log.must(numbered("entry", many+r.h.Keeps)...)
	if err := log.Trim(r.ctx, positions[many-1]); err != nil {
		r.Fatal(err)
	}
	if e, err := r.open().Read(r.ctx, positions[many-r.h.Keeps-3]); !errors.Is(err, replica.ErrTrimmed) {
		r.Errorf("of %d entries to be removed the last ones are left: Read returns %+v, %v", many, e, err)
	}
}
