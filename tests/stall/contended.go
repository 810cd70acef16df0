package stall

import (
	"os"
	"regexp"
	"strconv"
	"time"
)

var waited = regexp.MustCompile(`some .*total=(\d+)`)

// Contended measures for how long anything on this machine waited for a processor or a disk,
// until the function that it returns is called. It is for bounds on what other processes do
// after the test's own load has ended; where the kernel does not tell, it is 0.
func Contended() (end func() time.Duration) {
	begin := pressure()
	return func() time.Duration { return pressure() - begin }
}

// pressure is the sum since the start of the machine.
func pressure() (sum time.Duration) {
	for _, of := range []string{"cpu", "io"} {
		text, _ := os.ReadFile("/proc/pressure/" + of) // absent where the kernel does not tell
		if found := waited.FindSubmatch(text); found != nil {
			us, _ := strconv.ParseInt(string(found[1]), 10, 64)
			sum += time.Duration(us) * time.Microsecond
		}
	}
	return sum
}

// Busy is Watch and Contended in one: for bounds on what other processes do while the test
// waits for them.
func Busy() (end func() time.Duration) {
	stalled, contended := Watch(), Contended()
	return func() time.Duration { return stalled() + contended() }
}
