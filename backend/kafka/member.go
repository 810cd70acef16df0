package kafka

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weirmq/weir/backend"
)

const (
	// joinEvery is how often a member that has no partitions yet asks for them.
	joinEvery  = 50 * time.Millisecond
	retryEvery = 250 * time.Millisecond
	// spare is how many deliveries the broker has to allow beyond the limit: one to move the
	// message to the dead letters, and one more if that breaks off. What reaches the broker's
	// own limit is dropped by it.
	spare = 2
)

const (
	// idleWait is how long a fetch waits at the broker while nothing is held: nothing can
	// want to be acknowledged meanwhile.
	idleWait = 500 * time.Millisecond
	// busyWait is the same while something is: an acknowledgement waits for the fetch.
	busyWait = 25 * time.Millisecond
)

// member is the handle's membership in the share group. It joins at the first claim.
//
// It speaks the protocol itself, because the client's own share consumer accepts on its
// own, at the next poll, whatever has not been settled since the last one.
type member struct {
	b      *Backend
	client *kgo.Client
	id     string

	starting turn // of start
	beating  turn // of heartbeat

	mu          sync.Mutex
	coordinator *int32 // of the group; nil: not known
	started     bool
	most        int           // most deliveries that a claim may ask for
	assigned    []int32       // partitions
	visited     []int32       // partitions of others; see stuck
	changed     chan struct{} // closed when assigned or failure changes
	failure     error         // of the last heartbeat
	sessions    map[int32]*session
	turn        int // of the sessions

	limitRead time.Time // when most was read; of beat

	atEnd     bool // the group begins anywhere but at the first record
	atEndRead time.Time
}

var _ group = (*member)(nil)

func (m *member) name() string { return m.id }

func newMember(b *Backend) (*member, error) {
	// The share session has connections of its own: a fetch that waits would keep
	// everything else on its connection waiting.
	client, err := b.newClient(kgo.ConnIdleTimeout(10 * time.Minute))
	if err != nil {
		return nil, err
	}
	return &member{b: b, client: client, id: newName(), starting: newTurn(), beating: newTurn(), sessions: map[int32]*session{}, changed: make(chan struct{})}, nil
}

// join makes the handle a member and waits for its first partitions.
func (m *member) join(ctx context.Context) error {
	if err := m.start(ctx); err != nil {
		return err
	}
	return m.b.awaitJoin(ctx, "the group has given this member no partitions", func() (ready bool, changed <-chan struct{}, failure error) {
		m.mu.Lock()
		defer m.mu.Unlock()
		return len(m.assigned) > 0, m.changed, m.failure
	})
}

