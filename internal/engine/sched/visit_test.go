package sched

import (
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"
)

// log is a topic with records, one reader and, if routed, one router.
type log struct {
	*topic
	head, read, routed int
	afterHead          func() // runs when a visit has read the head
}

func newLog(name string) *log { return &log{topic: newTopic(name, 0)} }

func (r *room) write(l *log, n int) {
	l.head += n
	r.mark(l.topic)
}

// work does one visit of the worker for any of the logs, and returns which.
func (r *room) work(logs ...*log) *log {
	tp, kind := r.visit()
	if tp == nil {
		return nil
	}
	l := logs[slices.IndexFunc(logs, func(l *log) bool { return l.topic == tp })]
	head := l.head
	if l.afterHead != nil {
		l.afterHead()
	}
	if kind&Streams != 0 {
		l.read = head
	}
	if kind&Routers != 0 {
		l.routed += min(head-l.routed, 1024)
		if l.routed < head {
			r.Again(&l.Task, r.now)
		}
	}
	return l
}

func TestAThousandWritesAreOneVisit(t *testing.T) {
	r, a := newRoom(t), newLog("a")
	for range 1000 {
		r.write(a, 1)
	}
	if depth := r.Sample(r.now).Depth; depth != 1 {
		t.Errorf("%d entries for one dirty topic", depth)
	}
	if r.work(a); a.read != 1000 {
		t.Errorf("the visit brought %d records of 1000", a.read)
	}
	r.expect("-")
}

func TestAWriteDuringAVisitIsVisitedToo(t *testing.T) {
	r, a := newRoom(t), newLog("a")
	a.afterHead = func() {
		a.afterHead = nil
		r.write(a, 1)
	}
	r.write(a, 1)
	if r.work(a); a.read != 1 {
		t.Fatalf("the first visit brought %d records", a.read)
	}
	if r.work(a) == nil || a.read != 2 {
		t.Errorf("after the second visit the reader has %d records of 2", a.read)
	}
	r.expect("-")
}

func TestNoMarkOfManyWritersIsLost(t *testing.T) {
	const writers, writes = 4, 5000
	s := New(1)
	tp := newTopic("a", 0)
	var mu sync.Mutex
	head, read := 0, 0
	done := make(chan struct{})
	go func() {
		defer close(done)
		for read < writers*writes {
			if _, _, ok := s.Next(0, 0); !ok {
				<-s.Park(0)
				continue
			}
			mu.Lock()
			read = head
			mu.Unlock()
		}
	}()
	for range writers {
		go func() {
			for range writes {
				mu.Lock()
				head++
				mu.Unlock()
				s.Mark(&tp.Task, 0)
			}
		}()
	}
	<-done
}

func TestAStreamOfWritesDoesNotKeepTheWorker(t *testing.T) {
	r, busy, quiet := newRoom(t), newLog("busy"), newLog("quiet")
	busy.afterHead = func() { r.write(busy, 1) }
	r.write(busy, 1)
	r.work(busy)
	r.now += ms
	r.write(quiet, 1)
	first, second := r.work(busy, quiet), r.work(busy, quiet)
	if first != busy || second != quiet {
		t.Errorf("visited %s, then %s", first.name, second.name)
	}
}

func TestALongCopyLetsOthersIn(t *testing.T) {
	r, long := newRoom(t), newLog("long")
	others := []*log{newLog("b"), newLog("c"), newLog("d"), newLog("e")}
	all := append([]*log{long}, others...)
	r.write(long, 5000)
	for copied := 0; long.routed < 5000; copied = long.routed {
		r.now += ms
		for _, o := range others {
			r.write(o, 1)
		}
		if r.work(all...) != long {
			t.Fatalf("the copy is not continued in its turn")
		}
		if n := long.routed - copied; n > 1024 {
			t.Fatalf("one visit copied %d records", n)
		}
		for _, o := range others {
			if got := r.work(all...); got == long {
				t.Fatalf("the copy goes on before the others had a visit")
			}
			_ = o
		}
	}
	for _, o := range others {
		if o.read != o.head {
			t.Errorf("%s has %d records of %d", o.name, o.read, o.head)
		}
	}
	r.expect("-")
}

func TestAWriteKeepsThePlaceInTheQueue(t *testing.T) {
	r := newRoom(t)
	a, b, c := newTopic("a", 0), newTopic("b", 0), newTopic("c", 0)
	for _, tp := range []*topic{a, b, c, a} {
		r.mark(tp)
		r.now += ms
	}
	r.expect("a", "b", "c", "-")
}

func TestTopicsOfOneMomentAreVisitedAsMarked(t *testing.T) {
	r := newRoom(t)
	var want []string
	for range 50 {
		tp := newTopic(string(rune('A'+len(want))), 0)
		want = append(want, tp.name)
		r.mark(tp)
	}
	if got := r.names(100); !slices.Equal(got, want) {
		t.Errorf("visited %v", got)
	}
}

