package api

import "time"

// Overload is what a queue with a wait_slo_ms takes now.
type Overload struct {
	Wait    time.Duration    // that a job which comes now is expected to have; -1: not known
	Drain   float64          // jobs done per second while jobs wait; 0: not known
	Refused float64          // share of what is offered
	Lowest  Tier             // the lowest tier of which more than the floor passes
	Tiers   [Tiers]TierCount // by rank
}

// TierCount is how many records of a tier clients wanted to write.
type TierCount struct{ Offered, Refused int64 }

// QueueCounters are the counters of contract 11.7.
type QueueCounters struct {
	Ready        uint64
	InFlight     uint64
	Delayed      uint64 // not claimable yet
	Scheduled    uint64 // of these, never claimed: they came with a delay_ms
	DeadLettered uint64
}

// ClaimRequest is the body of a claim, with defaults and clamps applied.
type ClaimRequest struct {
	Node     string
	Max      int
	LeaseMS  uint64
	HasLease bool // false: the topic's lease_ms
	WaitMS   uint32
	MaxBytes int64 // of data and meta, at least one job; 0: MaxClaimBytes
}

// Job is one claimed job. Record's slices are valid only during the visit.
type Job struct {
	Record
	LeaseID    uint64 // written as lease_<hex>
	Deadline   int64  // Unix ms
	Deliveries uint64
}

// ClaimResult is the answer to a claim without its jobs, which are visited.
type ClaimResult struct {
	Count  int
	Ready  uint64
	Waits  bool          // it was one with a wait_ms
	Waited time.Duration // until its leases began
}

// SettleRequest is the body of ack, nack and extend.
type SettleRequest struct {
	Node     string
	Seqs     []uint64
	LeaseIDs []uint64 // empty: match by node only; 0 = no check for that one
	// NumLeaseIDs is how many lease ids the body had, for the length check.
	NumLeaseIDs int
	DelayMS     uint64 // nack only
	NotStarted  bool   // nack only: no handler began the job
	LeaseMS     uint64 // extend only, clamped
}

// HeldJob is a claimed job as its worker has it. The receiver owns it.
type HeldJob struct {
	Record
	Lease      string // the fence, opaque
	Deliveries uint64
}

// Settlement is an ack, a nack or an extension as requested by the holder of the jobs.
type Settlement struct {
	Kind       SettleKind
	Node       string
	Seqs       []uint64
	Leases     []string      // one for each of Seqs
	Delay      time.Duration // nack only
	NotStarted bool          // nack only: no handler began the job
	Lease      time.Duration // extend only
}

// SettleResult is the answer to ack, nack and extend.
type SettleResult struct {
	Done      int // acked, nacked or extended
	Skipped   []uint64
	Deadlines []Deadline // extend only
	Ready     uint64
	InFlight  uint64
	SyncMS    float64
	Synced    bool // the ack waited for a sync
}

// Deadline is the new end of one extended lease.
type Deadline struct {
	Seq uint64
	At  int64 // Unix ms
}