// start prepares the group and begins to send heartbeats, once.
func (m *member) start(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if err := m.starting.take(ctx); err != nil {
		return err
	}
	defer m.starting.give()
	m.mu.Lock()
	started := m.started
	m.mu.Unlock()
	if started {
		return nil
	}
	if err := m.b.there(ctx); err != nil {
		return err
	}
	if err := m.b.otherType(ctx); err != nil {
		return err
	}
	if err := m.b.enter(ctx); err != nil {
		return err
	}
	limit, err := m.b.prepareGroup(ctx)
	if err != nil {
		return m.b.explain(err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.started { // the handle has been closed
		return errClosed
	}
	m.most, m.started = limit, true
	if !m.b.spawn(m.beat) || !m.b.spawn(m.b.held.keep) || !m.b.spawn(m.b.ledger.keep) {
		return errClosed
	}
	return nil
}

// beat keeps the membership alive until the handle is closed.
func (m *member) beat() {
	epoch := int32(0)
	for !m.b.ended.Load() {
		resp, err := m.heartbeat(m.b.closing, epoch)
		wait := retryEvery
		switch {
		case err == nil:
			epoch = resp.MemberEpoch
			wait = time.Duration(resp.HeartbeatIntervalMillis) * time.Millisecond
			if !m.assign(resp) {
				wait = joinEvery
			}
			m.followLimit()
		case errors.Is(err, kerr.UnknownMemberID), errors.Is(err, kerr.FencedMemberEpoch), errors.Is(err, kerr.GroupIDNotFound):
			epoch = 0 // the broker has forgotten this member: it joins again
			m.failed(nil)
		default:
			m.failed(m.b.explain(err))
		}
		if !m.b.pause(m.b.closing, wait) {
			return
		}
	}
}

func (m *member) heartbeat(ctx context.Context, epoch int32) (*kmsg.ShareGroupHeartbeatResponse, error) {
	req := kmsg.NewPtrShareGroupHeartbeatRequest()
	req.GroupID, req.MemberID, req.MemberEpoch = m.b.set.group, m.id, epoch
	if epoch == 0 {
		req.SubscribedTopicNames = []string{m.b.set.topic}
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if err := m.beating.take(ctx); err != nil {
		return nil, err
	}
	defer m.beating.give()
	coordinator, err := m.findCoordinator(ctx)
	if err != nil {
		return nil, err
	}
	if epoch >= 0 && m.b.ended.Load() {
		return nil, errClosed // behind the one that leaves, it would join again
	}
	answer, err := m.client.Broker(int(coordinator)).Request(ctx, req)
	if err != nil {
		m.lostCoordinator()
		return nil, err
	}
	resp := answer.(*kmsg.ShareGroupHeartbeatResponse)
	err = kerr.ErrorForCode(resp.ErrorCode)
	if errors.Is(err, kerr.NotCoordinator) || errors.Is(err, kerr.CoordinatorNotAvailable) {
		m.lostCoordinator()
	}
	return resp, m.b.onTopic(m.b.onGroup(err, rightRead), rightDescribe, m.b.set.topic)
}

// findCoordinator returns the broker that heartbeats go to. The client looks for it once
// and does not notice that another has taken over: it never repeats a heartbeat, whose
// answer tells it.
func (m *member) findCoordinator(ctx context.Context) (int32, error) {
	m.mu.Lock()
	known := m.coordinator
	m.mu.Unlock()
	if known != nil {
		return *known, nil
	}
	found, err := asked(ctx, m.b, func(ctx context.Context) (kadm.FindCoordinatorResponse, error) {
		found := m.b.admin.FindGroupCoordinators(ctx, m.b.set.group)[m.b.set.group]
		return found, found.Err
	})
	if err != nil {
		return 0, m.b.onGroup(err, rightRead)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.coordinator = &found.NodeID
	return found.NodeID, nil
}

func (m *member) lostCoordinator() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.coordinator = nil
}

// assign notes the partitions of a heartbeat, and reports whether there are any.
func (m *member) assign(resp *kmsg.ShareGroupHeartbeatResponse) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.failure = nil
	if resp.Assignment != nil {
		m.assigned, m.visited = nil, nil
		for _, t := range resp.Assignment.TopicPartitions {
			m.assigned = append(m.assigned, t.Partitions...)
		}
		m.announce()
	}
	return len(m.assigned) > 0
}

func (m *member) failed(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.failure = err
	m.announce()
}

// announce wakes whoever waits for a change. The lock is held.
func (m *member) announce() {
	close(m.changed)
	m.changed = make(chan struct{})
}

// next returns the session to fetch from: each broker that leads an assigned partition in
// turn.
func (m *member) next(ctx context.Context) (*session, error) {
	l, err := m.b.layout(ctx)
	if err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	var brokers []int32
	wanted := map[int32][]int32{}
	for _, p := range slices.Concat(m.assigned, m.visited) {
		leader, there := l.leaders[p]
		if !there || leader < 0 { // it is new, or its leader has just died
			m.b.topic.doubt()
			continue
		}
		if wanted[leader] == nil {
			brokers = append(brokers, leader)
		}
		wanted[leader] = append(wanted[leader], p)
	}
	if len(m.assigned) == 0 {
		return nil, fmt.Errorf("kafka: %w: the group has taken all partitions from this member", backend.ErrUnavailable)
	}
	if len(brokers) == 0 {
		m.b.topic.forget()
		return nil, fmt.Errorf("kafka: %w: no partition of topic %q has a leader", backend.ErrUnavailable, m.b.set.topic)
	}
	m.turn++
	id := brokers[m.turn%len(brokers)]
	s := m.sessions[id]
	if s == nil {
		s = newSession(m, id)
		m.sessions[id] = s
	}
	s.want(l.id, wanted[id], len(brokers))
	return s, nil
}

// stuck has the member fetch from these partitions, too. The group gives most partitions to one member, and that of a
// process that was killed stays with it for as long as brokers let a member be silent, 45 s by default. They give
// records to any member that asks, so all of them ask where nothing is finished, until the group is divided anew.
func (m *member) stuck(partitions []int32) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, p := range partitions {
		if !slices.Contains(m.assigned, p) && !slices.Contains(m.visited, p) {
			m.visited = append(m.visited, p)
		}
	}
}

func (m *member) expect(backend.ClaimRequest) {}

func (m *member) joined() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.assigned) > 0
}

