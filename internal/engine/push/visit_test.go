package push

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/tests/bubble"
)

// fakeLog is a topic of records that are all alike.
type fakeLog struct {
	sync.Mutex
	topic Topic
	head  uint64
	reads int
	later bool // it does not have yet what is asked for
}

func newLog() *fakeLog {
	l := &fakeLog{}
	l.topic.Source = l
	return l
}

func (l *fakeLog) State() State     { return State{Name: "a", ID: 1, Head: l.head} }
func (l *fakeLog) Earliest() uint64 { return 1 }

func (l *fakeLog) Read(_ context.Context, cursor uint64, r *Reading) error {
	defer l.Unlock()
	l.reads++
	if l.later {
		return ErrLater
	}
	r.N, r.From, r.Next, r.Head = int(r.UpTo-cursor), cursor, r.UpTo, l.head
	r.Body = append(r.Body, "some records\n"...)
	return nil
}

// room is one whose only topic is l.
func (l *fakeLog) room() *Room {
	var r Room
	r.Init(Env{
		Find:      func(context.Context, string) (*Topic, error) { l.Lock(); return &l.topic, nil },
		Guard:     func() {},
		MaxTopics: 1,
	})
	return &r
}

// open opens a stream that is live.
func (l *fakeLog) open(t *testing.T, r *Room) *Stream {
	t.Helper()
	made, err := r.OpenSession(t.Context(), &api.WatchRequest{Topics: []api.WatchTopic{{Topic: "a", Tail: true}}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	s, err := r.OpenStream(made.WID, "")
	if err != nil {
		t.Fatal(err)
	}
	if got, err := s.Next(t.Context(), nil); err != nil || !strings.Contains(string(got), "caught") {
		t.Fatalf("%q, %v", got, err)
	}
	return s
}

// getsAll takes what a stream has, and wants it to be live at a number then.
func getsAll(t *testing.T, name string, s *Stream, at uint64) {
	t.Helper()
	for range 10 {
		if _, err := s.Next(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		s.Sent()
	}
	if w := s.subs[0]; w.sent != at || !w.live {
		t.Errorf("stream %s is at %d, live %v", name, w.sent, w.live)
	}
}

func TestStreamsOfOneTopicShareTheirFrames(t *testing.T) {
	l := newLog()
	r := l.room()
	all := []*Stream{l.open(t, r), l.open(t, r), l.open(t, r)}
	l.head = 1
	var v Visit
	v.Deliver(t.Context(), &l.topic, 1)
	bodies := map[*byte]bool{}
	for _, s := range all {
		it, ok := s.out.take()
		if !ok || it.frame.kind != kindRecords {
			t.Fatalf("%+v, %v", it, ok)
		}
		bodies[&it.frame.body[0]] = true
	}
	if len(bodies) != 1 || l.reads != 1 {
		t.Errorf("%d readings, encoded %d times", l.reads, len(bodies))
	}
}

// A full outbox costs its own stream the live frames, and nobody else.
func TestAStreamBehindItsOutboxReadsOnByItself(t *testing.T) {
	l := newLog()
	r := l.room()
	slow, quick := l.open(t, r), l.open(t, r)
	slow.out = newOutbox(&r.held, 1, 1<<20)
	var v Visit
	for l.head = 1; l.head <= 3; l.head++ {
		v.Deliver(t.Context(), &l.topic, l.head)
	}
	l.head = 3
	if c := r.Counts(); c.Lagged != 1 || c.LaggedTotal != 1 || c.Sessions != 2 {
		t.Errorf("%+v", c)
	}
	for name, s := range map[string]*Stream{"slow": slow, "quick": quick} {
		getsAll(t, name, s, 3)
	}
	if c := r.Counts(); c.Lagged != 0 {
		t.Errorf("%+v", c)
	}
}

// What a relay has to fetch first comes when it is there, or its end does, and not with the next
// heartbeat.
func TestAStreamThatHasToWaitIsWoken(t *testing.T) {
	for name, call := range map[string]func(*Topic){"Again": (*Topic).Again, "Ended": (*Topic).Ended} {
		l := newLog()
		r := l.room()
		l.head, l.later = 3, true
		made, err := r.OpenSession(t.Context(), &api.WatchRequest{Topics: []api.WatchTopic{{Topic: "a"}}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		s, err := r.OpenStream(made.WID, "")
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		<-s.Ready()
		for range 2 {
			if got, err := s.Next(t.Context(), nil); err != nil || len(got) > 0 || l.reads != 1 {
				t.Fatalf("%s: %q, %v after %d reads", name, got, err, l.reads)
			}
		}
		l.later = false
		call(&l.topic)
		select {
		case <-s.Ready():
		default:
			t.Errorf("%s does not wake the stream", name)
		}
		if got, err := s.Next(t.Context(), nil); err != nil || !strings.Contains(string(got), "some records") {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}

// Slow streams that share no frames have one bound together, and each gets everything.
func TestWhatWaitsForAllSocketsIsBounded(t *testing.T) {
	const most = 100
	l := newLog()
	r := l.room()
	r.held.most = most
	var all []*Stream
	for i := range 20 {
		s := l.open(t, r)
		s.opt.Limit = 100 + i // its frames are its own
		all = append(all, s)
	}
	left := all[0]
	var v Visit
	for l.head = 1; l.head <= 3; l.head++ {
		v.Deliver(t.Context(), &l.topic, l.head)
		if n := r.held.bytes.Load(); n <= 0 || n > most {
			t.Fatalf("%d bytes wait for sockets", n)
		}
	}
	l.head = 3
	left.Close()
	for i, s := range all[1:] {
		getsAll(t, fmt.Sprint(i), s, 3)
	}
	if n := r.held.bytes.Load(); n != 0 {
		t.Errorf("nothing waits any more, and %d bytes are counted", n)
	}
}

// What waited for the socket when its client unsubscribed would else follow the answer to that.
func TestNoFrameFollowsAnUnsubscribe(t *testing.T) {
	l := newLog()
	s := l.room().NewSocket()
	defer s.Close()
	req := &api.WatchRequest{Topics: []api.WatchTopic{{Topic: "a", Tail: true}}}
	if _, err := s.Subscribe(t.Context(), req); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Next(t.Context(), nil); err != nil || !strings.Contains(string(got), "caught") {
		t.Fatalf("%q, %v", got, err)
	}
	l.head = 1
	var v Visit
	v.Deliver(t.Context(), &l.topic, 1)
	s.Unsubscribe([]string{"a"})
	if got, err := s.Next(t.Context(), nil); err != nil || len(got) > 0 {
		t.Errorf("%q, %v", got, err)
	}
}

// However long its stream was open, a session waits for the next one from its end on.
func TestASessionOutlivesAStreamThatWasOpenForLong(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		l := newLog()
		r := l.room()
		s := l.open(t, r)
		time.Sleep(3 * api.SessionTTLMS * time.Millisecond)
		for range 2 {
			s.Close()
			time.Sleep(api.SessionTTLMS*time.Millisecond - time.Second)
			var err error
			if s, err = r.OpenStream(s.session.wid, ""); err != nil {
				t.Fatal(err)
			}
		}
		s.Close()
		time.Sleep(api.SessionTTLMS*time.Millisecond + time.Second)
		if _, err := r.OpenStream(s.session.wid, ""); !api.IsCode(err, api.CodeNotFound) {
			t.Errorf("behind its time: %v", err)
		}
	})
}

// A relay makes a session of every wid that it can read: those without a stream make room, the
// one that has been so for longest first.
func TestSessionsFromElsewhereAreBounded(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		l := newLog()
		r := l.room()
		r.env.MaxSessions = 2
		resume := func(wid string) error {
			time.Sleep(time.Second)
			return r.Resume(wid, nil, &api.WatchOptions{}, []api.WatchPosition{{Topic: "a", Life: 1}})
		}
		for _, wid := range []string{"first", "second", "third"} {
			if err := resume(wid); err != nil {
				t.Fatal(wid, err)
			}
		}
		if _, err := r.OpenStream("first", ""); !api.IsCode(err, api.CodeNotFound) {
			t.Errorf("the session that was idle for longest: %v", err)
		}
		for _, wid := range []string{"second", "third"} {
			s, err := r.OpenStream(wid, "")
			if err != nil {
				t.Fatal(wid, err)
			}
			defer s.Close()
		}
		if err := resume("fourth"); !api.IsCode(err, api.CodeThrottled) {
			t.Errorf("a session beyond those with a stream: %v", err)
		}
	})
}
