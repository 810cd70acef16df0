package kafka

import (
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/weirmq/weir/backend"
)

// stage is what is done with a record that this member has acquired.
type stage uint8

const (
	ready    stage = iota // nobody has claimed it yet
	claimed               // a consumer holds it until its lease ends
	delayed               // given back, but not before its time
	aside                 // its dead letter could not be stored; then it is ready again
	burying               // its dead letter is on its way
	settling              // its acknowledgement is on its way
)

// held is a record that this member has acquired and not settled.
type held struct {
	session *session // of a share group
	record  *kgo.Record
	id      string
	attempt int
	stage   stage
	token   string    // of the lease
	until   time.Time // then it is released

	// Of a classic group:
	window    *window
	finished  bool
	unstarted bool // given back, and no handler has begun
}

// shelf holds what this handle has been given by its group. How long a lease lasts is
// decided here.
type shelf struct {
	b    *Backend
	kick chan struct{}

	mu      sync.Mutex
	all     map[string]*held
	queue   []*held // ready, in the order of their arrival
	pending int     // all but the ready ones
	lock    time.Duration
	asked   time.Time // when keep renewed the locks last
	renewed time.Time // the same, but while a late renewal is on its way still when the one before was
	next    time.Time // when keep looks again
	tokens  int64
	got     map[int32]received
}

// received is what a member has been given of a partition.
type received struct {
	Top   int64 `json:"top"`           // the offset behind the highest
	Count int64 `json:"count"`         // how many, with repeats
	Era   int32 `json:"era,omitempty"` // behind the epoch of the leader who has written that; 0: unknown
	// Past is the top under the leader before.
	Past *sighting `json:"past,omitempty"`
}

// higher takes over the top of another: of records of a later leader, since a log that has lost its end
// gives its offsets to others.
func (r received) higher(top int64, era int32) received {
	switch {
	case era > r.Era:
		if r.Era > 0 {
			r.Past = &sighting{r.Top, r.Era - 1}
		}
		r.Top, r.Era = top, era
	case era == r.Era:
		r.Top = max(r.Top, top)
	}
	return r
}

func newShelf(b *Backend) *shelf {
	return &shelf{b: b, kick: make(chan struct{}, 1), all: map[string]*held{}, lock: 30 * time.Second, got: map[int32]received{}}
}

// locked notes how long the broker locks what it hands out.
func (s *shelf) locked(d time.Duration) {
	if d > 0 {
		s.mu.Lock()
		s.lock = d
		s.mu.Unlock()
	}
}

// lockTime is how long that is.
func (s *shelf) lockTime() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lock
}

// add takes a record that the broker has locked, at the earliest at a time.
func (s *shelf) add(from *session, r *kgo.Record, attempt int, keep time.Duration, since time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := &held{session: from, record: r, id: idOf(r.Partition, r.Offset), attempt: attempt, until: time.Now().Add(keep)}
	s.from(since)
	if old := s.all[h.id]; old != nil {
		s.remove(old)
	}
	s.all[h.id] = h
	s.queue = append(s.queue, h)
	s.receive(s.queue[len(s.queue)-1:])
	s.wake(h.until)
}

// from notes since when what comes is locked: it may have been on its way for longer than what is there was renewed
// ago. The lock is held.
func (s *shelf) from(since time.Time) {
	if len(s.all) == 0 || since.Before(s.asked) {
		s.asked = since
		s.wake(since.Add(s.lock / 3))
	}
	if len(s.all) == 0 || since.Before(s.renewed) {
		s.renewed = since
	}
}

// put takes records that nobody has claimed, in the order of their arrival; those that were
// given back before the others. They stay until they are claimed or dropped.
func (s *shelf) put(list []*held) {
	if len(list) == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.from(time.Now())
	until := time.Now().Add(forever)
	again := s.again()
	s.receive(list)
	for _, h := range list {
		h.stage, h.until = ready, until
		s.all[h.id] = h
		if h.attempt > 1 {
			s.queue = slices.Insert(s.queue, again, h)
			again++
		} else {
			s.queue = append(s.queue, h)
		}
	}
}

// receive notes that records have been given to this handle. The lock is held.
func (s *shelf) receive(list []*held) {
	for len(list) > 0 {
		p := list[0].record.Partition
		got := s.got[p]
		for len(list) > 0 && list[0].record.Partition == p {
			got = got.higher(list[0].record.Offset+1, list[0].record.LeaderEpoch+1)
			got.Count++
			list = list[1:]
		}
		s.got[p] = got
	}
}

// anew forgets what was received: the topic is another one.
func (s *shelf) anew() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.got)
}

// received returns what this handle has been given.
func (s *shelf) received() map[int32]received {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.got)
}

// remove forgets a record. The lock is held.
func (s *shelf) remove(h *held) {
	if s.all[h.id] != h {
		return
	}
	delete(s.all, h.id)
	if h.stage == ready {
		for i, q := range s.queue {
			if q == h {
				s.queue = append(s.queue[:i], s.queue[i+1:]...)
				break
			}
		}
		return
	}
	s.pending--
	s.b.ledger.changed()
}

// drop forgets records that are not this member's any more.
func (s *shelf) drop(gone func(*held) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, h := range s.all {
		if gone(h) {
			s.remove(h)
		}
	}
}

// takeReady takes off records that nobody has claimed.
func (s *shelf) takeReady(wanted func(*held) bool) (list []*held) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, h := range slices.Clone(s.queue) {
		if wanted(h) {
			s.remove(h)
			list = append(list, h)
		}
	}
	return list
}

