package relay_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/internal/relay"
	"github.com/weirmq/weir/tests/bubble"
)

// reads is how often the relay has read upstream what listeners had missed.
func (p *place) reads() int { return p.metric("weir_relay_reads_total") }

// metric is a number of the relay's page.
func (p *place) metric(name string) (n int) {
	p.t.Helper()
	_, page := p.call("", "GET", "/metrics", "")
	var value float64
	for line := range strings.Lines(page) {
		fmt.Sscanf(line, name+" %g\n", &value)
	}
	return int(value)
}

// A crowd that is far back, each with frames of its own size and from a place of its own, costs the
// server about what one of them does.
func TestACrowdFarBackIsReadOnce(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		p := newPlace(t, "", func(o *relay.Options) { o.BufferBytes = 4 << 20 })
		const head, crowd = 5000, 30
		p.write("a", head, 10, api.Memory)
		p.follow("", p.session("", `{"topics":{"a":{"tail":true}}}`)) // for whom the relay has the topic
		time.Sleep(time.Second)
		var all []*listener
		var paths []string
		for i := range crowd {
			paths = append(paths, p.session("", fmt.Sprintf(`{"topics":{"a":{"from_seq":%d}},"limit":%d}`, 7*i, 50+i)))
		}
		p.reads() // whoever was shown the metrics is shown them while the server is away
		p.wire.cut()
		for i, path := range paths {
			l := p.listen("", path, "")
			l.at["a"] = uint64(7 * i)
			go l.read()
			all = append(all, l)
		}
		time.Sleep(time.Second)
		before := p.reads()
		p.wire.up()
		for _, l := range all {
			l.reaches(t, "a", head, 30*time.Second)
		}
		// Each may begin with a read of its own, and those who then go on at the same moment with another:
		// on a busy machine that was seen to be 72 in all. Alone, each would read five times.
		if n := p.reads() - before; n > 3*crowd+head/api.DefaultLimits().MaxLimit {
			t.Errorf("%d listeners who were %d records back cost %d reads", crowd, head, n)
		}
	})
}

// What the relay has read for others does not do for a listener who comes later: what was deleted in
// between must not come.
func TestWhatWasReadForOthersIsNotForWhoComesLater(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		p := newPlace(t, "")
		p.write("a", 10, 10, api.Fsync)
		path := p.session("", `{"topics":{"a":{}},"limit":3}`)
		if got := p.backlog(path); len(got) != 10 {
			t.Fatalf("a listener gets %v", got)
		}
		if n := p.metric("weir_relay_buffer_bytes"); n == 0 {
			t.Error("nothing is kept for others")
		}
		time.Sleep(10 * time.Second)
		if n := p.metric("weir_relay_buffer_bytes"); n != 0 {
			t.Errorf("%d bytes are kept that nobody reads", n)
		}
		path = p.session("", `{"topics":{"a":{}},"limit":3}`)
		if got := p.backlog(path); len(got) != 10 {
			t.Fatalf("a listener gets %v", got)
		}
		if status, answer := p.call("", "POST", "/v0/topics/a/delete", `{"min_seq":2,"before_seq":9}`); status != http.StatusOK {
			t.Fatalf("%d %s", status, answer)
		}
		if got, want := fmt.Sprint(p.backlog(p.session("", `{"topics":{"a":{}},"limit":3}`))), "[1 9 10]"; got != want {
			t.Errorf("a listener who comes after the delete gets %v, not %v", got, want)
		}
	})
}
