package leak_test

import (
	"strings"
	"testing"
	"time"

	"github.com/weirmq/weir/tests/leak"
)

// failures is a test that keeps what is said of it.
type failures struct {
	testing.TB
	said []string
}

func (f *failures) Errorf(format string, args ...any) {
	f.said = append(f.said, format+" "+args[0].(string))
}

// A goroutine of somebody else does not count, one of a goroutine that has ended does, and one
// that ends in time does not.
func TestCheck(t *testing.T) {
	stop := make(chan struct{})
	defer close(stop)
	go func() { <-stop }()
	for name, c := range map[string]struct {
		within time.Duration
		do     func()
		finds  string
	}{
		"nothing":           {time.Minute, func() {}, ""},
		"one that ends":     {time.Minute, func() { go time.Sleep(20 * time.Millisecond) }, ""},
		"one of one's own":  {0, func() { begun(func(b chan struct{}) { go waits(b, stop) }) }, "leak_test.waits"},
		"one of one's ends": {0, func() { begun(func(b chan struct{}) { go func() { go waits(b, stop) }() }) }, "leak_test.waits"},
	} {
		t.Run(name, func(t *testing.T) {
			f := &failures{TB: t}
			leak.Check(f, c.within, c.do)
			if all := strings.Join(f.said, "\n"); c.finds == "" && all != "" || !strings.Contains(all, c.finds) {
				t.Errorf("finds %q, want %q", all, c.finds)
			}
		})
	}
}

// begun returns once the goroutine that start gives the channel to runs.
func begun(start func(chan struct{})) {
	b := make(chan struct{})
	start(b)
	<-b
}

func waits(begun, stop chan struct{}) {
	close(begun)
	<-stop
}
