package load_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/weirmq/weir/bench/load"
)

// stream serves pieces, each flushed by itself, and opens a stream of them.
func stream(t *testing.T, pieces ...string) *load.Stream {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for _, p := range pieces {
			io.WriteString(w, p)
			http.NewResponseController(w).Flush()
		}
	}))
	t.Cleanup(server.Close)
	s, err := load.OpenStream(t.Context(), server.Listener.Addr().String(), "/", load.StreamOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// Frames come out whole and in order however the server cuts them, and the end
// of the response is told after the last of them.
func TestStreamFindsFramesHoweverTheyAreCut(t *testing.T) {
	long := strings.Repeat("x", 100_000)
	s := stream(t, "retry: 2000\n\n", "id: a\nevent: rec", "ord\ndata: {\"n\":1}\n", "\nevent: b\ndata: "+long+"\n\n: hb 5\n\nevent: c\ndata: 3\n\n")
	for _, want := range []string{"//", `record/a/{"n":1}`, "b//" + long, "//", "c//3"} {
		f, err := s.Next()
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprintf("%s/%s/%s", f.Event, f.ID, f.Data); got != want {
			t.Fatalf("frame %.60q, want %.60q", got, want)
		}
	}
	if _, err := s.Next(); !errors.Is(err, io.EOF) {
		t.Fatalf("after the last frame: %v", err)
	}
}

// A stream that is refused says with which status.
func TestRefusedStreamNamesTheStatus(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	_, err := load.OpenStream(t.Context(), server.Listener.Addr().String(), "/", load.StreamOptions{})
	if err == nil || !strings.Contains(err.Error(), "404") {
		t.Fatalf("error %v, want one that says 404", err)
	}
}

func TestNumberReadsTheFirstOfItsName(t *testing.T) {
	v, rest, ok := load.Number([]byte(`{"tt":1,"t":23,"x":4}`), "t")
	if v != 23 || !ok || string(rest) != `,"x":4}` {
		t.Fatalf("%d, %q, %v", v, rest, ok)
	}
	if _, _, ok := load.Number([]byte(`{"t":"x"}`), "t"); ok {
		t.Fatal("a text was taken for a number")
	}
}
