// Package backend is the seam between weir's library and what stores its messages: the
// types both sides share, the errors that a backend may return, and the Backend
// interface.
//
// Guard, pool and sampler are written once against this seam. Package backendtest is
// the suite that every backend has to pass.
package backend

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"
)

// Message is what a producer appends.
type Message struct {
	// Data is the payload, opaque to weir. It is neither modified nor retained after
	// Append returns.
	Data []byte
	// Headers travel with the payload. Names that start with "weir-" are reserved; a
	// Producer refuses them. It takes 60; a weir queue, also in this process, takes 52 with
	// those that weir adds, of 12 KiB as JSON, and refuses more with ErrTooLarge.
	Headers map[string]string
	// Priority is the message's tier. The zero value is Normal.
	Priority Priority
	// FairKey names whom the message is sent for, such as a tenant. The adaptive guard
	// refuses by it inside a tier, on every backend. On the embedded engine and a weir
	// server the keys of a tier are also claimed in turn, so that one with many messages
	// does not delay the others; on Redis it does not change the order.
	FairKey string
	// Deadline is until when the message is worth anything, to the millisecond: a pool
	// sets it aside if no handler has begun by then. The sender's and the workers' clocks
	// have to agree. The zero value is none.
	Deadline time.Time
	// Delay is how long after it was stored nobody may claim the message, at most MaxDelay;
	// 0 is at once. It is kept by the server's clock, rounded up to milliseconds, and is gone
	// once the message has become due: no delivery and no dead letter shows it. A Producer
	// refuses it on a backend that is no Delayer.
	Delay time.Duration
	// NotBefore is Delay as a point in time by this process's clock. One that has passed is
	// no delay. At most one of the two may be set.
	NotBefore time.Time
	// MaxDeliveries moves the message to the dead letters after fewer deliveries than
	// PoolConfig.MaxDeliveries; 0 is no limit of its own. A Producer puts it into a header.
	MaxDeliveries int
	// Timeout is how long its handler may run, if that is less than
	// PoolConfig.HandlerTimeout; 0 is no limit of its own. A Producer puts it into a
	// header, in milliseconds.
	Timeout time.Duration
	// IdempotencyKey makes repeating the append of a message harmless within the
	// backend's window. If it is empty, every append stores the message.
	IdempotencyKey string
}

// MaxDelay is the longest Message.Delay.
const MaxDelay = 366 * 24 * time.Hour

// IsDelayed reports whether the message says when it may be claimed.
func (m *Message) IsDelayed() bool { return m.Delay != 0 || !m.NotBefore.IsZero() }

// DueIn returns how long the message must not be claimed if it is stored at now: whole
// milliseconds, 0 for a message that is due. The error names an invalid field.
func (m *Message) DueIn(now time.Time) (time.Duration, error) {
	delay, field := m.Delay, "Delay"
	switch {
	case m.Delay != 0 && !m.NotBefore.IsZero():
		return 0, errors.New("fields Delay and NotBefore: both are set; set one of them")
	case m.Delay < 0:
		return 0, fmt.Errorf("field Delay: %s is negative: use 0 or more", m.Delay)
	case m.Delay == 0 && !m.NotBefore.IsZero():
		delay, field = m.NotBefore.Sub(now), "NotBefore"
	}
	if delay > MaxDelay {
		return 0, fmt.Errorf("field %s: the message would be due in %s, at most %s is possible", field, delay.Round(time.Millisecond), MaxDelay)
	}
	whole := max(delay, 0).Truncate(time.Millisecond)
	if whole < delay {
		whole += time.Millisecond
	}
	return whole, nil
}

// Lease is the right to finish one delivery.
type Lease struct {
	ID       string    // the message's ID, opaque; unique in its stream
	Token    string    // the backend's fencing token, opaque; may be empty
	Consumer string    // who claimed it
	Attempt  int       // how often the message has been delivered, including this delivery
	Since    time.Time // by this process's clock; no later than the claim or the last Extend took effect
}

// Delivery is one handing of a message to a worker.
type Delivery struct {
	Lease
	Data     []byte            // the payload; the receiver owns it
	Headers  map[string]string // without those that only the backend needs; nil if there are none
	Enqueued time.Time         // when the message was published; zero if unknown
	Deadline time.Time         // the message's; zero if it has none
}

