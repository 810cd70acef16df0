package backendtest

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/weirmq/weir/backend"
)

func (s *suite) deadCases() []testCase {
	_, shown := s.offered.(backend.DeadLetters)
	return append([]testCase{
		{"a message that its workers die of is delivered as often as allowed", limitOfCrashes},
		{"a message that fails is delivered as often as allowed", limitOfNacks},
		{"a limit of one delivers once", limitOfOne},
		{"a claim tells of a dead message with its headers, whatever its size", toldOfDead},
		{"without a limit a message is never dead", noLimit},
		{"a poisoned message is moved with its cause", poison},
		{"a dead letter is the message as it was published, whatever became of its delivery", deadAsPublished},
		{"an expired message is moved with its cause, and sent back without its deadline", expired},
		{"a dead letter by a lost lease moves nothing", poisonTooLate},
		{"dead letters go where they are told", deadElsewhere},
		{"dead letters are not for the stream itself", deadInPlace},
		{"a dead letter takes an error of any length and text", longError},
	}, append(only(!s.h.CountsUnstarted, testCase{"dead and living orphans come in one claim", deadBesideLiving}),
		only(shown, testCase{"a dead message is in the letters before it is done", deadIsNeverNowhere})...)...)
}

func deadInPlace(f *fixture) {
	b := f.open()
	names, can := b.(backend.DeadLetterNames)
	if !can {
		f.Fatal("any name is taken")
	}
	for name, fits := range map[string]bool{"": true, b.Info().DeadLetter: true, b.Info().Stream: false} {
		if err := names.CheckDeadLetter(name); (err == nil) != fits {
			f.Errorf("%q: %v", name, err)
		}
	}
}

// letters lists the default dead letters, if the backend can.
func (f *fixture) letters(b backend.Backend, from string) ([]backend.DeadLetter, bool) {
	f.Helper()
	shelf, can := b.(backend.DeadLetters)
	if !can {
		return nil, false
	}
	list, err := shelf.List(f.ctx(), from, "", 1000)
	if err != nil {
		f.Fatalf("list of the dead letters %q: %v", from, err)
	}
	return list, true
}

// checkLetter compares a letter with the message it was made of.
func (f *fixture) checkLetter(b backend.Backend, got backend.DeadLetter, m backend.Message, want backend.DeadLetter) {
	f.Helper()
	headers := maps.Clone(got.Headers)
	delete(headers, backend.HeaderRedrives) // it may be there beside Redrives
	for name := range headers {
		if strings.HasPrefix(name, "weir-dead-") {
			f.Errorf("the letter's headers hold %s", name)
		}
	}
	if !bytes.Equal(got.Data, m.Data) || !maps.Equal(headers, m.Headers) {
		f.Errorf("message %q %q became letter %q %q", m.Data, m.Headers, got.Data, headers)
	}
	info := b.Info()
	if got.Stream != info.Stream || got.Group != info.Group || got.OriginID != want.OriginID || got.Attempts != want.Attempts ||
		got.Reason != want.Reason || got.Redrives != want.Redrives || got.ID == "" {
		f.Errorf("letter %+v, want %+v of %s/%s", got, want, info.Stream, info.Group)
	}
	if want.Error != "" && got.Error != want.Error {
		f.Errorf("the letter's error is %.200q, want %.200q", got.Error, want.Error)
	}
	if got.Consumer != "" && want.Consumer != "" && got.Consumer != want.Consumer {
		f.Errorf("the letter's consumer is %q, want %q", got.Consumer, want.Consumer)
	}
	if age := time.Since(got.DeadAt); age < -5*time.Second || age > time.Minute {
		f.Errorf("a letter of just now is from %s ago (%s)", age, got.DeadAt)
	}
	if age := time.Since(got.Enqueued); age < -5*time.Second || age > time.Minute {
		f.Errorf("a message of just now was published %s ago (%s)", age, got.Enqueued)
	}
}

