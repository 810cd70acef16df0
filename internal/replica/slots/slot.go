package slots

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"strconv"
	"strings"

	"github.com/weirmq/weir/internal/replica"
)

// slot is one object of the log: magic, term, position, kind, data and the crc32c of
// all that. Integers are little endian.
type slot struct {
	term, pos uint64
	begins    bool // its term; without data
	data      []byte
}

const (
	slotMagic = "weirlog1"
	slotHead  = 8 + 8 + 8 + 1
	slotTail  = 4
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func (s slot) encode() []byte {
	le := binary.LittleEndian
	b := make([]byte, 0, slotHead+len(s.data)+slotTail)
	b = append(b, slotMagic...)
	b = le.AppendUint64(b, s.term)
	b = le.AppendUint64(b, s.pos)
	kind := byte(0)
	if s.begins {
		kind = 1
	}
	b = append(append(b, kind), s.data...)
	return le.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

// decode reads the object at pos.
func decode(pos uint64, b []byte) (slot, error) {
	le := binary.LittleEndian
	bad := func(what string) (slot, error) {
		return slot{}, fmt.Errorf("%w: %s %s", replica.ErrDamaged, slotName(pos), what)
	}
	if len(b) < slotHead+slotTail || string(b[:8]) != slotMagic {
		return bad("does not begin as an entry")
	}
	body := b[:len(b)-slotTail]
	if crc32.Checksum(body, castagnoli) != le.Uint32(b[len(body):]) {
		return bad("has a wrong checksum")
	}
	s := slot{term: le.Uint64(b[8:]), pos: le.Uint64(b[16:]), begins: b[24] == 1, data: body[slotHead:]}
	if s.pos != pos {
		return bad(fmt.Sprintf("holds the entry of position %d", s.pos))
	}
	return s, nil
}

// place is a place in the log: behind the entry at pos, which counts. The entry at
// next is the one that counts next.
type place struct{ pos, term, next uint64 }

var start = place{next: 1}

// behind returns the place behind s, which counts.
func behind(s slot) place {
	if s.begins {
		return place{s.pos, s.term, s.pos + replica.Window}
	}
	return place{s.pos, s.term, s.pos + 1}
}

// step returns the place behind s, the entry at p.next.
func (p place) step(s slot) (place, error) {
	if s.begins && s.term > p.term || !s.begins && s.term == p.term {
		return behind(s), nil
	}
	return p, fmt.Errorf("%w: %s is of term %d, the entry in front of it of term %d", replica.ErrDamaged, slotName(s.pos), s.term, p.term)
}

const (
	slots = "log/"
	terms = "term/"
	trims = "trim/"
)

func slotName(pos uint64) string    { return fmt.Sprintf("%s%020d", slots, pos) }
func termName(number uint64) string { return fmt.Sprintf("%s%010d", terms, number) }
func trimName(p place) string {
	return fmt.Sprintf("%s%020d-%010d-%020d", trims, p.pos, p.term, p.next)
}

// number reads the number behind prefix.
func number(prefix, name string) (uint64, error) {
	n, err := strconv.ParseUint(strings.TrimPrefix(name, prefix), 10, 64)
	if err != nil || n == 0 {
		return 0, fmt.Errorf("%w: %s does not belong to a copy of weir", replica.ErrDamaged, name)
	}
	return n, nil
}

// trimmed reads the name of a trim object.
func trimmed(name string) (p place, err error) {
	if _, err := fmt.Sscanf(name, trims+"%020d-%010d-%020d", &p.pos, &p.term, &p.next); err != nil || trimName(p) != name {
		return p, fmt.Errorf("%w: %s does not belong to a copy of weir", replica.ErrDamaged, name)
	}
	return p, nil
}