func TestWorkLeftQueuesAtTheBack(t *testing.T) {
	r, a, b, c := newRoom(t), newTopic("a", 0), newTopic("b", 0), newTopic("c", 0)
	r.SetWindow(20 * ms)
	r.mark(a, b)
	r.expect("a")
	r.now += ms
	r.mark(c)
	r.now += ms
	r.Again(&a.Task, r.now) // and no window holds it
	r.expect("b", "c", "a", "-")
}

func TestWorkLeftIsNotHeldWhenAMarkCameFirst(t *testing.T) {
	r, a := newRoom(t), newTopic("a", 0)
	r.SetWindow(20 * ms)
	r.mark(a)
	r.expect("a")
	r.mark(a)
	r.expect("-")
	r.Again(&a.Task, r.now)
	r.expect("a", "-")
}

// Once: what is marked after that visit gathers like all else.
func TestWorkLeftLiftsTheWindowForOneVisit(t *testing.T) {
	r, a := newRoom(t), newTopic("a", 0)
	r.SetWindow(20 * ms)
	r.mark(a)
	r.expect("a")
	r.Again(&a.Task, r.now)
	r.expect("a")
	r.mark(a)
	r.expect("-")
	r.now += 20 * ms
	r.expect("a", "-")
}

func TestRouterWorkOfATopicThatIsGoneIsNotVisited(t *testing.T) {
	r, a := newRoom(t), newTopic("a", 0)
	a.SetRouted(true)
	r.SetDefer(true, r.now)
	r.mark(a)
	r.expect("a") // its streams
	r.Remove(&a.Task)
	r.expect("-")
	if st := r.Stats(); st.Ready != [Bands]int{} {
		t.Errorf("left behind: %+v", st)
	}
}

func TestATopicThatIsGoneIsNotVisited(t *testing.T) {
	r := newRoom(t)
	waiting, paused, inHold, clean := newTopic("waiting", 0), newTopic("paused", -1), newTopic("held", 0), newTopic("clean", 0)
	r.SetWindow(20 * ms)
	r.SetDefer(true, r.now)
	r.mark(inHold)
	r.expect("held")
	r.mark(waiting, paused, inHold)
	for _, tp := range []*topic{waiting, paused, inHold, clean} {
		r.Remove(&tp.Task)
		r.mark(tp)
		r.Again(&tp.Task, r.now)
	}
	r.SetDefer(false, r.now)
	r.pass(time.Second)
	r.expect("-")
	if st := r.Stats(); st.Ready != [Bands]int{} || st.Deferred != 0 {
		t.Errorf("left behind: %+v", st)
	}
}

func TestAWorkerThatFoundNothingIsWokenByAMark(t *testing.T) {
	r, a, b := newRoom(t), newTopic("a", 0), newTopic("b", 0)
	woken := func() bool {
		select {
		case <-r.Park(0):
			return true
		default:
			return false
		}
	}
	r.expect("-")
	r.mark(a, b)
	if !woken() {
		t.Fatal("a mark did not wake the worker")
	}
	if woken() {
		t.Fatal("two marks woke it twice")
	}
	r.expect("a", "b", "-")
	r.SetWindow(20 * ms)
	if r.mark(a); !woken() {
		t.Fatal("the worker does not learn when the topic that is held is due")
	}
	r.expect("-")
	r.now += 5 * ms
	if due, ok := r.NextDue(0, r.now); !ok || due != 20*ms {
		t.Errorf("due at %v, %v", due, ok)
	}
	if r.mark(b); woken() {
		t.Error("woken for a topic that is due no earlier")
	}
	if r.SetWindow(0); !woken() {
		t.Error("not woken when the window ended")
	}
	r.expect("a", "b", "-")
}

func TestTheIDPicksTheShardEvenly(t *testing.T) {
	s := New(4)
	for range 4000 {
		tp := newTopic("", 0)
		s.Mark(&tp.Task, 0)
	}
	for shard := range s.Shards() {
		n := 0
		for {
			if _, _, ok := s.Next(shard, 0); !ok {
				break
			}
			n++
		}
		if n < 800 || n > 1200 {
			t.Errorf("shard %d has %d topics of 4000", shard, n)
		}
	}
}

func TestTheQueueOfABandIsInOrderWhateverIsTakenOut(t *testing.T) {
	var q fifo
	random := rand.New(rand.NewPCG(1, 2))
	var all []*entry
	for i := range 2000 {
		e := &entry{enqueued: time.Duration(random.IntN(200)), order: uint64(i)}
		all = append(all, e)
		q.push(e.enqueued, e)
	}
	for range 1000 {
		i := random.IntN(len(all))
		if got := q.remove(int(all[i].pos)); got != all[i] {
			t.Fatal("took out another entry")
		}
		all = slices.Delete(all, i, i+1)
	}
	slices.SortFunc(all, func(a, b *entry) int {
		if (slot{at: a.enqueued, order: a.order}).before(slot{at: b.enqueued, order: b.order}) {
			return -1
		}
		return 1
	})
	for i, want := range all {
		if got := q.remove(0); got != want {
			t.Fatalf("entry %d: %v after %v", i, got.enqueued, want.enqueued)
		}
	}
}
