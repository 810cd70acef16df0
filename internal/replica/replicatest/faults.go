package replicatest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/weirmq/weir/internal/replica"
)

var faults = []check{
	{"an entry is there once when its answer is lost", func(r *run) { survives(r, LoseAnswer, 1) }},
	{"an entry is there once when the call is lost", func(r *run) { survives(r, LoseCall, 1) }},
	{"an entry is there once when the store is busy", func(r *run) { survives(r, Busy, 1) }},
	{"four entries under way survive a busy store", func(r *run) { survives(r, Busy, replica.Window) }},
	{"four entries under way survive lost answers", func(r *run) { survives(r, LoseAnswer, replica.Window) }},
	{"four entries under way survive lost calls", func(r *run) { survives(r, LoseCall, replica.Window) }},
	{"a term is taken although answers are lost", func(r *run) { leadsThrough(r, LoseAnswer) }},
	{"a term is taken although calls are lost", func(r *run) { leadsThrough(r, LoseCall) }},
	{"an answer that is lost while another takes over", lostAndFenced},
	{"no more than the window is under way", window},
	{"entries held while another takes over never count", heldInFlight},
	{"entries behind a hole never count", hole},
	{"nothing counts behind an error", behindAnError},
	{"a context ends what the store holds", heldContext},
	{"a leader sleeps until its place is trimmed", sleeper},
}

func survives(r *run, f Fault, times int) {
	log, inject := r.faulty()
	log.lead()
	var want []string
	for round := range 3 {
		remove := inject(f, times)
		some := numbered(fmt.Sprint("round ", round), 6)
		log.must(some...)
		remove()
		want = append(want, some...)
	}
	r.expect(want...)
}

func leadsThrough(r *run, f Fault) {
	first, _ := r.faulty()
	before := first.lead()
	first.must("1")
	log, inject := r.faulty()
	for skipped := 1; skipped <= 4; skipped++ {
		remove := inject(f, skipped)
		after := log.lead()
		remove()
		if after.Term <= before.Term || after.End <= before.End {
			r.Errorf("%+v follows %+v", after, before)
		}
		before = after
	}
	log.must("2")
	r.expect("1", "2")
}

func lostAndFenced(r *run) {
	old, inject := r.faulty()
	old.lead()
	old.must("1")
	young := r.open()
	lead := young.lead()
	defer inject(LoseAnswer, 1)()
	old.rejected("void")
	young.must("2")
	if got := texts(r.before(lead)); !slices.Equal(got, []string{"1"}) {
		r.Errorf("in front of the term there is %q", got)
	}
	r.expect("1", "2")
}

