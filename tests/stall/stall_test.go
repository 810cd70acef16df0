package stall

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestAMachineThatKeepsUpHasNotStalled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stalled := Watch()
		time.Sleep(time.Minute)
		if got := stalled(); got != 0 {
			t.Errorf("stalled for %s", got)
		}
	})
}
