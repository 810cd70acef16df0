package relay_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/tests/bubble"
)

// The relay's key may read less after a restart of the upstream: the streams of what it may
// still read go on, though all topics are subscribed at once.
func TestATopicThatTheRelayMayNotReadEndsNoOtherStream(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		p := newPlace(t, "key-a:r")
		var stay []*listener
		topic := func(i int) string { return fmt.Sprint("a", i) }
		for i := range 20 {
			p.write(topic(i), 1, 10, api.Fsync)
			stay = append(stay, p.follow("key-a", p.watch("key-a", topic(i))))
		}
		p.write("b", 1, 10, api.Fsync)
		ends := p.follow("key-a", p.watch("key-a", "b"))
		ends.reaches(t, "b", 1, time.Second)
		p.kill()
		p.keys = strings.Replace(p.keys, own+":r", own+":r:a", 1)
		begin := time.Now()
		p.start()
		if ends.over(begin, endsWithin) == 0 {
			t.Error("the stream of a topic that the relay may not read goes on")
		}
		for i, l := range stay {
			p.write(topic(i), 1, 10, api.Fsync)
			l.reaches(t, topic(i), 2, 5*time.Second)
		}
	})
}