// ClaimRequest says what a worker wants. Consumer, Max and ReclaimAfter are required.
type ClaimRequest struct {
	Consumer string
	Max      int // most deliveries
	// Block is how long to wait for the first delivery; 0 does not wait.
	Block time.Duration
	// Enough, if it is not nil, is closed when the caller need not wait any longer: the
	// claim returns within Slack, with what it has by then. To end ctx instead may leave
	// what the server has just handed out with nobody until ReclaimAfter.
	Enough <-chan struct{}
	// Slack is how much later than Enough is closed a healthy backend may return; 0: at
	// once.
	Slack time.Duration
	// ReclaimAfter is how long a delivery may go without Ack, Nack or Extend before
	// others may take it over.
	ReclaimAfter time.Duration
	// MaxDeliveries is the delivery limit; 0 is none.
	MaxDeliveries int
	// DeadLetter is where messages past the limit go; if empty, to Info.DeadLetter.
	DeadLetter string
}

// HasEnough reports whether Enough is closed.
func (r *ClaimRequest) HasEnough() bool {
	select {
	case <-r.Enough:
		return true
	default:
		return false
	}
}

// Claimed is the answer to a claim. Reclaimed deliveries come first.
type Claimed struct {
	Deliveries []*Delivery
	// Reclaimed is how many of the Deliveries were taken over from another delivery.
	Reclaimed int
	// Dead are the messages that this claim moved to the dead letters. A large one may
	// come without its Data.
	Dead []DeadLetter
	// Lost are the IDs of messages whose data was gone when they were reclaimed: they
	// had been trimmed or deleted before they were acknowledged.
	Lost []string
	// Failed says why a part of the claim failed: a shard that did not answer, a dead letter
	// that was refused. The rest is valid.
	Failed error
}

// Return is a delivery given back.
type Return struct {
	Lease
	// Delay is how long nobody may claim the message. A weir queue takes 24 h for more.
	Delay time.Duration
	// NotStarted says that no handler began, so that the delivery does not count.
	NotStarted bool
	// Error is what the handler returned. It is kept for the dead letter if the backend
	// can, and may be truncated to MaxErrorBytes.
	Error string
}

// MaxErrorBytes bounds the text of an error that is stored with a message.
const MaxErrorBytes = 1024

// Reasons of dead letters.
const (
	ReasonMaxDeliveries = "max_deliveries" // delivered as often as allowed, never acknowledged
	ReasonPoison        = "poison"         // the handler said that retrying cannot help
	ReasonExpired       = "expired"        // its deadline passed before a handler began
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
	Reason   string // ReasonMaxDeliveries, ReasonPoison or ReasonExpired
	Error    string // the last one; empty if unknown
	Consumer string // who had it last; empty if unknown
	Redrives int    // how often it has been sent back before
	Enqueued time.Time
	DeadAt   time.Time
}

// Stats is one reading of a stream and its group.
type Stats struct {
	At      time.Time // by the server's clock
	XLen    int64     // entries stored, including finished ones: storage, not work
	Pending int64     // delivered, not acknowledged
	Lag     *int64    // not delivered yet; nil if the server does not know, which is not 0
	Delayed int64     // stored, but not due yet (Message.Delay): neither in Pending nor in Lag
	// PendingUnknown says that consumers hold messages and do not say how many: Lag includes
	// those.
	PendingUnknown bool
	// Behind is used if Lag is nil: how many entries were counted after the last
	// delivered one. Counting stops at some thousands.
	Behind int64

	OldestAge    time.Duration // of the oldest unfinished message; 0 with AgeNone and AgeUnknown
	OldestSource AgeSource
	Approx       bool // OldestAge is an estimate

	// Missing is nil if stream and group exist. Otherwise it wraps ErrStreamNotFound or
	// ErrGroupNotFound: nothing has been published yet, or no worker has come yet. The
	// numbers are then what the first worker will find.
	Missing error

	// Paused says that nobody is given messages of the group: see Pauser.
	Paused bool
	// Workers is how many consumers the group has; nil if unknown.
	Workers *int64
	// DeadLetters is how many there are in Info.DeadLetter; nil if unknown.
	DeadLetters *int64
}

// AgeSource says where Stats.OldestAge comes from.
type AgeSource string

