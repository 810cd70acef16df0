package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/tests/bubble"
)

// badServer answers watches with a script: the nth stream gets the nth entry.
type badServer struct {
	*Client
	streams []func(w http.ResponseWriter, r *http.Request)

	mu       sync.Mutex
	sessions []map[string]uint64 // where each POST watch began
	lastIDs  []string            // of each stream
}

func startBadServer(t *testing.T, streams ...func(http.ResponseWriter, *http.Request)) *badServer {
	b := &badServer{streams: streams}
	srv := httptest.NewServer(b)
	t.Cleanup(srv.Close)
	b.Client = New(srv.URL, "k3y")
	t.Cleanup(b.Client.Close)
	return b
}

func (b *badServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Authorization") != "Bearer k3y" {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	b.mu.Lock()
	if r.Method == http.MethodPost {
		defer b.mu.Unlock()
		var body struct {
			Topics map[string]struct {
				FromSeq uint64 `json:"from_seq"`
			} `json:"topics"`
		}
		_ = json.NewDecoder(r.Body).Decode(&body)
		from := map[string]uint64{}
		for topic, o := range body.Topics {
			from[topic] = o.FromSeq
		}
		b.sessions = append(b.sessions, from)
		for _, topic := range []string{"absent", "leaves"} { // the second is there for the first session
			if _, ok := from[topic]; ok && (topic == "absent" || len(b.sessions) > 1) {
				refuse(w, 404, fmt.Sprintf(`{"error":{"code":"topic_not_found","message":"m","detail":{"topic":%q}}}`, topic))
				return
			}
		}
		fmt.Fprintf(w, `{"wid":"wid_%d"}`, len(b.sessions))
		return
	}
	n := len(b.lastIDs)
	b.lastIDs = append(b.lastIDs, r.Header.Get("Last-Event-ID"))
	b.mu.Unlock()
	b.streams[min(n, len(b.streams)-1)](w, r)
}

func refuse(w http.ResponseWriter, status int, body string) {
	w.WriteHeader(status)
	_, _ = io.WriteString(w, body)
}

// sends is a stream that sends the text and ends cleanly.
func sends(text string) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, text)
	}
}

// cutAfter is a stream that breaks behind the text.
func cutAfter(text string) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, r *http.Request) {
		sends(text)(w, r)
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	}
}

func refuses(status int, body string) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, _ *http.Request) { refuse(w, status, body) }
}

const hint = "retry: 60\n\n"

func records(topic string, from, to uint64) string {
	var list []string
	for seq := from + 1; seq <= to; seq++ {
		list = append(list, fmt.Sprintf(`{"$seq":%d,"$ts":1,"data":%d}`, seq, seq))
	}
	return fmt.Sprintf("id: %s%d\nevent: record\ndata: {\"topic\":%q,\"from_seq\":%d,\"head_seq\":%d,\"records\":[%s],\"to_seq\":%d}\n\n",
		topic, to, topic, from, to, strings.Join(list, ","), to)
}

func gone(topic string) string {
	return fmt.Sprintf("event: topic-deleted\ndata: {\"topic\":%q,\"head_seq\":0,\"reason\":\"deleted\"}\n\n", topic)
}

// told collects what Follow tells.
type told struct {
	seqs    []uint64
	gaps    []WatchTombstone
	deleted []string
	advice  []WatchAdvice
	lost    []error
	opened  int
}

func (o *told) events() WatchEvents {
	return WatchEvents{
		Records: func(e WatchRecords) error {
			for _, r := range e.Records {
				o.seqs = append(o.seqs, r.Seq)
			}
			return nil
		},
		Tombstone: func(e WatchTombstone) error { o.gaps = append(o.gaps, e); return nil },
		Deleted:   func(e WatchTopic) error { o.deleted = append(o.deleted, e.Topic); return nil },
		Advice:    func(e WatchAdvice) { o.advice = append(o.advice, e) },
		Connected: func() { o.opened++ },
		Lost:      func(err error) { o.lost = append(o.lost, err) },
	}
}

func (b *badServer) follow(t *testing.T, from map[string]uint64) (*told, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	o := &told{}
	err := b.Follow(ctx, Watch{From: from}, o.events())
	return o, err
}

