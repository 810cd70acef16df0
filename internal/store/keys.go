package store

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"

	"github.com/weirmq/weir/internal/op"
)

// FormatVersion is the version of the layout of keys and values.
const FormatVersion = 1

// The first byte of every key.
const (
	prefixData    = 'd'
	prefixKey     = 'i'
	prefixTopic   = 'm'
	prefixFormat  = 'n'
	prefixLease   = 'q'
	prefixRouter  = 'r'
	prefixRun     = 's'
	prefixSegment = 't'
	prefixWatch   = 'w'
	prefixPage    = 'x'
	prefixClock   = 'y'
	prefixApplied = 'z'
)

// Run is what one segment holds of one topic.
type Run struct {
	Topic   uint64
	Segment uint32
	First   uint64 // lowest number in the segment
	Last    uint64 // highest number in the segment
	N       uint64 // records that were live when the segment was built
	Bytes   uint64 // their data plus meta
	Disk    uint64 // bytes of their chunks
	Flows   []byte // spans of package op: those of its records that are not plain jobs
}

// Key is an idempotency key and the append it belongs to.
type Key struct {
	Topic uint64
	Hash  op.KeyHash
	First uint64 // first number of the append
	N     uint64 // its records
	At    int64  // when it was made, on the lease clock; up to format 7, which had none, its time stamp
	Sum   uint32 // of its records, as in op.Part; 0: not known
}

// Lease is a durable lease, or what is left of one that was given back.
type Lease struct {
	Topic uint64
	Node  string
	op.Lease
	Released bool
}

// segmentInfo is the total of one segment, kept in memory as well.
type segmentInfo struct {
	Disk  uint64 // bytes of its chunks; 0: none left
	Keys  uint64 // its idempotency keys; 0: none left
	KeyAt int64  // when the youngest of them was made
}

func dataKey(dst []byte, segment uint32, topic, last uint64) []byte {
	dst = append(dst, prefixData)
	dst = binary.BigEndian.AppendUint32(dst, segment)
	dst = binary.BigEndian.AppendUint64(dst, topic)
	return binary.BigEndian.AppendUint64(dst, last)
}

const dataKeyLen = 1 + 4 + 8 + 8

func parseDataKey(k []byte) (segment uint32, topic, last uint64, err error) {
	if len(k) != dataKeyLen || k[0] != prefixData {
		return 0, 0, 0, badKey(k)
	}
	return binary.BigEndian.Uint32(k[1:]), binary.BigEndian.Uint64(k[5:]), binary.BigEndian.Uint64(k[13:]), nil
}

func idempotencyKey(dst []byte, segment uint32, topic uint64, hash *op.KeyHash) []byte {
	dst = append(dst, prefixKey)
	dst = binary.BigEndian.AppendUint32(dst, segment)
	dst = binary.BigEndian.AppendUint64(dst, topic)
	return append(dst, hash[:]...)
}

// segmentSpan returns the bounds of all keys of a segment under a prefix.
func segmentSpan(prefix byte, segment uint32) (from, to []byte) {
	from = binary.BigEndian.AppendUint32([]byte{prefix}, segment)
	if segment == 1<<32-1 {
		return from, []byte{prefix + 1}
	}
	return from, binary.BigEndian.AppendUint32([]byte{prefix}, segment+1)
}

// topicKey is the key of a topic under a prefix, followed by a number if the
// prefix has one.
func topicKey(dst []byte, prefix byte, topic uint64) []byte {
	return binary.BigEndian.AppendUint64(append(dst, prefix), topic)
}

func topicNumberKey(dst []byte, prefix byte, topic, number uint64) []byte {
	return binary.BigEndian.AppendUint64(topicKey(dst, prefix, topic), number)
}

func runKey(dst []byte, topic uint64, segment uint32) []byte {
	return binary.BigEndian.AppendUint32(topicKey(dst, prefixRun, topic), segment)
}

func segmentKey(dst []byte, segment uint32) []byte {
	return binary.BigEndian.AppendUint32(append(dst, prefixSegment), segment)
}

// keyTopic returns the topic of a key whose topic comes first.
func keyTopic(k []byte, length int) (uint64, error) {
	if len(k) != length {
		return 0, badKey(k)
	}
	return binary.BigEndian.Uint64(k[1:]), nil
}

const (
	topicKeyLen       = 1 + 8
	topicNumberKeyLen = 1 + 8 + 8
	runKeyLen         = 1 + 8 + 4
	idempotencyLen    = 1 + 4 + 8 + 16
)

func badKey(k []byte) error { return fmt.Errorf("%w: unknown key %x", errMalformed, k) }