// The sources of an age, as a sample prints them.
const (
	AgePending   AgeSource = "pending"           // the publish time of the oldest pending message
	AgeBacklog   AgeSource = "backlog"           // the publish time of the first undelivered message
	AgePendingID AgeSource = "pending_stream_id" // the ID of the oldest pending message
	AgeBacklogID AgeSource = "backlog_stream_id" // the ID of the first undelivered message
	AgeNone      AgeSource = "none"              // there is no work
	AgeUnknown   AgeSource = "unknown"           // there is work whose age cannot be read
)

// Info describes an open backend. It never contains a secret.
type Info struct {
	Kind       string // "redis", "kafka", "embedded" or "http"
	Stream     string
	Group      string
	DeadLetter string // where dead letters go unless a claim says otherwise
	Durability string // what an acknowledged append survives: "fsync", "disk", "memory" or "ephemeral"
	Server     string // product and version, or address; for people
}

// Backend is one stream and one group on it. It is safe for concurrent use. Every call
// returns soon after its context ends.
//
// A call that the server refused or never received returns an error that wraps one of
// this package's, if one fits. Append and the settling calls wrap ErrOutcomeUnknown if
// the server may have done what was asked.
type Backend interface {
	// Append stores messages in order. With an error, the results say what became of
	// each message; if there are none, the error applies to all.
	Append(ctx context.Context, msgs []Message) ([]Appended, error)

	// Claim hands out orphans first, then new messages; if the backend orders messages
	// by Priority and FairKey, so for each tier and key. It never hands out a message
	// past the delivery limit: it moves it to the dead letters instead, and
	// acknowledges it only once it is stored there. A claim ended by its context holds
	// nothing that it did not return for longer than ReclaimAfter.
	Claim(ctx context.Context, req ClaimRequest) (Claimed, error)

	// Extend makes leases end d from now. It returns the IDs of those that are no
	// longer held.
	Extend(ctx context.Context, leases []Lease, d time.Duration) (lost []string, err error)

	// Ack completes deliveries. It returns the IDs of those that another worker holds by
	// now; a lease younger than half of its ReclaimAfter need not be checked.
	Ack(ctx context.Context, leases []Lease) (lost []string, err error)

	// Nack gives deliveries back. It leaves leases alone that are no longer held, and
	// returns their IDs.
	Nack(ctx context.Context, returns []Return) (lost []string, err error)

	// DeadLetter moves a delivery to the dead letters in to, by default to
	// Info.DeadLetter. It stores it there before the message is acknowledged, in one
	// step if the backend can. The error is ErrLeaseLost if another worker holds the
	// message; nothing was moved then.
	//
	// What is stored is the message as it was published. A handler that has begun
	// (Cause.NotStarted is false) may have changed the delivery, or still do: of d only
	// the Lease counts then, and the rest may be missing.
	DeadLetter(ctx context.Context, d *Delivery, to string, cause Cause) error

	// Stats reads the stream and creates nothing. What the first publish or the first claim
	// would create is no error, but Stats.Missing: a stream that is not there yet is empty,
	// and to a group that is not there yet everything is lag that it will be given. What
	// they would not create is an error that wraps ErrStreamNotFound or ErrGroupNotFound.
	Stats(ctx context.Context) (Stats, error)

	Info() Info

	// Close releases what the backend holds. Calls in progress end with an error.
	io.Closer
}

// Appended is what became of one message.
type Appended struct {
	ID      string // set if it is stored; of a delayed message it may be one that its delivery does not have
	Deduped bool   // an earlier append with the same key had stored it
	Err     error  // nil if it is stored
}

// Cause is why a message is moved aside.
type Cause struct {
	Reason string // ReasonMaxDeliveries, ReasonPoison or ReasonExpired
	Error  string
	// NotStarted says that no handler began, so that the delivery does not count.
	NotStarted bool
}

// Attempts is how many deliveries count of a message that is moved aside at its attempt-th.
func (c Cause) Attempts(attempt int) int {
	if c.NotStarted {
		return attempt - 1
	}
	return attempt
}

// Delayer is a backend that keeps messages back until they are due. Any other delivers
// them at once, or refuses them with ErrUnsupported.
type Delayer interface {
	// Delays reports whether Message.Delay and Message.NotBefore have an effect here.
	Delays() bool
}

