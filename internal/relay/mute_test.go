package relay_test

import (
	"errors"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/internal/server"
	"github.com/weirmq/weir/tests/bubble"
)

// An upstream that takes a subscription, lives and does not answer it is not waited for without
// end: the page of the relay shows the topic, and the next connection serves it.
func TestASubscriptionThatIsNotAnsweredIsAskedForAnew(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		p := newPlace(t, "")
		p.write("a", 1, 10, api.Fsync)
		l := p.follow("", p.watch("", "a"))
		l.reaches(t, "a", 1, time.Second)

		mute := p.mute()
		p.write("a", 1, 10, api.Fsync)
		unanswered := func(want string) {
			t.Helper()
			if _, page := p.call("", "GET", "/metrics", ""); !strings.Contains(page, "weir_relay_topics_unanswered "+want+"\n") {
				t.Errorf("the page does not say %s unanswered", want)
			}
		}
		time.Sleep(25 * time.Second)
		unanswered("1")
		mute.Store(false)
		l.reaches(t, "a", 2, 20*time.Second)
		unanswered("0")
		if len(l.told()) > 0 {
			t.Errorf("nothing was lost, and the listener is told %v", l.told())
		}
	})
}

// mute puts a server in the place of the upstream's that answers nothing on its WebSockets but pings.
func (p *place) mute() *atomic.Bool {
	mute := new(atomic.Bool)
	mute.Store(true)
	p.wire.cut()
	p.l.Close()
	<-p.served
	s := server.New(server.Config{Limits: api.DefaultLimits()}, server.Options{Version: "test"})
	s.SetEngine(p.eng)
	front := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !mute.Load() || r.Header.Get("Upgrade") == "" {
			s.ServeHTTP(w, r)
			return
		}
		conn, err := websocket.Accept(w, r, nil)
		for err == nil {
			_, _, err = conn.Read(r.Context())
		}
	})}
	p.l, p.served = p.wire.listen(), make(chan error, 1)
	go func() {
		err := front.Serve(p.l)
		if errors.Is(err, net.ErrClosed) {
			err = nil
		}
		s.Stop()
		p.served <- err
	}()
	p.wire.up()
	return mute
}