func badValue(k []byte) error { return fmt.Errorf("%w: value of key %x", errMalformed, k) }

// values reads the varints of a value; after the first bad one all read as 0.
type values struct {
	b   []byte
	bad bool
}

func (v *values) uint() uint64 {
	n, w := binary.Uvarint(v.b)
	if w <= 0 {
		v.bad, v.b = true, nil
		return 0
	}
	v.b = v.b[w:]
	return n
}

func (v *values) int() int64 {
	n, w := binary.Varint(v.b)
	if w <= 0 {
		v.bad, v.b = true, nil
		return 0
	}
	v.b = v.b[w:]
	return n
}

func (v *values) ok() bool { return !v.bad && len(v.b) == 0 }

func appendUints(dst []byte, vs ...uint64) []byte {
	for _, v := range vs {
		dst = binary.AppendUvarint(dst, v)
	}
	return dst
}

func (r *Run) encode(dst []byte) []byte {
	return append(appendUints(dst, r.First, r.Last-r.First, r.N, r.Bytes, r.Disk), r.Flows...)
}

func parseRun(k, val []byte) (Run, error) {
	if len(k) != runKeyLen {
		return Run{}, badKey(k)
	}
	v := values{b: val}
	r := Run{Topic: binary.BigEndian.Uint64(k[1:]), Segment: binary.BigEndian.Uint32(k[9:]), First: v.uint()}
	r.Last = r.First + v.uint()
	r.N, r.Bytes, r.Disk = v.uint(), v.uint(), v.uint()
	if v.bad || r.Last < r.First {
		return Run{}, badValue(k)
	}
	if len(v.b) > 0 {
		r.Flows = bytes.Clone(v.b)
		if err := op.DecodeSpans(r.Flows, func(op.Span) {}); err != nil {
			return Run{}, badValue(k)
		}
	}
	return r, nil
}

func (key *Key) encode(dst []byte) []byte {
	dst = binary.AppendVarint(appendUints(dst, key.First, key.N), key.At)
	if key.Sum == 0 {
		return dst
	}
	return binary.AppendUvarint(dst, uint64(key.Sum))
}

func parseIdempotency(k, val []byte) (Key, error) {
	if len(k) != idempotencyLen {
		return Key{}, badKey(k)
	}
	v := values{b: val}
	key := Key{Topic: binary.BigEndian.Uint64(k[5:]), First: v.uint(), N: v.uint(), At: v.int()}
	copy(key.Hash[:], k[13:])
	if len(v.b) > 0 { // older versions wrote none
		sum := v.uint()
		v.bad = v.bad || sum > math.MaxUint32
		key.Sum = uint32(sum)
	}
	if !v.ok() {
		return Key{}, badValue(k)
	}
	return key, nil
}

func (l *Lease) encode(dst []byte) []byte {
	released := uint64(0)
	if l.Released {
		released = 1
	}
	dst = appendUints(dst, released, l.ID, l.Deliveries)
	dst = binary.AppendVarint(dst, l.Deadline)
	return append(dst, l.Node...)
}

func parseLease(k, val []byte) (Lease, error) {
	if len(k) != topicNumberKeyLen {
		return Lease{}, badKey(k)
	}
	v := values{b: val}
	l := Lease{Topic: binary.BigEndian.Uint64(k[1:])}
	released := v.uint()
	l.Seq, l.ID, l.Deliveries, l.Deadline = binary.BigEndian.Uint64(k[9:]), v.uint(), v.uint(), v.int()
	if v.bad || released > 1 {
		return Lease{}, badValue(k)
	}
	l.Released, l.Node = released == 1, string(v.b)
	return l, nil
}

func (i *segmentInfo) encode(dst []byte) []byte {
	return binary.AppendVarint(appendUints(dst, i.Disk, i.Keys), i.KeyAt)
}

func parseSegment(k, val []byte) (uint32, segmentInfo, error) {
	if len(k) != 1+4 {
		return 0, segmentInfo{}, badKey(k)
	}
	v := values{b: val}
	i := segmentInfo{Disk: v.uint(), Keys: v.uint(), KeyAt: v.int()}
	if !v.ok() {
		return 0, segmentInfo{}, badValue(k)
	}
	return binary.BigEndian.Uint32(k[1:]), i, nil
}

// hasTopic reports whether the key is one of the topic under the prefix.
func hasTopic(k []byte, prefix byte, topic uint64) bool {
	var want [topicKeyLen]byte
	return bytes.HasPrefix(k, topicKey(want[:0], prefix, topic))
}

// pageNumber returns the number that follows the topic in a key.
func pageNumber(k []byte) uint64 { return binary.BigEndian.Uint64(k[topicKeyLen:]) }
