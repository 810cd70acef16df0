// Package backend is the seam between weir's library and what stores its
// messages: the nouns both sides speak, the errors that a backend may return, and
// the Backend interface.
//
// The layers above (guard, pool, sampler) are written once against this seam.
// Package backendtest is the suite that every backend has to pass.
package backend

import (
	"context"
	"io"
	"time"
)

// Message is what a producer appends.
type Message struct {
	// Data is the payload, opaque to weir. It is neither changed nor kept after
	// Append returns.
	Data []byte
	// Headers travel with the payload. Names that start with "weir-" are weir's
	// own and refused by a Producer.
	Headers map[string]string
	// Priority is the tier; the zero value is Normal.
	Priority Priority
	// FairKey names whom the message is sent for (a tenant, say), so that one of
	// many cannot take all the room. Empty: nobody in particular.
	FairKey string
	// IdempotencyKey makes a repeated append of the same message harmless within
	// the backend's window. Empty: every append stores.
	IdempotencyKey string
}

// Lease is the right to finish one delivery.
type Lease struct {
	ID       string    // the message's, opaque; unique in its stream
	Token    string    // the backend's fence, opaque; may be empty
	Consumer string    // who claimed it
	Attempt  int       // how often the message has been delivered, this delivery included
	Since    time.Time // by this process's clock, not later than the claim or the last Extend took effect
}

// Delivery is one handing of a message to a worker.
type Delivery struct {
	Lease
	Data     []byte            // the payload; the receiver owns it
	Headers  map[string]string // without the ones that only the backend needs; nil if there are none
	Enqueued time.Time         // when the message was published; zero if nothing says so
}

// ClaimRequest says what a worker wants. All fields but Block are required.
type ClaimRequest struct {
	Consumer string
	Max      int // most deliveries
	// Block is how long to wait for the first delivery; 0 does not wait.
	Block time.Duration
	// ReclaimAfter is how long a delivery may go without Ack, Nack or Extend
	// before it is anybody's.
	ReclaimAfter time.Duration
	// MaxDeliveries is the delivery limit; 0 is none.
	MaxDeliveries int
	// DeadLetter is where messages past the limit go; empty: Info.DeadLetter.
	DeadLetter string
}

// Claimed is the answer to a claim. Reclaimed deliveries come first.
type Claimed struct {
	Deliveries []*Delivery
	// Reclaimed is how many of the Deliveries another delivery was given up for.
	Reclaimed int
	// Dead are the messages that this claim moved to the dead letters. A large one
	// may come without its Data.
	Dead []DeadLetter
	// Lost are the IDs of messages whose data was gone when they were reclaimed:
	// somebody trimmed or deleted them before they were acknowledged.
	Lost []string
}

// Return is a delivery given back.
type Return struct {
	Lease
	// Delay is how long nobody may claim the message.
	Delay time.Duration
	// NotStarted says that no handler began: the delivery does not count.
	NotStarted bool
	// Error is what the handler returned; it is kept for the dead letter where
	// the backend can, and may be cut to MaxErrorBytes.
	Error string
}

// MaxErrorBytes bounds the text of an error that is stored with a message.
const MaxErrorBytes = 1024

// Reasons of dead letters.
const (
	ReasonMaxDeliveries = "max_deliveries" // delivered as often as allowed, never acknowledged
	ReasonPoison        = "poison"         // the handler said that no try can help
)

// DeadLetter is a message that was moved aside.
type DeadLetter struct {
	ID       string // in the dead-letter stream
	Data     []byte
	Headers  map[string]string
	Stream   string // where it came from
	Group    string
	OriginID string
	Attempts int
	Reason   string // ReasonMaxDeliveries or ReasonPoison
	Error    string // the last one, empty if none is known
	Consumer string // who had it last, empty if not known
	Redrives int    // how often it has been sent back before
	Enqueued time.Time
	DeadAt   time.Time
}

