package kafka

import (
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weirmq/weir/backend"
)

// portion is how much a session asks for at once. What a fetch acquires is locked from then on, not from when its
// answer has come: over a link that takes longer than the locks for it, all would come in vain, count as delivered,
// and be asked for again, until the brokers drop it. So the first fetch asks for few bytes, each that comes in a small
// part of the locks' time is followed by a larger one, and one that does not by a smaller.
type portion struct {
	most    int32 // bytes; brokers give a whole batch, however large it is, and sometimes two
	records int   // 0: any number
	// slow says that the last answer took a good part of the locks' time: while the next one comes, nothing of what
	// is held can be renewed.
	slow bool
	late int       // answers in a row that did not come while the locks held
	rest time.Time // until then nothing is asked for
}

const (
	leastPortion = 256 << 10
	mostPortion  = 32 << 20
	// anyRecords are too many for a limit.
	anyRecords = 1000
	// lateMost is how many answers may be late before the session rests, longer each time and restMost at most: what
	// is in them counts as delivered, and brokers drop it at their limit.
	lateMost = 3
	restMost = 10 * time.Minute
)

func (p *portion) bytes() int32 { return max(leastPortion, p.most) }

// limit is how many records are asked for where so many are wanted.
func (p *portion) limit(wanted int) int {
	if p.records == 0 {
		return wanted
	}
	return min(wanted, p.records)
}

// came follows an answer that took so long.
func (p *portion) came(records, size int, took, lock time.Duration) {
	p.late = 0
	if p.slow = took > lock/8; p.slow {
		p.most, p.records = int32(min(size, mostPortion)/2), max(1, records/2)
		return
	}
	if size >= int(p.bytes()/2) {
		p.most = min(2*p.bytes(), mostPortion)
	}
	if records >= p.records {
		if p.records *= 2; p.records >= anyRecords {
			p.records = 0
		}
	}
}

// missed follows a fetch without an answer; late says that its time was over, not that the broker was silent.
func (p *portion) missed(late bool, lock time.Duration, now time.Time) {
	n := 0
	if late {
		n = p.late + 1
	}
	*p = portion{records: 1, slow: true, late: n}
	if n >= lateMost {
		p.rest = now.Add(min(lock<<min(n-lateMost, 10), restMost))
	}
}

// resting is what a fetch says meanwhile.
func (p *portion) resting(lock time.Duration, now time.Time) error {
	if !now.Before(p.rest) {
		return nil
	}
	return fmt.Errorf("kafka: %w: the link brings no message in the time for which the brokers lock it, %s (share.record.lock.duration.ms of the group); the next try is in %s",
		backend.ErrUnavailable, lock, p.rest.Sub(now).Round(time.Second))
}

// sizeOfAnswer is how many records a fetch has acquired, and how many bytes came with them.
func sizeOfAnswer(resp *kmsg.ShareFetchResponse) (records, size int) {
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			size += len(p.Records)
			for _, a := range p.AcquiredRecords {
				records += int(a.LastOffset - a.FirstOffset + 1)
			}
		}
	}
	return records, size
}

// renew renews the locks of all that the session holds. Its token is held.
func (s *session) renew() {
	shelf := s.m.b.held
	list := shelf.heldBy(s)
	acks, _ := s.acksOf(list, saysRenew)
	gone, err := s.sendEach(acks)
	if err != nil {
		return // with a session that has ended, its records are gone already
	}
	shelf.takeLost(list, idsOf(gone))
}

// heldBy returns what was acquired from a broker.
func (s *shelf) heldBy(from *session) (list []*held) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, h := range s.all {
		if h.session == from {
			list = append(list, h)
		}
	}
	return list
}

// takeLost forgets those of a list that the broker has given to others. Of what is being settled the answer tells.
func (s *shelf) takeLost(list []*held, lost []string) {
	gone := make(map[string]bool, len(lost))
	for _, id := range lost {
		gone[id] = true
	}
	s.each(list, func(h *held) {
		if gone[h.id] && h.stage != settling {
			s.remove(h)
		}
	})
}
