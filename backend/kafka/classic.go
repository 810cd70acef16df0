package kafka

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weirmq/weir/backend"
)

const (
	// sessionTimeout is how long the broker waits for a member that it hears nothing of,
	// unless the program's options say otherwise.
	sessionTimeout = 10 * time.Second
	// metadataAge is how soon new partitions are noticed.
	metadataAge = 30 * time.Second
	// heartbeat is also how soon a member hears that another wants to join.
	heartbeatEvery = 500 * time.Millisecond
	// revokeGrace is how long handlers may take to finish with a partition that goes to
	// another member, before their leases are lost. It has to be shorter than Kafka's
	// rebalance timeout, which is a minute.
	revokeGrace = 5 * time.Second
	// pollRecords is how many records are taken from the client at a time, freshRecords how
	// many are kept ahead of the claims.
	pollRecords  = 2000
	freshRecords = 16_000
	freshBytes   = 32 << 20
	// forever is the lease of what nobody has claimed: this member keeps its partitions.
	forever = 1000 * time.Hour
)

// classic is the handle's membership in a classic consumer group. The group gives it whole
// partitions; a window for each knows what is unfinished, and commits say so to the next
// owner. Records go one way: poll → window.fresh → commit → shelf → claim → say → commit.
type classic struct {
	b  *Backend
	id string

	starting turn // of start

	mu       sync.Mutex
	client   *kgo.Client // nil: no claim has come
	topic    [16]byte    // what the group has been joined for
	assigned bool        // the group has been joined
	failure  error       // why it cannot be, or why commits fail; see failing
	failedAt time.Time
	windows  map[int32]*window
	changed  chan struct{} // closed when assigned, failure or what is ready changes
	fresh    int           // records of all windows
	bytes    int           // of the fresh ones, with their headers
	paused   bool          // the polls wait for room
	most     int           // what the last claim asked for
	ahead    int           // how many records are made ready before they are claimed
	exact    bool          // as many as most only
	session  time.Duration // after which the broker gives up a member that it hears nothing of
	heard    time.Time     // when the last commit was sent that the broker has accepted
	// passed is what retention has removed in front of the windows, unless it was taken.
	passed map[int32]*gapEntry
	// deliveries is the limit of the last claim. Of the records that their last owner has left
	// for their last delivery, alone is the one that is out.
	deliveries int
	alone      *held
	metadata   int // how many bytes the broker takes with a commit
	awaited    int // calls that wait for a commit
	// write says what to commit of a window: (*window).written, unless a test plants a fault.
	write func(w *window, limit int) (offset int64, metadata string)

	room    chan struct{} // kicked when fresh records have been promised
	due     chan struct{} // kicked when there is something to commit
	commits chan struct{} // holds a token while no commit is on its way
}

var _ group = (*classic)(nil)

func newClassic(b *Backend) *classic {
	c := &classic{
		b: b, id: newName(), starting: newTurn(), windows: map[int32]*window{}, passed: map[int32]*gapEntry{}, changed: make(chan struct{}), metadata: 4096, write: (*window).written,
		room: make(chan struct{}, 1), due: make(chan struct{}, 1), commits: make(chan struct{}, 1),
	}
	c.commits <- struct{}{}
	return c
}

func (c *classic) name() string { return c.id }

// limit is any: nobody else counts.
func (c *classic) limit(asked int) (int, error) { return asked, nil }

func (c *classic) joined() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.assigned
}

// join makes the handle a member. It may have no partitions for now, or for ever.
func (c *classic) join(ctx context.Context) error {
	if err := c.start(ctx); err != nil {
		return err
	}
	return c.b.awaitJoin(ctx, "the group does not let this member in", func() (ready bool, changed <-chan struct{}, failure error) {
		c.mu.Lock()
		defer c.mu.Unlock()
		failure = c.failing()
		return c.assigned && (failure == nil || backend.Retryable(failure)), c.changed, failure
	})
}

