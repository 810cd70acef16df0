package op

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/weirmq/weir/internal/api"
)

// Kind says what a part does.
type Kind uint8

// The kinds. Their numbers are part of the format and never change.
const (
	KindCreate   Kind = 1  // a topic begins
	KindConfig   Kind = 2  // its configuration is replaced
	KindDrop     Kind = 3  // it ends
	KindAppend   Kind = 4  // records; may evict the oldest
	KindDelete   Kind = 5  // numbers removed by delete, ack or dead letter
	KindEvict    Kind = 6  // a loss floor moves
	KindLose     Kind = 7  // numbers burnt or lost to a crash
	KindSkip     Kind = 8  // the head jumps silently
	KindReserve  Kind = 9  // numbers that may be handed out before they are on disk
	KindLease    Kind = 10 // durable leases taken or extended
	KindRelease  Kind = 11 // durable leases given back
	KindCounters Kind = 12 // count and bytes, absolute

	KindRouter     Kind = 13 // a router of this source begins or is changed
	KindRouterDrop Kind = 14 // it ends
	KindCursor     Kind = 15 // it has come to a number of its source

	// Of a watch session, which belongs to no topic: Topic is 0.
	KindWatch     Kind = 16 // it begins
	KindWatchMove Kind = 17 // it gets its first stream or loses its last, or a topic's life changes
	KindWatchEnd  Kind = 18 // it ends before its time is over

	KindClock Kind = 19 // how the server's clocks stand; it belongs to no topic: Topic is 0
)

// OfWatch reports whether parts of this kind belong to a watch session.
func OfWatch(k Kind) bool { return k >= KindWatch && k <= KindWatchEnd }

// Revives reports whether a part of this kind brings back a topic whose creation
// the log lost.
func Revives(k Kind) bool { return k == KindAppend || k == KindReserve || k == KindConfig }

// Lease is one durable lease.
type Lease struct {
	Seq        uint64
	ID         uint64
	Deadline   int64 // on the lease clock; for a release: not claimable before, 0 = at once
	Deliveries uint64
}

// Clock is how a server's clocks stand at a moment. Deadlines in the log are times of the lease
// clock, which goes on over restarts and does not step with the wall clock.
type Clock struct {
	Lease int64 // lease clock, ms
	Wall  int64 // wall clock, Unix ms
	TS    int64 // highest time stamp so far, Unix ms; never less than any wall clock had
}

// Offset is how far the wall clock is ahead of the lease clock.
func (c Clock) Offset() int64 { return c.Wall - c.Lease }

// EncodeClock appends c to dst.
func (c Clock) EncodeClock(dst []byte) []byte {
	return binary.AppendVarint(binary.AppendVarint(binary.AppendVarint(dst, c.Lease), c.Wall), c.TS)
}

// DecodeClock reads what EncodeClock wrote.
func DecodeClock(b []byte) (Clock, error) {
	d := decoder{b: b}
	c := d.clock()
	if d.bad || len(d.b) > 0 {
		return Clock{}, ErrPart
	}
	return c, nil
}

func (d *decoder) clock() Clock { return Clock{Lease: d.varint(), Wall: d.varint(), TS: d.varint()} }

// KeyHash is the hash of an idempotency key.
type KeyHash [16]byte

// Part is one part of an operation; which fields count depends on Kind.
type Part struct {
	Kind  Kind
	Topic uint64

	Name   string     // create
	Config api.Config // create, config
	TS     int64      // create, append, evict: Unix ms

	First  uint64  // append: first number
	N      uint64  // append, delete, evict: live records that come or go
	Bytes  uint64  // append, delete, evict: their data plus meta
	HasKey bool    // append
	Key    KeyHash // append
	Sum    uint32  // append with a key: SumOf its frames, which the log has behind it
	At     int64   // append with a key: when it was made, on the lease clock, as a recovery finds out
	// EvictTo, EvictN and EvictBytes: what the caps take with this append;
	// EvictTo 0 is nothing.
	EvictTo    uint64
	EvictN     uint64
	EvictBytes uint64
	Flows      []Span // append to a queue: what of it is not plain; the log has it in the frames

	To    uint64 // evict, lose, skip, reserve, cursor
	From  uint64 // lose
	Cause Cause  // evict, lose

	Dead   uint64  // delete: how many of N went to the dead letters
	Ranges []Range // delete
	Node   string  // lease
	Leases []Lease // lease, release

	Count uint64 // counters; cursor: copies made so far

	Router uint64 // router, router drop, cursor: its number; Topic is its source
	Route  *Route // router

	Session WatchID    // watch move, watch end
	Watch   *Watch     // watch
	Move    *WatchMove // watch move

	Clock Clock // clock
}

