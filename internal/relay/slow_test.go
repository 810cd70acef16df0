package relay_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/tests/bubble"
)

// A record takes longer to come than a server that is away would be waited for: a read of
// it, and the subscription that brings it, go on for as long as something comes.
func TestASlowWayToTheUpstreamHoldsNothingUp(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		p := newPlace(t, "")
		p.write("a", 2, 900_000, api.Memory)
		p.write("b", 1, 10, api.Memory)
		p.wire.set(func() { p.wire.rate = 40_000 })
		p.wire.cut()
		p.wire.up()
		time.Sleep(3 * time.Second)
		l := p.follow("", p.watch("", "a", "b"))
		l.reaches(t, "a", 2, 90*time.Second)
		p.write("a", 2, 900_000, api.Memory)
		p.write("b", 1, 10, api.Memory)
		l.reaches(t, "a", 4, 90*time.Second)
		l.reaches(t, "b", 2, 90*time.Second)
		if len(l.told()) > 0 {
			t.Errorf("nothing was lost, and the listener is told %v", l.told())
		}
	})
}

// An upstream that lives and says nothing is given up, in the middle of a message, too.
func TestAnUpstreamThatStopsInAMessageIsGivenUp(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		p := newPlace(t, "")
		p.write("a", 1, 10, api.Memory)
		l := p.follow("", p.watch("", "a"))
		l.reaches(t, "a", 1, time.Second)
		p.wire.set(func() { p.wire.rate = 40_000 })
		p.wire.cut()
		p.wire.up()
		time.Sleep(3 * time.Second)
		p.write("a", 1, 900_000, api.Memory)
		time.Sleep(7 * time.Second)
		p.wire.stop()
		p.wire.set(func() { p.wire.rate = 0 })
		l.reaches(t, "a", 2, 30*time.Second)
	})
}

// A client takes a message slowly, and pings meanwhile, as many libraries do.
func TestASocketOnASlowConnectionGetsLargeMessages(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		p := newPlace(t, "")
		p.write("a", 1, 900_000, api.Memory)
		p.wire.set(func() { p.wire.rate = 20_000 })
		client := &http.Client{Transport: &http.Transport{DialContext: p.wire.dial}}
		conn, _, err := websocket.Dial(t.Context(), "http://127.0.0.1:4001/v0/ws", &websocket.DialOptions{HTTPClient: client})
		if err != nil {
			t.Fatal(err)
		}
		defer conn.CloseNow()
		conn.SetReadLimit(-1)
		if err := conn.Write(t.Context(), websocket.MessageText, []byte(`{"op":"subscribe","topic":"a","from_seq":0}`)); err != nil {
			t.Fatal(err)
		}
		pinged := make(chan error, 1)
		go func() {
			time.Sleep(time.Second)
			pinged <- conn.Ping(t.Context())
		}()
		for want := range strings.FieldsSeq("subscribed record") {
			_, msg, err := conn.Read(t.Context())
			if err != nil || !strings.HasPrefix(string(msg), `{"op":"`+want) {
				t.Fatalf("%.100s %v instead of %s", msg, err, want)
			}
		}
		// The last of the message may have come before the answer.
		go func() { _, _, _ = conn.Read(t.Context()) }()
		if err := <-pinged; err != nil {
			t.Error(err)
		}
	})
}

// A message on its way to the upstream is given up when that takes nothing, however long the
// whole takes.
func TestALargePublishThroughASlowRelayIsStored(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		p := newPlace(t, "")
		p.wire.set(func() { p.wire.rate = 40_000 })
		conn, _, err := websocket.Dial(t.Context(), "http://127.0.0.1:4000/v0/ws", &websocket.DialOptions{HTTPClient: p.client})
		if err != nil {
			t.Fatal(err)
		}
		defer conn.CloseNow()
		var records []map[string]string
		for range 4 {
			records = append(records, map[string]string{"data": strings.Repeat("x", 900_000)})
		}
		msg, _ := json.Marshal(map[string]any{"op": "publish", "topic": "a", "records": records})
		if err := conn.Write(t.Context(), websocket.MessageText, msg); err != nil {
			t.Fatal(err)
		}
		if _, answer, err := conn.Read(t.Context()); err != nil || !strings.Contains(string(answer), `"op":"ack"`) {
			t.Errorf("%.300s %v", answer, err)
		}
	})
}
