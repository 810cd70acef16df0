package weir

import (
	"testing"
	"time"

	"github.com/weirmq/weir/backend"
)

// The stricter of a message's own limit and the pool's holds. What is no limit in a header, as
// from another program, changes nothing.
func TestTheStricterLimitHolds(t *testing.T) {
	for _, c := range []struct {
		header     string
		pool, want int
	}{
		{"2", 3, 2}, {"3", 2, 2}, {"2", 0, 2}, {"2", -1, 2}, {"0", 3, 3}, {"-1", 3, 3}, {"many", 3, 3}, {"", 3, 3}, {"many", -1, 0},
	} {
		d := &Delivery{Headers: map[string]string{backend.HeaderLimit: c.header, backend.HeaderTimeout: c.header}}
		if got := limitOf(d, c.pool); got != c.want {
			t.Errorf("a limit of %q and of the pool %d: %d, want %d", c.header, c.pool, got, c.want)
		}
		if got := timeoutOf(d, time.Duration(c.pool)*time.Millisecond); got != time.Duration(c.want)*time.Millisecond {
			t.Errorf("a timeout of %q and of the pool %d ms: %s, want %d ms", c.header, c.pool, got, c.want)
		}
	}
	// More milliseconds than a time.Duration holds, on either side of 0, are no short timeout.
	d := &Delivery{Headers: map[string]string{backend.HeaderTimeout: "18446744073710"}}
	if got := timeoutOf(d, 0); got < 24*time.Hour {
		t.Errorf("the longest of timeouts is %s", got)
	}
	d.Headers[backend.HeaderTimeout] = "-18446744073709"
	if got := timeoutOf(d, 0); got != 0 {
		t.Errorf("a timeout far below 0 is %s", got)
	}
}