func limitOfCrashes(f *fixture) {
	a, b := f.two()
	m := backend.Message{Data: []byte{0, 0xff, 'x'}, Headers: map[string]string{"k": "v"}}
	id := f.publish(a, m)[0]
	req := f.shortRequest("a", 5)
	req.MaxDeliveries = 3
	runs, dead := 0, []backend.DeadLetter(nil)
	for turn := 0; len(dead) == 0; turn++ {
		req.Consumer = []string{"a", "b"}[turn%2]
		got := f.gather([]backend.Backend{a, b}[turn%2], req, 1)
		for _, d := range got.Deliveries {
			if runs++; d.Attempt != runs {
				f.Errorf("delivery %d says attempt %d", runs, d.Attempt)
			}
		}
		dead = got.Dead
	}
	if runs != 3 || len(dead) != 1 {
		f.Fatalf("limit 3: %d deliveries, dead %+v", runs, dead)
	}
	want := backend.DeadLetter{OriginID: id, Attempts: 3, Reason: backend.ReasonMaxDeliveries, Consumer: "a"}
	f.checkLetter(a, dead[0], m, want)
	if list, can := f.letters(b, ""); can {
		if len(list) != 1 {
			f.Fatalf("one message is dead, the letters are %+v", list)
		}
		f.checkLetter(b, list[0], m, want)
	}
	f.done(b)
}

func limitOfNacks(f *fixture) {
	b := f.open()
	m := backend.Message{Data: []byte("x"), Headers: map[string]string{"k": "v"}}
	id := f.publish(b, m)[0]
	req := request("a", 5)
	req.MaxDeliveries = 3
	for attempt := 1; attempt <= 3; attempt++ {
		got := f.gather(b, req, 1)
		if len(got.Deliveries) != 1 || got.Deliveries[0].Attempt != attempt {
			f.Fatalf("try %d: %s, dead %v", attempt, describe(got.Deliveries), got.Dead)
		}
		f.nack(b, backend.Return{Lease: got.Deliveries[0].Lease, Error: fmt.Sprintf("try %d", attempt)})
	}
	got := f.gather(b, req, 1)
	if len(got.Dead) != 1 {
		f.Fatalf("after three tries came %s", describe(got.Deliveries))
	}
	want := backend.DeadLetter{OriginID: id, Attempts: 3, Reason: backend.ReasonMaxDeliveries}
	if f.h.KeepsErrors {
		want.Error = "try 3"
	}
	f.checkLetter(b, got.Dead[0], m, want)
	f.done(b)
}

func limitOfOne(f *fixture) {
	b := f.open()
	f.publish(b, numbered(0, 1)...)
	req := f.shortRequest("a", 5)
	req.MaxDeliveries = 1
	f.gather(b, req, 1)
	if got := f.gather(b, req, 1); len(got.Dead) != 1 || got.Dead[0].Attempts != 1 {
		f.Errorf("limit 1, the second claim gave %s, dead %+v", describe(got.Deliveries), got.Dead)
	}
	f.done(b)
}

// toldOfDead: of a large message the data may be missing. The second time it has been sent back.
func toldOfDead(f *fixture) {
	b := f.open()
	for _, size := range []int{1, 100 << 10} {
		m := backend.Message{Data: bytes.Repeat([]byte("x"), size), Headers: map[string]string{"k": "v"}}
		f.publish(b, m)
		for redrives := range 2 {
			f.nack(b, backend.Return{Lease: f.claim(b, "a", 1)[0].Lease})
			req := request("a", 1)
			req.MaxDeliveries = 1
			got := f.gather(b, req, 1)
			if len(got.Dead) != 1 {
				f.Fatalf("limit 1, the second claim gave %s", describe(got.Deliveries))
			}
			if l := got.Dead[0]; !maps.Equal(l.Headers, m.Headers) || len(l.Data) > 0 && !bytes.Equal(l.Data, m.Data) || l.Redrives != redrives {
				f.Errorf("a message of %d bytes died with the headers %q, %d bytes, %d redrives", size, l.Headers, len(l.Data), l.Redrives)
			}
			letters, can := f.letters(b, "")
			if !can {
				break
			}
			if err := b.(backend.DeadLetters).Redrive(f.ctx(), "", letters[0]); err != nil {
				f.Fatal(err)
			}
		}
		f.ack(b, f.claim(b, "a", 1)...)
	}
}

