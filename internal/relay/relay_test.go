package relay_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/coder/websocket"

	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/internal/relay"
	"github.com/weirmq/weir/tests/bubble"
	"github.com/weirmq/weir/tests/crashfs"
)

// endsWithin is how soon after the upstream's first refusal the streams of a key end.
const endsWithin = 5 * time.Second

func TestStreamsOfARevokedKeyEnd(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		p := newPlace(t, "key-a:r,key-b:r,key-c:r")
		p.write("a", 1, 10, api.Fsync)
		p.write("b", 1, 10, api.Fsync)
		gone := p.follow("key-a", p.watch("key-a", "a"))
		stays := p.follow("key-b", p.watch("key-b", "a", "b"))
		narrow := p.follow("key-c", p.watch("key-c", "a"))
		wide := p.follow("key-c", p.watch("key-c", "a", "b"))
		_, goneSocket := p.dialSocket("key-a", "a")
		_, idleSocket := p.dialSocket("key-a")
		_, wideSocket := p.dialSocket("key-c", "a", "b")
		_, staysSocket := p.dialSocket("key-b", "b")
		for _, l := range []*listener{gone, stays, narrow, wide} {
			l.reaches(t, "a", 1, time.Second)
		}
		p.kill()
		time.Sleep(time.Minute) // away is no refusal
		for what, ended := range map[string]<-chan struct{}{"a": gone.ended, "c": wide.ended, "a's socket": goneSocket, "c's socket": wideSocket} {
			select {
			case <-ended:
				t.Errorf("the stream of %s ends while the upstream is away", what)
			default:
			}
		}
		p.keys = "key-b:r,key-c:r:a," + own + ":r"
		begin := time.Now()
		p.start()
		for what, took := range map[string]time.Duration{
			"a stream of a revoked key": gone.over(begin, endsWithin), "a stream of a topic that its key may not read any more": wide.over(begin, endsWithin),
			"a socket of a topic that its key may not read any more": over(wideSocket, begin), "a socket of a revoked key": over(goneSocket, begin), "an idle socket of a revoked key": over(idleSocket, begin),
		} {
			if took == 0 || took > endsWithin {
				t.Errorf("%s goes on %v after the upstream refuses it (0: until now)", what, took)
			}
		}
		time.Sleep(time.Minute)
		p.write("a", 1, 10, api.Fsync)
		stays.reaches(t, "a", 2, 5*time.Second)
		narrow.reaches(t, "a", 2, 5*time.Second)
		select {
		case <-staysSocket:
			t.Error("the socket of a key that is known has ended")
		default:
		}
		if status, answer := p.call("key-a", "POST", "/v0/watch", `{"topics":{"a":{}}}`); status != http.StatusUnauthorized {
			t.Errorf("a watch with the revoked key: %d %s", status, answer)
		}
	})
}

func over(ended <-chan struct{}, begin time.Time) time.Duration {
	return (&listener{ended: toChan(ended)}).over(begin, endsWithin)
}

func toChan(in <-chan struct{}) chan struct{} {
	out := make(chan struct{})
	go func() { <-in; close(out) }()
	return out
}

// A server that had no keys has some now: nobody who has none listens on.
func TestStreamsWithoutAKeyEndWhenTheUpstreamWantsOne(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		p := newPlace(t, "", func(o *relay.Options) { o.Key = own })
		p.write("a", 1, 10, api.Fsync)
		path := p.watch("", "a")
		l := p.follow("", path)
		l.reaches(t, "a", 1, time.Second)
		p.kill()
		p.keys = own + ":r"
		begin := time.Now()
		p.start()
		if took := l.over(begin, endsWithin); took == 0 {
			t.Error("a stream without a key goes on")
		}
		resp := p.do("", "GET", path, "", "")
		resp.Body.Close()
		if resp.StatusCode != http.StatusUnauthorized {
			t.Errorf("a session that was made without a key is answered %d", resp.StatusCode)
		}
	})
}

func TestListenersSeeAllOverALostUpstream(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		p := newPlace(t, "")
		p.write("a", 1, 10, api.Fsync)
		l := p.follow("", p.watch("", "a"))
		for i := range 20 {
			p.write("a", 7, 10, api.Fsync)
			switch i % 4 {
			case 0:
				p.wire.cut()
				p.write("a", 7, 10, api.Fsync)
				time.Sleep(time.Duration(i) * 100 * time.Millisecond)
				p.wire.up()
			case 1:
				p.kill()
				time.Sleep(time.Duration(i) * 100 * time.Millisecond)
				p.start()
				p.write("a", 7, 10, api.Fsync)
			case 2:
				time.Sleep(time.Second)
			}
		}
		l.reaches(t, "a", 1+20*7+10*7, 10*time.Second)
		if len(l.told()) > 0 {
			t.Errorf("nothing was lost, and the listener is told %v", l.told())
		}
	})
}

