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
		do    func()
		finds string
	}{
		"nothing":           {func() {}, ""},
		"one that ends":     {func() { go time.Sleep(20 * time.Millisecond) }, ""},
		"one of one's own":  {func() { go waits(stop) }, "leak_test.waits"},
		"one of one's ends": {func() { go func() { go waits(stop) }() }, "leak_test.waits"},
	} {
		t.Run(name, func(t *testing.T) {
			f := &failures{TB: t}
			leak.Check(f, 100*time.Millisecond, c.do)
			if all := strings.Join(f.said, "\n"); c.finds == "" && all != "" || !strings.Contains(all, c.finds) {
				t.Errorf("finds %q, want %q", all, c.finds)
			}
		})
	}
}

func waits(stop chan struct{}) { <-stop }