func noLimit(f *fixture) {
	b := f.open()
	f.publish(b, numbered(0, 1)...)
	most := 8
	if f.h.MaxDeliveries > 0 {
		most = f.h.MaxDeliveries
	}
	for attempt := 1; attempt <= most; attempt++ {
		d := f.claim(b, "a", 1)[0]
		if d.Attempt != attempt {
			f.Fatalf("delivery %d says attempt %d", attempt, d.Attempt)
		}
		f.nack(b, backend.Return{Lease: d.Lease})
	}
	if f.h.MaxDeliveries > 0 {
		if got := f.gather(b, request("a", 1), 1); len(got.Dead) != 1 {
			f.Errorf("the server delivers %d times, and then came %s", most, describe(got.Deliveries))
		}
	}
}

// deadBesideLiving: every second of 20 orphans has had all its deliveries.
func deadBesideLiving(f *fixture) {
	lease := max(f.short, time.Second)
	f.inTime(lease, func() (string, time.Duration) {
		b := f.open()
		f.publish(b, numbered(0, 20)...)
		req := f.shortRequest("a", 20)
		req.ReclaimAfter, req.MaxDeliveries = lease, 1
		var back []backend.Return
		all := f.gather(b, req, 20)
		first := all.Deliveries
		if len(all.Dead) > 0 { // of those that came first the lease was over
			return fmt.Sprintf("%d were dead after one claim", len(all.Dead)), time.Since(first[0].Since)
		}
		for i, d := range first {
			if i%2 == 0 {
				back = append(back, backend.Return{Lease: d.Lease, NotStarted: true})
			}
		}
		if lost, err := b.Nack(f.ctx(), back); err != nil || len(lost) > 0 {
			return fmt.Sprintf("nack: lost %v, %v", lost, err), time.Since(first[0].Since)
		}
		alive, dead := 0, 0
		for alive+dead < 20 {
			got := f.gather(b, req, 1)
			if lost, err := b.Ack(f.ctx(), leases(got.Deliveries)); err != nil || len(lost) > 0 {
				return fmt.Sprintf("ack: lost %v, %v", lost, err), time.Since(got.Deliveries[0].Since)
			}
			alive, dead = alive+len(got.Deliveries), dead+len(got.Dead)
		}
		if alive != 10 || dead != 10 {
			return fmt.Sprintf("of 10 unstarted and 10 that had their delivery %d were alive and %d dead", alive, dead), 0
		}
		if stats := f.stats(b); stats.DeadLetters != nil && *stats.DeadLetters != 10 {
			return fmt.Sprintf("10 dead letters are counted as %d", *stats.DeadLetters), 0
		}
		f.done(b)
		return "", 0
	})
}

// deadAsPublished moves deliveries of which only the lease is left as it was.
func deadAsPublished(f *fixture) {
	b := f.open()
	m := backend.Message{Data: []byte(`{"json":1}`), Headers: map[string]string{"k": "v", "l": "w"}}
	for n, spoil := range []func(d *backend.Delivery){
		func(d *backend.Delivery) { *d = backend.Delivery{Lease: d.Lease} },
		func(d *backend.Delivery) {
			for i := range d.Data {
				d.Data[i] = 'x'
			}
			d.Headers["k"], d.Headers["new"] = "x", "x"
			delete(d.Headers, "l")
			d.Enqueued, d.Deadline = time.Time{}, time.Now()
		},
	} {
		id := f.publish(b, m)[0]
		d := f.claim(b, "a", 1)[0]
		at := d.Enqueued
		spoil(d)
		if err := b.DeadLetter(f.ctx(), d, "", backend.Cause{Reason: backend.ReasonPoison, Error: "no"}); err != nil {
			f.Fatal(err)
		}
		if list, can := f.letters(b, ""); can {
			if len(list) != n+1 {
				f.Fatalf("%d messages are poisoned, the letters are %+v", n+1, list)
			}
			i := max(slices.IndexFunc(list, func(l backend.DeadLetter) bool { return l.OriginID == id }), 0)
			f.checkLetter(b, list[i], m, backend.DeadLetter{OriginID: id, Attempts: 1, Reason: backend.ReasonPoison, Error: "no", Consumer: "a"})
			if !list[i].Enqueued.Equal(at) {
				f.Errorf("a letter of %s says it was published at %s", at, list[i].Enqueued)
			}
		}
	}
	f.done(b)
}