func wantSeqs(t *testing.T, o *told, want ...uint64) {
	t.Helper()
	if !reflect.DeepEqual(o.seqs, want) {
		t.Errorf("delivered %v, want %v", o.seqs, want)
	}
}

func TestAStreamCutInsideAFrameGoesOnBehindTheLastWholeOne(t *testing.T) {
	second := records("a", 2, 4)
	b := startBadServer(t,
		cutAfter(hint+records("a", 0, 2)+second[:len(second)-1]),
		sends(hint+second+gone("a")))
	o, err := b.follow(t, map[string]uint64{"a": 0})
	if err != nil || o.opened != 2 || len(o.lost) != 1 {
		t.Errorf("%v; opened %d, lost %v", err, o.opened, o.lost)
	}
	wantSeqs(t, o, 1, 2, 3, 4)
	if want := []string{"", "a2"}; !reflect.DeepEqual(b.lastIDs, want) {
		t.Errorf("Last-Event-IDs %q, want %q", b.lastIDs, want)
	}
	if len(b.sessions) != 1 {
		t.Errorf("%d sessions, want one", len(b.sessions))
	}
}

func TestALostSessionIsMadeAnewFromTheLastPositions(t *testing.T) {
	gap := "id: b7\nevent: tombstone\ndata: {\"topic\":\"b\",\"reason\":\"cap\",\"gap_from\":1,\"gap_to\":7,\"earliest_seq\":8,\"head_seq\":9}\n\n"
	b := startBadServer(t,
		cutAfter(hint+records("a", 0, 2)+gap),
		refuses(404, `{"error":{"code":"not_found","message":"m"}}`),
		sends(hint+records("a", 2, 3)+gone("a")+gone("b")))
	o, err := b.follow(t, map[string]uint64{"a": 0, "b": 0})
	if err != nil {
		t.Fatal(err)
	}
	wantSeqs(t, o, 1, 2, 3)
	if want := (map[string]uint64{"a": 2, "b": 7}); len(b.sessions) != 2 || !maps.Equal(b.sessions[1], want) {
		t.Errorf("sessions %v, the second from %v", b.sessions, want)
	}
	if want := []string{"", "b7", ""}; !reflect.DeepEqual(b.lastIDs, want) {
		t.Errorf("Last-Event-IDs %q, want %q", b.lastIDs, want)
	}
	if len(o.gaps) != 1 || o.gaps[0].Recreated() {
		t.Errorf("gaps %+v", o.gaps)
	}
}

// A key with other rights than it had is another one to the session, and may be good for a new one.
func TestASessionThatIsAnotherKeysByNowIsMadeAnew(t *testing.T) {
	another := refuses(401, `{"error":{"code":"unauthorized","message":"m"}}`)
	b := startBadServer(t, cutAfter(hint+records("a", 0, 2)), another, sends(hint+records("a", 2, 3)+gone("a")))
	o, err := b.follow(t, map[string]uint64{"a": 0})
	if err != nil {
		t.Fatal(err)
	}
	wantSeqs(t, o, 1, 2, 3)
	b = startBadServer(t, cutAfter(hint+records("a", 0, 2)), another)
	if _, err := b.follow(t, map[string]uint64{"a": 0}); !api.IsCode(err, "unauthorized") || len(b.sessions) != 2 {
		t.Errorf("one that is never this key's: %v after %d sessions", err, len(b.sessions))
	}
}

func TestAStreamThatBrokeBeforeItsFirstIDIsNotResumed(t *testing.T) {
	b := startBadServer(t, cutAfter(hint), sends(records("a", 5, 6)+gone("a")))
	o, err := b.follow(t, map[string]uint64{"a": 5})
	if err != nil {
		t.Fatal(err)
	}
	wantSeqs(t, o, 6)
	if len(b.sessions) != 2 || b.sessions[1]["a"] != 5 {
		t.Errorf("sessions %v: the server may have sent what never came", b.sessions)
	}
}

