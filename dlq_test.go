package weir

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/backend/backendtest"
	"github.com/weirmq/weir/tests/bubble"
)

// bury publishes messages called m0, m1 … and moves them to the dead letters,
// each with an error that names it.
func bury(t *testing.T, f *backendtest.Fake, n int, reason string) {
	t.Helper()
	msgs := make([]backend.Message, n)
	for i := range msgs {
		msgs[i].Data = fmt.Append(nil, "m", i)
	}
	if _, err := f.Append(t.Context(), msgs); err != nil {
		t.Fatal(err)
	}
	killAll(t, f, reason)
}

// killAll claims what there is and moves it to the dead letters.
func killAll(t *testing.T, f *backendtest.Fake, reason string) (killed int) {
	t.Helper()
	got, err := f.Claim(t.Context(), backend.ClaimRequest{Consumer: "w", Max: 1000, ReclaimAfter: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range got.Deliveries {
		if err := f.DeadLetter(t.Context(), d, "", backend.Cause{Reason: reason, Error: "cannot do " + string(d.Data)}); err != nil {
			t.Fatal(err)
		}
	}
	return len(got.Deliveries)
}

func deadLetters(t *testing.T, f *backendtest.Fake) *DeadLetters {
	t.Helper()
	d, err := New(f).DeadLetters("")
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func texts(t *testing.T, d *DeadLetters, filter LetterFilter) (all []string) {
	t.Helper()
	for l, err := range d.List(t.Context(), filter) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, string(l.Data))
	}
	return all
}

func TestDeadLettersAreChosenByTheFilter(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		f := backendtest.NewFake(backendtest.FakeOptions{})
		bury(t, f, 2, backend.ReasonMaxDeliveries)
		time.Sleep(time.Hour)
		bury(t, f, 1, backend.ReasonPoison)
		d := deadLetters(t, f)
		ids := map[string]string{}
		for l := range d.List(t.Context(), LetterFilter{}) {
			ids[string(l.Data)+l.Reason] = l.ID
		}
		cases := []struct {
			name   string
			filter LetterFilter
			want   []string
		}{
			{"all", LetterFilter{}, []string{"m0", "m1", "m0"}},
			{"reason", LetterFilter{Reason: backend.ReasonMaxDeliveries}, []string{"m0", "m1"}},
			{"error", LetterFilter{ErrorContains: "do m1"}, []string{"m1"}},
			{"old", LetterFilter{OlderThan: time.Minute}, []string{"m0", "m1"}},
			{"new", LetterFilter{NewerThan: time.Minute}, []string{"m0"}},
			{"id", LetterFilter{IDs: []string{ids["m1"+backend.ReasonMaxDeliveries]}}, []string{"m1"}},
			{"none", LetterFilter{IDs: []string{"nobody"}}, nil},
		}
		for _, c := range cases {
			if got := texts(t, d, c.filter); !slices.Equal(got, c.want) {
				t.Errorf("%s: %v, want %v", c.name, got, c.want)
			}
		}
	})
}

// early is a server whose clock is ahead of this process's.
type early struct{ *backendtest.Fake }

const ahead = time.Hour

func (e early) Stats(ctx context.Context) (backend.Stats, error) {
	s, err := e.Fake.Stats(ctx)
	s.At = s.At.Add(ahead)
	return s, err
}

func (e early) List(ctx context.Context, from, after string, limit int) ([]backend.DeadLetter, error) {
	all, err := e.Fake.List(ctx, from, after, limit)
	for i := range all {
		all[i].DeadAt = all[i].DeadAt.Add(ahead)
	}
	return all, err
}

