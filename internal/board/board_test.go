package board

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirmq/weir"
	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/tests/bubble"
)

// A stream that hangs has no numbers, says why, and holds up nobody for long.
func TestAStreamThatHangsIsGivenUpSoon(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		var b Board
		var tries atomic.Int64
		info := backend.Info{Kind: "redis", Stream: "jobs", Group: "g"}
		hang := func(ctx context.Context) (*weir.Stream, error) {
			tries.Add(1)
			<-ctx.Done()
			return nil, &backend.OpenError{Info: info, Err: ctx.Err()}
		}
		for range 3 {
			if _, err := b.Add(t.Context(), hang); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(again)
		began := time.Now()
		r, err := b.Read(t.Context())
		if took := time.Since(began); err != nil || took > patience {
			t.Errorf("three streams that hang took %s, %v", took, err)
		}
		for i, id := range []string{"jobs", "jobs · g", "jobs · g · 2"} {
			if s := r.Streams[i]; s.ID != id || s.Lag != nil || s.Signal != nil || s.Stored != nil || !strings.Contains(s.Error, "has not answered within 3s") {
				t.Errorf("%+v, want the ID %q", s, id)
			}
		}
		tries.Store(0)
		if _, err := b.Read(t.Context()); err != nil || tries.Load() != 0 {
			t.Errorf("opened %d times again at once, %v", tries.Load(), err)
		}
		if _, err := b.Find(t.Context(), "none"); err != ErrUnknown {
			t.Errorf("%v", err)
		}
	})
}

// Who leaves while a stream is opened leaves no error for the others.
func TestAVisitorWhoLeavesSpoilsNothing(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		info := backend.Info{Kind: "redis", Stream: "jobs", Group: "g"}
		refused := &backend.OpenError{Info: info, Err: errors.New("connection refused")}
		open := func(ctx context.Context) (*weir.Stream, error) {
			select {
			case <-time.After(time.Second):
				return nil, refused
			case <-ctx.Done():
				return nil, &backend.OpenError{Info: info, Err: ctx.Err()}
			}
		}
		var b Board
		if _, err := b.Add(t.Context(), open); err != nil {
			t.Fatal(err)
		}
		time.Sleep(again)
		visit, leave := context.WithTimeout(t.Context(), time.Minute)
		time.AfterFunc(time.Millisecond, leave)
		if _, err := b.Find(visit, "jobs"); err == nil {
			t.Fatal("it could be opened")
		}
		if r, err := b.Read(t.Context()); err != nil || !strings.Contains(r.Streams[0].Error, "connection refused") {
			t.Errorf("%+v, %v", r.Streams, err)
		}
	})
}

func TestAPayloadIsCutAtACharacter(t *testing.T) {
	for _, c := range []struct {
		data, want string
		most       int
		text, cut  bool
	}{
		{"abc", "abc", 3, true, false},
		{"abcd", "abc", 3, true, true},
		{"aüü", "aü", 4, true, true},
		{"a😀b", "a", 4, true, true},
		{"", "", 3, true, false},
		{"\x00\xff", "\x00\xff", 3, false, false},
		{"\x80\x80\x80\x80\x80\x80", "\x80", 5, false, true},
	} {
		part, s := cut([]byte(c.data), c.most)
		p := payloadOf(part)
		if string(part) != c.want || s.Cut != c.cut || s.Bytes != len(c.data) || (p.Data != nil) != c.text {
			t.Errorf("%q of %d: %q %+v %+v", c.data, c.most, part, s, p)
		}
	}
}
