package redis

import (
	"fmt"
	"strings"

	"github.com/weirmq/weir/backend"
)

var _ backend.DeadLetterNames = (*Backend)(nil)

// CheckDeadLetter refuses the stream itself and, in a Cluster, a name in another slot:
// a letter is moved in one step, which has to happen on one node.
func (b *Backend) CheckDeadLetter(name string) error {
	switch {
	case name == "":
		return nil
	case name == b.keys.stream:
		return fmt.Errorf("%q is the stream itself, whose workers would get the dead letters: use another name, or none for %q", name, b.keys.dead)
	case b.cluster != nil && slotOf(name) != slotOf(b.keys.stream):
		return fmt.Errorf("%q is in another slot of the Cluster than stream %q: put {%s} in the name, or use none for %q",
			name, b.keys.stream, tagOf(b.keys.stream), b.keys.dead)
	}
	return nil
}

// tagOf returns the part of a key that determines its slot.
func tagOf(key string) string {
	if _, rest, open := strings.Cut(key, "{"); open {
		if tag, _, closed := strings.Cut(rest, "}"); closed && tag != "" {
			return tag
		}
	}
	return key
}

// slotOf returns the slot of a key: CRC-16/XMODEM of its tag.
func slotOf(key string) uint16 {
	var crc uint16
	for _, c := range []byte(tagOf(key)) {
		crc ^= uint16(c) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
	}
	return crc % 16384
}
