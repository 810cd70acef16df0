package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weirmq/weir/backend"
)

// What an acknowledgement says of a record.
const (
	saysGap     = 0 // there is no record at this offset
	saysAccept  = 1
	saysRelease = 2
	saysRenew   = 4
)

// session is the member's share session with one broker: requests on it follow each
// other, and what it has acquired is lost with its connection.
type session struct {
	m      *member
	broker int32
	free   chan struct{} // holds a token while no request is on its way

	mu         sync.Mutex
	topic      [16]byte
	partitions []int32 // to fetch from
	brokers    int     // how many share the fetches

	// Of the holder of the token:
	epoch    int32
	known    []int32  // partitions that the broker knows to be in the session
	of       [16]byte // the topic that these are of
	failures int      // answers in a row of which nothing could be read, as while leaders move
	portion  portion
}

// retryFetch is the pause after an answer of which some could not be read.
const retryFetch = 20 * time.Millisecond

func newSession(m *member, broker int32) *session {
	s := &session{m: m, broker: broker, free: make(chan struct{}, 1)}
	s.free <- struct{}{}
	return s
}

func (s *session) want(topic [16]byte, partitions []int32, brokers int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.topic, s.partitions, s.brokers = topic, partitions, brokers
}

// take waits for the session's turn; give ends it.
func (s *session) take(ctx context.Context) error {
	select {
	case <-s.free:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-s.m.b.closing.Done():
		return errClosed
	}
}

func (s *session) give() { s.free <- struct{}{} }

// lost begins the session anew: the broker has released what it had acquired.
func (s *session) lost() {
	s.epoch, s.known = 0, nil
	s.m.b.held.drop(func(h *held) bool { return h.session == s })
	s.m.b.topic.forget()
}

// moved forgets what was acquired of a partition if an answer shows that the broker does not lead it any
// more: whoever does hands it out at once.
func (s *session) moved(partition int32, err error) {
	if errors.Is(err, kerr.NotLeaderForPartition) || errors.Is(err, kerr.UnknownTopicOrPartition) {
		s.m.b.held.drop(func(h *held) bool { return h.session == s && h.record.Partition == partition })
	}
}

// advance follows a request that the broker has answered.
func (s *session) advance() {
	if s.epoch++; s.epoch <= 0 { // as Kafka does after the largest
		s.epoch = 1
	}
}

// fetch acquires up to most records, waiting up to wait for the first, and shelves them.
// They are released unless they are claimed within keep.
func (s *session) fetch(ctx context.Context, most int, wait, keep time.Duration) error {
	if err := s.take(ctx); err != nil {
		return err
	}
	defer s.give()
	if s.m.b.ended.Load() {
		return errClosed // behind the session's end, it would begin another
	}
	s.mu.Lock()
	topic, partitions := s.topic, s.partitions
	s.mu.Unlock()
	if s.epoch > 0 && topic != s.of {
		s.lost() // the topic was deleted and made again: nothing of the session is left
	}
	s.of = topic
	lock := s.m.b.held.lockTime()
	if err := s.portion.resting(lock, time.Now()); err != nil {
		return err
	}
	if s.portion.slow {
		s.renew()
	}
	most = s.portion.limit(most)
	req := kmsg.NewPtrShareFetchRequest()
	req.GroupID, req.MemberID, req.ShareSessionEpoch = &s.m.b.set.group, &s.m.id, s.epoch
	req.MaxWaitMillis, req.MinBytes, req.MaxBytes = int32(wait.Milliseconds()), 1, s.portion.bytes()
	req.MaxRecords, req.BatchSize, req.ShareAcquireMode = int32(most), int32(most), 1
	s.addPartitions(req, topic, partitions)
	call, cancel := context.WithTimeout(ctx, wait+max(callTimeout, lock*5/6)) // who is silent is left sooner
	defer cancel()
	began := time.Now()
	answer, err := s.m.client.Broker(int(s.broker)).Request(call, req)
	if err != nil {
		s.portion.missed(call.Err() != nil && ctx.Err() == nil, lock, time.Now())
		s.lost()
		return err
	}
	resp := answer.(*kmsg.ShareFetchResponse)
	records, size := sizeOfAnswer(resp)
	s.portion.came(records, size, time.Since(began)-wait, lock)
	if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
		s.lost()
		if sessionGone(err) {
			return nil // the next fetch begins a new one
		}
		return s.m.b.onTopic(s.m.b.onGroup(err, rightRead), rightRead, s.m.b.set.topic)
	}
	s.advance()
	s.known = partitions
	if time.Since(began) < min(wait, retryFetch) && records == 0 {
		// The log has lost its end, maybe, and the group's place is behind it: so would the next answer.
		s.m.b.pause(s.m.b.closing, retryFetch)
	}
	return s.shelve(resp, keep, began)
}

// sessionGone reports whether the broker has no session of this member any more.
func sessionGone(err error) bool {
	return errors.Is(err, kerr.ShareSessionNotFound) || errors.Is(err, kerr.InvalidShareSessionEpoch)
}