func poison(f *fixture) {
	a, b := f.open(), f.open()
	m := backend.Message{Data: []byte(`{"json":1}`), Headers: map[string]string{"k": "v"}}
	id := f.publish(a, m)[0]
	d := f.claim(a, "a", 1)[0]
	err := a.DeadLetter(f.ctx(), d, "", backend.Cause{Reason: backend.ReasonPoison, Error: "cannot read: \"{\" \n🙂"})
	if err != nil {
		f.Fatal(err)
	}
	if list, can := f.letters(b, ""); can {
		if len(list) != 1 {
			f.Fatalf("one message is poisoned, the letters are %+v", list)
		}
		f.checkLetter(b, list[0], m, backend.DeadLetter{
			OriginID: id, Attempts: 1, Reason: backend.ReasonPoison, Error: "cannot read: \"{\" \n🙂", Consumer: "a",
		})
	}
	f.done(b)
	if lost, err := a.Extend(f.ctx(), []backend.Lease{d.Lease}, held); err != nil || len(lost) != 1 {
		f.Errorf("an extend of a dead message: lost %v, %v", lost, err)
	}
	if err := a.DeadLetter(f.ctx(), d, "", backend.Cause{Reason: backend.ReasonPoison}); !errors.Is(err, backend.ErrLeaseLost) {
		f.Errorf("a second dead letter of the same delivery: %v", err)
	}
	if list, can := f.letters(b, ""); can && len(list) != 1 {
		f.Errorf("it is in the letters %d times", len(list))
	}
}

// expired: the delivery at which a message was found expired does not count, one before
// it does.
func expired(f *fixture) {
	b := f.open()
	m := backend.Message{Data: []byte("late"), Headers: map[string]string{"k": "v"}, Deadline: time.Now().Add(-time.Second)}
	id := f.publish(b, m)[0]
	f.nack(b, backend.Return{Lease: f.claim(b, "a", 1)[0].Lease, Error: "not yet"})
	d := f.claim(b, "a", 1)[0]
	cause := backend.Cause{Reason: backend.ReasonExpired, Error: "too late", NotStarted: true}
	if err := b.DeadLetter(f.ctx(), d, "", cause); err != nil {
		f.Fatal(err)
	}
	f.done(b)
	list, can := f.letters(b, "")
	if !can {
		return
	}
	if len(list) != 1 {
		f.Fatalf("one message has expired, the letters are %+v", list)
	}
	m.Headers[backend.HeaderDeadline] = backend.FormatDeadline(m.Deadline)
	f.checkLetter(b, list[0], m, backend.DeadLetter{OriginID: id, Attempts: 1, Reason: backend.ReasonExpired, Error: "too late", Consumer: "a"})
	if err := b.(backend.DeadLetters).Redrive(f.ctx(), "", list[0]); err != nil {
		f.Fatal(err)
	}
	back := f.claim(b, "a", 1)[0]
	want := map[string]string{"k": "v", backend.HeaderRedrives: "1"}
	if !maps.Equal(back.Headers, want) || !back.Deadline.IsZero() {
		f.Errorf("sent back with the headers %q and the deadline %s, want %q and none", back.Headers, back.Deadline, want)
	}
	f.ack(b, back)
}

