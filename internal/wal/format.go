package wal

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"strconv"
	"strings"
)

// The three structures of a segment file, little endian. FORMAT.md draws the
// whole file.
//
//	segment header, 64 bytes           group header, 48 bytes
//	 0  8  magic "weirseg1"             0  8  magic F7 "weir" B1 "G" 0A
//	 8  4  format version               8  8  epoch
//	12  4  segment number              16  8  LSN of the first operation
//	16  8  LSN of the first operation  24  8  durable LSN
//	24  8  epoch                       32  4  segment number
//	32  8  durable LSN                 36  4  operations
//	40  8  prewritten file length      40  4  bytes of the operations
//	48  8  log id                      44  4  crc32c(log id, bytes 0–43)
//	56  4  zero
//	60  4  crc32c(bytes 0–59)          operation, 16 bytes + payload
//	                                    0  4  payload length
//	                                    4  3  head length
//	                                    7  1  bits 0–1 class, bit 7 void
//	                                    8  4  salt of LSN and epoch
//	                                   12  4  crc32c(body, head, bytes 0–11)
//	                                   16  …  payload: head, then body
//
// The checksum of an operation takes the body first so that callers can sum a
// body before they know the head that belongs to it. The salt keeps an old
// operation of a recycled file from passing for a new one that was to be
// written to the same place.
const (
	formatVersion = 1

	segHeaderSize   = 64
	groupHeaderSize = 48
	opHeaderSize    = 16
	markSize        = 64

	maxHead    = 1<<24 - 1
	maxPayload = 1 << 30

	flagClass = 0x03
	flagVoid  = 0x80
)

var (
	segMagic   = [8]byte{'w', 'e', 'i', 'r', 's', 'e', 'g', '1'}
	groupMagic = [8]byte{0xF7, 'w', 'e', 'i', 'r', 0xB1, 'G', '\n'}
	markMagic  = [8]byte{'w', 'e', 'i', 'r', 'm', 'r', 'k', '1'}

	castagnoli = crc32.MakeTable(crc32.Castagnoli)
	le         = binary.LittleEndian
)

// Checksum returns the crc32c of an operation's body, to be given to Append.
func Checksum(body []byte) uint32 { return crc32.Checksum(body, castagnoli) }

type segHeader struct {
	number  uint32
	first   uint64
	epoch   uint64
	durable uint64
	size    uint64
	id      uint64
}

func (h segHeader) encode(b []byte) {
	clear(b[:segHeaderSize])
	copy(b, segMagic[:])
	le.PutUint32(b[8:], formatVersion)
	le.PutUint32(b[12:], h.number)
	le.PutUint64(b[16:], h.first)
	le.PutUint64(b[24:], h.epoch)
	le.PutUint64(b[32:], h.durable)
	le.PutUint64(b[40:], h.size)
	le.PutUint64(b[48:], h.id)
	le.PutUint32(b[60:], crc32.Checksum(b[:60], castagnoli))
}

var errVersion = errors.New("written by a newer version")

// decodeSegHeader reports ok only for an intact header.
func decodeSegHeader(b []byte) (h segHeader, ok bool, err error) {
	if len(b) < segHeaderSize || !bytes.Equal(b[:8], segMagic[:]) ||
		crc32.Checksum(b[:60], castagnoli) != le.Uint32(b[60:]) {
		return h, false, nil
	}
	if v := le.Uint32(b[8:]); v != formatVersion {
		return h, false, fmt.Errorf("log format %d, this program reads %d: %w", v, formatVersion, errVersion)
	}
	return segHeader{
		number: le.Uint32(b[12:]), first: le.Uint64(b[16:]), epoch: le.Uint64(b[24:]),
		durable: le.Uint64(b[32:]), size: le.Uint64(b[40:]), id: le.Uint64(b[48:]),
	}, true, nil
}

type groupHeader struct {
	epoch   uint64
	first   uint64
	durable uint64
	segment uint32
	count   uint32
	length  uint32
}

func idSeed(id uint64) uint32 {
	var b [8]byte
	le.PutUint64(b[:], id)
	return crc32.Checksum(b[:], castagnoli)
}

func (h groupHeader) encode(b []byte, seed uint32) {
	copy(b, groupMagic[:])
	le.PutUint64(b[8:], h.epoch)
	le.PutUint64(b[16:], h.first)
	le.PutUint64(b[24:], h.durable)
	le.PutUint32(b[32:], h.segment)
	le.PutUint32(b[36:], h.count)
	le.PutUint32(b[40:], h.length)
	le.PutUint32(b[44:], crc32.Update(seed, castagnoli, b[:44]))
}