// How long a letter has been dead is a matter of the server's clock, which says when it died.
func TestTheAgeOfALetterIsByTheServersClock(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		f := early{backendtest.NewFake(backendtest.FakeOptions{})}
		bury(t, f.Fake, 1, backend.ReasonPoison)
		time.Sleep(10 * time.Minute)
		d, err := New(f).DeadLetters("")
		if err != nil {
			t.Fatal(err)
		}
		for what, filter := range map[string]LetterFilter{"older than 5 min": {OlderThan: 5 * time.Minute}, "newer than 15 min": {NewerThan: 15 * time.Minute}} {
			if got := texts(t, d, filter); len(got) != 1 {
				t.Errorf("%s: %v", what, got)
			}
		}
		for what, filter := range map[string]LetterFilter{"older than 15 min": {OlderThan: 15 * time.Minute}, "newer than 5 min": {NewerThan: 5 * time.Minute}} {
			if got := texts(t, d, filter); len(got) != 0 {
				t.Errorf("%s: %v", what, got)
			}
		}
		if r, err := d.Redrive(t.Context(), RedriveConfig{Delay: 15 * time.Minute}); err != nil || r.Early != 1 {
			t.Errorf("with a delay of 15 min: %+v, %v", r, err)
		}
		if r, err := d.Redrive(t.Context(), RedriveConfig{Delay: 5 * time.Minute}); err != nil || r.Sent != 1 {
			t.Errorf("with a delay of 5 min: %+v, %v", r, err)
		}
	})
}

func TestListGoesOverEveryPage(t *testing.T) {
	f := backendtest.NewFake(backendtest.FakeOptions{})
	bury(t, f, 2*letterPage+1, backend.ReasonPoison)
	d := deadLetters(t, f)
	if n := len(texts(t, d, LetterFilter{})); n != 2*letterPage+1 {
		t.Errorf("%d letters listed", n)
	}
	f.Inject(backendtest.OpList, backendtest.Fault{Skip: 1, Err: backend.ErrUnavailable})
	seen := 0
	var last error
	for _, err := range d.List(t.Context(), LetterFilter{}) {
		seen++
		last = err
	}
	if seen != letterPage+1 || !errors.Is(last, ErrUnavailable) {
		t.Errorf("%d items, the last with error %v; want a page and an error", seen, last)
	}
}

func TestPurgeRemovesWhatIsChosenOnly(t *testing.T) {
	f := backendtest.NewFake(backendtest.FakeOptions{})
	bury(t, f, 2*letterPage+5, backend.ReasonPoison)
	bury(t, f, 3, backend.ReasonMaxDeliveries)
	d := deadLetters(t, f)
	n, err := d.Purge(t.Context(), LetterFilter{Reason: backend.ReasonPoison})
	if n != 2*letterPage+5 || err != nil || f.Calls(backendtest.OpPurge) != 3 { // a page each
		t.Fatalf("%d, %v in %d calls", n, err, f.Calls(backendtest.OpPurge))
	}
	if left := texts(t, d, LetterFilter{}); len(left) != 3 {
		t.Errorf("left %v", left)
	}
	if n, err := d.Purge(t.Context(), LetterFilter{Reason: backend.ReasonPoison}); n != 0 || err != nil {
		t.Errorf("again: %d, %v", n, err)
	}
}

func TestTheDelayOfARedriveDoublesUpToItsLimit(t *testing.T) {
	cfg := RedriveConfig{Delay: time.Second, MaxDelay: 10 * time.Second}
	for redrives, want := range []time.Duration{1, 2, 4, 8, 10, 10} {
		if got := cfg.delay(redrives); got != want*time.Second {
			t.Errorf("after %d redrives: %s, want %s", redrives, got, want*time.Second)
		}
	}
	if got := cfg.delay(1 << 30); got != 10*time.Second {
		t.Errorf("after very many redrives: %s", got)
	}
	off := RedriveConfig{Delay: -1}.WithDefaults()
	if got := off.delay(9); got != 0 {
		t.Errorf("switched off: %s", got)
	}
}

// A message whose handler always fails comes back later each time: after 1, 2, 4
// and 8 seconds.
func TestAMessageThatKeepsFailingIsSentBackLaterEachTime(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		f := backendtest.NewFake(backendtest.FakeOptions{})
		bury(t, f, 1, backend.ReasonPoison)
		ctx, stop := context.WithCancel(t.Context())
		died := time.Now()
		var waits []time.Duration
		done := make(chan Redriven)
		d := deadLetters(t, f)
		go func() {
			r, _ := d.Redrive(ctx, RedriveConfig{Follow: true, Progress: func(l *DeadLetter, err error) {
				waits = append(waits, time.Since(died))
				died = time.Now()
			}})
			done <- r
		}()
		sends := 0
		for sends < 4 {
			time.Sleep(10 * time.Millisecond)
			synctest.Wait()
			sends += killAll(t, f, backend.ReasonPoison)
		}
		stop()
		if r := <-done; r.Sent != 4 {
			t.Errorf("result %+v", r)
		}
		for i, w := range waits {
			want := time.Second << i
			// A letter that appears right after a look is seen at the next one.
			if w < want-10*time.Millisecond || w > want+followPoll {
				t.Errorf("redrive %d after %s, want %s", i, w, want)
			}
		}
	})
}

