package kafka

import (
	"encoding/binary"
	"time"
)

// record is what a Kafka record holds: magic, kind, term, number of the entry in its term,
// part and parts of the entry, when the term began in Unix ms, length of the node's name, the
// name, data. Integers are little endian. The entry with the number 0 begins the term.
type record struct {
	term, number uint64
	part, parts  uint32
	started      int64
	node         string
	data         []byte
}

const (
	magic      = "weirkfk1"
	recordHead = 8 + 8 + 8 + 4 + 4 + 8 + 2
	maxNode    = 200
)

func (r record) encode() []byte {
	le := binary.LittleEndian
	b := make([]byte, 0, recordHead+len(r.node)+len(r.data))
	b = append(b, magic...)
	b = le.AppendUint64(b, r.term)
	b = le.AppendUint64(b, r.number)
	b = le.AppendUint32(b, r.part)
	b = le.AppendUint32(b, r.parts)
	b = le.AppendUint64(b, uint64(r.started))
	b = le.AppendUint16(b, uint16(len(r.node)))
	return append(append(b, r.node...), r.data...)
}

// decode reads a record; false: it is none of ours.
func decode(b []byte) (record, bool) {
	le := binary.LittleEndian
	if len(b) < recordHead || string(b[:8]) != magic {
		return record{}, false
	}
	r := record{term: le.Uint64(b[8:]), number: le.Uint64(b[16:]), part: le.Uint32(b[24:]), parts: le.Uint32(b[28:]), started: int64(le.Uint64(b[32:]))}
	n := int(le.Uint16(b[40:]))
	if b = b[recordHead:]; n > len(b) {
		return record{}, false
	}
	r.node, r.data = string(b[:n]), b[n:]
	return r, true
}

// place is a place in the log, and what of it decides which record counts next: one that
// begins a higher term, or the next part of the next entry of the present term.
type place struct {
	next    int64 // offset of the next record
	pos     uint64
	term    uint64
	number  uint64
	part    uint32
	parts   [][]byte
	node    string
	started int64
	begun   string // what the record that began the term holds, "" if it was not seen
	epoch   int32  // of the partition's leader when all this was there
}

// step goes on over a record and returns the entry that it completes.
func (p *place) step(offset int64, r record, ours bool) (data []byte, counts bool) {
	p.next = offset + 1
	switch {
	case !ours:
		return nil, false
	case r.number == 0 && r.term > p.term:
		p.resume(offset, r)
		p.begun = string(r.data)
		return nil, true
	case !p.leads(r) || r.number != p.number+1 || r.part != p.part || r.parts == 0:
		return nil, false
	}
	p.parts, p.part = append(p.parts, r.data), p.part+1
	if p.part < r.parts {
		return nil, false
	}
	for i, part := range p.parts {
		if i == 0 && len(p.parts) == 1 {
			data = part
			break
		}
		data = append(data, part...)
	}
	p.number, p.part, p.parts, p.pos = r.number, 0, nil, position(offset)
	return data, true
}

// resume is the place behind a record that is known to count.
func (p *place) resume(offset int64, r record) {
	*p = place{next: offset + 1, pos: position(offset), term: r.term, number: r.number, node: r.node, started: r.started, epoch: p.epoch}
}

// position is that of the entry that ends with the record at an offset.
func position(offset int64) uint64 { return uint64(offset) + 1 }

func (p *place) startedAt() time.Time { return time.UnixMilli(p.started) }

// leads reports whether a record is of who leads at p: a number of a term that was lost may be
// another's.
func (p *place) leads(r record) bool {
	return r.term == p.term && r.started == p.started && r.node == p.node
}

// same reports whether two places are behind the same record.
func (p *place) same(q *place) bool {
	return p.pos == q.pos && p.term == q.term && p.number == q.number && p.started == q.started && p.node == q.node
}