// Gatherer is a backend to which many messages in one append cost little more than one. A
// producer then makes one append of what is published concurrently.
type Gatherer interface {
	Gathering() Gathering
}

// Gathering says what may be appended together.
type Gathering struct {
	// Appends is how many may be under way at a time; what is published meanwhile goes
	// with the next. 0 gathers nothing.
	Appends int
	// Keyed says that messages with an idempotency key cost as little; otherwise they are
	// appended on their own.
	Keyed bool
	// Joint says that a message may be refused because of others in the same append. Each
	// is then appended again on its own.
	Joint bool
}

// Signaler is a backend through which workers report their load to producers. With any
// other backend, a producer reads Stats.
type Signaler interface {
	// Signal reads what a guard needs, in one round trip. A backend that does not know
	// its lag counts undelivered messages, up to most.
	Signal(ctx context.Context, most int64) (Signal, error)
	// PublishSignal counts the pending messages and stores the number for ttl.
	PublishSignal(ctx context.Context, ttl time.Duration) error
}

// Signal is what a guard looks at.
type Signal struct {
	// Workers is the pending count that the workers last published; nil if it has
	// expired, as without workers.
	Workers *int64
	// Counted says that Workers is what the server itself counts, which says nothing about
	// whether there are workers.
	Counted bool
	Pending int64
	Lag     *int64 // nil if unknown
	// Behind is used if Lag is nil: how many undelivered messages were counted.
	Behind int64
	// Delayed is how many messages are stored but not due yet. They take room and do not
	// wait for a worker.
	Delayed int64
	// Retrying is how many messages of Lag have been given back and are not due yet. They do
	// not wait for a worker either. A backend where Pending has them leaves it 0.
	Retrying int64
	// GivenBack is how many messages of Pending have been given back and may be with nobody: no
	// worker has them in hand for as long as they are pending. 0 if the backend does not know.
	GivenBack int64
	XLen      int64
	// Finished counts the messages that the group has finished with since some moment;
	// nil if the backend does not know.
	Finished *int64
	// Paused says that nobody is given messages: see Pauser. A backend that does not read it
	// with the rest leaves it false.
	Paused bool
}

// Sharer is a Signaler that divides the room below a limit among the producers of all
// processes, so that together they do not exceed it.
type Sharer interface {
	// Share reads what Signal reads and, in the same step, takes a fair share of the
	// room. It replaces the caller's earlier share, of which Kept is left. A share that
	// is not renewed expires after Lifetime.
	Share(ctx context.Context, req RoomRequest) (Signal, Room, error)
}

// RoomRequest is what a producer wants to append before its next reading.
type RoomRequest struct {
	Limit    int64 // the depth that must not be exceeded
	Pause    int64 // the backlog above which nobody may start to append; -1 = none
	Need     int64 // the messages of one append: less room is useless
	Want     int64 // how much room would be used, if there is enough
	Kept     int64 // what is left of the earlier share: unused, or being appended
	Lifetime time.Duration
}

// Room is the answer to a RoomRequest.
type Room struct {
	Given int64 // what may be appended in addition to Kept
	Taken int64 // the most that the other producers may append
	// Err says why the backend cannot share the room: Given and Taken are meaningless
	// then, and each process keeps the limit on its own. The reading is valid anyway.
	Err error
}

// Budgeter is a backend that keeps a budget: room that several streams share, and what
// is read of each of them. A budget is known by its name, on one server.
type Budgeter interface {
	// Spent returns how many messages have been appended to a stream from shares of the
	// budget that were replaced or have expired. It is asked before the stream is read.
	Spent(ctx context.Context, budget, stream string) (int64, error)
	// Draw reports what was read of a stream and takes a share of the room that all
	// streams leave, which replaces the caller's earlier share. A stream gets at least its
	// even part, and what the others do not want of theirs. The signal is the sum of what
	// was reported of all streams in the last seconds.
	Draw(ctx context.Context, req DrawRequest) (Signal, Room, error)
	// TallyBudget is Tally for all streams of a budget.
	TallyBudget(ctx context.Context, budget string, add []uint32) (sums []uint32, err error)
}

// DrawRequest is a reading, and what a producer wants to append before the next.
type DrawRequest struct {
	RoomRequest // without Pause
	Budget      string
	Stream      string // whose reading it is
	Producer    string // whose share it is
	Spent       int64  // what Spent returned before the reading
	Signal      Signal // the reading
}