// What a stream finds when it begins is as at the server: what was deleted is not there, though the relay
// has it in its buffer, on whichever frame it would come.
func TestANewListenerGetsNothingThatWasDeleted(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		p := newPlace(t, "")
		p.write("a", 1, 10, api.Fsync)
		const watch = `{"topics":{"a":{}},"limit":2}`
		sessions := map[string]string{"of the topic's former life": p.session("", watch)}
		if status, answer := p.call("", "DELETE", "/v0/topics/a", ""); status != http.StatusOK {
			t.Fatalf("%d %s", status, answer)
		}
		p.write("a", 1, 10, api.Fsync)
		other := p.follow("", p.watch("", "a")) // for whom the relay has a buffer
		other.reaches(t, "a", 1, time.Second)
		p.write("a", 9, 10, api.Fsync)
		other.reaches(t, "a", 10, time.Second)
		if status, answer := p.call("", "POST", "/v0/topics/a/delete", `{"min_seq":5,"before_seq":9}`); status != http.StatusOK {
			t.Fatalf("%d %s", status, answer)
		}
		sessions["that is new"] = p.session("", watch)
		for name, path := range sessions {
			if got, want := p.backlog(path), []uint64{1, 2, 3, 4, 9, 10}; !slices.Equal(got, want) {
				t.Errorf("a session %s gets %v, not %v", name, got, want)
			}
		}
	})
}

// What a power cut takes is announced to whoever listens, and the rest is whole.
func TestWhatTheUpstreamHasLostIsAnnounced(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		p := newPlace(t, "")
		p.write("a", 5, 10, api.Disk)
		l := p.follow("", p.watch("", "a"))
		l.reaches(t, "a", 5, time.Second)
		p.write("a", 5, 10, api.Disk) // synced by nobody
		l.reaches(t, "a", 10, time.Second)
		p.kill()
		p.start()
		p.write("a", 5, 10, api.Disk)
		st, err := p.eng.Topic("a", false)
		if err != nil {
			t.Fatal(err)
		}
		if st.HeadSeq <= 15 {
			t.Fatalf("nothing was lost: this test shows nothing; head %d", st.HeadSeq)
		}
		l.reaches(t, "a", st.HeadSeq, 10*time.Second)
		if len(l.told()) != 1 || !strings.HasPrefix(l.told()[0], "a 11-") || !strings.HasSuffix(l.told()[0], "crash") {
			t.Errorf("the listener is told %v", l.told())
		}
	})
}

// The upstream comes back with another state, in which the session's topic has another life:
// one from before it was created again, or that of another topic by its name.
func TestASessionGoesOnWhenTheUpstreamHasAnotherState(t *testing.T) {
	for _, older := range []bool{true, false} {
		bubble.Run(t, func(t *testing.T) {
			p := newPlace(t, "")
			p.write("a", 2, 10, api.Fsync)
			other := p.fs.CrashClone(vfs.CrashCloneCfg{})
			if !older {
				other = crashfs.New()
			}
			if _, err := p.eng.DeleteTopic(t.Context(), "a", false); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
			p.write("a", 5, 10, api.Fsync)
			l, later := p.follow("", p.watch("", "a")), p.watch("", "a")
			l.reaches(t, "a", 5, time.Second)
			p.kill()
			p.fs = other
			p.start()
			p.write("a", 2, 10, api.Fsync)
			for _, follow := range []func() *listener{func() *listener { return l }, func() *listener { return p.follow("", later) }} {
				l := follow()
				if told := l.gap(20 * time.Second); !strings.HasSuffix(told, "recreated") {
					t.Errorf("older %v: a listener is told %q", older, told)
				}
				l.reaches(t, "a", 2, 20*time.Second)
			}
		})
	}
}

func TestASlowListenerCostsTheOthersNothingAndMissesNothing(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		p := newPlace(t, "", func(o *relay.Options) { o.BufferBytes = 64 << 10 })
		p.write("a", 1, 10, api.Fsync)
		path := p.watch("", "a")
		slow := p.listen("", path, "")
		fast := p.follow("", path)
		fast.reaches(t, "a", 1, time.Second)
		const n = 450 // more than an outbox takes
		for i := range n / 10 {
			p.write("a", 10, 10_000, api.Memory)
			fast.reaches(t, "a", uint64(1+10*(i+1)), time.Second)
		}
		go slow.read()
		slow.reaches(t, "a", 1+n, 10*time.Second)
		if len(slow.told())+len(fast.told()) > 0 {
			t.Errorf("nothing was lost: %v, %v", slow.told(), fast.told())
		}
	})
}

// Every connection to the upstream breaks after so many bytes, in the middle of whatever is
// answered, until the network is well again.
func TestAnAnswerThatBreaksOffIsReadAgain(t *testing.T) {
	for _, limit := range []int{300, 1000, 5000, 20_000} {
		bubble.Run(t, func(t *testing.T) {
			p := newPlace(t, "", func(o *relay.Options) { o.BufferBytes = 4 << 10 })
			p.write("a", 100, 100, api.Memory)
			path := p.watch("", "a")
			p.wire.set(func() { p.wire.limit = limit })
			l := p.listen("", path, "")
			go l.read()
			p.wire.cut()
			p.wire.up()
			for range 20 {
				p.write("a", 20, 100, api.Memory)
				time.Sleep(200 * time.Millisecond)
			}
			p.wire.set(func() { p.wire.limit = 0 })
			p.wire.cut()
			p.wire.up()
			l.reaches(t, "a", 500, 20*time.Second)
			if len(l.told()) > 0 {
				t.Errorf("%d bytes at a time: nothing was lost, and the listener is told %v", limit, l.told())
			}
		})
	}
}