func TestARedriveThatEndsLeavesWhatDiesAgain(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		f := backendtest.NewFake(backendtest.FakeOptions{})
		bury(t, f, 3, backend.ReasonPoison)
		time.Sleep(time.Minute)
		d := deadLetters(t, f)
		sent := 0
		r, err := d.Redrive(t.Context(), RedriveConfig{Delay: -1, Progress: func(*DeadLetter, error) {
			time.Sleep(time.Millisecond)
			if sent++; sent > 3 {
				t.Fatal("what died again was sent back again")
			}
			killAll(t, f, backend.ReasonPoison)
		}})
		if r.Sent != 3 || err != nil {
			t.Errorf("%+v, %v", r, err)
		}
		var redrives []int
		for l := range d.List(t.Context(), LetterFilter{}) {
			redrives = append(redrives, l.Redrives)
		}
		if !slices.Equal(redrives, []int{1, 1, 1}) {
			t.Errorf("redrives of what is left: %v", redrives)
		}
	})
}

func TestWhatIsNotDueIsLeftOrWaitedFor(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		f := backendtest.NewFake(backendtest.FakeOptions{})
		bury(t, f, 2, backend.ReasonPoison)
		d, began := deadLetters(t, f), time.Now()
		r, err := d.Redrive(t.Context(), RedriveConfig{Delay: time.Minute})
		if err != nil || r.Sent != 0 || r.Early != 2 || !r.Next.Equal(began.Add(time.Minute)) {
			t.Errorf("%+v, %v", r, err)
		}
		told := 0
		r, err = d.Redrive(t.Context(), RedriveConfig{Delay: time.Minute, Wait: true, Waiting: func(n int, next time.Time) { told = n }})
		if err != nil || r.Sent != 2 || r.Early != 0 || told != 2 || time.Since(began) != time.Minute {
			t.Errorf("%+v, %v after %s", r, err, time.Since(began))
		}
	})
}

func TestTheRateOfARedrive(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		f := backendtest.NewFake(backendtest.FakeOptions{})
		bury(t, f, 11, backend.ReasonPoison)
		time.Sleep(time.Minute)
		began := time.Now()
		r, err := deadLetters(t, f).Redrive(t.Context(), RedriveConfig{Rate: 5})
		if took := time.Since(began); r.Sent != 11 || err != nil || took != 2*time.Second {
			t.Errorf("%+v, %v in %s; want 11 at 5 a second in 2s", r, err, took)
		}
	})
}

func TestALowRateIsNoneWithoutLimit(t *testing.T) {
	for _, rate := range []float64{1e-9, 1e-10, math.SmallestNonzeroFloat64} {
		bubble.Run(t, func(t *testing.T) {
			f := backendtest.NewFake(backendtest.FakeOptions{})
			bury(t, f, 3, backend.ReasonPoison)
			ctx, cancel := context.WithTimeout(t.Context(), 24*time.Hour)
			defer cancel()
			r, err := deadLetters(t, f).Redrive(ctx, RedriveConfig{Delay: -1, Rate: rate})
			if r.Sent != 1 || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("a day at %v messages per second: %+v, %v", rate, r, err)
			}
		})
	}
}

func TestADryRunSendsNothing(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		f := backendtest.NewFake(backendtest.FakeOptions{})
		bury(t, f, 3, backend.ReasonPoison)
		time.Sleep(time.Minute)
		shown := 0
		d := deadLetters(t, f)
		r, err := d.Redrive(t.Context(), RedriveConfig{DryRun: true, Progress: func(*DeadLetter, error) { shown++ }})
		if r.Sent != 3 || shown != 3 || err != nil || f.Calls(backendtest.OpRedrive) != 0 || len(texts(t, d, LetterFilter{})) != 3 {
			t.Errorf("%+v, %v, %d shown", r, err, shown)
		}
	})
}

