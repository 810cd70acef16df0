package relay_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/tests/bubble"
)

// What came to the relay in one message goes to a listener in as many frames as it asked for.
func TestAListenerOfSmallFramesGetsAllOfALargeOne(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		p := newPlace(t, "")
		p.write("a", 1, 10, api.Fsync)
		l := p.follow("", p.session("", `{"topics":{"a":{"from_seq":0}},"limit":1}`))
		l.reaches(t, "a", 1, time.Second)
		if status, answer := p.call("", "POST", "/v0/topics/a", `{"records":[{"data":1},{"data":2},{"data":3}]}`); status != http.StatusOK {
			t.Fatalf("%d %s", status, answer)
		}
		l.reaches(t, "a", 4, time.Second)
		time.Sleep(time.Second)
		l.reaches(t, "a", 4, 0) // and nothing more, nor again
	})
}
