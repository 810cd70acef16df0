package replica

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
)

// Group is what is shipped at once: bytes of the leader's log files.
type Group struct {
	Term   uint64
	Last   uint64 // LSN up to which the log is whole with this group; that of the group before if it only says that its leader lives
	TimeMS int64  // of the leader's clock, Unix ms, when it was read from the log
	Pieces []Piece
}

// Piece is a range of bytes of one segment file of the log.
type Piece struct {
	Segment uint32
	Offset  int64
	Bytes   []byte
}

// End is the one piece of the last group of a leader that has stopped: the copy
// has everything that it acknowledged. No segment has the number 0.
var End = Piece{}

// Ends reports whether the group is a leader's last.
func (g *Group) Ends() bool { return g.says(End) }

// Alone is the one piece of a sign of life of a leader whose copy has no base: what it
// acknowledged is in its own directory alone, and nobody else can go on with that.
var Alone = Piece{Offset: 1}

// Alone reports whether the group is such a sign.
func (g *Group) Alone() bool { return g.says(Alone) }

func (g *Group) says(p Piece) bool {
	return len(g.Pieces) == 1 && g.Pieces[0].Segment == p.Segment && g.Pieces[0].Offset == p.Offset
}

// ErrDamaged is wrapped by errors about bytes of a copy that are not what was put there.
var ErrDamaged = errors.New("replica: damaged")

const (
	groupMagic = "weirgrp1"
	groupHead  = 8 + 8 + 8 + 8 + 4
	pieceHead  = 4 + 8 + 4
	groupTail  = 4
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Size is the length of the group's encoding.
func (g *Group) Size() int {
	n := groupHead + groupTail
	for _, p := range g.Pieces {
		n += pieceHead + len(p.Bytes)
	}
	return n
}

// Encode appends the group's encoding to b: magic, term, last LSN, time, number
// of pieces; of each piece segment, offset, length and bytes; the crc32c of all
// that. Integers are little endian.
func (g *Group) Encode(b []byte) []byte {
	le, from := binary.LittleEndian, len(b)
	b = append(b, groupMagic...)
	b = le.AppendUint64(b, g.Term)
	b = le.AppendUint64(b, g.Last)
	b = le.AppendUint64(b, uint64(g.TimeMS))
	b = le.AppendUint32(b, uint32(len(g.Pieces)))
	for _, p := range g.Pieces {
		b = le.AppendUint32(b, p.Segment)
		b = le.AppendUint64(b, uint64(p.Offset))
		b = le.AppendUint32(b, uint32(len(p.Bytes)))
		b = append(b, p.Bytes...)
	}
	return le.AppendUint32(b, crc32.Checksum(b[from:], castagnoli))
}

// DecodeGroup reads what Encode has written. The pieces share b. An error wraps
// ErrDamaged.
func DecodeGroup(b []byte) (Group, error) {
	le := binary.LittleEndian
	bad := func(what string) (Group, error) {
		return Group{}, fmt.Errorf("%w: a group of the log: %s", ErrDamaged, what)
	}
	if len(b) < groupHead+groupTail || string(b[:8]) != groupMagic {
		return bad("it does not begin as one")
	}
	body := b[:len(b)-groupTail]
	if crc32.Checksum(body, castagnoli) != le.Uint32(b[len(body):]) {
		return bad("its checksum is wrong")
	}
	g := Group{Term: le.Uint64(b[8:]), Last: le.Uint64(b[16:]), TimeMS: int64(le.Uint64(b[24:]))}
	n := le.Uint32(b[32:])
	body = body[groupHead:]
	for range n {
		if len(body) < pieceHead {
			return bad("a piece is cut off")
		}
		p := Piece{Segment: le.Uint32(body), Offset: int64(le.Uint64(body[4:]))}
		size := int64(le.Uint32(body[12:]))
		if body = body[pieceHead:]; size > int64(len(body)) || p.Offset < 0 {
			return bad("a piece is cut off")
		}
		p.Bytes, body = body[:size:size], body[size:]
		g.Pieces = append(g.Pieces, p)
	}
	if len(body) > 0 {
		return bad("something follows its pieces")
	}
	return g, nil
}