func TestATopicCreatedAgainIsReadFromItsStart(t *testing.T) {
	again := "id: x\nevent: tombstone\ndata: {\"topic\":\"a\",\"reason\":\"from_seq_too_old\",\"gap_from\":1,\"gap_to\":3,\"earliest_seq\":1,\"head_seq\":3}\n\n"
	b := startBadServer(t, cutAfter(again), refuses(404, `{}`), sends(records("a", 0, 3)+gone("a")))
	o, err := b.follow(t, map[string]uint64{"a": 9})
	if err != nil || len(o.gaps) != 1 || !o.gaps[0].Recreated() {
		t.Errorf("%v, gaps %+v", err, o.gaps)
	}
	wantSeqs(t, o, 1, 2, 3)
	if len(b.sessions) != 2 || b.sessions[1]["a"] != 0 {
		t.Errorf("sessions %v", b.sessions)
	}
}

// A topic that is deleted and created again while it is watched is no topic that is gone: the end of the
// stream is not the watch's.
func TestATopicCreatedAgainOnOneStreamIsWatchedOn(t *testing.T) {
	again := "id: x\nevent: tombstone\ndata: {\"topic\":\"a\",\"reason\":\"recreated\",\"gap_from\":1,\"gap_to\":9,\"earliest_seq\":1,\"head_seq\":2}\n\n"
	b := startBadServer(t,
		sends(hint+gone("a")+again+records("a", 0, 2)),
		sends(records("a", 2, 3)+gone("a")))
	o, err := b.follow(t, map[string]uint64{"a": 9})
	if err != nil || !reflect.DeepEqual(o.deleted, []string{"a", "a"}) {
		t.Errorf("%v; deleted %v", err, o.deleted)
	}
	wantSeqs(t, o, 1, 2, 3)
}

// A stream that has told something is connected again soon, however many tries it took before. Where the
// server says when to come, that is neither at once nor never, and as it ends, no earlier.
func TestHowLongAWatchWaitsForItsServer(t *testing.T) {
	f := follower{retry: watchRetryLimit, at: map[string]uint64{"a": 0}}
	for range 20 {
		f.pause(errSilent)
	}
	if d := f.pause(errSilent); d < watchRetryLimit/2 || d > watchRetryLimit {
		t.Errorf("%v after many tries in vain, want about %v", d, watchRetryLimit)
	}
	if d := f.pause(&api.Error{Code: api.CodeThrottled, RetryAfter: maxRetryAfter}); d != maxRetryAfter {
		t.Errorf("%v before it comes back to a server that asks for %v", d, maxRetryAfter)
	}
	_ = f.frames(newFrameReader(strings.NewReader(records("a", 0, 1)), maxAnswerBytes))
	if d := f.pause(errSilent); d > watchRetryBase {
		t.Errorf("%v after a stream with a frame, want %v at most", d, watchRetryBase)
	}
	if d := f.pause(&StreamEnded{Code: streamCodeShutdown}); d != watchRetryLimit {
		t.Errorf("%v before it comes back to a server that ends, want the %v of its hint", d, watchRetryLimit)
	}
	for hint, want := range map[string]time.Duration{"0": minRetry, "60": 60 * time.Millisecond, "86400000": maxRetry} {
		r := newFrameReader(strings.NewReader("retry: "+hint+"\n\n"), maxAnswerBytes)
		if _, err := r.next(); !errors.Is(err, io.EOF) || r.retry != want {
			t.Errorf("a hint of %s ms: %v (%v), want %v", hint, r.retry, err, want)
		}
	}
}

func TestErrorFramesAreAdviceOrTheReasonOfTheEnd(t *testing.T) {
	b := startBadServer(t,
		sends(hint+"event: error\ndata: {\"code\":429,\"error\":\"e\",\"retry_after_ms\":1500,\"topics\":[\"a\"]}\n\n"+records("a", 0, 1)+
			"event: error\ndata: {\"code\":\"slow_consumer\",\"error\":\"e\",\"message\":\"too\\u001bslow\"}\n\n"),
		sends(hint+"event: error\ndata: {\"code\":410,\"error\":\"e\",\"message\":\"m\"}\n\n"),
		sends("event: error\ndata: {\"code\":\"server_shutting_down\",\"error\":\"e\",\"message\":\"m\"}\n\n"),
		sends(": a comment\r\n\r\nevent: news\ndata: of a later version\n\n"+records("a", 1, 2)+gone("a")))
	o, err := b.follow(t, map[string]uint64{"a": 0})
	if err != nil {
		t.Fatal(err)
	}
	wantSeqs(t, o, 1, 2)
	if want := []WatchAdvice{{[]string{"a"}, 1500 * time.Millisecond}}; !reflect.DeepEqual(o.advice, want) {
		t.Errorf("advice %v", o.advice)
	}
	var codes []string
	for _, err := range o.lost {
		var end *StreamEnded
		if errors.As(err, &end) {
			codes = append(codes, end.Code)
		}
		if strings.Contains(err.Error(), "\x1b") {
			t.Errorf("error %q steers a terminal", err)
		}
	}
	if want := []string{"slow_consumer", "410", "server_shutting_down"}; !reflect.DeepEqual(codes, want) {
		t.Errorf("reasons %v, want %v", codes, want)
	}
	if len(b.sessions) < 2 {
		t.Error("the dropped session was used again")
	}
}