// Lost answers, refusals and an end in the middle: each message is sent once.
func TestAnInterruptedRedriveNeitherLosesNorDoubles(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		f := backendtest.NewFake(backendtest.FakeOptions{})
		const n = 20
		bury(t, f, n, backend.ReasonPoison)
		time.Sleep(time.Minute)
		d := deadLetters(t, f)
		f.Inject(backendtest.OpRedrive, backendtest.Fault{Skip: 2, Times: 1, LoseAnswer: true})
		f.Inject(backendtest.OpRedrive, backendtest.Fault{Skip: 4, Times: 2, Err: backend.ErrUnavailable})
		f.Inject(backendtest.OpRedrive, backendtest.Fault{Skip: 5, Times: 1, Err: backendtest.Full(backend.ReasonQueueFull, 7*time.Second)})
		ctx, stop := context.WithCancel(t.Context())
		count := 0
		first, err := d.Redrive(ctx, RedriveConfig{Progress: func(*DeadLetter, error) {
			if count++; count == 12 {
				stop()
			}
		}})
		if !errors.Is(err, context.Canceled) || first.Sent != 12 {
			t.Fatalf("%+v, %v", first, err)
		}
		second, err := d.Redrive(t.Context(), RedriveConfig{})
		if err != nil || first.Sent+second.Sent != n {
			t.Errorf("%+v and %+v, %v", first, second, err)
		}
		if f.Calls(backendtest.OpRedrive) < n+4 { // four faults, each tried again
			t.Fatal("the faults did not happen")
		}
		got, err := f.Claim(t.Context(), backend.ClaimRequest{Consumer: "w", Max: 1000, ReclaimAfter: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		seen := map[string]int{}
		for _, m := range got.Deliveries {
			seen[string(m.Data)]++
		}
		for i := range n {
			if name := fmt.Sprint("m", i); seen[name] != 1 {
				t.Errorf("%s was sent back %d times", name, seen[name])
			}
		}
	})
}

func TestARedriveEndsWhenNobodyAnswersAndGoesOnBehindALetterItCannotSend(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		f := backendtest.NewFake(backendtest.FakeOptions{})
		bury(t, f, 3, backend.ReasonPoison)
		time.Sleep(time.Minute)
		d := deadLetters(t, f)
		remove := f.Inject(backendtest.OpRedrive, backendtest.Fault{Err: backend.ErrUnavailable})
		r, err := d.Redrive(t.Context(), RedriveConfig{})
		if r.Sent != 0 || !errors.Is(err, ErrUnavailable) || f.Calls(backendtest.OpRedrive) != redriveTries {
			t.Errorf("%+v, %v after %d tries", r, err, f.Calls(backendtest.OpRedrive))
		}
		remove()
		f.Inject(backendtest.OpRedrive, backendtest.Fault{Times: 1, Err: ErrClosed})
		if r, err := d.Redrive(t.Context(), RedriveConfig{}); r != (Redriven{}) || !errors.Is(err, ErrClosed) {
			t.Errorf("a stream that was closed: %+v, %v", r, err)
		}
		broken := errors.New("cannot be removed singly")
		f.Inject(backendtest.OpRedrive, backendtest.Fault{Times: 1, Err: broken})
		r, err = d.Redrive(t.Context(), RedriveConfig{})
		if r.Sent != 2 || r.Failed != 1 || !errors.Is(err, broken) || !strings.Contains(err.Error(), "1 dead letter could not") {
			t.Errorf("%+v, %v", r, err)
		}
	})
}

// If no letter can be sent back, a redrive does not try them all, however many there are.
func TestARedriveGivesUpWhenLetterAfterLetterFails(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		f := backendtest.NewFake(backendtest.FakeOptions{})
		bury(t, f, maxRedriveFailures+50, backend.ReasonPoison)
		f.Inject(backendtest.OpRedrive, backendtest.Fault{Err: errors.New("no")})
		told := 0
		r, err := deadLetters(t, f).Redrive(t.Context(), RedriveConfig{Delay: -1, Follow: true, Progress: func(_ *DeadLetter, err error) {
			if err != nil {
				told++
			}
		}})
		if r.Failed != maxRedriveFailures || told != r.Failed || f.Calls(backendtest.OpRedrive) != r.Failed || err == nil {
			t.Errorf("%+v, told of %d, after %d calls: %v", r, told, f.Calls(backendtest.OpRedrive), err)
		}
	})
}