// Encode appends the part to dst. Frames, if it is an append, follow it.
func (p *Part) Encode(dst []byte) []byte {
	var scratch [128]byte
	f := binary.AppendUvarint(scratch[:0], p.Topic)
	switch p.Kind {
	case KindCreate:
		f = appendString(f, p.Name)
		f = binary.AppendVarint(f, p.TS)
		f = appendConfig(f, &p.Config)
	case KindConfig:
		f = appendConfig(f, &p.Config)
	case KindDrop:
	case KindAppend:
		f = appendUvarints(f, p.First, p.N, p.Bytes, p.EvictTo, p.EvictN, p.EvictBytes)
		f = binary.AppendVarint(f, p.TS)
		if p.HasKey {
			f = append(f, p.Key[:]...)
		}
	case KindDelete:
		f = appendUvarints(f, p.N, p.Bytes, p.Dead, uint64(len(p.Ranges)))
		prev := uint64(0)
		for _, r := range p.Ranges {
			f = appendUvarints(f, r.From-prev, r.To-r.From)
			prev = r.To
		}
	case KindEvict:
		f = appendUvarints(f, p.To, uint64(p.Cause), p.N, p.Bytes)
		f = binary.AppendVarint(f, p.TS)
	case KindLose:
		f = appendUvarints(f, p.From, p.To, uint64(p.Cause))
	case KindSkip, KindReserve:
		f = appendUvarints(f, p.To)
	case KindLease, KindRelease:
		f = appendString(f, p.Node)
		f = appendUvarints(f, uint64(len(p.Leases)))
		for _, l := range p.Leases {
			f = appendUvarints(f, l.Seq, l.ID, l.Deliveries)
			f = binary.AppendVarint(f, l.Deadline)
		}
	case KindCounters:
		f = appendUvarints(f, p.Count, p.Bytes)
	case KindRouter:
		f = p.Route.appendFields(appendUvarints(f, p.Router))
	case KindRouterDrop:
		f = appendUvarints(f, p.Router)
	case KindCursor:
		f = appendUvarints(f, p.Router, p.To, p.Count)
	case KindWatch:
		f = p.Watch.appendFields(f)
	case KindWatchMove:
		f = p.Move.appendFields(append(f, p.Session[:]...))
	case KindWatchEnd:
		f = append(f, p.Session[:]...)
	case KindClock:
		f = p.Clock.EncodeClock(f)
	default:
		panic(fmt.Sprintf("op: part of unknown kind %d", p.Kind))
	}
	dst = append(dst, byte(p.Kind))
	dst = binary.AppendUvarint(dst, uint64(len(f)))
	return append(dst, f...)
}

// ErrPart is a part that cannot be decoded.
var ErrPart = errors.New("op: malformed part")

// Reader walks the parts of one operation.
type Reader struct {
	rest []byte
	// Part is the part that was read, as Encode wrote it.
	Part []byte
	// Frames are the record frames of an append, once it was read; they point
	// into the operation.
	Frames []byte
	err    error
}

// NewReader returns a reader over the bytes of one operation.
func NewReader(operation []byte) Reader { return Reader{rest: operation} }

// Err returns what stopped Next, nil at the end of the operation.
func (r *Reader) Err() error { return r.err }

