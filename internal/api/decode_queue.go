package api

import "math"

// NoLease represents a lease id in a request that is well formed but that no lease ever
// has.
const NoLease uint64 = math.MaxUint64

const (
	claimNode = 1 << iota
	claimMax
	claimLease
	claimWait
)

var (
	claimFields  = []string{"node", "max", "lease_ms", "wait_ms"}
	settleFields = [...][]string{
		SettleAck:    {"node", "seqs", "lease_ids"},
		SettleNack:   {"node", "seqs", "lease_ids", "delay_ms", "started"},
		SettleExtend: {"node", "seqs", "lease_ids", "lease_ms"},
	}
)

// DecodeClaim reads the body of a claim and applies defaults and clamps. CheckClaim
// checks the value of node.
func DecodeClaim(body []byte, lim *Limits, warn *Warnings) (ClaimRequest, error) {
	c := ClaimRequest{Max: 1}
	s := scanner{b: body, index: -1, warnings: warn}
	s.claim(lim, &c, claimFields)
	return c, s.finish()
}

func (s *scanner) claim(lim *Limits, c *ClaimRequest, known []string) {
	var seen uint32
	s.body(known, func(name []byte) bool {
		switch string(name) {
		case "node":
			if s.once(&seen, claimNode, "node") {
				c.Node = string(s.text("node", acceptString))
			}
		case "max":
			if s.once(&seen, claimMax, "max") {
				c.Max = int(min(max(s.uint("max", maxUint32), 1), uint64(lim.MaxClaim)))
			}
		case "lease_ms":
			if s.once(&seen, claimLease, "lease_ms") && !s.null() {
				c.LeaseMS, c.HasLease = clampLease(s.uint("lease_ms", maxUint64)), true
			}
		case "wait_ms":
			if s.once(&seen, claimWait, "wait_ms") {
				c.WaitMS = uint32(min(s.uint("wait_ms", maxUint32), MaxWaitMS))
			}
		default:
			return false
		}
		return true
	})
	if seen&claimNode == 0 {
		s.missing("node", acceptNode)
	}
}

const acceptNode = "the name of the worker, a string that is not empty"

// CheckClaim checks the node of a claim; the topic comes first (contract 18).
func CheckClaim(c *ClaimRequest, lim *Limits) error {
	switch n := len(c.Node); {
	case n == 0:
		return Errorf(CodeInvalidRequest, "field \"node\" is empty; it must be %s", acceptNode)
	case n > lim.MaxNodeBytes:
		return Errorf(CodeInvalidRequest, "field \"node\" is %d bytes long; %d are accepted", n, lim.MaxNodeBytes)
	}
	return nil
}

// SettleKind says which of the three calls a SettleRequest is for.
type SettleKind uint8

// The three ways to settle a lease.
const (
	SettleAck SettleKind = iota
	SettleNack
	SettleExtend
)

const (
	settleNode = 1 << iota
	settleSeqs
	settleLeaseIDs
	settleDelay
	settleStarted
	settleLease
)

// settleState is what DecodeSettle remembers to report errors in order.
type settleState struct {
	seqs       int // how many the body contains, stored or not
	badLease   int // index of the first malformed lease id, -1
	seen       uint32
	maxEntries int
}

// DecodeSettle reads the body of ack, nack or extend into r, which it resets first but
// whose slices it reuses. It makes all checks that precede the topic's, in the order of
// contract 18: JSON, form of the lease ids, empty node, too many seqs, length of
// lease_ids.
func DecodeSettle(kind SettleKind, body []byte, lim *Limits, r *SettleRequest, warn *Warnings) error {
	*r = SettleRequest{Seqs: r.Seqs[:0], LeaseIDs: r.LeaseIDs[:0]}
	s := scanner{b: body, index: -1, warnings: warn}
	st := settleState{badLease: -1, maxEntries: lim.MaxClaim}
	s.settle(kind, r, &st, settleFields[kind])
	s.end()
	if s.err != nil {
		return s.err
	}
	return st.check(r, lim)
}

