package stall

import (
	"os"
	"regexp"
	"strconv"
	"time"
)

var waited = regexp.MustCompile(`some .*total=(\d+)`)

// Contended measures for how long anything on this machine waited for a processor, until
// the function that it returns is called. It is for bounds on what other processes do
// after the test's own load has ended; where the kernel does not tell, it is 0.
func Contended() (end func() time.Duration) {
	begin := pressure()
	return func() time.Duration { return pressure() - begin }
}

// pressure is the sum since the start of the machine.
func pressure() time.Duration {
	text, _ := os.ReadFile("/proc/pressure/cpu") // absent where the kernel does not tell
	found := waited.FindSubmatch(text)
	if found == nil {
		return 0
	}
	us, _ := strconv.ParseInt(string(found[1]), 10, 64)
	return time.Duration(us) * time.Microsecond
}

// Busy is Watch and Contended in one: for bounds on what other processes do while the test
// waits for them.
func Busy() (end func() time.Duration) {
	stalled, contended := Watch(), Contended()
	return func() time.Duration { return stalled() + contended() }
}