// Next reads the next part into p and reports whether there was one. The
// slices of p are reused by the next call.
func (r *Reader) Next(p *Part) bool {
	if r.err != nil || len(r.rest) == 0 {
		return false
	}
	ranges, leases := p.Ranges[:0], p.Leases[:0]
	*p = Part{Kind: Kind(r.rest[0]), Ranges: ranges, Leases: leases}
	f, rest, ok := cut(r.rest[1:])
	if !ok {
		r.err = ErrPart
		return false
	}
	behind := rest
	d := decoder{b: f}
	p.Topic = d.uvarint()
	switch p.Kind {
	case KindCreate:
		p.Name = d.string()
		p.TS = d.varint()
		d.config(&p.Config)
	case KindConfig:
		d.config(&p.Config)
	case KindDrop:
	case KindAppend:
		p.First, p.N, p.Bytes = d.uvarint(), d.uvarint(), d.uvarint()
		p.EvictTo, p.EvictN, p.EvictBytes = d.uvarint(), d.uvarint(), d.uvarint()
		p.TS = d.varint()
		if p.HasKey = len(d.b) > 0; p.HasKey {
			copy(p.Key[:], d.take(len(p.Key)))
		}
		r.Frames, rest = rest, nil
	case KindDelete:
		p.N, p.Bytes, p.Dead = d.uvarint(), d.uvarint(), d.uvarint()
		prev := uint64(0)
		for n := d.count(2); n > 0; n-- {
			from := prev + d.uvarint()
			to := from + d.uvarint()
			p.Ranges = append(p.Ranges, Range{from, to})
			prev = to
		}
	case KindEvict:
		p.To, p.Cause, p.N, p.Bytes = d.uvarint(), Cause(d.uvarint()), d.uvarint(), d.uvarint()
		p.TS = d.varint()
	case KindLose:
		p.From, p.To, p.Cause = d.uvarint(), d.uvarint(), Cause(d.uvarint())
	case KindSkip, KindReserve:
		p.To = d.uvarint()
	case KindLease, KindRelease:
		p.Node = d.string()
		for n := d.count(4); n > 0; n-- {
			p.Leases = append(p.Leases, Lease{Seq: d.uvarint(), ID: d.uvarint(), Deliveries: d.uvarint(), Deadline: d.varint()})
		}
	case KindCounters:
		p.Count, p.Bytes = d.uvarint(), d.uvarint()
	case KindRouter:
		p.Router = d.uvarint()
		p.Route = &Route{ID: p.Router, Source: p.Topic}
		d.route(p.Route)
	case KindRouterDrop:
		p.Router = d.uvarint()
	case KindCursor:
		p.Router, p.To, p.Count = d.uvarint(), d.uvarint(), d.uvarint()
	case KindWatch:
		p.Watch = new(Watch)
		d.watch(p.Watch)
	case KindWatchMove:
		copy(p.Session[:], d.take(len(p.Session)))
		p.Move = new(WatchMove)
		d.watchMove(p.Move)
	case KindWatchEnd:
		copy(p.Session[:], d.take(len(p.Session)))
	case KindClock:
		p.Clock = d.clock()
	default:
		r.err = fmt.Errorf("%w: kind %d", ErrPart, p.Kind)
		return false
	}
	if d.bad || len(d.b) > 0 {
		r.err = fmt.Errorf("%w: fields of kind %d", ErrPart, p.Kind)
		return false
	}
	r.Part, r.rest = r.rest[:len(r.rest)-len(behind)], rest
	return true
}

// Apply applies a part to the state of its topic. Create sets the state up;
// drop, leases, releases and what belongs to routers or watch sessions leave it
// as it is: they are the caller's.
func (s *State) Apply(p *Part) {
	switch p.Kind {
	case KindCreate:
		*s = State{ID: p.Topic, Name: p.Name, Config: p.Config, CreatedTS: p.TS}
	case KindConfig:
		s.Config = p.Config
	case KindAppend:
		s.Append(p.First, p.N, p.Bytes, p.TS)
		if p.EvictTo > 0 {
			s.Evict(p.EvictTo, CauseCap, p.EvictN, p.EvictBytes)
		}
	case KindDelete:
		if k := len(p.Ranges); k > 0 {
			s.reach(p.Ranges[k-1].To)
		}
		s.Delete(p.Ranges, p.N, p.Bytes)
		s.DeadLettered += p.Dead
	case KindEvict:
		s.reach(p.To)
		s.Evict(p.To, p.Cause, p.N, p.Bytes)
	case KindLose:
		s.Lose(p.From, p.To, p.Cause)
	case KindSkip:
		s.Skip(p.To)
	case KindReserve:
		s.Reserved = max(s.Reserved, p.To)
	case KindCounters:
		s.Count, s.Bytes = p.Count, p.Bytes
	}
}

func appendUvarints(dst []byte, vs ...uint64) []byte {
	for _, v := range vs {
		dst = binary.AppendUvarint(dst, v)
	}
	return dst
}

func appendString(dst []byte, s string) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(s))), s...)
}

const (
	confQueue = 1 << iota
	confReject
	confAutoPriority
	confAutoCreate
	confDedupeNode
	confLeasesDurable
	confPriority
	confDeadLetter
	confWaitSLO
	confPaused
)

func appendConfig(dst []byte, c *api.Config) []byte {
	var bits uint64
	for i, on := range []bool{c.Type == api.TypeQueue, c.Discard == api.DiscardReject, c.AutoPriority,
		c.AutoCreate, c.DedupeNode, c.LeasesDurable, c.HasPriority, c.HasDeadLetter, c.WaitSLOMS > 0, c.Paused} {
		if on {
			bits |= 1 << i
		}
	}
	dst = appendUvarints(dst, bits, uint64(c.Durability), c.TTLMS, c.CapRecords, c.CapBytes,
		c.IdempotencyWindowMS, c.LeaseMS, uint64(c.ClaimJitterMS), c.MaxDeliveries)
	dst = binary.AppendVarint(dst, int64(c.Priority))
	dst = appendString(dst, c.DeadLetter)
	if c.WaitSLOMS > 0 {
		dst = binary.AppendUvarint(dst, uint64(c.WaitSLOMS))
	}
	return dst
}