// check makes the checks behind those of the JSON.
func (st *settleState) check(r *SettleRequest, lim *Limits) error {
	switch {
	case st.badLease >= 0:
		return Errorf(CodeInvalidRequest, "field \"lease_ids[%d]\" must be \"lease_\" and hexadecimal digits as the claim gave it, or \"\"", st.badLease)
	case r.Node == "":
		return Errorf(CodeInvalidRequest, "field \"node\" is empty; it must be %s", acceptNode)
	case st.seqs > lim.MaxClaim:
		return Errorf(CodeBatchTooLarge, "field \"seqs\" holds %d numbers; %d are accepted", st.seqs, lim.MaxClaim).
			With("seqs", st.seqs).With("max", lim.MaxClaim)
	case r.NumLeaseIDs > 0 && r.NumLeaseIDs != st.seqs:
		return Errorf(CodeInvalidRequest, "field \"lease_ids\" holds %d ids for %d seqs; leave it out or send one for each", r.NumLeaseIDs, st.seqs)
	}
	return nil
}

func (s *scanner) settle(kind SettleKind, r *SettleRequest, st *settleState, known []string) {
	s.body(known, func(name []byte) bool {
		switch string(name) {
		case "node":
			if s.once(&st.seen, settleNode, "node") {
				r.Node = string(s.text("node", acceptString))
			}
		case "seqs":
			if s.once(&st.seen, settleSeqs, "seqs") {
				s.seqs(r, st)
			}
		case "lease_ids":
			if s.once(&st.seen, settleLeaseIDs, "lease_ids") {
				s.leaseIDs(r, st)
			}
		default:
			return s.settleExtra(kind, name, r, st)
		}
		return true
	})
	if st.seen&settleNode == 0 {
		s.missing("node", acceptNode)
	}
	if st.seen&settleSeqs == 0 {
		s.missing("seqs", acceptSeqs)
	}
	if kind == SettleExtend && st.seen&settleLease == 0 {
		s.missing("lease_ms", "the new length of the leases in milliseconds")
	}
}

// settleExtra reads the fields that only one kind knows.
func (s *scanner) settleExtra(kind SettleKind, name []byte, r *SettleRequest, st *settleState) bool {
	switch {
	case kind == SettleNack && string(name) == "delay_ms":
		if s.once(&st.seen, settleDelay, "delay_ms") {
			r.DelayMS = min(s.uint("delay_ms", maxUint64), MaxNackDelayMS)
		}
	case kind == SettleNack && string(name) == "started":
		if s.once(&st.seen, settleStarted, "started") {
			r.NotStarted = !s.bool("started")
		}
	case kind == SettleExtend && string(name) == "lease_ms":
		if s.once(&st.seen, settleLease, "lease_ms") {
			r.LeaseMS = clampLease(s.uint("lease_ms", maxUint64))
		}
	default:
		return false
	}
	return true
}

const acceptSeqs = "an array of sequence numbers"

// seqs counts all numbers but stores only as many as can be accepted.
func (s *scanner) seqs(r *SettleRequest, st *settleState) {
	if !s.open('[') {
		s.wrong("seqs", acceptSeqs)
		return
	}
	for ; s.element(); st.seqs++ {
		seq := s.uint("seqs", maxUint64)
		if len(r.Seqs) < st.maxEntries {
			r.Seqs = append(r.Seqs, seq)
		}
	}
}

const acceptLeaseIDs = "an array of strings"

func (s *scanner) leaseIDs(r *SettleRequest, st *settleState) {
	if !s.open('[') {
		s.wrong("lease_ids", acceptLeaseIDs)
		return
	}
	for ; s.element(); r.NumLeaseIDs++ {
		text := s.text("lease_ids", acceptLeaseIDs)
		s.scratch = s.scratch[:0]
		id, ok := parseLeaseID(text)
		if !ok && st.badLease < 0 {
			st.badLease = r.NumLeaseIDs
		}
		if len(r.LeaseIDs) < st.maxEntries {
			r.LeaseIDs = append(r.LeaseIDs, id)
		}
	}
}

const leasePrefix = "lease_"

// parseLeaseID reads lease_<hex>; "" is 0, no check. A spelling that this server never
// sends (upper case, leading zeros, more than 64 bits) is NoLease: ids are compared as
// strings, and a fence must not open for a look-alike.
func parseLeaseID(text []byte) (id uint64, ok bool) {
	if len(text) == 0 {
		return 0, true
	}
	if len(text) <= len(leasePrefix) || string(text[:len(leasePrefix)]) != leasePrefix {
		return 0, false
	}
	digits := text[len(leasePrefix):]
	canonical := digits[0] != '0' && len(digits) <= 16
	for _, c := range digits {
		d, ok := hexDigit(c)
		if !ok {
			return 0, false
		}
		id = id<<4 | uint64(d)
		canonical = canonical && (c < 'A' || c > 'F')
	}
	if !canonical {
		return NoLease, true
	}
	return id, true
}
