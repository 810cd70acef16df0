package api

import "slices"

// TopicType says whether a topic is a plain log or a queue with leases.
type TopicType uint8

// The two types of a topic.
const (
	TypeLog TopicType = iota
	TypeQueue
)

// String returns the type as it stands in JSON.
func (t TopicType) String() string {
	if t == TypeQueue {
		return "queue"
	}
	return "log"
}

// Discard says what a cap does: evict the oldest or refuse the newest.
type Discard uint8

// The two ways of a cap.
const (
	DiscardOld Discard = iota
	DiscardReject
)

// String returns the value as it stands in JSON.
func (d Discard) String() string {
	if d == DiscardReject {
		return "reject"
	}
	return "old"
}

// Durability is the class of a topic: when a write to it is acknowledged.
// The order is the order of strength.
type Durability uint8

// The four classes.
const (
	Ephemeral Durability = iota // visible in memory
	Memory                      // encoded for the log
	Disk                        // write(2) of its group has returned
	Fsync                       // a sync that covers it has returned
)

var durabilityNames = [...]string{"ephemeral", "memory", "disk", "fsync"}

// String returns the class as it stands in JSON.
func (d Durability) String() string { return durabilityNames[d] }

// ParseDurability reads the name of a class; false if there is none of that name.
func ParseDurability(name string) (Durability, bool) {
	i := slices.Index(durabilityNames[:], name)
	return Durability(max(i, 0)), i >= 0
}

// Config is the configuration of a topic, every field resolved.
type Config struct {
	Type                TopicType
	Discard             Discard
	Durability          Durability
	AutoPriority        bool
	AutoCreate          bool
	DedupeNode          bool
	LeasesDurable       bool
	HasPriority         bool
	HasDeadLetter       bool
	Paused              bool  // of a queue: no job is handed out
	HasPaused           bool  // of a request: Paused is given; left out, a queue stays as it is
	Priority            int32 // as sent; meaningful if HasPriority
	TTLMS               uint64
	CapRecords          uint64
	CapBytes            uint64
	IdempotencyWindowMS uint64
	LeaseMS             uint64 // clamped to [MinLeaseMS, MaxLeaseMS]
	WaitSLOMS           uint32 // of a queue: how long a job may wait; 0: no write is refused for that
	ClaimJitterMS       uint32 // clamped to [0, MaxClaimJitterMS]
	MaxDeliveries       uint64
	DeadLetter          string // meaningful if HasDeadLetter
}

// DefaultConfig returns the configuration that a PUT with an empty body gives.
func DefaultConfig() Config {
	return Config{
		Durability:          Disk,
		AutoPriority:        true,
		AutoCreate:          true,
		DedupeNode:          true,
		IdempotencyWindowMS: 120_000,
		LeaseMS:             30_000,
	}
}

// TopicCounters are the numbers of contract 5.1, exact at the moment of the answer.
type TopicCounters struct {
	HeadSeq     uint64
	EarliestSeq uint64
	Count       uint64
	Bytes       uint64
}

// TopicState is the answer to GET topic.
type TopicState struct {
	Topic             string
	Config            Config
	EffectivePriority int64
	LastWriteTS       int64 // Unix ms; 0 = never
	LastReadTS        int64 // Unix ms; 0 = never
	Queue             QueueCounters
	Overload          *Overload // nil unless the queue has a wait_slo_ms
	TopicCounters
}

// TopicEntry is one line of the topic list.
type TopicEntry struct {
	Topic             string
	Durable           bool
	EffectivePriority int64
	TopicCounters
}

// TopicList is one page of the topic list.
type TopicList struct {
	Topics []TopicEntry
	More   bool   // more names follow Last
	Last   string // the last name looked at
}

// PutTopicResult is the answer to PUT topic.
type PutTopicResult struct {
	Created bool
	Config  Config
}

// DeleteTopicResult is the answer to DELETE topic.
type DeleteTopicResult struct {
	Deleted        bool
	RoutersRemoved []string
}