// decoder reads fields; after the first bad one all others read as zero.
type decoder struct {
	b   []byte
	bad bool
}

func (d *decoder) uvarint() uint64 {
	v, w := binary.Uvarint(d.b)
	if w <= 0 {
		d.bad, d.b = true, nil
		return 0
	}
	d.b = d.b[w:]
	return v
}

func (d *decoder) uint32() uint32 {
	v := d.uvarint()
	d.bad = d.bad || v > math.MaxUint32
	return uint32(v)
}

func (d *decoder) varint() int64 {
	v, w := binary.Varint(d.b)
	if w <= 0 {
		d.bad, d.b = true, nil
		return 0
	}
	d.b = d.b[w:]
	return v
}

func (d *decoder) take(n int) []byte {
	if n > len(d.b) {
		d.bad, d.b = true, nil
		return nil
	}
	b := d.b[:n]
	d.b = d.b[n:]
	return b
}

func (d *decoder) string() string {
	n := d.uvarint()
	if n > uint64(len(d.b)) {
		d.bad, d.b = true, nil
		return ""
	}
	return string(d.take(int(n)))
}

// count reads the length of a list whose elements take at least size bytes.
func (d *decoder) count(size int) int {
	n := d.uvarint()
	if n > uint64(len(d.b)/size) {
		d.bad, d.b = true, nil
		return 0
	}
	return int(n)
}

func (d *decoder) config(c *api.Config) {
	bits := d.uvarint()
	on := func(bit uint64) bool { return bits&bit != 0 }
	*c = api.Config{AutoPriority: on(confAutoPriority), AutoCreate: on(confAutoCreate), DedupeNode: on(confDedupeNode),
		LeasesDurable: on(confLeasesDurable), HasPriority: on(confPriority), HasDeadLetter: on(confDeadLetter), Paused: on(confPaused)}
	if on(confQueue) {
		c.Type = api.TypeQueue
	}
	if on(confReject) {
		c.Discard = api.DiscardReject
	}
	durability := d.uvarint()
	if durability > uint64(api.Fsync) {
		d.bad = true
		return
	}
	c.Durability = api.Durability(durability)
	c.TTLMS, c.CapRecords, c.CapBytes = d.uvarint(), d.uvarint(), d.uvarint()
	c.IdempotencyWindowMS, c.LeaseMS, c.ClaimJitterMS, c.MaxDeliveries = d.uvarint(), d.uvarint(), d.uint32(), d.uvarint()
	c.Priority = int32(d.varint())
	c.DeadLetter = d.string()
	if on(confWaitSLO) {
		c.WaitSLOMS = d.uint32()
	}
}

// stateVersion is the first byte of an encoded State.
const stateVersion = 1

// EncodeState appends the state without its holes to dst.
func (s *State) EncodeState(dst []byte) []byte {
	dst = append(dst, stateVersion)
	dst = binary.AppendUvarint(dst, s.ID)
	dst = appendString(dst, s.Name)
	dst = appendConfig(dst, &s.Config)
	dst = binary.AppendVarint(dst, s.CreatedTS)
	dst = appendUvarints(dst, s.Head, s.Reserved, s.Start, s.Count, s.Bytes, s.Loss, s.CapTo, s.TTLTo, s.TrimTo)
	dst = binary.AppendVarint(dst, s.LastTS)
	dst = appendUvarints(dst, s.DeadLettered, uint64(len(s.Lost)))
	for _, l := range s.Lost {
		dst = appendUvarints(dst, l.From, l.To, uint64(l.Cause))
	}
	return dst
}

// DecodeState reads what EncodeState wrote; Holes is left empty.
func DecodeState(b []byte) (*State, error) {
	if len(b) == 0 || b[0] != stateVersion {
		return nil, fmt.Errorf("op: topic state of unknown version")
	}
	d := decoder{b: b[1:]}
	s := &State{ID: d.uvarint(), Name: d.string()}
	d.config(&s.Config)
	s.CreatedTS = d.varint()
	for _, f := range []*uint64{&s.Head, &s.Reserved, &s.Start, &s.Count, &s.Bytes, &s.Loss, &s.CapTo, &s.TTLTo, &s.TrimTo} {
		*f = d.uvarint()
	}
	s.LastTS = d.varint()
	s.DeadLettered = d.uvarint()
	for n := d.count(3); n > 0; n-- {
		s.Lost = append(s.Lost, LostRange{Range{d.uvarint(), d.uvarint()}, Cause(d.uvarint())})
	}
	if d.bad || len(d.b) > 0 {
		return nil, fmt.Errorf("op: malformed topic state")
	}
	return s, nil
}
