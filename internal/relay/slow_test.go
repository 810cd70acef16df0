package relay_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/tests/bubble"
)

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