// limit is at most what the broker's own limit leaves.
func (m *member) limit(asked int) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if asked > m.most || m.most < 1 {
		return 0, fmt.Errorf("kafka: max deliveries %d: at most %d; the brokers drop a message at their own limit (%s of the group, %d), and weir has to come before",
			asked, m.most, groupLimit, m.most+spare)
	}
	return cmp.Or(asked, m.most), nil
}

func (m *member) close() { m.client.Close() }

// fetched is nothing: what is fetched is held.
func (m *member) fetched() map[int32]int64 { return nil }

// passedOver is nothing: brokers pass it over.
func (m *member) passedOver([16]byte) map[int32]*gapEntry { return nil }

func (m *member) fetch(req backend.ClaimRequest, wait time.Duration) error {
	s, err := m.next(m.b.closing)
	if err != nil {
		return err
	}
	most := idleWait
	if holds, _ := m.b.held.waiting(); holds {
		most = busyWait
	}
	s.mu.Lock()
	most /= time.Duration(s.brokers)
	s.mu.Unlock()
	if err := s.fetch(m.b.closing, req.Max, max(0, min(wait, most)), req.ReclaimAfter); err != nil {
		return m.b.explain(err)
	}
	return nil
}

func (m *member) allSessions() []*session {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := make([]*session, 0, len(m.sessions))
	for _, s := range m.sessions {
		all = append(all, s)
	}
	return all
}

// leave gives back what is held and leaves the group.
func (m *member) leave() {
	m.mu.Lock()
	started := m.started
	m.started = true // a claim that is about to begin finds the handle closed
	m.mu.Unlock()
	if !started {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), leaveTimeout)
	defer cancel()
	for _, s := range m.allSessions() {
		s.end(ctx)
	}
	_, _ = m.heartbeat(ctx, -1) // if it does not get there, the broker notices by itself
}

// say settles records in one way and returns the IDs of those that were not this member's
// any more. What was said is forgotten, even if the outcome is unknown: the broker hands out
// again what it has not settled.
func (m *member) say(ctx context.Context, list []*held, says int8) (lost []string, err error) {
	bySession := map[*session][]*held{}
	for _, h := range list {
		bySession[h.session] = append(bySession[h.session], h)
	}
	for s, list := range bySession {
		failed, failure := s.settle(ctx, list, says)
		if failure != nil {
			err = failure
		}
		lost = append(lost, idsOf(failed)...)
		switch {
		case says == saysRenew:
		case failure == nil, errors.Is(failure, backend.ErrOutcomeUnknown):
			m.b.held.forget(list)
		default:
			m.b.held.back(list)
		}
	}
	return lost, err
}

// idsOf returns the IDs of what acknowledgements are of.
func idsOf(acks []ack) []string {
	ids := make([]string, len(acks))
	for i, a := range acks {
		ids[i] = idOf(a.partition, a.offset)
	}
	return ids
}

// renew keeps the broker from giving records to others, and forgets those that it has
// given away. It returns their IDs.
func (m *member) renew(list []*held) (lost []string) {
	lost, err := m.say(m.b.closing, list, saysRenew)
	if err != nil {
		return nil
	}
	m.b.held.takeLost(list, lost)
	return lost
}