func TestATopicThatIsGoneLeavesTheOthersWatched(t *testing.T) {
	b := startBadServer(t, sends(hint+gone("b")+records("a", 0, 1)), sends(gone("b")+records("a", 1, 2)+gone("a")))
	o, err := b.follow(t, map[string]uint64{"a": 0, "b": 0})
	if err != nil {
		t.Fatal(err)
	}
	wantSeqs(t, o, 1, 2)
}

func TestAnAbsentTopicIsAnErrorAtTheStartOnly(t *testing.T) {
	b := startBadServer(t, sends(hint))
	if _, err := b.follow(t, map[string]uint64{"absent": 0}); !api.IsCode(err, "topic_not_found") {
		t.Errorf("error %v", err)
	}
}

func TestATopicThatWentWithTheSessionIsToldAsDeleted(t *testing.T) {
	b := startBadServer(t, cutAfter(hint+records("a", 0, 1)), refuses(404, `{}`), sends(records("a", 1, 2)+gone("a")))
	o, err := b.follow(t, map[string]uint64{"a": 0, "leaves": 3})
	if err != nil || !reflect.DeepEqual(o.deleted, []string{"leaves", "a"}) {
		t.Errorf("%v, deleted %v", err, o.deleted)
	}
	wantSeqs(t, o, 1, 2)
}

func TestRefusalsThatStayEndTheWatch(t *testing.T) {
	b := startBadServer(t, refuses(403, `{"error":{"code":"forbidden","message":"m"}}`))
	if o, err := b.follow(t, map[string]uint64{"a": 0}); !api.IsCode(err, "forbidden") || len(o.lost) > 0 {
		t.Errorf("error %v", err)
	}
}

func TestAFullOrRecoveringServerIsTriedAgain(t *testing.T) {
	b := startBadServer(t,
		refuses(503, `{"error":{"code":"not_ready","message":"m"}}`),
		refuses(429, `{"error":{"code":"throttled","message":"m","detail":{"limit":"max_sse_connections","max":1,"retry_after_ms":20}}}`),
		sends(records("a", 0, 1)+gone("a")))
	o, err := b.follow(t, map[string]uint64{"a": 0})
	if err != nil || len(o.lost) != 2 {
		t.Errorf("%v, lost %v", err, o.lost)
	}
	wantSeqs(t, o, 1)
}

func TestAnErrorOfAnEventEndsTheWatch(t *testing.T) {
	full := errors.New("the disk is full")
	b := startBadServer(t, sends(records("a", 0, 1)))
	err := b.Follow(t.Context(), Watch{From: map[string]uint64{"a": 0}}, WatchEvents{Records: func(WatchRecords) error { return full }})
	if err != full {
		t.Errorf("error %v", err)
	}
}