// Tallier is a backend that adds up what the producers of all processes count, so that
// they decide as one.
type Tallier interface {
	// Tally adds to the counters of the stream and the group, and returns their new
	// values, as many as add has. Counters wrap. They may begin at 0 again when nobody has counted for long.
	// now is what Signal would read, if the same request tells it; otherwise nil.
	Tally(ctx context.Context, add []uint32) (sums []uint32, now *Signal, err error)
}

// ShardKeeper is a backend that remembers into how many streams a sharded stream is
// divided. The first of them is asked.
type ShardKeeper interface {
	// Shards returns how many there are, after raising the number to least if it is
	// lower; if least is 0 it changes nothing.
	Shards(ctx context.Context, least int) (Shards, error)
}

// Shards is how many streams a sharded stream consists of. The zero value is that
// nothing has been recorded yet.
type Shards struct {
	First int // with how many it began
	Now   int
}

// PlaceKeeper is a backend that remembers how much of a source it has stored, such as a
// file that is published line by line. That makes repeats harmless with one key for many
// messages, which are stored in one request.
type PlaceKeeper interface {
	// AppendAt stores all messages, those of source from the at-th on, or none. The
	// appends of a source follow each other: at is 0 or the Next of the previous one. If
	// an append at the same place has been stored already, AppendAt stores nothing and
	// says how far that one went, which need not be as far as these messages go.
	AppendAt(ctx context.Context, source string, at uint64, msgs []Message) (Placed, error)
	// KeyWindow returns how long a place is kept after its last append, and an
	// idempotency key after its own.
	KeyWindow(ctx context.Context) (time.Duration, error)
}

// Placed is the place of a source.
type Placed struct {
	Next   uint64 // the first message that is not stored
	LastID string // of the one before it
	Known  bool   // an append at this place was stored before; nothing was stored now
}

// Locator is a backend that says where its stream is: two backends with the same place
// are on the same stream.
type Locator interface {
	Place() string
}

// Windower is a backend that counts the requests of all processes in one window.
type Windower interface {
	// Window takes up to want requests from the current window, which has most of them,
	// or from a new one that lasts for length. left is how long the window still lasts.
	// given is 0 if the window is used up.
	Window(ctx context.Context, most, want int64, length time.Duration) (given int64, left time.Duration, err error)
}

// Pauser is a backend whose groups can be paused: none of its consumers is given a
// message until the group is resumed, whichever process it is in. What they hold they
// finish, and messages are appended as ever.
type Pauser interface {
	// Pause pauses the group or resumes it; to repeat it changes nothing. From its return
	// on no Claim that is begun returns a delivery of a paused group, or takes over an
	// orphan; one in another process that has begun a second before may still. Claims of a
	// resumed group find its messages within a second. It lasts until it is taken
	// back, also when the server starts anew, as long as what the group has finished does.
	// A stream or group that does not exist yet can be paused, too.
	Pause(ctx context.Context, paused bool) error
}

// Remover is a backend that can remove its stream.
type Remover interface {
	// Remove removes the stream with its messages and what is kept for it and its group; dead
	// letters stay. Without a stream it does nothing. Nobody may use the stream meanwhile:
	// an append or claim could create it again.
	Remove(ctx context.Context) error
}

// Reader is a backend whose records can be followed without a group.
type Reader interface {
	// Read returns records after a cursor, waiting up to Block for the first.
	Read(ctx context.Context, req ReadRequest) (Records, error)
}

// Cursors that are not the ID of a record.
const (
	CursorStart = ""  // before the first record
	CursorEnd   = "$" // after the current last record
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
	Next    string // the cursor after them
	Gap     *Gap   // what was lost between After and the first record; nil if nothing
}

// Record is one stored message.
type Record struct {
	ID      string
	Data    []byte
	Headers map[string]string
	At      time.Time // when it was stored; zero if unknown
}

// Gap is a range of records that were removed before this reader got to them.
type Gap struct {
	From, To string // the range's cursors, if known
	Reason   string
	Missed   *int64 // how many; nil if unknown
}