func poisonTooLate(f *fixture) {
	f.inTime(f.short, func() (string, time.Duration) {
		a, b := f.two()
		f.publish(a, text("x")...)
		old := f.gather(a, f.shortRequest("a", 1), 1).Deliveries[0]
		mine := f.gather(b, f.shortRequest("b", 1), 1).Deliveries
		err := a.DeadLetter(f.ctx(), old, "", backend.Cause{Reason: backend.ReasonPoison})
		if !errors.Is(err, backend.ErrLeaseLost) {
			return fmt.Sprintf("a dead letter by a superseded lease: %v", err), 0
		}
		if list, _ := f.letters(b, ""); len(list) > 0 {
			return fmt.Sprintf("it was moved: %+v", list), 0
		}
		lost, err := b.Ack(f.ctx(), leases(mine))
		if err != nil || len(lost) > 0 {
			return fmt.Sprintf("the holder's ack after it: lost %v, %v", lost, err), time.Since(mine[0].Since)
		}
		return "", 0
	})
}

func deadElsewhere(f *fixture) {
	b := f.open()
	to := b.Info().DeadLetter + "2"
	f.publish(b, numbered(0, 2)...)
	req := f.shortRequest("a", 1)
	req.MaxDeliveries, req.DeadLetter = 1, to
	if err := b.DeadLetter(f.ctx(), f.claim(b, "a", 1)[0], to, backend.Cause{Reason: backend.ReasonPoison}); err != nil {
		f.Fatal(err)
	}
	f.gather(b, req, 1)
	if got := f.gather(b, req, 1); len(got.Dead) != 1 {
		f.Fatalf("limit 1, the second claim gave %s", describe(got.Deliveries))
	}
	if list, can := f.letters(b, to); can && len(list) != 2 {
		f.Errorf("two letters went to %s, there are %+v", to, list)
	}
	if list, can := f.letters(b, ""); can && len(list) != 0 {
		f.Errorf("they went to %s too: %+v", b.Info().DeadLetter, list)
	}
	f.done(b)
}

func longError(f *fixture) {
	b := f.open()
	cause := strings.Repeat("é🙂\x00\n", 1000)
	f.publish(b, numbered(0, 2)...)
	for _, d := range f.claim(b, "a", 2) {
		if d.Data[8] == '0' {
			f.nack(b, backend.Return{Lease: d.Lease, Error: cause})
			continue
		}
		if err := b.DeadLetter(f.ctx(), d, "", backend.Cause{Reason: backend.ReasonPoison, Error: cause}); err != nil {
			f.Fatal(err)
		}
	}
	list, can := f.letters(b, "")
	if can && (len(list) != 1 || len(list[0].Error) < 500 || !strings.HasPrefix(cause, strings.TrimRight(list[0].Error, "\ufffd"))) {
		f.Errorf("an error of %d bytes became %+v", len(cause), list)
	}
}

// deadIsNeverNowhere looks, while messages die, for one that is neither pending nor a letter.
func deadIsNeverNowhere(f *fixture) {
	const messages = 30
	b, watcher := f.open(), f.open()
	ids := f.publish(b, numbered(0, messages)...)
	deliveries := f.claim(b, "a", messages)
	f.statsWhen(watcher, func(s backend.Stats) bool { return s.Pending == messages })
	finished := make(chan error, 1)
	go func() {
		var err error
		for _, d := range deliveries {
			err = errors.Join(err, b.DeadLetter(f.ctx(), d, "", backend.Cause{Reason: backend.ReasonPoison}))
		}
		finished <- err
	}()
	for looks, over := 0, false; !over; looks++ {
		select {
		case err := <-finished:
			if over = true; err != nil {
				f.Fatal(err)
			}
		default:
		}
		pending := f.stats(watcher).Pending // before the letters: what is done in between is counted twice, never not at all
		list, _ := f.letters(watcher, "")
		if int(pending)+len(list) < messages {
			f.Fatalf("look %d: %d pending and then %d letters of %d messages", looks, pending, len(list), messages)
		}
	}
	list, _ := f.letters(watcher, "")
	var origins []string
	for _, letter := range list {
		origins = append(origins, letter.OriginID)
	}
	if !slices.Equal(origins, ids) {
		f.Errorf("the letters are of %v, dead are %v", origins, ids)
	}
}
