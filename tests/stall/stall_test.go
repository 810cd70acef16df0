package stall

import (
	"testing"
	"time"

	"github.com/weirmq/weir/tests/bubble"
)

func TestAMachineThatKeepsUpHasNotStalled(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		stalled := Watch()
		time.Sleep(time.Minute)
		if got := stalled(); got != 0 {
			t.Errorf("stalled for %s", got)
		}
	})
}