func decodeGroupHeader(b []byte, seed uint32) (h groupHeader, ok bool) {
	if len(b) < groupHeaderSize || !bytes.Equal(b[:8], groupMagic[:]) ||
		crc32.Update(seed, castagnoli, b[:44]) != le.Uint32(b[44:]) {
		return h, false
	}
	return groupHeader{
		epoch: le.Uint64(b[8:]), first: le.Uint64(b[16:]), durable: le.Uint64(b[24:]),
		segment: le.Uint32(b[32:]), count: le.Uint32(b[36:]), length: le.Uint32(b[40:]),
	}, true
}

func salt(lsn, epoch uint64) uint32 {
	return uint32(lsn) ^ uint32(lsn>>32)*0x85EBCA6B ^ uint32(epoch)*0x9E3779B1
}

// putOpHeader writes the header of an operation; sum is the crc32c of body,
// then head.
func putOpHeader(b []byte, headLen, bodyLen int, flags byte, salt, sum uint32) {
	le.PutUint32(b, uint32(headLen+bodyLen))
	le.PutUint32(b[4:], uint32(headLen)|uint32(flags)<<24)
	le.PutUint32(b[8:], salt)
	le.PutUint32(b[12:], crc32.Update(sum, castagnoli, b[:12]))
}

// decodeOp checks the operation at the start of b and returns its payload.
func decodeOp(b []byte) (payload []byte, flags byte, salt uint32, ok bool) {
	if len(b) < opHeaderSize {
		return nil, 0, 0, false
	}
	n, hf := le.Uint32(b), le.Uint32(b[4:])
	head := hf & maxHead
	if uint64(n) > uint64(len(b)-opHeaderSize) || head > n {
		return nil, 0, 0, false
	}
	payload = b[opHeaderSize : opHeaderSize+int(n) : opHeaderSize+int(n)]
	sum := crc32.Checksum(payload[head:], castagnoli)
	sum = crc32.Update(sum, castagnoli, payload[:head])
	if crc32.Update(sum, castagnoli, b[:12]) != le.Uint32(b[12:]) {
		return nil, 0, 0, false
	}
	return payload, byte(hf >> 24), le.Uint32(b[8:]), true
}

// checkGroup verifies every operation of a group whose header is h; body holds
// exactly the operations.
func checkGroup(h groupHeader, body []byte) bool {
	lsn := h.first
	for range h.count {
		payload, _, s, ok := decodeOp(body)
		if !ok || s != salt(lsn, h.epoch) {
			return false
		}
		body = body[opHeaderSize+len(payload):]
		lsn++
	}
	return len(body) == 0
}

// eachOp walks a checked group that starts at offset off of its segment.
func eachOp(h groupHeader, off int64, body []byte, fn func(op Op, void bool) error) error {
	at := off + groupHeaderSize
	for i := range h.count {
		n := int(le.Uint32(body))
		op := Op{
			LSN:     h.first + uint64(i),
			Pos:     Pos{Segment: h.segment, Offset: uint32(at + opHeaderSize), Len: uint32(n)},
			Payload: body[opHeaderSize : opHeaderSize+n : opHeaderSize+n],
		}
		if err := fn(op, body[7]&flagVoid != 0); err != nil {
			return err
		}
		body = body[opHeaderSize+n:]
		at += int64(opHeaderSize + n)
	}
	return nil
}

// The mark file remembers the highest LSN known to be synced. It is written
// without a sync while the log is busy and is only ever used as evidence that
// a damaged group was durable once, so losing it loses nothing.
//
//	 0  8  magic "weirmrk1"
//	 8  8  log id
//	16  8  durable LSN
//	60  4  crc32c(bytes 0–59)
func encodeMark(b []byte, id, durable uint64) {
	clear(b[:markSize])
	copy(b, markMagic[:])
	le.PutUint64(b[8:], id)
	le.PutUint64(b[16:], durable)
	le.PutUint32(b[60:], crc32.Checksum(b[:60], castagnoli))
}

func decodeMark(b []byte) (id, durable uint64, ok bool) {
	if len(b) < markSize || !bytes.Equal(b[:8], markMagic[:]) ||
		crc32.Checksum(b[:60], castagnoli) != le.Uint32(b[60:]) {
		return 0, 0, false
	}
	return le.Uint64(b[8:]), le.Uint64(b[16:]), true
}

const (
	segSuffix = ".wal"
	tempName  = "next.tmp" // a segment that is being prepared
	healName  = "heal.tmp" // a segment that takes over from a failed file
	markName  = "mark"
)

func segName(number uint32) string { return fmt.Sprintf("%010d%s", number, segSuffix) }

func parseSegName(name string) (uint32, bool) {
	digits, ok := strings.CutSuffix(name, segSuffix)
	if !ok || len(digits) != 10 {
		return 0, false
	}
	n, err := strconv.ParseUint(digits, 10, 32)
	return uint32(n), err == nil && n > 0
}