// any reports whether a record is like this.
func (s *shelf) any(like func(*held) bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, h := range s.all {
		if like(h) {
			return true
		}
	}
	return false
}

// readyCount is how many records nobody has claimed, and how many of them have been handed
// out before.
func (s *shelf) readyCount() (all, again int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.queue), s.again()
}

// again is how many at the head of the queue have been handed out before. The lock is held.
func (s *shelf) again() (n int) {
	for n < len(s.queue) && s.queue[n].attempt > 1 {
		n++
	}
	return n
}

// taken is a record as a claim has found it.
type taken struct {
	record  *kgo.Record
	id      string
	attempt int
}

// claim takes up to most records for a consumer, until a time. token is that of their leases.
func (s *shelf) claim(most int, until time.Time) (got []taken, token string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := min(most, len(s.queue))
	if n == 0 {
		return nil, ""
	}
	got = make([]taken, n)
	s.tokens++
	token = strconv.FormatInt(s.tokens, 36)
	for i, h := range s.queue[:n] {
		h.stage, h.until, h.token = claimed, until, token
		got[i] = taken{h.record, h.id, h.attempt}
	}
	s.queue = append(s.queue[:0], s.queue[n:]...)
	s.pending += n
	s.b.ledger.changed()
	s.wake(until)
	return got, token
}

// setAside keeps what could not be made a dead letter from the next claims.
func (s *shelf) setAside(list []*backend.Delivery) {
	leases := make([]backend.Lease, len(list))
	for i, d := range list {
		leases[i] = d.Lease
	}
	s.update(leases, func(_ int, h *held) { h.stage, h.until = aside, time.Now().Add(asideFor) })
}

// asideFor is how long it takes until a dead letter that could not be stored is tried again.
const asideFor = 2 * time.Second

// count returns how many records are held and how many of them are pending.
func (s *shelf) count() (all, pending int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.all), s.pending
}

// lowest returns the lowest offset held of each partition.
func (s *shelf) lowest() map[int32]int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	held := map[int32]int64{}
	for _, h := range s.all {
		if at, there := held[h.record.Partition]; !there || h.record.Offset < at {
			held[h.record.Partition] = h.record.Offset
		}
	}
	return held
}

// find returns what a lease holds, nil if it is no longer held. The lock is held.
func (s *shelf) find(l backend.Lease) *held {
	if h := s.all[l.ID]; h != nil && h.stage == claimed && h.token == l.Token {
		return h
	}
	return nil
}

// update changes what leases hold and returns the IDs of those that are no longer held.
func (s *shelf) update(leases []backend.Lease, change func(i int, h *held)) (lost []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, l := range leases {
		if h := s.find(l); h != nil {
			change(i, h)
			s.wake(h.until)
		} else {
			lost = append(lost, l.ID)
		}
	}
	return lost
}

// forget removes records that are settled; back returns to their consumers those whose
// settling has not begun.
func (s *shelf) forget(list []*held) { s.each(list, s.remove) }

func (s *shelf) back(list []*held) {
	s.each(list, func(h *held) {
		h.stage = claimed
		s.wake(h.until)
	})
}

func (s *shelf) each(list []*held, do func(*held)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, h := range list {
		do(h)
	}
}

// wake makes keep look again by then. The lock is held.
func (s *shelf) wake(by time.Time) {
	if !by.Before(s.next) {
		return
	}
	s.next = by
	select {
	case s.kick <- struct{}{}:
	default:
	}
}

// keep renews the locks and releases what is due, until the handle is closed.
func (s *shelf) keep() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-s.b.closing.Done():
			return
		case <-s.kick:
		case <-timer.C:
		}
		due, renew, next := s.due(time.Now())
		if len(due) > 0 {
			s.b.spawn(func() { _, _ = s.b.group.say(s.b.closing, due, saysRelease) })
		}
		if len(renew) > 0 {
			s.b.spawn(func() {
				s.b.group.renew(renew)
				s.caughtUp()
			})
		}
		timer.Reset(time.Until(next))
	}
}

// due returns what is to be released, what is to be renewed, and when to look again.
func (s *shelf) due(now time.Time) (release, renew []*held, next time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	next = now.Add(time.Minute)
	renewing := len(s.all) > 0 && now.Sub(s.asked) >= s.lock/3
	for _, h := range s.all {
		switch {
		case h.stage == settling:
		case h.stage == aside && !h.until.After(now):
			h.stage, h.until = ready, now.Add(s.lock)
			if h.window != nil {
				h.until = now.Add(forever)
			}
			s.queue = append(s.queue, h)
			s.pending--
			next = earlier(next, h.until)
		case h.stage != burying && !h.until.After(now):
			if h.stage == ready {
				s.remove(h)
				s.all[h.id] = h
				s.pending++
			}
			h.stage = settling
			release = append(release, h)
		default:
			if h.stage != burying {
				next = earlier(next, h.until)
			}
			if renewing {
				renew = append(renew, h)
			}
		}
	}
	if renewing {
		if s.asked = now; !s.late() || len(renew) == 0 {
			s.renewed = now
		}
	}
	if len(s.all) > 0 {
		next = earlier(next, s.asked.Add(s.lock/3))
	}
	s.next = next
	return release, renew, next
}

// late reports whether the locks may have ended before they were renewed. The lock is held.
func (s *shelf) late() bool { return time.Since(s.renewed) > s.lock*2/3 }

// caughtUp notes that what was lost before a late renewal is known.
func (s *shelf) caughtUp() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.renewed = s.asked
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}
