package backendtest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/weirmq/weir/backend"
)

func (s *suite) propertyCases() []testCase {
	var cases []testCase
	for seed := range uint64(3) {
		cases = append(cases, testCase{fmt.Sprintf("whatever workers do, each message ends once: seed %d", seed), func(f *fixture) { eachEndsOnce(f, seed) }})
	}
	return cases
}

// ledger is what became of the messages, as the workers were told.
type ledger struct {
	sync.Mutex
	ended map[string]string // ID → how
	wrong []string
	drops int
}

func (l *ledger) end(id, how string) {
	l.Lock()
	defer l.Unlock()
	if before, twice := l.ended[id]; twice {
		l.wrong = append(l.wrong, fmt.Sprintf("message %s was %s and then %s", id, before, how))
	}
	l.ended[id] = how
}

func (l *ledger) count() (ended, wrong int) {
	l.Lock()
	defer l.Unlock()
	return len(l.ended), len(l.wrong)
}

// eachEndsOnce lets four workers ack, fail, give back, poison, forget, keep and
// settle too late, at random, until all messages have ended.
func eachEndsOnce(f *fixture, seed uint64) {
	const workers, messages, limit = 4, 120, 4
	lease := max(f.short, 1500*time.Millisecond) // a machine may stall for half of it and no fence is needed
	producer := f.open()
	f.publish(producer, numbered(0, messages)...)
	l := &ledger{ended: map[string]string{}}
	began := time.Now()
	var all sync.WaitGroup
	for i := range workers {
		w := &worker{
			fixture: f, b: f.open(), l: l, name: fmt.Sprintf("w%d", i), lease: lease, limit: limit,
			random: rand.New(rand.NewPCG(seed, uint64(i))),
		}
		all.Go(func() {
			for {
				ended, wrong := l.count()
				if ended == messages || wrong > 0 || time.Since(began) > f.patience() {
					return
				}
				w.turn()
			}
		})
	}
	all.Wait()
	for _, wrong := range l.wrong {
		f.Error(wrong)
	}
	if len(l.ended) != messages {
		f.Fatalf("%d of %d messages ended in %s", len(l.ended), messages, time.Since(began))
	}
	f.done(producer)
	f.compare(producer, l)
}

// compare checks the letters against the ledger.
func (f *fixture) compare(b backend.Backend, l *ledger) {
	f.Helper()
	list, can := f.letters(b, "")
	if !can {
		return
	}
	dead, acked := 0, 0
	for _, how := range l.ended {
		if how == "dead" {
			dead++
		} else {
			acked++
		}
	}
	for _, letter := range list {
		if l.ended[letter.OriginID] != "dead" {
			f.Errorf("message %s is in the letters and was %s", letter.OriginID, l.ended[letter.OriginID])
		}
	}
	if len(list) != dead || dead == 0 || acked == 0 || l.drops == 0 {
		f.Errorf("%d letters; dead %d, acked %d, left by their workers %d: each must have happened", len(list), dead, acked, l.drops)
	}
}

// worker is one of the random ones.
type worker struct {
	*fixture
	b      backend.Backend
	l      *ledger
	name   string
	lease  time.Duration
	limit  int
	random *rand.Rand
	late   []*backend.Delivery // forgotten; settled when they are somebody else's
}

func (w *worker) turn() {
	req := w.fixture.shortRequest(w.name, 1+w.random.IntN(8))
	req.ReclaimAfter, req.MaxDeliveries = w.lease, w.limit
	got, err := w.b.Claim(w.ctx(), req)
	if err != nil {
		w.Errorf("claim: %v", err)
		return
	}
	for _, dead := range got.Dead {
		w.l.end(dead.OriginID, "dead")
	}
	for _, d := range got.Deliveries {
		if d.Attempt < 1 || d.Attempt > w.limit {
			w.Errorf("delivery %d of message %s, the limit is %d", d.Attempt, d.ID, w.limit)
		}
		w.one(d)
	}
	for len(w.late) > 0 && time.Since(w.late[0].Since) > 2*w.lease {
		w.tooLate(w.late[0])
		w.late = w.late[1:]
	}
}

// one does something with a delivery.
func (w *worker) one(d *backend.Delivery) {
	lease := []backend.Lease{d.Lease}
	switch n := w.random.IntN(100); {
	case n < 45:
		if lost, err := w.b.Ack(w.ctx(), lease); err == nil && len(lost) == 0 {
			w.l.end(d.ID, "acked")
		} else {
			w.whileHeld("ack", d, err)
		}
	case n < 60:
		lost, err := w.b.Nack(w.ctx(), []backend.Return{{Lease: d.Lease, Delay: time.Duration(w.random.IntN(200)) * time.Millisecond, Error: "no"}})
		if err != nil || len(lost) > 0 {
			w.whileHeld("nack", d, err)
		}
	case n < 70:
		lost, err := w.b.Nack(w.ctx(), []backend.Return{{Lease: d.Lease, NotStarted: true}})
		if err != nil || len(lost) > 0 {
			w.whileHeld("nack unstarted", d, err)
		}
	case n < 78:
		if err := w.b.DeadLetter(w.ctx(), d, "", backend.Cause{Reason: backend.ReasonPoison}); err == nil {
			w.l.end(d.ID, "dead")
		} else {
			w.whileHeld("dead letter", d, err)
		}
	case n < 88:
		if lost, err := w.b.Extend(w.ctx(), lease, w.lease); err != nil || len(lost) > 0 {
			w.whileHeld("extend", d, err)
			return
		}
		w.one(d)
	default:
		w.l.Lock()
		w.l.drops++
		w.l.Unlock()
		w.late = append(w.late, d)
	}
}

// whileHeld judges a refusal: only a lease that has run out may be lost.
func (w *worker) whileHeld(what string, d *backend.Delivery, err error) {
	if err != nil && !errors.Is(err, backend.ErrLeaseLost) {
		w.Errorf("%s: %v", what, err)
	}
	if age := time.Since(d.Since); age < w.lease/2 {
		w.Errorf("%s of message %s was lost after %s, its lease is %s", what, d.ID, age, w.lease)
	}
}

// tooLate settles what has been an orphan for a whole lease. If nobody took it
// in the meantime it is still this worker's.
func (w *worker) tooLate(d *backend.Delivery) {
	if w.random.IntN(2) == 0 {
		lost, err := w.b.Ack(w.ctx(), []backend.Lease{d.Lease})
		if err != nil {
			w.Errorf("late ack: %v", err)
		} else if len(lost) == 0 {
			w.l.end(d.ID, "acked")
		}
		return
	}
	err := w.b.DeadLetter(w.ctx(), d, "", backend.Cause{Reason: backend.ReasonPoison})
	if err == nil {
		w.l.end(d.ID, "dead")
	} else if !errors.Is(err, backend.ErrLeaseLost) {
		w.Errorf("late dead letter: %v", err)
	}
}