// A redrive that follows does not wait for its next look with what is due before that, and does not
// try again and again what cannot be sent.
func TestARedriveThatFollowsIsInTime(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		f := backendtest.NewFake(backendtest.FakeOptions{})
		bury(t, f, 2, backend.ReasonPoison)
		f.Inject(backendtest.OpRedrive, backendtest.Fault{Times: 1, Err: errors.New("cannot be sent")})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		began := time.Now()
		var told []string
		r, _ := deadLetters(t, f).Redrive(ctx, RedriveConfig{Delay: 300 * time.Millisecond, Follow: true, Progress: func(l *DeadLetter, err error) {
			told = append(told, fmt.Sprint(string(l.Data), " ", err, " ", time.Since(began)))
		}})
		if want := "[m0 cannot be sent 300ms m1 <nil> 300ms]"; fmt.Sprint(told) != want || r.Failed != 1 || r.Sent != 1 {
			t.Errorf("%v, want %s; %+v", told, want, r)
		}
	})
}

// A redrive that follows outlives the absence of its backend, whether it looks for letters or sends one, and
// tells of each once. An error that stays ends it.
func TestARedriveThatFollowsWaitsForItsBackend(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		f := backendtest.NewFake(backendtest.FakeOptions{})
		bury(t, f, 1, backend.ReasonPoison)
		f.Inject(backendtest.OpList, backendtest.Fault{Skip: 1, Times: 3, Err: backend.ErrUnavailable}) // not the look at the start
		f.Inject(backendtest.OpRedrive, backendtest.Fault{Times: redriveTries + 1, Err: backend.ErrOutcomeUnknown})
		f.Inject(backendtest.OpList, backendtest.Fault{Skip: 10, Times: 1, Err: backend.ErrUnavailable})
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		var lost []error
		r, err := deadLetters(t, f).Redrive(ctx, RedriveConfig{Delay: -1, Follow: true, Lost: func(err error) { lost = append(lost, err) }})
		if r.Sent != 1 || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%+v, %v", r, err)
		}
		if len(lost) != 2 || !errors.Is(lost[0], ErrUnavailable) || !errors.Is(lost[1], ErrUnavailable) {
			t.Errorf("told of %v, want of two absences", lost)
		}
		refused := errors.New("not permitted any more")
		f.Inject(backendtest.OpList, backendtest.Fault{Skip: 1, Err: refused})
		if _, err := deadLetters(t, f).Redrive(t.Context(), RedriveConfig{Delay: -1, Follow: true}); !errors.Is(err, refused) {
			t.Errorf("an error that stays: %v", err)
		}
	})
}

// A group that goes between the question who reads and the sending is no leave to send to all.
func TestARedriveWhoseGroupIsGoneSendsToNobodyElse(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		f := backendtest.NewFake(backendtest.FakeOptions{})
		bury(t, f, 1, backend.ReasonPoison)
		f.Inject(backendtest.OpRedrive, backendtest.Fault{Times: 1, Err: ErrGroupNotFound})
		d := deadLetters(t, f)
		if r, err := d.Redrive(t.Context(), RedriveConfig{Delay: -1}); r.Sent != 0 || !errors.Is(err, ErrGroupNotFound) || f.Calls(backendtest.OpRedrive) != 1 {
			t.Errorf("%+v, %v after %d calls", r, err, f.Calls(backendtest.OpRedrive))
		}
		f.Inject(backendtest.OpRedrive, backendtest.Fault{Times: 1, Err: ErrGroupNotFound})
		if r, err := d.Redrive(t.Context(), RedriveConfig{Delay: -1, ToOthers: true}); r.Sent != 1 || err != nil {
			t.Errorf("to others: %+v, %v", r, err)
		}
	})
}