// start begins to join the group, once.
func (c *classic) start(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if err := c.starting.take(ctx); err != nil {
		return err
	}
	defer c.starting.give()
	c.mu.Lock()
	started := c.client != nil
	c.mu.Unlock()
	if started {
		return nil
	}
	if err := c.b.there(ctx); err != nil {
		return err
	}
	if err := c.b.otherType(ctx); err != nil {
		return err
	}
	if err := c.b.enter(ctx); err != nil {
		return err
	}
	l, err := c.b.layout(ctx)
	if err != nil {
		return err
	}
	session := c.b.sessionTimeout()
	client, err := c.b.newClient(
		kgo.ConsumerGroup(c.b.set.group),
		kgo.ConsumeTopics(c.b.set.topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.Balancers(kgo.CooperativeStickyBalancer()),
		kgo.SessionTimeout(session),
		kgo.MetadataMaxAge(metadataAge),
		kgo.HeartbeatInterval(heartbeatEvery),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.KeepControlRecords(), // where a transaction ends, also one that was given up
		kgo.DisableAutoCommit(),
		kgo.BlockRebalanceOnPoll(),
		kgo.OnPartitionsAssigned(c.onAssigned),
		kgo.OnOffsetsFetched(c.onOffsets),
		kgo.OnPartitionsRevoked(c.onRevoked),
		kgo.OnPartitionsLost(c.onLost),
		kgo.FetchMaxWait(idleWait),
		kgo.FetchMaxBytes(fetchBytes),
	)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.client, c.session, c.topic = client, session, l.id
	c.b.held.locked(session)
	if !c.b.spawn(c.poll) {
		client.CloseAllowingRebalance() // the handle has been closed, maybe before it could see this
		return errClosed
	}
	if !c.b.spawn(c.commit) || !c.b.spawn(c.b.held.keep) || !c.b.spawn(c.b.ledger.keep) {
		return errClosed
	}
	return nil
}

// fetchBytes is how much an answer brings. All of it has a minute (internal/patient), however slow the link is: what is
// cut off is asked for again, as large as it was.
const fetchBytes = 1 << 20

// sessionTimeout returns the program's, if it has set one.
func (b *Backend) sessionTimeout() time.Duration {
	const clients = 45 * time.Second // what the client takes if nobody has
	if set, ok := b.client.OptValue(kgo.SessionTimeout).(time.Duration); ok && set != clients {
		return set
	}
	return sessionTimeout
}

// announce wakes whoever waits for a change. The lock is held.
func (c *classic) announce() {
	close(c.changed)
	c.changed = make(chan struct{})
}

func (c *classic) failed(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failure, c.failedAt = err, time.Now()
	c.announce()
}

// failureAge is how long a failure is reported that does not come again: not everything
// that fails says when it works again, but all of it is tried again sooner than this.
const failureAge = 5 * time.Second

// failing returns why claims fail. The lock is held.
func (c *classic) failing() error {
	if time.Since(c.failedAt) > failureAge {
		return nil
	}
	return c.failure
}

func (c *classic) onAssigned(context.Context, *kgo.Client, map[string][]int32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.assigned, c.failure = true, nil
	c.announce()
}

// onOffsets opens the windows of partitions that this member has been given.
func (c *classic) onOffsets(_ context.Context, _ *kgo.Client, resp *kmsg.OffsetFetchResponse) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, g := range resp.Groups {
		for _, t := range g.Topics {
			for _, p := range t.Partitions {
				if old := c.windows[p.Partition]; p.ErrorCode != 0 || old != nil && len(old.live) > 0 {
					continue
				}
				metadata := ""
				if p.Metadata != nil {
					metadata = *p.Metadata
				}
				c.windows[p.Partition] = newWindow(p.Partition, p.Offset, p.LeaderEpoch, metadata)
			}
		}
	}
	return nil
}

// onRevoked gives partitions up: nothing more of them is handed out, handlers may finish
// for a moment, and what is unfinished then is the next owner's.
func (c *classic) onRevoked(ctx context.Context, _ *kgo.Client, lost map[string][]int32) {
	list := c.closeWindows(lost[c.b.set.topic])
	end := time.Now().Add(revokeGrace)
	for c.handling() && time.Now().Before(end) && !c.b.ended.Load() && c.b.pause(ctx, revokeEvery) {
	}
	call, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	_ = c.commitOnce(call) // what does not get through is repeated
	c.drop(list)
}

// handling reports whether handlers have something of partitions that are given up.
func (c *classic) handling() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.b.held.any(func(h *held) bool { return h.window.closing && h.stage != delayed && h.stage != aside })
}