// Stats is one reading of a stream and its group.
type Stats struct {
	At      time.Time // by the server's clock
	XLen    int64     // entries stored, done ones included: storage, not work
	Pending int64     // delivered, not acknowledged
	Lag     *int64    // not delivered yet; nil: the server does not know, which is not 0
	// Behind is, where Lag is nil, how many entries were counted behind the last
	// delivered one; counting ends at some thousands.
	Behind int64

	OldestAge    time.Duration // of the oldest message with work left; 0 with AgeNone and AgeUnknown
	OldestSource AgeSource
	Approx       bool // OldestAge is an estimate

	// Workers is how many consumers the group has; nil: not known.
	Workers *int64
	// DeadLetters is how many there are in Info.DeadLetter; nil: not known.
	DeadLetters *int64
}

// AgeSource says where Stats.OldestAge was read.
type AgeSource string

// The sources of an age, as the sample prints them.
const (
	AgePending   AgeSource = "pending"           // the time of publishing of the oldest pending message
	AgeBacklog   AgeSource = "backlog"           // the same of the first message not delivered
	AgePendingID AgeSource = "pending_stream_id" // the ID of the oldest pending message
	AgeBacklogID AgeSource = "backlog_stream_id" // the ID of the first message not delivered
	AgeNone      AgeSource = "none"              // there is no work
	AgeUnknown   AgeSource = "unknown"           // there is work whose age cannot be read
)

// Info describes an open backend. It never holds a secret.
type Info struct {
	Kind       string // "redis", "kafka", "embedded" or "http"
	Stream     string
	Group      string
	DeadLetter string // where dead letters go unless a claim says otherwise
	Durability string // what an acknowledged append survives: "fsync", "disk", "memory" or "ephemeral"
	Server     string // product and version, or where it is; for people
}

// Backend is one stream and one group on it. It is safe for use by many
// goroutines. Every call returns soon after its context has ended.
//
// Errors: a call that the server refused or never got wraps the errors of this
// package where one fits. Append and the settling calls wrap ErrOutcomeUnknown if the
// server may have done what was asked.
type Backend interface {
	// Append stores messages in order. On an error the results, if there are any,
	// say for each message what became of it; none means that the error holds for all.
	Append(ctx context.Context, msgs []Message) ([]Appended, error)

	// Claim hands out orphans first, then new messages. It never hands out a
	// message past the delivery limit: it moves it to the dead letters instead,
	// and acknowledges it only once it is stored there. A claim that a context
	// ended holds nothing that it did not return for longer than ReclaimAfter.
	Claim(ctx context.Context, req ClaimRequest) (Claimed, error)

	// Extend keeps leases for d from now on. It returns the IDs of those that are
	// not held any more.
	Extend(ctx context.Context, leases []Lease, d time.Duration) (lost []string, err error)

	// Ack completes deliveries. It returns the IDs of those that somebody else
	// holds by now; a lease younger than half of its ReclaimAfter need not be checked.
	Ack(ctx context.Context, leases []Lease) (lost []string, err error)

	// Nack gives deliveries back. A lease that is not held any more is left alone
	// and returned.
	Nack(ctx context.Context, returns []Return) (lost []string, err error)

	// DeadLetter moves a delivery to the dead letters in to (empty: the default).
	// It stores it there before the message is acknowledged, in one step where
	// the backend can. ErrLeaseLost: somebody else holds it; nothing was moved.
	DeadLetter(ctx context.Context, d *Delivery, to string, cause Cause) error

	// Stats reads the stream. ErrStreamNotFound and ErrGroupNotFound say what is missing.
	Stats(ctx context.Context) (Stats, error)

	Info() Info

	// Close frees what the backend holds. Calls under way end with an error.
	io.Closer
}

// Appended is what became of one message.
type Appended struct {
	ID      string // set if it is stored
	Deduped bool   // an earlier append with the same key had stored it
	Err     error  // nil if it is stored
}

// Cause is why a message is moved aside.
type Cause struct {
	Reason string // ReasonMaxDeliveries or ReasonPoison
	Error  string
}

