package fake

import (
	"fmt"
	"slices"
	"strconv"
)

// Claimed is one job with its lease.
type Claimed struct {
	Record
	Lease      string
	Deadline   int64
	Deliveries int
}

func (t *topic) job(seq uint64) *job {
	j := t.jobs[seq]
	if j == nil {
		j = &job{}
		t.jobs[seq] = j
	}
	return j
}

// Claim leases up to n jobs to node.
func (s *Server) Claim(name, node string, n int, leaseMS int64) (out []Claimed) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, now := s.topic(name), s.ms()
	if leaseMS == 0 {
		leaseMS = max(t.cfg.LeaseMS, 100)
	}
	for _, r := range slices.Clone(t.live) {
		if len(out) == n {
			break
		}
		j := t.job(r.Seq)
		if j.lease != "" && now <= j.deadline && s.Break != DoubleLease || now < j.notBefore {
			continue
		}
		limit := t.cfg.MaxDeliveries
		if s.Break == ExtraDelivery {
			limit++
		}
		if t.cfg.MaxDeliveries > 0 && t.cfg.DeadLetter != nil && j.deliveries >= limit {
			s.bury(name, t, r, j)
			continue
		}
		s.leases++
		j.lease, j.node, j.deadline = fmt.Sprintf("lease_%x", s.leases), node, now+leaseMS
		j.deliveries++
		out = append(out, Claimed{*r, j.lease, j.deadline, j.deliveries})
	}
	return out
}

func (s *Server) bury(name string, t *topic, r *Record, j *job) {
	d := s.topics[*t.cfg.DeadLetter]
	if d == nil {
		d = newTopic(Config{Durability: t.cfg.Durability})
		s.topics[*t.cfg.DeadLetter] = d
	}
	d.buried = true
	copied := *r
	extra := fmt.Sprintf(`"$dead_letter_from":%s,"$dead_letter_deliveries":"%d","$dead_letter_src_seq":"%d"}`,
		strconv.Quote(name), j.deliveries, r.Seq)
	if r.Meta == "" {
		copied.Meta = "{" + extra
	} else {
		copied.Meta = r.Meta[:len(r.Meta)-1] + "," + extra
	}
	if s.Break != LoseDeadLetter {
		d.append(copied, s.ms())
	}
	t.remove(r.Seq)
	t.dead++
}

func (t *topic) remove(seq uint64) {
	t.live = slices.DeleteFunc(t.live, func(r *Record) bool { return r.Seq == seq })
	delete(t.jobs, seq)
}

// Settle acks, nacks or extends and returns the numbers it skipped and, for
// extend, the new deadline.
func (s *Server) Settle(verb, name, node string, seqs []uint64, leases []string, delay, leaseMS int64) (skipped []uint64, deadline int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.forward()
	t, now := s.topic(name), s.ms()
	skipped = []uint64{}
	for i, seq := range seqs {
		j := t.jobs[seq]
		held := j != nil && j.lease != "" && now <= j.deadline && j.node == node && (len(leases) == 0 || leases[i] == j.lease)
		if s.Break == StaleAck && j != nil && verb == "ack" {
			held = true
		}
		if !held {
			skipped = append(skipped, seq)
			continue
		}
		switch verb {
		case "ack":
			t.remove(seq)
		case "nack":
			j.lease, j.notBefore = "", now+delay
		case "extend":
			j.deadline = now + leaseMS
			deadline = j.deadline
		}
	}
	return skipped, deadline
}