// A letter that somebody else has sent meanwhile is neither counted nor told.
func TestALetterThatIsGoneIsNotTold(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		f := backendtest.NewFake(backendtest.FakeOptions{})
		bury(t, f, 1, backend.ReasonPoison)
		f.Inject(backendtest.OpRedrive, backendtest.Fault{Err: backend.ErrNotFound})
		told := 0
		r, err := deadLetters(t, f).Redrive(t.Context(), RedriveConfig{
			Delay: -1, Progress: func(*DeadLetter, error) { told++ },
			Tracing: Tracing{Redriven: func(context.Context, StreamName, *DeadLetter, time.Time, error) { told++ }},
		})
		if told != 0 || r != (Redriven{}) || err != nil {
			t.Errorf("told %d times of it: %+v, %v", told, r, err)
		}
	})
}

// The stream itself is no place of dead letters, to look at either.
func TestTheStreamIsNoPlaceOfItsDeadLetters(t *testing.T) {
	f := backendtest.NewFake(backendtest.FakeOptions{})
	if _, err := New(f).DeadLetters(f.Info().Stream); err == nil {
		t.Error("the messages of the stream could be purged as its dead letters")
	}
}

// Older and newer are what they say: what died exactly then is neither.
func TestALetterOfThatVeryAgeIsNeitherOlderNorNewer(t *testing.T) {
	now := time.Now()
	l := DeadLetter{DeadAt: now.Add(-time.Hour)}
	for age, want := range map[time.Duration][2]bool{time.Hour: {}, time.Hour - 1: {true, false}, time.Hour + 1: {false, true}} {
		older, newer := LetterFilter{OlderThan: age}, LetterFilter{NewerThan: age}
		if got := [2]bool{older.matches(&l, now), newer.matches(&l, now)}; got != want {
			t.Errorf("older and newer than %s: %v, want %v", age, got, want)
		}
	}
}

func TestARedriveComesBackWhenTheServerAsksItTo(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		f := backendtest.NewFake(backendtest.FakeOptions{})
		bury(t, f, 1, backend.ReasonPoison)
		f.Inject(backendtest.OpRedrive, backendtest.Fault{Times: 1, Err: backendtest.Full(backend.ReasonQueueFull, 7*time.Second)})
		began := time.Now()
		r, err := deadLetters(t, f).Redrive(t.Context(), RedriveConfig{Delay: -1})
		if took := time.Since(began); err != nil || r.Sent != 1 || took < 7*time.Second || took > 8*time.Second {
			t.Errorf("%+v after %s, %v", r, took, err)
		}
	})
}

// bare is a backend without anything optional.
type bare struct{ backend.Backend }

func TestABackendWithoutDeadLettersSaysSo(t *testing.T) {
	_, err := New(bare{backendtest.NewFake(backendtest.FakeOptions{})}).DeadLetters("")
	if !errors.Is(err, ErrUnsupported) || !strings.Contains(err.Error(), "fake") {
		t.Errorf("got %v", err)
	}
}

// sharedFake is a stream that others read too.
type sharedFake struct {
	*backendtest.Fake
	mu     sync.Mutex
	others map[string][]string // by group
	groups []string            // that letters were sent back to
	gone   bool                // the group
}

func (s *sharedFake) Others(_ context.Context, _, group string) ([]string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.others[group], nil
}

func (s *sharedFake) Redrive(ctx context.Context, from string, l backend.DeadLetter) error {
	s.groups = append(s.groups, l.Group)
	if s.gone && l.Group != "" {
		return backend.ErrGroupNotFound
	}
	return s.Fake.Redrive(ctx, from, l)
}

