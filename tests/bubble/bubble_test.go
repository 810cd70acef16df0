package bubble_test

import (
	"sync"
	"testing"
	"time"

	"github.com/weirmq/weir/tests/bubble"
)

// A pooled channel of one bubble does not come up in the next.
func TestRunForgetsWhatABubblePooled(t *testing.T) {
	made := 0
	pool := sync.Pool{New: func() any { made++; return make(chan bool, 1) }}
	for range 3 {
		bubble.Run(t, func(*testing.T) {
			c := pool.Get().(chan bool)
			c <- true
			time.Sleep(time.Hour)
			<-c
			pool.Put(c)
		})
	}
	if made != 3 {
		t.Errorf("%d channels were made in three bubbles, want one in each", made)
	}
}