// addPartitions names the partitions that the broker does not know to be wanted, and those
// that are wanted no more.
func (s *session) addPartitions(req *kmsg.ShareFetchRequest, topic [16]byte, partitions []int32) {
	add := kmsg.NewShareFetchRequestTopic()
	add.TopicID = topic
	for _, p := range partitions {
		if !slices.Contains(s.known, p) {
			part := kmsg.NewShareFetchRequestTopicPartition()
			part.Partition = p
			add.Partitions = append(add.Partitions, part)
		}
	}
	if len(add.Partitions) > 0 {
		req.Topics = append(req.Topics, add)
	}
	forget := kmsg.NewShareFetchRequestForgottenTopicsData()
	forget.TopicID = topic
	for _, p := range s.known {
		if !slices.Contains(partitions, p) {
			forget.Partitions = append(forget.Partitions, p)
		}
	}
	if len(forget.Partitions) > 0 {
		req.ForgottenTopicsData = append(req.ForgottenTopicsData, forget)
	}
}

// shelve keeps what a fetch has acquired since a time. The session's token is held.
func (s *session) shelve(resp *kmsg.ShareFetchResponse, keep time.Duration, since time.Time) error {
	s.m.b.held.locked(time.Duration(resp.AcquisitionLockTimeoutMillis) * time.Millisecond)
	var failure, unread error
	var gaps []ack // and what cannot be read
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
				s.moved(p.Partition, err)
				if unread == nil || !kerr.IsRetriable(err) {
					unread = err
				}
				continue
			}
			s.failures = 0
			records, err := s.records(&p)
			missing := int8(saysGap)
			if err != nil { // it is there, and cannot be read
				missing = saysRelease
				failure = fmt.Errorf("kafka: %w: partition %d: %w", backend.ErrUnavailable, p.Partition, err)
			}
			for _, a := range p.AcquiredRecords {
				for offset := a.FirstOffset; offset <= a.LastOffset; offset++ {
					if r := records[offset]; r != nil {
						s.m.b.held.add(s, r, int(a.DeliveryCount), keep, since)
					} else {
						gaps = append(gaps, ack{p.Partition, offset, missing})
					}
				}
			}
		}
	}
	if unread != nil { // of many partitions, maybe
		s.m.b.topic.forget()
		if s.failures++; !kerr.IsRetriable(unread) || s.failures > leaderTries {
			failure = s.m.b.onTopic(unread, rightRead, s.m.b.set.topic)
		}
		s.m.b.pause(s.m.b.closing, retryFetch)
	} else {
		s.failures = 0 // also if nothing is new: that names no partition
	}
	if len(gaps) > 0 {
		if _, err := s.send(s.m.b.closing, gaps); err != nil {
			failure = err
		}
	}
	return failure
}

// records decodes the batches of a partition, by offset, up to one that is damaged.
func (s *session) records(p *kmsg.ShareFetchResponseTopicPartition) (map[int64]*kgo.Record, error) {
	if len(p.AcquiredRecords) == 0 {
		return nil, nil
	}
	as := kmsg.NewFetchResponseTopicPartition()
	as.Partition, as.RecordBatches, as.HighWatermark = p.Partition, p.Records, -1
	opt := kgo.ProcessFetchPartitionOpts{Topic: s.m.b.set.topic, Partition: p.Partition, Offset: p.AcquiredRecords[0].FirstOffset}
	got, _ := kgo.ProcessFetchPartition(opt, &as, kgo.DefaultDecompressor(), nil)
	records := make(map[int64]*kgo.Record, len(got.Records))
	for _, r := range got.Records {
		records[r.Offset] = r
	}
	return records, got.Err
}

// ack is what is to be said of one record.
type ack struct {
	partition int32
	offset    int64
	says      int8
}

func compareAcks(a, b ack) int {
	if a.partition != b.partition {
		return int(a.partition) - int(b.partition)
	}
	return int(max(-1, min(1, a.offset-b.offset)))
}

// settle says something of records and returns those that are not this member's any more.
// Unless the error is ErrOutcomeUnknown, nothing was said.
func (s *session) settle(ctx context.Context, list []*held, says int8) (lost []ack, err error) {
	if err := s.take(ctx); err != nil {
		return nil, err
	}
	type answer struct {
		lost []ack
		err  error
	}
	answers := make(chan answer, 1)
	// What has been sent is waited for whether the caller waits or not: only then is it
	// known which request of the session comes next.
	if !s.m.b.spawn(func() {
		defer s.give()
		acks, gone := s.acksOf(list, says)
		lost, err := s.sendEach(acks)
		answers <- answer{append(lost, gone...), err}
	}) {
		s.give()
		return nil, errClosed
	}
	select {
	case a := <-answers:
		return a.lost, a.err
	case <-ctx.Done():
		return nil, fmt.Errorf("kafka: %w: %w", backend.ErrOutcomeUnknown, ctx.Err())
	}
}