func TestARedriveThatOthersWouldReadIsNotBegunUnasked(t *testing.T) {
	f := &sharedFake{Fake: backendtest.NewFake(backendtest.FakeOptions{})}
	bury(t, f.Fake, 3, backend.ReasonPoison)
	d, err := New(f).DeadLetters("")
	if err != nil {
		t.Fatal(err)
	}
	group := f.Info().Group
	f.others = map[string][]string{group: {"audit", `mail (consumer "by-hand")`}}
	got, err := d.Redrive(t.Context(), RedriveConfig{Delay: -1})
	var others *OtherReadersError
	if !errors.As(err, &others) || others.Group != group || len(others.Others) != 2 || !strings.Contains(err.Error(), "audit, mail") {
		t.Fatalf("%v", err)
	}
	if got.Sent != 0 || len(f.groups) != 0 || len(texts(t, d, LetterFilter{})) != 3 {
		t.Fatalf("%+v, sent to %v", got, f.groups)
	}
	if got, err := d.Redrive(t.Context(), RedriveConfig{Delay: -1, DryRun: true}); err != nil || got.Sent != 3 {
		t.Errorf("to look at it: %+v, %v", got, err)
	}
	f.gone = true
	got, err = d.Redrive(t.Context(), RedriveConfig{Delay: -1, ToOthers: true})
	if want := []string{group, "", group, "", group, ""}; err != nil || got.Sent != 3 || !slices.Equal(f.groups, want) {
		t.Errorf("a group that is gone: %+v, %v, sent to %q", got, err, f.groups)
	}
}

// Before anything is sent it is known that no letter would reach others, of whatever stream
// it is; and while a redrive follows, others may come.
func TestARedriveAsksForEveryStreamAndAgain(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		f := &sharedFake{Fake: backendtest.NewFake(backendtest.FakeOptions{})}
		bury(t, f.Fake, 2, backend.ReasonPoison)
		d, err := New(&twoOrigins{f}).DeadLetters("")
		if err != nil {
			t.Fatal(err)
		}
		f.others = map[string][]string{"second": {"audit"}}
		var others *OtherReadersError
		if got, err := d.Redrive(t.Context(), RedriveConfig{Delay: -1}); !errors.As(err, &others) || got.Sent != 0 || len(f.groups) != 0 {
			t.Errorf("%+v, %v, sent to %v", got, err, f.groups)
		}
		f.others = nil
		ended := make(chan error, 1)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		go func() {
			_, err := d.Redrive(ctx, RedriveConfig{Delay: -1, Follow: true})
			ended <- err
		}()
		time.Sleep(time.Second)
		f.mu.Lock()
		f.others = map[string][]string{"first": {"audit"}}
		f.mu.Unlock()
		killAll(t, f.Fake, backend.ReasonPoison)
		if err := <-ended; !errors.As(err, &others) || len(f.groups) != 2 {
			t.Errorf("%v, sent to %v, want that of the first round only", err, f.groups)
		}
	})
}

// twoOrigins has letters of two groups.
type twoOrigins struct{ *sharedFake }

func (o *twoOrigins) List(ctx context.Context, from, after string, most int) ([]backend.DeadLetter, error) {
	list, err := o.sharedFake.List(ctx, from, after, most)
	for i := range list {
		list[i].Group = "first"
		if string(list[i].Data) == "m1" {
			list[i].Group = "second"
		}
	}
	return list, err
}

// What somebody else has sent back meanwhile is not counted, and a dry run waits for nothing.
func TestARedriveCountsWhatItDid(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		f := backendtest.NewFake(backendtest.FakeOptions{})
		bury(t, f, 3, backend.ReasonPoison)
		d, err := New(f).DeadLetters("")
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		got, err := d.Redrive(t.Context(), RedriveConfig{Delay: time.Minute, Wait: true, DryRun: true})
		if err != nil || got.Sent != 0 || got.Early != 3 || time.Since(began) != 0 {
			t.Errorf("a dry run: %+v, %v, after %s", got, err, time.Since(began))
		}
		f.Inject(backendtest.OpRedrive, backendtest.Fault{Skip: 1, Times: 1, Err: backend.ErrNotFound})
		if got, err := d.Redrive(t.Context(), RedriveConfig{Delay: -1}); err != nil || got.Sent != 2 || got.Failed != 0 {
			t.Errorf("%+v, %v, want 2 sent", got, err)
		}
		bury(t, f, 1, backend.ReasonPoison)
		f.Inject(backendtest.OpRedrive, backendtest.Fault{Times: 1, LoseAnswer: true})
		f.Inject(backendtest.OpRedrive, backendtest.Fault{Skip: 1, Times: 1, Err: backend.ErrUnavailable})
		if got, err := d.Redrive(t.Context(), RedriveConfig{Delay: -1}); err != nil || got.Sent != 4 { // and the three again
			t.Errorf("an answer lost before an absence: %+v, %v, want 4 sent", got, err)
		}
	})
}
