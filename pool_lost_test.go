package weir

import (
	"fmt"
	"testing"
	"time"

	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/backend/backendtest"
	"github.com/weirmq/weir/tests/bubble"
)

// An outage is how a server loses messages: that one began must not hide it.
func TestPoolTellsThatTheServerHasLostMessages(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		f := backendtest.NewFake(backendtest.FakeOptions{})
		log := &logged{}
		p := startPool(t, f, nothing, PoolConfig{Workers: 2, Logger: log.logger(), Block: 100 * time.Millisecond})
		time.Sleep(time.Second)
		back := f.Inject(backendtest.OpClaim, backendtest.Fault{Err: backend.ErrUnavailable})
		time.Sleep(10 * time.Second)
		back()
		f.Inject(backendtest.OpClaim, backendtest.Fault{Err: fmt.Errorf("%w: %w", backend.ErrUnavailable, backend.ErrDataLost), Times: 1})
		time.Sleep(4 * time.Second)
		if n := len(log.Lines("messages lost: the server has lost them")); n != 1 {
			t.Errorf("the loss was logged %d times", n)
		}
		p.finish()
	})
}