// acksOf tells what is still held from what was lost before the session's turn came: its ID may be
// that of a record that was acquired since, in a topic made again. The session's token is held.
func (s *session) acksOf(list []*held, says int8) (acks, gone []ack) {
	shelf := s.m.b.held
	shelf.each(list, func(h *held) {
		a := ack{h.record.Partition, h.record.Offset, says}
		if shelf.all[h.id] == h {
			acks = append(acks, a)
		} else {
			gone = append(gone, a)
		}
	})
	return acks, gone
}

// sendEach sends acknowledgements; those of a partition fail together, so one that fails
// is tried by itself.
func (s *session) sendEach(acks []ack) (lost []ack, err error) {
	if len(acks) == 0 {
		return nil, nil
	}
	slices.SortFunc(acks, compareAcks)
	failed, err := s.send(s.m.b.closing, acks) // err may be of other partitions
	if len(failed) == 0 || len(acks) == 1 {
		return failed, err
	}
	for _, a := range failed {
		again, unknown := s.send(s.m.b.closing, []ack{a})
		if unknown != nil {
			return lost, unknown
		}
		lost = append(lost, again...)
	}
	return lost, err
}

// send makes one request of acknowledgements, sorted, and returns those of the partitions
// that the broker refused. The session's token is held.
func (s *session) send(ctx context.Context, acks []ack) (failed []ack, err error) {
	if s.epoch == 0 {
		return acks, nil // the session that had them is gone
	}
	req := kmsg.NewPtrShareAcknowledgeRequest()
	req.GroupID, req.MemberID, req.ShareSessionEpoch = &s.m.b.set.group, &s.m.id, s.epoch
	req.IsRenewAck = slices.ContainsFunc(acks, func(a ack) bool { return a.says == saysRenew })
	topic := kmsg.NewShareAcknowledgeRequestTopic()
	s.mu.Lock()
	topic.TopicID = s.topic
	s.mu.Unlock()
	for rest := acks; len(rest) > 0; {
		n := 1
		for n < len(rest) && rest[n].partition == rest[0].partition {
			n++
		}
		part := kmsg.NewShareAcknowledgeRequestTopicPartition()
		part.Partition, part.AcknowledgementBatches = rest[0].partition, batches(rest[:n])
		topic.Partitions = append(topic.Partitions, part)
		rest = rest[n:]
	}
	req.Topics = append(req.Topics, topic)
	call, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	answer, err := s.m.client.Broker(int(s.broker)).Request(call, req)
	if err != nil {
		s.lost()
		return nil, fmt.Errorf("kafka: %w: %w", backend.ErrOutcomeUnknown, err)
	}
	resp := answer.(*kmsg.ShareAcknowledgeResponse)
	if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
		s.lost()
		if sessionGone(err) {
			return acks, nil
		}
		return nil, fmt.Errorf("kafka: %w: %w", backend.ErrOutcomeUnknown, s.m.b.onTopic(s.m.b.onGroup(err, rightRead), rightRead, s.m.b.set.topic))
	}
	s.advance()
	return s.refused(resp, acks)
}

// batches joins acknowledgements of one partition that follow each other.
func batches(acks []ack) []kmsg.ShareAcknowledgeRequestTopicPartitionAcknowledgementBatch {
	var list []kmsg.ShareAcknowledgeRequestTopicPartitionAcknowledgementBatch
	for i, a := range acks {
		if i > 0 && acks[i-1].offset+1 == a.offset && acks[i-1].says == a.says {
			list[len(list)-1].LastOffset = a.offset
			continue
		}
		b := kmsg.NewShareAcknowledgeRequestTopicPartitionAcknowledgementBatch()
		b.FirstOffset, b.LastOffset, b.AcknowledgeTypes = a.offset, a.offset, []int8{a.says}
		list = append(list, b)
	}
	return list
}

func (s *session) refused(resp *kmsg.ShareAcknowledgeResponse, acks []ack) (failed []ack, err error) {
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			why := kerr.ErrorForCode(p.ErrorCode)
			if why == nil {
				continue
			}
			if !errors.Is(why, kerr.InvalidRecordState) {
				s.m.b.topic.forget()
				s.moved(p.Partition, why)
				err = fmt.Errorf("kafka: %w: %w", backend.ErrOutcomeUnknown, s.m.b.onTopic(why, rightRead, s.m.b.set.topic))
				continue
			}
			for _, a := range acks {
				if a.partition == p.Partition {
					failed = append(failed, a)
				}
			}
		}
	}
	return failed, err
}

// end closes the session: the broker releases what it had acquired.
func (s *session) end(ctx context.Context) {
	select {
	case <-s.free:
	case <-ctx.Done():
		return // its connection ends with the handle
	}
	defer s.give()
	if s.epoch == 0 {
		return
	}
	req := kmsg.NewPtrShareAcknowledgeRequest()
	req.GroupID, req.MemberID, req.ShareSessionEpoch = &s.m.b.set.group, &s.m.id, -1
	_, _ = s.m.client.Broker(int(s.broker)).Request(ctx, req)
	s.lost()
}
