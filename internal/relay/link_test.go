package relay_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/internal/relay"
	"github.com/weirmq/weir/tests/bubble"
)

// A topic costs something upstream while somebody listens, and a little longer.
func TestATopicThatNobodyWantsIsNotSent(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		const records, size = 200, 1000
		p := newPlace(t, "")
		p.write("a", 1, 10, api.Memory)
		l := p.follow("", p.watch("", "a"))
		l.reaches(t, "a", 1, time.Second)
		sent := func() int {
			t.Helper()
			before := p.metric("weir_relay_received_bytes_total")
			p.write("a", records, size, api.Memory)
			time.Sleep(time.Second)
			return p.metric("weir_relay_received_bytes_total") - before
		}
		if n := sent(); n < records*size {
			t.Errorf("with a listener the relay is sent %d bytes", n)
		}
		l.body.Close()
		time.Sleep(10 * time.Second)
		if n := sent(); n < records*size {
			t.Errorf("soon after its listener has gone the relay is sent %d bytes", n)
		}
		time.Sleep(time.Minute)
		if n := sent(); n > records*size/10 {
			t.Errorf("a minute after its listener has gone the relay is sent %d bytes", n)
		}
		if n := p.metric("weir_relay_topics"); n != 0 {
			t.Errorf("it has %d topics", n)
		}
	})
}

// A topic has no connection of its own.
func TestTopicsShareAConnection(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		const topics = 100
		p := newPlace(t, "")
		made := func() (n int) {
			p.wire.set(func() { n = len(p.wire.conns) / 2 })
			return n
		}
		time.Sleep(time.Second)
		before := made()
		for i := range topics {
			name := fmt.Sprint("t", i)
			p.write(name, 1, 10, api.Memory)
			p.follow("", p.watch("", name)).reaches(t, name, 1, time.Second)
		}
		if n := made() - before; n > topics/10 {
			t.Errorf("%d connections are made for %d topics", n, topics)
		}
	})
}

// logged are the lines of a log.
type logged struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logged) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *logged) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), text)
}

// An upstream may be away for hours, and is tried each second.
func TestTheLogSaysOnceThatTheUpstreamIsAway(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		var log logged
		p := newPlace(t, "", func(o *relay.Options) { o.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
		says := func(when string, away, connected int) {
			t.Helper()
			if a, c := log.count("the upstream is away"), log.count("connected to the upstream"); a < min(away, 1) || a > away || c != connected {
				t.Errorf("%s it says %d times that the upstream is away and %d times that it is there; want at most %d and %d", when, a, c, away, connected)
			}
		}
		time.Sleep(time.Second)
		says("at first", 0, 1)
		p.kill()
		time.Sleep(10 * time.Minute)
		says("after ten minutes", 2, 1) // the connection ends, and then there is none
		p.start()
		time.Sleep(10 * time.Second)
		says("in the end", 2, 2)
	})
}
