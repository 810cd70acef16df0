package replicatest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"testing"

	"github.com/weirmq/weir/internal/replica"
)

var order = []check{
	{"an empty log has no term and no entry", emptyLog},
	{"entries come back as they were appended", comeBack},
	{"positions told are those read", positionsAgree},
	{"reading goes on from every place", everyPlace},
	{"the end is an end until something is appended", theEnd},
	{"stored is called in order", toldInOrder},
	{"empty entries and large ones come back", sizes},
	{"an entry is not kept after Append", notKept},
	{"appends by many goroutines are each there once", atOnce},
	{"an append without a lead is refused", withoutLead},
	{"a context that has ended ends every call", endedContext},
	{"a closed log ends what waits", closed},
}

func emptyLog(r *run) {
	log := r.open()
	if term, err := log.Newest(r.ctx); err != nil || term != (replica.Term{}) {
		r.Errorf("Newest returns %+v, %v", term, err)
	}
	if e, err := log.Read(r.ctx, 0); !errors.Is(err, io.EOF) {
		r.Errorf("Read returns %+v, %v, want io.EOF", e, err)
	}
	if end, err := log.End(r.ctx); err != nil || end != 0 {
		r.Errorf("End returns %d, %v", end, err)
	}
}

func comeBack(r *run) {
	log := r.open()
	lead := log.lead()
	want := numbered("entry", 30)
	log.must(want...)
	got := r.open().entries(0)
	if !slices.Equal(texts(got), want) {
		r.Errorf("read %q", texts(got))
	}
	for _, e := range got {
		if e.Term != lead.Term {
			r.Errorf("entry %q has term %d, want %d", e.Data, e.Term, lead.Term)
		}
	}
	if len(got) > 0 && (got[0].Pos != lead.End || len(got[0].Data) > 0) {
		r.Errorf("the first entry is %d: %q; the term began at %d", got[0].Pos, got[0].Data, lead.End)
	}
}

func positionsAgree(r *run) {
	log := r.open()
	lead := log.lead()
	told := log.must(numbered("entry", 10)...)
	var read []uint64
	for _, e := range r.open().entries(lead.End) {
		read = append(read, e.Pos)
	}
	if !slices.Equal(told, read) {
		r.Errorf("told %v, read %v", told, read)
	}
}

func everyPlace(r *run) {
	log := r.open()
	log.lead()
	log.must(numbered("entry", 12)...)
	all := log.entries(0)
	for i, e := range all {
		if got, want := texts(r.open().entries(e.Pos)), texts(all[i+1:]); !slices.Equal(got, want) {
			r.Errorf("behind %d: %q, want %q", e.Pos, got, want)
		}
	}
	for _, i := range []int{5, 2, 9, 0} { // with one handle, whatever it has read before
		if e, err := log.Read(r.ctx, all[i].Pos); err != nil || e.Pos != all[i+1].Pos || string(e.Data) != string(all[i+1].Data) {
			r.Errorf("behind %d: %q at %d, %v, want %q at %d", all[i].Pos, e.Data, e.Pos, err, all[i+1].Data, all[i+1].Pos)
		}
	}
}

func theEnd(r *run) {
	writer, reader := r.open(), r.open()
	after := writer.lead().End
	for i := range 5 {
		for range 2 {
			if e, err := reader.Read(r.ctx, after); !errors.Is(err, io.EOF) {
				r.Fatalf("Read at the end returns %+v, %v", e, err)
			}
		}
		for _, h := range []*handle{writer, reader} {
			if end, err := h.End(r.ctx); err != nil || end != after {
				r.Fatalf("End returns %d, %v, want %d", end, err, after)
			}
		}
		pos := writer.must(fmt.Sprint(i))[0]
		e, err := reader.Read(r.ctx, after)
		if err != nil || e.Pos != pos || string(e.Data) != fmt.Sprint(i) {
			r.Fatalf("Read returns %+v, %v, want %d at %d", e, err, i, pos)
		}
		after = pos
	}
}

func toldInOrder(r *run) {
	log := r.open()
	log.lead()
	want := numbered("entry", 60)
	for round := range 3 {
		var got []string
		for _, e := range log.add(want...) {
			got = append(got, e.data)
		}
		if !slices.Equal(got, want) {
			r.Errorf("round %d: told %q", round, got)
		}
	}
}

func sizes(r *run) {
	log := r.open()
	after := log.lead().End
	for _, size := range []int{0, 1, 4096, r.h.Large, 0} {
		data := bytes.Repeat([]byte{0, 1, 254, 255, '\n'}, size/5+1)[:size]
		pos := log.must(string(data))[0]
		e, err := r.open().Read(r.ctx, after)
		if err != nil || e.Pos != pos || !bytes.Equal(e.Data, data) {
			r.Fatalf("%d bytes came back as %d at %d, %v; want position %d", size, len(e.Data), e.Pos, err, pos)
		}
		after = pos
	}
}

func notKept(r *run) {
	log := r.open()
	log.lead()
	data, done := []byte("as it was"), make(chan error, 1)
	if err := log.Append(r.ctx, data, func(_ uint64, err error) { done <- err }); err != nil {
		r.Fatal(err)
	}
	copy(data, "overwrite")
	if err := <-done; err != nil {
		r.Fatal(err)
	}
	r.expect("as it was")
}

func atOnce(r *run) {
	log := r.open()
	log.lead()
	want := numbered("entry", 24)
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for _, d := range want[3*i : 3*i+3] {
				if err := log.begin(r.ctx, d); err != nil {
					r.Errorf("Append: %v", err)
				}
			}
		})
	}
	all.Wait()
	for _, e := range log.told(len(want)) {
		if e.err != nil {
			r.Error(e.err)
		}
	}
	got := texts(r.open().entries(0))
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		r.Errorf("the log holds %q", got)
	}
}

func withoutLead(r *run) {
	r.open().lead()
	if err := r.open().begin(r.ctx, "nobody's"); err == nil {
		r.Error("Append without Lead is taken on")
	}
	r.expect()
}

func endedContext(r *run) {
	log := r.open()
	log.lead()
	log.must("entry")
	ctx, cancel := context.WithCancel(r.ctx)
	cancel()
	calls := map[string]func() error{
		"Newest": func() error { _, err := log.Newest(ctx); return err },
		"Lead":   func() error { _, err := r.open().Lead(ctx, "late"); return err },
		"Read":   func() error { _, err := log.Read(ctx, 0); return err },
		"Trim":   func() error { return log.Trim(ctx, 1) },
		"Append": func() error {
			done := make(chan error, 1)
			if err := log.Append(ctx, []byte("late"), func(_ uint64, err error) { done <- err }); err != nil {
				return err
			}
			return <-done
		},
	}
	for name, call := range calls {
		if err := call(); !errors.Is(err, context.Canceled) {
			r.Errorf("%s returns %v", name, err)
		}
	}
}

func closed(r *run) {
	log := r.h.Log(testing.TB(r), r.name)
	if _, err := log.Lead(r.ctx, "node"); err != nil {
		r.Fatal(err)
	}
	if err := log.Close(); err != nil {
		r.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		told := make(chan error, 1)
		if err := log.Append(r.ctx, []byte("late"), func(_ uint64, err error) { told <- err }); err != nil {
			told <- err
		}
		done <- <-told
	}()
	if err := within(r, done); err == nil {
		r.Error("a closed log stores an entry")
	}
	if _, err := log.Lead(r.ctx, "node"); err == nil {
		r.Error("a closed log leads")
	}
}