// revokeEvery is how often a member that gives up partitions looks whether its handlers
// have finished.
const revokeEvery = 5 * time.Millisecond

// closeWindows takes back what nobody has claimed.
func (c *classic) closeWindows(partitions []int32) (list []*window) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range partitions {
		if w := c.windows[p]; w != nil {
			list = append(list, w)
		}
	}
	c.takeBack(list)
	return list
}

// takeBack is closeWindows for these. The lock is held.
func (c *classic) takeBack(list []*window) {
	for _, w := range list {
		w.closing = true
		for _, h := range w.promised {
			w.giveBack(h, false)
		}
		w.promised = nil
	}
	for _, h := range c.b.held.takeReady(func(h *held) bool { return h.window.closing }) {
		h.window.giveBack(h, false)
	}
}

// onLost follows when the broker has given the partitions to others already.
func (c *classic) onLost(_ context.Context, _ *kgo.Client, lost map[string][]int32) {
	c.drop(c.closeWindows(lost[c.b.set.topic]))
}

// drop forgets windows; what is held of them is lost.
func (c *classic) drop(list []*window) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.dropNow(list)
}

// dropNow is drop. The lock is held.
func (c *classic) dropNow(list []*window) {
	for _, w := range list {
		w.gone = true
		w.announce()
		c.forgetFresh(w)
		if c.windows[w.partition] == w {
			delete(c.windows, w.partition)
		}
	}
	c.b.held.drop(func(h *held) bool { return h.window.gone })
}

// cut goes on with a partition whose log has lost its records from an offset on, as by a power cut, or
// because a replica that lacked them has come to lead. What is unfinished before it is handed out anew.
// The lock is held.
func (c *classic) cut(w *window, end int64) *window {
	lost := []*window{w}
	c.takeBack(lost)
	kept := w.upTo(end)
	c.dropNow(lost)
	c.windows[w.partition] = kept
	c.fresh += len(kept.fresh)
	for _, h := range kept.fresh {
		c.bytes += sizeOf(h.record)
	}
	return kept
}

// renewed reports whether the topic was deleted and made again since the group was joined for
// it. Then nothing is left of what is held, what is finished must not be said of the new topic,
// and the client, which stays with the first one, is told to begin anew.
func (c *classic) renewed(l *layout) bool {
	c.mu.Lock()
	same := c.topic == l.id
	c.topic = l.id
	list := slices.Collect(maps.Values(c.windows))
	if !same {
		clear(c.passed)
	}
	c.mu.Unlock()
	if same {
		return false
	}
	c.drop(list)
	c.b.spawn(func() {
		c.client.PurgeTopicsFromClient(c.b.set.topic)
		c.client.AddConsumeTopics(c.b.set.topic)
	})
	return true
}

// leave says what is finished and leaves the group. What is held is the next owner's at once.
func (c *classic) leave() {
	c.mu.Lock()
	client := c.client
	var all []int32
	for p := range c.windows {
		all = append(all, p)
	}
	c.mu.Unlock()
	if client == nil {
		return
	}
	list := c.closeWindows(all)
	ctx, cancel := context.WithTimeout(context.Background(), leaveTimeout)
	defer cancel()
	c.lastCommit(ctx)
	c.drop(list)
	_ = client.LeaveGroupContext(ctx) // if it does not get there, the broker notices by itself
}

// lastCommit tries again while the group is being divided anew. What does not get through is repeated.
func (c *classic) lastCommit(ctx context.Context) {
	for {
		err := c.commitOnce(ctx)
		if again := errors.Is(err, kerr.RebalanceInProgress) || errors.Is(err, kerr.IllegalGeneration); !again || !c.b.pause(ctx, commitRetry) {
			return
		}
	}
}

func (c *classic) close() {
	c.mu.Lock()
	client := c.client
	c.mu.Unlock()
	if client != nil {
		client.CloseAllowingRebalance() // it waits for onRevoked, which takes the lock
	}
}

// fetched leaves out what the client has and was not polled: it does not say of which partition that is.
func (c *classic) fetched() map[int32]int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	ends := make(map[int32]int64, len(c.windows))
	for p, w := range c.windows {
		if w.begun && !w.closing {
			ends[p] = w.next
		}
	}
	return ends
}

