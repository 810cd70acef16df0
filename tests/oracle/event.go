package oracle

// Kind says which operation an event is.
type Kind string

// The operations of a history.
const (
	Put     Kind = "put"     // create a topic or replace its configuration
	Drop    Kind = "drop"    // delete a topic
	Route   Kind = "route"   // create a router
	Unroute Kind = "unroute" // delete a router
	Backup  Kind = "backup"  // a backup was taken, restored and read
	Write   Kind = "write"   // append one batch
	Delete  Kind = "delete"  // delete records by number or tag
	Claim   Kind = "claim"
	Ack     Kind = "ack"
	Nack    Kind = "nack"
	Extend  Kind = "extend"
	Read    Kind = "read"  // one diff
	State   Kind = "state" // GET of a topic
	Crash   Kind = "crash" // the server was killed, or the power was cut
	Ready   Kind = "ready" // the server answers again
)

// Outcome is what the client knows about an operation afterwards.
type Outcome string

// Outcomes. A failed operation must have no effect at all; one of unknown
// outcome may have happened or not, as a whole.
const (
	OK      Outcome = "ok"
	Fail    Outcome = "fail"
	Unknown Outcome = "unknown"
)

// BatchID names a batch: the writer and its running number.
type BatchID struct {
	Writer uint32 `json:"w"`
	N      uint64 `json:"n"`
}

// Rec is a record as a reader saw it, reduced to its number, time, id and a
// hash over every byte of data, tag, node and meta.
type Rec struct {
	Seq   uint64  `json:"seq"`
	TS    int64   `json:"ts"` // epoch ms
	Batch BatchID `json:"b"`
	I     int     `json:"i"` // place in the batch
	Size  int     `json:"z"` // records in the batch
	Hash  uint64  `json:"h"`
	Bytes int     `json:"bytes"`         // length of data and meta
	Bad   string  `json:"bad,omitempty"` // the text, if it carries no id

	// Of a dead letter: the queue it came from and its number there.
	From    string `json:"dl_from,omitempty"`
	FromSeq uint64 `json:"dl_seq,omitempty"`

	// Of a copy that an exactly_once router made: the router, its source and
	// the number there. Copies of other routers carry no mark.
	Router    string `json:"router,omitempty"`
	Source    string `json:"src,omitempty"`
	SourceSeq uint64 `json:"src_seq,omitempty"`
}

// Router is the part of a router's configuration that the checker needs.
type Router struct {
	Name        string `json:"name"`
	Source      string `json:"source"`
	Dest        string `json:"dest"`
	Tag         string `json:"tag,omitempty"` // only records with this tag are copied
	DropNode    bool   `json:"drop_node,omitempty"`
	ExactlyOnce bool   `json:"exactly_once,omitempty"`
}

// Job is a claimed record with its lease.
type Job struct {
	Rec
	Lease      string `json:"lease"`
	Deadline   int64  `json:"deadline"` // epoch ms
	Deliveries int    `json:"deliveries"`
}

// Item is one number of an ack, nack or extend and the lease it was sent with.
type Item struct {
	Seq      uint64 `json:"seq"`
	Lease    string `json:"lease"`
	Accepted bool   `json:"accepted,omitempty"`
	Deadline int64  `json:"deadline,omitempty"` // new deadline of an extend, epoch ms
}

// Tomb is a tombstone of a read.
type Tomb struct {
	From   uint64 `json:"from"`
	To     uint64 `json:"to"`
	Reason string `json:"reason"`
}

// Config is the part of a topic's configuration that the checker needs.
type Config struct {
	Queue         bool   `json:"queue,omitempty"`
	Class         string `json:"class"` // ephemeral, memory, disk, fsync
	CapRecords    uint64 `json:"cap_records,omitempty"`
	CapBytes      uint64 `json:"cap_bytes,omitempty"`
	TTLMS         uint64 `json:"ttl_ms,omitempty"`
	Reject        bool   `json:"reject,omitempty"`
	MaxDeliveries int    `json:"max_deliveries,omitempty"`
	DeadLetter    string `json:"dead_letter,omitempty"`
	LeasesDurable bool   `json:"leases_durable,omitempty"`
	LeaseMS       int    `json:"lease_ms,omitempty"`
}

// Event is one operation of a history. Fields that its kind does not name are
// zero. Invoke and Return are nanoseconds of the epoch on the client's clock,
// which is also the server's: both run on one machine.
type Event struct {
	Kind    Kind    `json:"kind"`
	Topic   string  `json:"topic,omitempty"`
	Node    string  `json:"node,omitempty"`
	Invoke  int64   `json:"invoke"`
	Return  int64   `json:"return"`
	Outcome Outcome `json:"outcome"`
	Note    string  `json:"note,omitempty"` // status or error of the answer

	Config *Config `json:"config,omitempty"` // put, and state if the answer told it
	Router *Router `json:"router,omitempty"` // route, unroute

	// Copy is what a restored backup answers: reads of each topic from cursor 0
	// on, and its state, as quiet events without times.
	Copy []Event `json:"copy,omitempty"`

	Batch   BatchID `json:"batch,omitzero"` // write
	Size    int     `json:"size,omitempty"`
	Key     string  `json:"key,omitempty"`
	First   uint64  `json:"first,omitempty"`
	Last    uint64  `json:"last,omitempty"`
	Deduped bool    `json:"deduped,omitempty"`
	Delays  []int64 `json:"delays,omitempty"` // delay_ms of each record, nil if none has one

	Before uint64 `json:"before,omitempty"` // delete: numbers below
	Tag    string `json:"tag,omitempty"`    // delete: this tag

	Max   int    `json:"max,omitempty"`   // claim: 0 if it may leave jobs that are ready
	Jobs  []Job  `json:"jobs,omitempty"`  // claim
	Items []Item `json:"items,omitempty"` // ack, nack, extend

	From     uint64 `json:"from,omitempty"` // read
	Next     uint64 `json:"next,omitempty"`
	Recs     []Rec  `json:"recs,omitempty"`
	Tomb     *Tomb  `json:"tomb,omitempty"`
	Head     uint64 `json:"head,omitempty"` // write, read, state, delete
	Earliest uint64 `json:"earliest,omitempty"`

	Count uint64 `json:"count,omitempty"` // state
	Bytes uint64 `json:"bytes,omitempty"`

	// Quiet marks a read or state while no other operation ran. Quiet reads of
	// a topic come in order from cursor 0 on, and its quiet state after them. A
	// quiet state that fails says that the topic is not there.
	Quiet bool `json:"quiet,omitempty"`

	Power bool `json:"power,omitempty"` // crash: unsynced bytes are gone too
}