// What could not be read upstream is read a little later, also while nothing else happens.
func TestAReadThatFailsIsMadeAgain(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		p := newPlace(t, "")
		p.write("a", 100, 100, api.Memory)
		path := p.watch("", "a")
		p.wire.set(func() { p.wire.refused = "/diff" })
		l := p.follow("", path)
		time.Sleep(2 * time.Second)
		p.wire.set(func() { p.wire.refused = "" })
		l.reaches(t, "a", 100, 2*time.Second)
	})
}

// One socket to the upstream has room for so many topics; the relay opens another. A session
// or socket of its clients has that limit, too.
func TestMoreTopicsThanASocketTakes(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		p := newPlace(t, "")
		most := api.DefaultLimits().MaxWatchTopics
		var all []*listener
		var topics []string
		for i := range most + 50 {
			topic := fmt.Sprintf("t%03d", i)
			topics = append(topics, topic)
			p.write(topic, 1, 10, api.Memory)
			if i%50 == 49 {
				all = append(all, p.follow("", p.watch("", topics[i-49:]...)))
			}
		}
		time.Sleep(time.Second)
		for _, topic := range topics {
			p.write(topic, 1, 10, api.Memory)
		}
		for i, l := range all {
			for _, topic := range topics[50*i : 50*i+50] {
				l.reaches(t, topic, 2, 5*time.Second)
			}
		}
		if n := p.relay.Topics(); n < 50*len(all) {
			t.Errorf("the relay has %d topics", n)
		}
		body := `{"topics":{"` + strings.Join(topics[:most+1], `":{},"`) + `":{}}}`
		if status, answer := p.call("", "POST", "/v0/watch", body); status != http.StatusBadRequest || !strings.Contains(answer, fmt.Sprint(most)) {
			t.Errorf("a watch of %d topics: %d %s", most+1, status, answer)
		}
	})
}

// What the upstream would warn of it has to refuse, if the relay's client wants that.
func TestAStrictSocketIsStrictUpstream(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		p := newPlace(t, "")
		synctest.Wait()
		conn, _, err := websocket.Dial(t.Context(), "http://127.0.0.1:4000/v0/ws", &websocket.DialOptions{HTTPClient: p.client, HTTPHeader: http.Header{"Weir-Strict": {"true"}}})
		if err != nil {
			t.Fatal(err)
		}
		defer conn.CloseNow()
		for data, want := range []string{`"op":"ack"`, `"code":"idempotency_key_reused"`} {
			msg := fmt.Sprintf(`{"op":"publish","topic":"a","idempotency_key":"k","records":[{"data":%d}]}`, data)
			if err := conn.Write(t.Context(), websocket.MessageText, []byte(msg)); err != nil {
				t.Fatal(err)
			}
			_, answer, err := conn.Read(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(string(answer), want) || data > 0 && !strings.Contains(string(answer), `"op":"error"`) {
				t.Errorf("%s is answered with %s", msg, answer)
			}
		}
	})
}

func TestTheBodyOfAWatchIsReadLikeOthers(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		p := newPlace(t, "", func(o *relay.Options) { o.Limits.MaxInflightBytes, o.Limits.MaxBodyBytes = 100_000, 200_000 })
		p.write("a", 1, 10, api.Fsync)
		synctest.Wait()
		for size, want := range map[int]string{
			50_000:  `"wid"`,
			150_000: `"max_inflight_bytes"`,
			250_000: `"payload_too_large"`,
		} {
			status, answer := p.call("", "POST", "/v0/watch", `{"topics":{"a":{}}}`+strings.Repeat(" ", size))
			if !strings.Contains(answer, want) {
				t.Errorf("a watch of %d bytes: %d %s", size, status, answer)
			}
		}
	})
}

// TestARelayThatTakesSmallBodiesPassesLargeRecordsOn: what its callers may send says nothing about what the
// server does.
func TestARelayThatTakesSmallBodiesPassesLargeRecordsOn(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		p := newPlace(t, "", func(opt *relay.Options) { opt.Limits.MaxBodyBytes = 4 << 10 })
		p.write("large", 1, 10, api.Fsync)
		p.write("small", 1, 10, api.Fsync)
		l := p.follow("", p.watch("", "large", "small"))
		for _, topic := range []string{"large", "small"} {
			l.reaches(t, topic, 1, time.Second)
		}
		p.write("large", 1, 2<<20, api.Fsync)
		p.write("small", 1, 10, api.Fsync)
		for _, topic := range []string{"large", "small"} {
			l.reaches(t, topic, 2, 5*time.Second)
		}
	})
}