// stuck is nothing: who has a partition is put out of the group within its session's timeout.
func (c *classic) stuck([]int32) {}

// passedOver leaves what was found in another topic of that name, whose numbers say nothing of this one.
func (c *classic) passedOver(topic [16]byte) map[int32]*gapEntry {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.topic != topic {
		return nil
	}
	list := c.passed
	c.passed = map[int32]*gapEntry{}
	return list
}

// progress asks the group's coordinator.
func (c *classic) progress(ctx context.Context) (map[int32]progress, error) {
	b := c.b
	c.flush(ctx)
	l, err := b.layout(ctx)
	if err != nil {
		return nil, err
	}
	req := kmsg.NewPtrOffsetFetchRequest()
	group, topic := kmsg.NewOffsetFetchRequestGroup(), kmsg.NewOffsetFetchRequestGroupTopic()
	group.Group, topic.Topic, topic.TopicID = b.set.group, b.set.topic, l.id
	for p := range l.leaders {
		topic.Partitions = append(topic.Partitions, p)
	}
	group.Topics = append(group.Topics, topic)
	req.Groups = append(req.Groups, group)
	resp, err := req.RequestWith(ctx, b.requests())
	if err != nil {
		return nil, b.explain(b.onGroup(err, rightDescribe))
	}
	all, begun := map[int32]progress{}, false
	for _, g := range resp.Groups {
		if err := kerr.ErrorForCode(g.ErrorCode); err != nil {
			return nil, b.explain(b.onGroup(err, rightDescribe))
		}
		for _, t := range g.Topics {
			for _, p := range t.Partitions {
				if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
					return nil, b.explain(b.onTopic(err, rightDescribe, b.set.topic))
				}
				if p.Offset < 0 {
					all[p.Partition] = progress{start: -1, known: unseen}
					continue
				}
				begun = true
				all[p.Partition] = progressOf(p)
			}
		}
	}
	if !begun { // the coordinator says so of groups that it does not know, too
		return all, b.groupThere(ctx)
	}
	return all, nil
}

// progressOf is what a commit says.
func progressOf(p kmsg.OffsetFetchResponseGroupTopicPartition) progress {
	at := progress{start: p.Offset, exact: true, open: p.Offset}
	if p.Metadata != nil {
		if open, list, ok := parseSpans(p.Offset, *p.Metadata); ok {
			at.open, at.spans = open, list
		}
	}
	at.known = sighting{at.open, p.LeaderEpoch}
	return at
}

// explainGroup is explain for what ends a membership.
func (c *classic) explainGroup(err error) error {
	var session *kgo.ErrGroupSession
	if errors.As(err, &session) {
		err = session.Err
	}
	switch {
	case rejoins(err):
		return fmt.Errorf("kafka: %w: the group has put this member out, which joins again: %w", backend.ErrUnavailable, err)
	case errors.Is(err, kerr.InconsistentGroupProtocol):
		return fmt.Errorf("kafka: group %q has members that do not know the cooperative-sticky assignment: %w", c.b.set.group, err)
	case errors.Is(err, kerr.InvalidSessionTimeout):
		return fmt.Errorf("kafka: the broker has to allow sessions of %s (group.min.session.timeout.ms, group.max.session.timeout.ms): %w", c.b.sessionTimeout(), err)
	}
	return c.b.explain(c.b.onTopic(c.b.onGroup(err, rightRead), rightRead, c.b.set.topic))
}

// findings looks for members that have nothing to do.
func (c *classic) findings(ctx context.Context, add func(backend.Finding)) {
	groups, err := named(ctx, c.b, c.b.admin.DescribeGroups, c.b.set.group)
	l, err2 := c.b.layout(ctx)
	if err != nil || err2 != nil {
		return // not permitted to look
	}
	members := len(groups[c.b.set.group].Members)
	if members > len(l.leaders) {
		add(backend.Finding{Code: "idle_members", Severity: backend.SeverityWarning, Concern: backend.OfWorkers,
			Problem: fmt.Sprintf("group %q has %d members and the topic %d partitions: %d of them get nothing", c.b.set.group, members, len(l.leaders), members-len(l.leaders)),
			Advice:  "give the topic more partitions, or start fewer workers with more handlers each"})
	}
}