// Signaler is a backend through which workers tell producers how loaded they
// are. Without it a producer reads Stats.
type Signaler interface {
	// Signal reads, in one round trip, what a guard needs. A backend that does not
	// know its lag counts what was not delivered, up to most messages.
	Signal(ctx context.Context, most int64) (Signal, error)
	// PublishSignal counts the pending messages and stores the number for ttl.
	PublishSignal(ctx context.Context, ttl time.Duration) error
}

// Signal is what a guard looks at.
type Signal struct {
	// Workers is the pending count that the workers published last; nil if it has
	// expired: no worker is on.
	Workers *int64
	Pending int64
	Lag     *int64 // nil: not known
	// Behind is, where Lag is nil, how many messages were counted that are not
	// delivered yet.
	Behind int64
	XLen   int64
}

// Sharer is a Signaler that shares out the room below a limit among the
// producers of all processes, so that together they do not pass it.
type Sharer interface {
	// Share reads what Signal reads and, in the same step, takes as much of the room
	// as a fair share of it is. What it gave before is replaced: of that the caller has
	// Kept left. Room that is not asked for again is given up after Lifetime.
	Share(ctx context.Context, req RoomRequest) (Signal, Room, error)
}

// RoomRequest is what a producer wants to append before its next reading.
type RoomRequest struct {
	Limit    int64 // the depth that is not to be passed
	Pause    int64 // the backlog above which nobody begins to append; -1: none
	Need     int64 // the messages of one append: fewer are of no use
	Want     int64 // what would be used, as far as it is there
	Kept     int64 // of what was given before: not used yet, or under way
	Lifetime time.Duration
}

// Room is the answer to a RoomRequest.
type Room struct {
	Given int64 // what may be appended besides Kept
	Taken int64 // what the other producers may append at most
	// Err says why the backend cannot share room out: Given and Taken mean nothing,
	// and a limit holds for each process by itself. The reading is good all the same.
	Err error
}

// PlaceKeeper is a backend that keeps how much of a source it holds: a file that is
// published line by line, say. Repeats are then harmless at the price of one key for
// many messages, and these are stored in one request.
type PlaceKeeper interface {
	// AppendAt stores all messages, which are those of source from the at-th on, or
	// none. The appends of a source follow each other: at is 0 or the Next of the one
	// before. If an append at the same place was stored already it stores nothing and
	// says how far that one went, which need not be as far as these messages do.
	AppendAt(ctx context.Context, source string, at uint64, msgs []Message) (Placed, error)
	// KeyWindow is how long a place is kept after its last append, and an idempotency key
	// after its own.
	KeyWindow(ctx context.Context) (time.Duration, error)
}

// Placed is the place of a source.
type Placed struct {
	Next   uint64 // the first message that is not stored
	LastID string // of the one before it
	Known  bool   // it was there already: nothing was stored
}

// Locator is a backend that says where its stream is: two with the same place are on
// the same stream.
type Locator interface {
	Place() string
}

// Windower is a backend that counts the requests of all processes in one window.
type Windower interface {
	// Window takes up to want of the most requests of the window that is open now, or
	// of a new one that lasts for length. left is how long it still lasts. None are
	// given if it has had its most.
	Window(ctx context.Context, most, want int64, length time.Duration) (given int64, left time.Duration, err error)
}

// Reader is a backend whose records can be followed without a group.
type Reader interface {
	// Read returns records behind a cursor, waiting up to Block for the first.
	Read(ctx context.Context, req ReadRequest) (Records, error)
}

// Cursors that are not the ID of a record.
const (
	CursorStart = ""  // before the first record
	CursorEnd   = "$" // behind the last record there is now
)

// ReadRequest is one read of a Reader.
type ReadRequest struct {
	After string // a Record's ID, Records.Next, CursorStart or CursorEnd
	Max   int
	Block time.Duration
}

// Records is the answer to a read.
type Records struct {
	Records []Record
	Next    string // the cursor behind them
	Gap     *Gap   // what was lost between After and the first record; nil: nothing
}

// Record is one stored message.
type Record struct {
	ID      string
	Data    []byte
	Headers map[string]string
	At      time.Time // when it was stored; zero if not known
}

// Gap is a range of records that were removed before this reader came by.
type Gap struct {
	From, To string // the range's cursors, both where known
	Reason   string
	Missed   *int64 // how many; nil: not known
}