func window(r *run) {
	log, inject := r.faulty()
	log.lead()
	remove := inject(Hold, 0)
	for i := range replica.Window {
		if err := log.begin(r.ctx, fmt.Sprint(i)); err != nil {
			r.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(r.ctx, 100*time.Millisecond)
	defer cancel()
	if err := log.begin(ctx, "too many"); !errors.Is(err, context.DeadlineExceeded) {
		r.Errorf("one more than the window: %v", err)
	}
	remove()
	log.all()
	log.must("last")
	r.expect("0", "1", "2", "3", "last")
}

// under is the number of entries that a handle has under way when a store holds them.
func under(r *run, log *handle, what string) {
	for _, d := range numbered(what, replica.Window) {
		if err := log.begin(r.ctx, d); err != nil {
			r.Fatal(err)
		}
	}
}

func heldInFlight(r *run) {
	old, inject := r.faulty()
	old.lead()
	old.must("1")
	release := inject(Hold, 0)
	under(r, old, "held")
	young := r.open()
	young.lead()
	young.must("2")
	release()
	for _, e := range old.all()[1:] {
		if !errors.Is(e.err, replica.ErrFenced) {
			r.Errorf("%q: %v, want ErrFenced", e.data, e.err)
		}
	}
	want := numbered("young", 12)
	young.must(want...)
	r.expect(append([]string{"1", "2"}, want...)...)
}

func hole(r *run) {
	old, inject := r.faulty()
	old.lead()
	old.must("1")
	all := append([]string{"1"}, numbered("void", replica.Window)...)
	release := inject(Hold, 1) // of one of the four
	under(r, old, "void")
	reader := r.open()
	for range 5 { // what is not held gets there meanwhile
		if got := texts(reader.entries(0)); !prefixOf(got, all) || len(got) == len(all) {
			r.Fatalf("read %q, and one of %q is held", got, all)
		}
		time.Sleep(time.Millisecond)
	}
	young := r.open()
	before := texts(r.before(young.lead()))
	young.must("2")
	release()
	for _, e := range old.all() {
		if e.err == nil && !slices.Contains(before, e.data) {
			r.Errorf("%q is said to count; there was %q when the next term began", e.data, before)
		}
	}
	if !prefixOf(before, all) {
		r.Errorf("read %q behind a hole", before)
	}
	want := numbered("young", 12)
	young.must(want...)
	r.expect(slices.Concat(before, []string{"2"}, want)...)
}

func behindAnError(r *run) {
	log, inject := r.faulty()
	log.lead()
	log.must("1")
	release := inject(Hold, 0)
	ctx, cancel := context.WithCancel(r.ctx)
	if err := log.begin(ctx, "given up"); err != nil {
		r.Fatal(err)
	}
	if err := log.begin(r.ctx, "behind it"); err != nil {
		r.Fatal(err)
	}
	cancel()
	log.told(2)
	release()
	if got := log.all(); !errors.Is(got[1].err, context.Canceled) || got[2].err == nil {
		r.Errorf("told %+v", got[1:])
	}
	if err := log.begin(r.ctx, "later"); err == nil {
		if got := log.all(); got[len(got)-1].err == nil {
			r.Error("an entry counts behind one that was given up")
		}
	}
	then := texts(r.before(log.lead()))
	log.must("2")
	if !prefixOf(then, []string{"1", "given up", "behind it"}) || len(then) == 0 {
		r.Errorf("in front of the new term there is %q", then)
	}
	r.expect(append(then, "2")...)
}

func heldContext(r *run) {
	for _, name := range []string{"Lead", "Trim", "Append"} {
		r.Run(name, func(t *testing.T) {
			log, inject := r.faulty()
			log.lead()
			positions := log.must(numbered("entry", 4+r.h.Keeps)...)
			defer inject(Hold, 0)()
			ctx, cancel := context.WithTimeout(r.ctx, 50*time.Millisecond)
			defer cancel()
			done := make(chan error, 1)
			go func() {
				switch name {
				case "Lead":
					_, err := log.Lead(ctx, "late")
					done <- err
				case "Trim":
					done <- log.Trim(ctx, positions[3])
				case "Append":
					if err := log.Append(ctx, []byte("late"), func(_ uint64, err error) { done <- err }); err != nil {
						done <- err
					}
				}
			}()
			if err := within(r, done); err != nil && !errors.Is(err, context.DeadlineExceeded) || err == nil && name != "Trim" {
				t.Errorf("%s returns %v", name, err)
			}
		})
	}
}

func sleeper(r *run) {
	old, inject := r.faulty()
	term := old.lead().Term
	old.must("1", "2")
	reader := r.open()
	read := reader.entries(0)
	release := inject(Hold, 0)
	if err := old.begin(r.ctx, "asleep"); err != nil {
		r.Fatal(err)
	}
	young := r.open()
	young.lead()
	positions := young.must(numbered("young", 20+r.h.Keeps)...)
	for range 5 { // each removes only so many
		if err := young.Trim(r.ctx, positions[10]); err != nil {
			r.Fatal(err)
		}
	}
	release()
	if got := old.all(); !errors.Is(got[2].err, replica.ErrFenced) {
		r.Errorf("asleep: %v, want ErrFenced", got[2].err)
	}
	if e, err := reader.Read(r.ctx, read[len(read)-1].Pos); err == nil && e.Term == term {
		r.Errorf("a reader that was there before reads %q, which never counted", e.Data)
	} else if err != nil && !errors.Is(err, replica.ErrTrimmed) {
		r.Errorf("a reader that was there before: %v", err)
	}
	old.rejected("awake")
	want := numbered("young", 20+r.h.Keeps)[11:]
	if got := texts(r.open().entries(positions[10])); !slices.Equal(got, want) {
		r.Errorf("behind the trim there is %q, want %q", got, want)
	}
	if _, err := r.open().Read(r.ctx, 0); err != nil && !errors.Is(err, replica.ErrTrimmed) {
		r.Errorf("Read from the beginning: %v", err)
	}
}
