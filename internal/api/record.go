package api

import "math"

// Record is one stored record. The byte slices may be borrowed: whoever hands out a
// Record says how long they are valid.
type Record struct {
	Seq     uint64
	TS      int64 // Unix ms of the commit
	HasNode bool
	HasTag  bool
	Hops    uint8  // how many times routers have copied it; never sent
	Tier    Tier   // among the jobs of a queue
	Node    []byte // the decoded string
	Tag     []byte // the decoded string; may be empty though HasTag is set
	FairKey []byte // the decoded string: whom the job is for; empty if none
	Data    []byte // compact JSON text, never empty
	Meta    []byte // compact JSON object, empty if none
	Delay   uint64 // ms, of a write to a queue: nobody may claim it earlier; not kept with the record
}

// Size is what the record counts in bytes, caps and limits: data plus meta.
func (r *Record) Size() int { return len(r.Data) + len(r.Meta) }

// WriteRequest is the body of a write. Its records are in order; their slices may point
// into the body, which must not change until the write has returned.
type WriteRequest struct {
	Records             []Record
	Node                []byte // default origin; the decoder has already applied it to the records
	IdempotencyKey      []byte
	HasIdempotencyKey   bool
	Create              *bool
	Config              *Config // nil unless given; resolved over the defaults
	DisableBackpressure bool

	create  bool   // what Create points to
	config  Config // what Config points to
	scratch []byte // decoded strings that are not in the body
}

// Reset empties the request and releases the body. It keeps room for a typical batch,
// so that a pooled request decodes without allocating.
func (w *WriteRequest) Reset() {
	records, scratch := w.Records, w.scratch
	clear(records)
	if cap(records) > keepRecords {
		records = nil
	}
	if cap(scratch) > keepScratch {
		scratch = nil
	}
	*w = WriteRequest{Records: records[:0], scratch: scratch[:0]}
}

// What a WriteRequest keeps across a Reset: records, about 150 bytes each, and scratch
// bytes.
const (
	keepRecords = 1024
	keepScratch = 64 << 10
)

// WriteResult is the answer to a write.
type WriteResult struct {
	FirstSeq uint64
	LastSeq  uint64
	HeadSeq  uint64
	Count    int
	Created  bool
	Deduped  bool
	// KeyReused is set if the key came with other records before.
	KeyReused bool
	AppendMS  float64 // time spent writing the group to the operating system
	SyncMS    float64 // time spent waiting for the sync; 0 unless the class is fsync
	// ThrottleMS is how long admission held the call; 0 if it did not.
	ThrottleMS float64
}

// WriteOutcome is the outcome of one of several writes.
type WriteOutcome struct {
	WriteResult
	Err error // nil if it is stored
}

// DiffRequest is the body of a diff, with defaults and clamps applied.
type DiffRequest struct {
	FromSeq       uint64
	Limit         int
	Nodes         []string // empty: no filter
	IncludeTags   bool
	IncludeMeta   bool
	OmitData      bool // include_data is false
	WaitMS        uint32
	MaxBatchBytes int64
	Relay         bool // the answer says which life of the topic it is of
}

// TombstoneReason says why a range is gone. The range is binding, the reason is
// informative.
type TombstoneReason string

// The reasons of contract 5.3.
const (
	ReasonCap        TombstoneReason = "cap"
	ReasonTTL        TombstoneReason = "ttl"
	ReasonMixed      TombstoneReason = "mixed"
	ReasonRecreated  TombstoneReason = "recreated"
	ReasonSourceTrim TombstoneReason = "source_trim"
	ReasonCrash      TombstoneReason = "crash"
	// ReasonFromSeqTooOld is the reason of the first gap a stream announces.
	ReasonFromSeqTooOld TombstoneReason = "from_seq_too_old"
)

// Tombstone marks a range that was lost against the reader's will.
type Tombstone struct {
	GapFrom, GapTo uint64 // inclusive
	Reason         TombstoneReason
	MissedEstimate uint64
	EarliestSeq    uint64
	HeadSeq        uint64
}

// DiffResult is the answer to a diff without its records, which are visited.
type DiffResult struct {
	NextFromSeq    uint64
	HeadSeq        uint64
	EarliestSeq    uint64
	Tombstone      *Tombstone
	RecordsScanned int
	Life           uint64 // of the topic, for a relay; 0 for everyone else
}

// CaughtUp reports whether the reader has seen everything up to the head.
func (r *DiffResult) CaughtUp() bool { return r.NextFromSeq == r.HeadSeq }

// Lag is how many sequence numbers lie between the reader and the head.
func (r *DiffResult) Lag() uint64 { return r.HeadSeq - r.NextFromSeq }

// Predicate selects records by tag.
type Predicate struct {
	Glob  bool
	Value string // without the star of a Glob
}

// Match reports whether a record with this tag is selected; a record without
// a tag never is.
func (p *Predicate) Match(hasTag bool, tag []byte) bool {
	if !hasTag {
		return false
	}
	if p.Glob {
		return len(tag) >= len(p.Value) && string(tag[:len(p.Value)]) == p.Value
	}
	return string(tag) == p.Value
}

// DeleteRequest is the body of delete records; at least one selector is set.
type DeleteRequest struct {
	HasBefore bool
	BeforeSeq uint64
	MinSeq    uint64 // no selector; 0: from the first record on
	Match     *Predicate
}

// DeleteResult is the answer to delete records.
type DeleteResult struct {
	Deleted uint64
	TopicCounters
}

// NoSeq is larger than every sequence number.
const NoSeq uint64 = math.MaxUint64