// Reasons of a gap.
const (
	GapRemoved   = "removed"   // by the stream's retention, or by somebody
	GapRecreated = "recreated" // the stream was deleted and made again, or ends before the cursor
	GapLost      = "lost"      // by the server, which had acknowledged them
)

// DeadLetters is a backend whose dead letters can be inspected and sent back. from names
// a dead-letter stream; if empty, the default one.
type DeadLetters interface {
	// List returns the dead letters after the ID after, or from the first if it is
	// empty, oldest first.
	List(ctx context.Context, from, after string, max int) ([]DeadLetter, error)
	// Redrive appends the message to its stream again and removes the dead letter, in
	// one step if the backend can, otherwise so that a repeat stores nothing twice. The
	// message has no deadline any more: it might expire again at once. With
	// several groups on a stream, weir's readers deliver it to letter.Group only; an
	// empty Group means all of them. The error is ErrNotFound if the letter is gone, as for all
	// but one of several that send it at once, and ErrGroupNotFound if the group is gone and
	// there are others.
	Redrive(ctx context.Context, from string, letter DeadLetter) error
	// Purge removes dead letters and returns how many it removed.
	Purge(ctx context.Context, from string, ids []string) (int, error)
}

// Shared is a backend whose streams may have readers besides the group to which a dead
// letter is sent back.
type Shared interface {
	// Others names who besides group would handle a message sent back to it in a stream
	// (by default this one): groups that weir does not read, or not alone, and all
	// groups if group does not exist.
	Others(ctx context.Context, stream, group string) ([]string, error)
}

// DeadLetterNames is a backend that restricts the names of dead-letter streams.
type DeadLetterNames interface {
	// CheckDeadLetter returns an error if ClaimRequest.DeadLetter cannot be name; it says
	// why, and what would be valid.
	CheckDeadLetter(name string) error
}

// Trimmer is a backend that keeps acknowledged messages until they are trimmed.
type Trimmer interface {
	Trim(ctx context.Context, req TrimRequest) (Trimmed, error)
}

// TrimRequest says what to remove. The zero value removes what every group has
// acknowledged.
type TrimRequest struct {
	// MaxLen > 0 removes the oldest entries beyond it even if a group has not
	// acknowledged them; they are counted, and readers see a gap.
	MaxLen int64
	// OwnOnly removes nothing unless weir itself created the stream.
	OwnOnly bool
	// KeepFor keeps entries younger than this even if every group has acknowledged them.
	KeepFor time.Duration
}

// Trimmed is what a trim removed.
type Trimmed struct {
	Removed int64 // in total
	Dropped int64 // of these, not acknowledged by some group
	Owner   Owner // of an existing stream, if the backend knows
}

// Retainer is a backend that removes messages after a time, or beyond a size, whether a
// group has finished them or not, or knows of other losses.
type Retainer interface {
	// Retained says what has been removed unfinished, or lost, since the handle first claimed or
	// asked, and what comes next. With mark, what it returns is told once in the group,
	// whichever handle asks; without, it changes nothing.
	Retained(ctx context.Context, mark bool) (Retained, error)
}

// Retained is what a group has lost, and what a backend's retention will do to it.
type Retained struct {
	// Gaps are what was removed before the group finished it, and what the server has lost. Missed is
	// set: how many messages of these the group had certainly not been given.
	Gaps []Gap
	// Limit names the setting that will remove unfinished messages soon; empty: none. Due
	// is when that may be, if it is known.
	Limit string
	Due   time.Time
}

// Owner is who created a stream.
type Owner int

// The owners.
const (
	OwnerUnknown Owner = iota
	OwnerWeir
	OwnerOther // or a version of weir that left no mark
)

// Doctor is a backend that knows the pitfalls of its server.
type Doctor interface {
	// Examine looks for known problems of the stream; none is an empty slice.
	Examine(ctx context.Context) ([]Finding, error)
	// Command returns a command line that helps with a finding of this code, with URL
	// for the stream's URL and CMD for a handler; empty if there is none.
	Command(code string) string
	// Ping returns how long a no-op call to the server takes.
	Ping(ctx context.Context) (time.Duration, error)
}

// Finding is one problem and what to do about it.
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
	SeverityWarning = "warning" // leads to that if nothing is done
	SeverityInfo    = "info"
)

// Concern is what a finding is about. Findings are reported in this order, which is the
// one in which to investigate: first who claims messages, last the server.
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
