package replicatest

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/weirmq/weir/internal/replica"
)

var leaders = []check{
	{"each term is above all before", termsGrow},
	{"the newest term says who leads", newest},
	{"an old leader is fenced", fenced},
	{"three leaders in a row", threeInARow},
	{"a leader leads again", leadsAgain},
	{"nothing is added in front of where a term began", frozen},
	{"contenders at once", contenders},
	{"a busy leader is replaced", busyLeader},
}

func within(r *run, done <-chan error) error {
	r.Helper()
	select {
	case err := <-done:
		return err
	case <-time.After(patience):
		r.Fatal("it did not end")
		return nil
	}
}

func termsGrow(r *run) {
	last := replica.Lead{}
	for i := range 5 {
		log := r.open()
		lead := log.lead()
		if lead.Term <= last.Term || lead.End <= last.End {
			r.Fatalf("%+v follows %+v", lead, last)
		}
		last = lead
		log.must(fmt.Sprint(i))
	}
	entries := r.open().entries(0)
	if !slices.IsSortedFunc(entries, func(a, b replica.Entry) int { return int(a.Term) - int(b.Term) }) {
		r.Errorf("terms of the entries: %+v", entries)
	}
}

func newest(r *run) {
	for _, node := range []string{"first", "second"} {
		before := time.Now().Add(-time.Minute)
		lead, err := r.open().Lead(r.ctx, node)
		if err != nil {
			r.Fatal(err)
		}
		term, err := r.open().Newest(r.ctx)
		if err != nil || term.Number != lead.Term || term.Node != node || term.Started.Before(before) {
			r.Errorf("Newest returns %+v, %v, want term %d of %s", term, err, lead.Term, node)
		}
	}
}

func fenced(r *run) {
	old, young := r.open(), r.open()
	old.lead()
	old.must("1", "2")
	young.lead()
	old.rejected("void")
	young.must("3")
	old.rejected("void, too")
	young.must("4", "5", "6", "7", "8", "9")
	r.expect("1", "2", "3", "4", "5", "6", "7", "8", "9")
}

func threeInARow(r *run) {
	a, b, c := r.open(), r.open(), r.open()
	a.lead()
	a.must("a")
	b.lead()
	c.lead()
	a.rejected("void")
	b.rejected("void")
	c.must("c1", "c2", "c3", "c4", "c5", "c6")
	a.rejected("void")
	b.rejected("void")
	r.expect("a", "c1", "c2", "c3", "c4", "c5", "c6")
}

func leadsAgain(r *run) {
	log := r.open()
	first := log.lead()
	log.must("1")
	if second := log.lead(); second.Term <= first.Term {
		r.Errorf("term %d follows %d", second.Term, first.Term)
	}
	log.must("2")
	r.expect("1", "2")
}

// storm appends until the log refuses, and returns what it said counts.
func storm(h *handle, name string) (stored []string) {
	for i := 0; ; i++ {
		if err := h.begin(h.r.ctx, fmt.Sprintf("%s %d", name, i)); err != nil {
			break
		}
		if got := h.told(max(0, i+1-replica.Window)); len(got) > 0 && got[len(got)-1].err != nil {
			break
		}
	}
	for _, e := range h.all() {
		switch {
		case e.err == nil:
			stored = append(stored, e.data)
		case !errors.Is(e.err, replica.ErrFenced):
			h.r.Errorf("entry %q: %v, want ErrFenced", e.data, e.err)
		}
	}
	return stored
}

// before returns the entries of other terms than the one lead began, up to its end.
func (r *run) before(lead replica.Lead) (all []replica.Entry) {
	r.Helper()
	for _, e := range r.open().entries(0) {
		if e.Pos < lead.End {
			all = append(all, e)
		} else if e.Term < lead.Term {
			r.Errorf("entry %q of term %d is at %d, where term %d has begun at %d", e.Data, e.Term, e.Pos, lead.Term, lead.End)
		}
	}
	return all
}

func frozen(r *run) {
	old, young := r.open(), r.open()
	old.lead()
	old.must("first")
	done := make(chan []string, 1)
	go func() { done <- storm(old, "old") }()
	old.told(10)
	lead := young.lead()
	then := texts(r.before(lead))
	young.must(numbered("young", 10)...)
	stored := <-done
	now := texts(r.before(lead))
	if !slices.Equal(then, now) {
		r.Errorf("in front of term %d there was %s, now there is %s", lead.Term, short(then), short(now))
	}
	if !prefixOf(stored, now) {
		r.Errorf("stored: %s; read: %s", short(stored), short(now))
	}
	r.expect(append(now, numbered("young", 10)...)...)
}

// short is a list to be printed.
func short(all []string) string {
	if len(all) > 16 {
		return fmt.Sprintf("%d entries, the last ones %q", len(all), all[len(all)-8:])
	}
	return fmt.Sprintf("%q", all)
}

// prefixOf returns whether all begins with part.
func prefixOf(part, all []string) bool {
	return len(part) <= len(all) && slices.Equal(part, all[:len(part)])
}

func contenders(r *run) {
	var mu sync.Mutex
	said := map[uint64][]string{}
	var all sync.WaitGroup
	for i := range 4 {
		h := r.open()
		all.Go(func() {
			lead, err := h.Lead(r.ctx, fmt.Sprint(i))
			if errors.Is(err, replica.ErrFenced) {
				return
			}
			if err != nil {
				r.Errorf("Lead: %v", err)
				return
			}
			for j := range 6 {
				if err := h.begin(r.ctx, fmt.Sprintf("%d of %d", j, lead.Term)); err != nil {
					break
				}
			}
			mu.Lock()
			defer mu.Unlock()
			if said[lead.Term] != nil {
				r.Errorf("term %d was given twice", lead.Term)
			}
			said[lead.Term] = []string{}
			for _, e := range h.all() {
				if e.err == nil {
					said[lead.Term] = append(said[lead.Term], e.data)
				}
			}
		})
	}
	all.Wait()
	if len(said) == 0 {
		r.Fatal("nobody leads")
	}
	read, last := map[uint64][]string{}, uint64(0)
	for _, e := range r.open().entries(0) {
		if e.Term < last {
			r.Errorf("an entry of term %d follows one of term %d", e.Term, last)
		}
		last = e.Term
		read[e.Term] = append(read[e.Term], texts([]replica.Entry{e})...)
	}
	for term, stored := range said {
		if !prefixOf(stored, read[term]) {
			r.Errorf("term %d: %q was stored, %q can be read", term, stored, read[term])
		}
	}
	if n := len(said[last]); n != 6 {
		r.Errorf("the last leader stored %d entries of 6", n)
	}
}

func busyLeader(r *run) {
	old, young := r.open(), r.open()
	old.lead()
	done := make(chan []string, 1)
	go func() { done <- storm(old, "old") }()
	lead := young.lead()
	young.must("young")
	stored := <-done
	if got := texts(r.before(lead)); !prefixOf(stored, got) {
		r.Errorf("stored: %s; read: %s", short(stored), short(got))
	}
}
