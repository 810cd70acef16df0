package api

import (
	"math"
	"strconv"
	"testing"
)

func TestNumbersAreWrittenInDecimal(t *testing.T) {
	check := func(v uint64) {
		if got, want := string(appendUint([]byte("x"), v)), "x"+strconv.FormatUint(v, 10); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
		if got, want := string(appendInt(nil, int64(v))), strconv.FormatInt(int64(v), 10); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	for v := range uint64(20_000) {
		check(v)
	}
	for bit := range 64 {
		v := uint64(1) << bit
		check(v - 1)
		check(v)
		check(v + v/3)
	}
	for p := uint64(1); ; p *= 10 {
		check(p - 1)
		check(p)
		check(p*9 + 5)
		if p > math.MaxUint64/10 {
			break
		}
	}
	check(math.MaxUint64)
	check(math.MaxInt64)
}
