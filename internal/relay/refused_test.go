package relay_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/internal/relay"
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

// What others need for their bodies nobody takes whose key the upstream does not know.
func TestTheBodyOfAStrangersWatchIsNotRead(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		p := newPlace(t, "key-a:rw", func(o *relay.Options) { o.Limits.MaxInflightBytes = 1 << 20 })
		time.Sleep(time.Second)
		var held []net.Conn
		for _, framing := range []string{"Content-Length: 1048000\r\n", "Transfer-Encoding: chunked\r\n"} {
			c, err := p.front.dial(t.Context(), "", "")
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			go func() {
				body := "{" + strings.Repeat(" ", 900_000)
				if strings.HasPrefix(framing, "T") {
					body = fmt.Sprintf("%x\r\n%s", len(body), body)
				}
				// The relay reads as much as it wants.
				_, _ = io.WriteString(c, "POST /v0/watch HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"+framing+"\r\n"+body)
			}()
			held = append(held, c)
		}
		time.Sleep(2 * time.Second)
		if status, answer := p.call("key-a", "POST", "/v0/topics/log", `{"records":[{"data":"`+strings.Repeat("x", 60_000)+`"}]}`); status != http.StatusCreated {
			t.Errorf("somebody's write beside them: %d %.300s", status, answer)
		}
		for _, c := range held {
			head := make([]byte, 12)
			_ = c.SetReadDeadline(time.Now().Add(time.Minute))
			if _, err := io.ReadFull(c, head); err != nil || string(head) != "HTTP/1.1 401" {
				t.Errorf("the stranger is answered %q, %v", head, err)
			}
			c.Close()
		}
		time.Sleep(time.Second) // what net/http gives a connection that it closes
	})
}
