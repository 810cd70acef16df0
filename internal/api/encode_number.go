package api

import (
	"math/bits"
	"slices"
)

// pairs are the numbers 00 to 99.
const pairs = "00010203040506070809" + "10111213141516171819" +
	"20212223242526272829" + "30313233343536373839" +
	"40414243444546474849" + "50515253545556575859" +
	"60616263646566676869" + "70717273747576777879" +
	"80818283848586878889" + "90919293949596979899"

var powersOf10 = [...]uint64{1, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19}

// appendUint appends v in decimal. It is strconv.AppendUint without the intermediate
// buffer: two numbers make up half the cost of a small record.
func appendUint(dst []byte, v uint64) []byte {
	n := bits.Len64(v|1) * 1233 >> 12 // log10, possibly one too small
	if n < len(powersOf10) && v >= powersOf10[n] {
		n++
	}
	n = max(n, 1)
	dst = slices.Grow(dst, n)
	start := len(dst)
	dst = dst[:start+n]
	out := dst[start:]
	for v >= 1e8 {
		low := uint32(v % 1e8)
		v /= 1e8
		high4, low4 := low/1e4, low%1e4
		a, b, c, d := high4/100*2, high4%100*2, low4/100*2, low4%100*2
		q := out[n-8 : n : n]
		q[0], q[1], q[2], q[3] = pairs[a], pairs[a+1], pairs[b], pairs[b+1]
		q[4], q[5], q[6], q[7] = pairs[c], pairs[c+1], pairs[d], pairs[d+1]
		n -= 8
	}
	rest := uint32(v)
	for ; n >= 2; n -= 2 {
		p := rest % 100 * 2
		rest /= 100
		out[n-1], out[n-2] = pairs[p+1], pairs[p]
	}
	if n == 1 {
		out[0] = '0' + byte(rest)
	}
	return dst
}

// appendHex appends v in lower-case hexadecimal, likewise.
func appendHex(dst []byte, v uint64) []byte {
	const digits = "0123456789abcdef"
	n := (bits.Len64(v|1) + 3) / 4
	dst = slices.Grow(dst, n)
	start := len(dst)
	dst = dst[:start+n]
	for i := len(dst) - 1; i >= start; i-- {
		dst[i] = digits[v&15]
		v >>= 4
	}
	return dst
}

// Times remembers the digits of the times that it has appended last: neighbouring records
// mostly have the same. The zero value is ready for use; nil remembers nothing.
type Times struct{ stored, deadline digits }

type digits struct {
	of   int64
	n    int // 0: none yet
	text [20]byte
}

func (d *digits) append(dst []byte, v int64) []byte {
	if d.n == 0 || d.of != v {
		d.of, d.n = v, len(appendInt(d.text[:0], v))
	}
	return append(dst, d.text[:d.n]...)
}

func (t *Times) appendStored(dst []byte, ms int64) []byte {
	if t == nil {
		return appendInt(dst, ms)
	}
	return t.stored.append(dst, ms)
}

func (t *Times) appendDeadline(dst []byte, ms int64) []byte {
	if t == nil {
		return appendInt(dst, ms)
	}
	return t.deadline.append(dst, ms)
}

func appendInt(dst []byte, v int64) []byte {
	if v < 0 {
		return appendUint(append(dst, '-'), -uint64(v))
	}
	return appendUint(dst, uint64(v))
}
