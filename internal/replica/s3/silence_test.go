package s3_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/weirmq/weir/tests/s3test"
)

// stalled is a store that stands still in the middle of a body, or before it.
func stalled(t *testing.T, part string) (addr string) {
	t.Helper()
	server := s3test.Start(t).Proxy(t)
	over := make(chan struct{})
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet || !strings.HasSuffix(r.URL.Path, "/table") {
			server.ServeHTTP(w, r)
			return
		}
		if part != "" {
			w.Header().Set("Last-Modified", time.Now().UTC().Format(http.TimeFormat))
			w.Header().Set("Content-Length", "100000")
			fmt.Fprint(w, part)
			w.(http.Flusher).Flush()
		}
		<-over
	}))
	t.Cleanup(front.Close)
	t.Cleanup(func() { close(over) })
	return front.Listener.Addr().String()
}

// A server that takes over fetches a base, and nothing else ends a call to a store that lives and says
// nothing more.
func TestAnAnswerThatStandsStillIsGivenUp(t *testing.T) {
	for _, part := range []string{"", "half a table"} {
		store := open(t, stalled(t, part), "copy")
		store.SetSilence(300 * time.Millisecond)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var got []byte
		in, err := store.Get(ctx, "table")
		if err == nil {
			got, err = io.ReadAll(in)
			in.Close()
		}
		if err == nil || !strings.Contains(err.Error(), "the store sends nothing") || ctx.Err() != nil || string(got) != part {
			t.Errorf("behind %q: %q, %v", part, got, err)
		}
	}
}

// A slow reader is not a silent store.
func TestABodyThatIsReadSlowlyIsWhole(t *testing.T) {
	store := open(t, s3test.Start(t).Addr, "copy")
	want := strings.Repeat("a table ", 1<<18)
	if err := store.Put(t.Context(), "table", int64(len(want)), strings.NewReader(want)); err != nil {
		t.Fatal(err)
	}
	store.SetSilence(2 * time.Second)
	in, err := store.Get(t.Context(), "table")
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	head := make([]byte, 10)
	if _, err := io.ReadFull(in, head); err != nil {
		t.Fatal(err)
	}
	time.Sleep(3 * time.Second)
	rest, err := io.ReadAll(in)
	if err != nil || string(head)+string(rest) != want {
		t.Errorf("%d bytes of %d, %v", len(head)+len(rest), len(want), err)
	}
}

// A base that is on its way to such a store would be the last one: nothing else is made meanwhile, and nothing
// says so.
func TestACallThatStandsStillIsGivenUp(t *testing.T) {
	over := make(chan struct{})
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet { // a list
			fmt.Fprint(w, `<ListBucketResult><IsTruncated>false</IsTruncated>`)
			w.(http.Flusher).Flush()
		}
		<-over
	}))
	t.Cleanup(front.Close)
	t.Cleanup(func() { close(over) })
	store := open(t, front.Listener.Addr().String(), "copy")
	store.SetSilence(100 * time.Millisecond)
	for what, call := range map[string]func(context.Context) error{
		"put": func(ctx context.Context) error {
			const size = 12 << 20 // more than the system takes on for a reader that sleeps
			return store.Put(ctx, "table", size, io.LimitReader(zeros{}, size))
		},
		"list":   func(ctx context.Context) error { _, err := store.List(ctx, "kv/"); return err },
		"delete": func(ctx context.Context) error { return store.Delete(ctx, "table") },
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			if err := call(ctx); err == nil || ctx.Err() != nil || !strings.Contains(err.Error(), "the store ") {
				t.Error(err)
			}
		})
	}
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) {
	clear(b)
	return len(b), nil
}
