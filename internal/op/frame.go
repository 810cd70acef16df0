package op

import (
	"encoding/binary"
	"errors"

	"github.com/weirmq/weir/internal/api"
)

const (
	flagTag  = 1 << 0
	flagNode = 1 << 1
	flagMeta = 1 << 2
	flagHops = 1 << 3 // a router has made it; a byte says how often it was copied
	flagTier = 1 << 4 // its tier is not the normal one; a byte has its rank
	flagKey  = 1 << 5 // it has a fair key

	flagFlow  = flagTier | flagKey
	flagKnown = flagTag | flagNode | flagMeta | flagHops | flagFlow
)

// ErrFrame is a frame whose lengths do not fit or whose flags are unknown.
var ErrFrame = errors.New("op: malformed record frame")

// AppendFrame appends the frame of a record to dst. Seq and TS are not part of it.
func AppendFrame(dst []byte, r *api.Record) []byte {
	n := 1 + len(r.Data)
	var flags byte
	if r.HasTag {
		flags |= flagTag
		n += uvarintLen(len(r.Tag)) + len(r.Tag)
	}
	if r.HasNode {
		flags |= flagNode
		n += uvarintLen(len(r.Node)) + len(r.Node)
	}
	if len(r.Meta) > 0 {
		flags |= flagMeta
		n += uvarintLen(len(r.Meta)) + len(r.Meta)
	}
	if r.Hops > 0 {
		flags |= flagHops
		n++
	}
	if r.Tier != api.TierNormal {
		flags |= flagTier
		n++
	}
	if len(r.FairKey) > 0 {
		flags |= flagKey
		n += uvarintLen(len(r.FairKey)) + len(r.FairKey)
	}
	dst = binary.AppendUvarint(dst, uint64(n))
	dst = append(dst, flags)
	if r.Hops > 0 {
		dst = append(dst, r.Hops)
	}
	if flags&flagTier != 0 {
		dst = append(dst, byte(r.Tier.Rank()))
	}
	if flags&flagKey != 0 {
		dst = append(binary.AppendUvarint(dst, uint64(len(r.FairKey))), r.FairKey...)
	}
	if flags&flagTag != 0 {
		dst = append(binary.AppendUvarint(dst, uint64(len(r.Tag))), r.Tag...)
	}
	if flags&flagNode != 0 {
		dst = append(binary.AppendUvarint(dst, uint64(len(r.Node))), r.Node...)
	}
	if flags&flagMeta != 0 {
		dst = append(binary.AppendUvarint(dst, uint64(len(r.Meta))), r.Meta...)
	}
	return append(dst, r.Data...)
}

// ReadFrame reads the first frame of b into r, whose slices then point into b,
// and returns what follows. Seq and TS are left as they are.
func ReadFrame(b []byte, r *api.Record) ([]byte, error) {
	n, w := binary.Uvarint(b)
	if w <= 0 || n < 2 || n > uint64(len(b)-w) {
		return nil, ErrFrame
	}
	f, rest := b[w:w+int(n)], b[w+int(n):]
	flags := f[0]
	f = f[1:]
	if flags&^flagKnown != 0 {
		return nil, ErrFrame
	}
	r.HasTag, r.HasNode = flags&flagTag != 0, flags&flagNode != 0
	r.Tag, r.Node, r.Meta, r.Hops = nil, nil, nil, 0
	r.Tier, r.FairKey = api.TierNormal, nil
	var ok bool
	if flags != 0 {
		if flags&flagHops != 0 {
			if len(f) == 0 || f[0] == 0 {
				return nil, ErrFrame
			}
			r.Hops, f = f[0], f[1:]
		}
		if flags&flagFlow != 0 {
			if r.Tier, r.FairKey, f, ok = readFlow(flags, f); !ok {
				return nil, ErrFrame
			}
		}
		if r.HasTag {
			if r.Tag, f, ok = cut(f); !ok {
				return nil, ErrFrame
			}
		}
		if r.HasNode {
			if r.Node, f, ok = cut(f); !ok {
				return nil, ErrFrame
			}
		}
		if flags&flagMeta != 0 {
			if r.Meta, f, ok = cut(f); !ok {
				return nil, ErrFrame
			}
		}
	}
	if len(f) == 0 {
		return nil, ErrFrame
	}
	r.Data = f
	return rest, nil
}

// readFlow reads the tier and the fair key of a frame with these flags.
func readFlow(flags byte, f []byte) (tier api.Tier, key, rest []byte, ok bool) {
	if flags&flagTier != 0 {
		if len(f) == 0 {
			return 0, nil, nil, false
		}
		if tier, ok = api.TierOf(int(f[0])); !ok || tier == api.TierNormal {
			return 0, nil, nil, false
		}
		f = f[1:]
	}
	if flags&flagKey != 0 {
		if key, f, ok = cut(f); !ok || len(key) == 0 {
			return 0, nil, nil, false
		}
	}
	return tier, key, f, true
}

// SkipFrame returns what follows the first frame of b.
func SkipFrame(b []byte) ([]byte, error) {
	n, w := binary.Uvarint(b)
	if w <= 0 || n < 2 || n > uint64(len(b)-w) {
		return nil, ErrFrame
	}
	return b[w+int(n):], nil
}

func cut(b []byte) (head, rest []byte, ok bool) {
	n, w := binary.Uvarint(b)
	if w <= 0 || n > uint64(len(b)-w) {
		return nil, nil, false
	}
	return b[w : w+int(n) : w+int(n)], b[w+int(n):], true
}

func uvarintLen(n int) int {
	l := 1
	for n >= 0x80 {
		n >>= 7
		l++
	}
	return l
}

// SumOf is what a key remembers of the records that came with it, by the checksum of
// their frames. It is never 0.
func SumOf(checksum uint32) uint32 { return max(checksum, 1) }