// DeadLetters is a backend whose dead letters can be looked at and sent back.
// from names a dead-letter stream; empty is the default one.
type DeadLetters interface {
	// List returns dead letters behind the ID after (empty: from the first), oldest first.
	List(ctx context.Context, from, after string, max int) ([]DeadLetter, error)
	// Redrive appends the message to its stream again and removes the dead letter,
	// in one step where the backend can, else so that a repeat stores nothing twice.
	// A backend with several groups on a stream sends it to letter.Group alone, as far
	// as their readers are weir's; an empty Group is all of them.
	// ErrNotFound: the letter is gone. ErrGroupNotFound: the group is gone and others are there.
	Redrive(ctx context.Context, from string, letter DeadLetter) error
	// Purge removes dead letters and returns how many there were.
	Purge(ctx context.Context, from string, ids []string) (int, error)
}

// Shared is a backend whose streams may have other readers than the group that a dead
// letter is sent back to.
type Shared interface {
	// Others names who beside group would handle a message that is sent back to it in
	// a stream (empty: this one): groups that weir does not read, or not alone, and all
	// groups if group is not there.
	Others(ctx context.Context, stream, group string) ([]string, error)
}

// DeadLetterNames is a backend that cannot keep dead letters under every name.
type DeadLetterNames interface {
	// CheckDeadLetter returns why ClaimRequest.DeadLetter cannot be name, and what can.
	CheckDeadLetter(name string) error
}

// Trimmer is a backend that keeps acknowledged messages until it is told.
type Trimmer interface {
	Trim(ctx context.Context, req TrimRequest) (Trimmed, error)
}

// TrimRequest says what may go. The zero value removes what every group has acknowledged.
type TrimRequest struct {
	// MaxLen > 0 removes the oldest entries beyond it though a group has not
	// acknowledged them; they are counted and readers see a gap.
	MaxLen int64
	// OwnOnly removes nothing unless weir itself made the stream.
	OwnOnly bool
	// KeepFor keeps what is younger than that, though every group has acknowledged it.
	KeepFor time.Duration
}

// Trimmed is what a trim removed.
type Trimmed struct {
	Removed int64 // in all
	Dropped int64 // of these, not acknowledged by some group
	Owner   Owner // of a stream that is there, if the backend tells
}

// Owner is who made a stream.
type Owner int

// The owners.
const (
	OwnerUnknown Owner = iota
	OwnerWeir
	OwnerOther // or a version of weir that left no mark
)

// Doctor is a backend that knows the traps of its server.
type Doctor interface {
	// Examine looks for known troubles of the stream; none is an empty slice.
	Examine(ctx context.Context) ([]Finding, error)
	// Command is the command line that helps with a finding of this code, with URL
	// for the stream's URL and CMD for a handler; empty: none.
	Command(code string) string
	// Ping returns how long the server takes for a call that does nothing.
	Ping(ctx context.Context) (time.Duration, error)
}

// Finding is one trouble and what to do about it.
type Finding struct {
	Code     string  `json:"code"`     // stable, for scripts
	Severity string  `json:"severity"` // SeverityError, SeverityWarning or SeverityInfo
	Problem  string  `json:"problem"`
	Advice   string  `json:"advice"`
	Command  string  `json:"command,omitempty"` // see Doctor.Command
	Concern  Concern `json:"-"`
}

// Severities of findings.
const (
	SeverityError   = "error"   // messages are lost, or nothing works
	SeverityWarning = "warning" // it will come to that if nothing is done
	SeverityInfo    = "info"
)

// Concern is what a finding is about. They are told in this order, which is the one
// in which to look: first who takes messages, last the server.
type Concern int

// The concerns.
const (
	OfStream  Concern = iota // is it there
	OfLoss                   // messages that nobody will get
	OfWorkers                // do they keep up: lag
	OfPending                // do they finish: pending, age, reclaiming
	OfLag                    // is the lag known
	OfStorage                // entries stored, memory, dead letters
	OfServer                 // its round trip and its settings
)