func TestAFrameThatIsTooLargeIsNotAskedForAgain(t *testing.T) {
	for name, text := range map[string]string{
		"a line":  "data: " + strings.Repeat("x", 200),
		"a frame": strings.Repeat("data: "+strings.Repeat("x", 20)+"\n", 10),
	} {
		b := startBadServer(t, sends(text))
		f := testFollower(b)
		if err := f.connect(t.Context()); !errors.Is(err, errFrameTooLarge) || lostStream(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestASilentStreamCountsAsLost(t *testing.T) {
	b := startBadServer(t, func(w http.ResponseWriter, r *http.Request) {
		sends(hint)(w, r)
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	})
	f := testFollower(b)
	f.silence = time.Second
	if err := f.connect(t.Context()); !errors.Is(err, errSilent) || !lostStream(err) {
		t.Errorf("error %v", err)
	}
	if f.retry != 60*time.Millisecond {
		t.Errorf("the hint is taken as %v", f.retry)
	}
}

// Whoever takes long over an event is not told that the stream was silent.
func TestTheTimeBetweenTwoReadsIsNoSilence(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		silent := false
		timer := time.AfterFunc(watchSilence, func() { silent = true })
		r := &impatientReader{strings.NewReader("ab"), timer, watchSilence}
		for range 2 {
			if _, err := r.Read(make([]byte, 1)); err != nil {
				t.Fatal(err)
			}
			time.Sleep(2 * watchSilence)
		}
		if silent {
			t.Error("the stream counts as silent")
		}
	})
}

// A hint counts from then on: not for a session that is gone, and a stream without one takes it back from
// nobody.
func TestTheHintOfAStreamLastsUntilTheNext(t *testing.T) {
	const ended = "event: error\ndata: {\"code\":410,\"error\":\"e\",\"message\":\"m\"}\n\n"
	b := startBadServer(t, sends(hint+ended), sends(""), sends(hint), sends(""))
	f := testFollower(b)
	for stream, want := range []time.Duration{watchRetryLimit, watchRetryLimit, 60 * time.Millisecond, 60 * time.Millisecond} {
		if err := f.connect(t.Context()); !lostStream(err) || f.retry != want {
			t.Errorf("after stream %d a watch waits %v at most (%v), want %v", stream, f.retry, err, want)
		}
	}
}

func TestAWatchEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	b := startBadServer(t, func(w http.ResponseWriter, r *http.Request) {
		sends(hint)(w, r)
		w.(http.Flusher).Flush()
		cancel()
		<-r.Context().Done()
	})
	if err := b.Follow(ctx, Watch{From: map[string]uint64{"a": 0}}, WatchEvents{}); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
}

func testFollower(b *badServer) *follower {
	return &follower{client: b.Client, at: map[string]uint64{"a": 0}, retry: watchRetryLimit, maxFrame: 100, silence: watchSilence}
}

func TestFramesAreReadHoweverTheyAreCut(t *testing.T) {
	const text = ": hb 1\n\nretry: 5\nretry: x\n\nid: 1\nevent: e\ndata: {\ndata:}\n\nid: without data\n\ndata: last\r\n\r\ndata: cut off"
	for name, r := range map[string]io.Reader{"whole": strings.NewReader(text), "by byte": &oneByte{strings.NewReader(text)}} {
		fr := newFrameReader(r, 100)
		for _, want := range []frame{{"1", "e", []byte("{\n}")}, {"", "", []byte("last")}} {
			if got, err := fr.next(); err != nil || !reflect.DeepEqual(got, want) {
				t.Errorf("%s: frame %q, %v, want %q", name, got, err, want)
			}
		}
		if got, err := fr.next(); !errors.Is(err, io.EOF) {
			t.Errorf("%s: behind the end: %q, %v", name, got, err)
		}
		if fr.retry != minRetry {
			t.Errorf("%s: retry %v, want %v", name, fr.retry, minRetry)
		}
	}
}

// A line may be longer than what is read at once, whichever way it ends.
func TestAFrameMayBeLargerThanTheBuffer(t *testing.T) {
	for _, size := range []int{32<<10 - 8, 32<<10 - 7, 32<<10 - 6, 100 << 10} {
		data := strings.Repeat("0123456789", size/10+1)[:size]
		for _, end := range []string{"\n", "\r\n"} {
			fr := newFrameReader(strings.NewReader("id: 1"+end+"data: "+data+end+"event: e"+end+end), 1<<20)
			if got, err := fr.next(); err != nil || got.id != "1" || got.event != "e" || string(got.data) != data {
				t.Errorf("%d bytes before %q: id %q, event %q, %d bytes, %v", size, end, got.id, got.event, len(got.data), err)
			}
		}
	}
}

// oneByte reads a byte at a time.
type oneByte struct{ r io.Reader }

func (o *oneByte) Read(p []byte) (int, error) { return o.r.Read(p[:1]) }
