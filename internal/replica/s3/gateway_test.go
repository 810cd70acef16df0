package s3_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/weirmq/weir/internal/replica"
	"github.com/weirmq/weir/internal/replica/slots"
	"github.com/weirmq/weir/tests/s3test"
)

// gateway is in front of a store, and answers some calls about entries itself.
type gateway struct {
	http.Handler
	status atomic.Int32
	next   atomic.Int32 // how many of the next
	method atomic.Value // string
}

func (g *gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == g.method.Load() && strings.Contains(r.URL.Path, "/log/") && g.next.Add(-1) >= 0 {
		_, _ = io.Copy(io.Discard, r.Body)
		w.WriteHeader(int(g.status.Load()))
		fmt.Fprint(w, "<html><body>default backend</body></html>")
		return
	}
	g.Handler.ServeHTTP(w, r)
}

// What a gateway answers while it is changed is not the store's word: a put that is answered 404 did not fail
// because another leads, one that is answered 200 is not stored, and an entry that a get is answered
// 404 for is there, or a server that begins from the copy would begin without it.
func TestTheAnswerOfAGatewayIsNotTheStores(t *testing.T) {
	for _, fault := range []struct {
		method string
		status int
	}{{http.MethodPut, 404}, {http.MethodPut, 200}, {http.MethodGet, 404}, {http.MethodGet, 200}} {
		t.Run(fmt.Sprint(fault.method, fault.status), func(t *testing.T) {
			g := &gateway{Handler: s3test.Start(t).Proxy(t)}
			g.method.Store(fault.method)
			g.status.Store(int32(fault.status))
			front := httptest.NewServer(g)
			defer front.Close()
			addr := front.Listener.Addr().String()
			log := slots.New(open(t, addr, "copy"), options)
			defer log.Close()
			if _, err := log.Lead(t.Context(), "node"); err != nil {
				t.Fatal(err)
			}
			want := []string{""}
			for i := range 3 {
				g.next.Store(5) // the client itself tries again a few times
				data := fmt.Sprint("entry ", i)
				want = append(want, data)
				done := make(chan error, 1)
				if err := log.Append(t.Context(), []byte(data), func(_ uint64, err error) { done <- err }); err != nil {
					t.Fatal(err)
				}
				if err := <-done; err != nil {
					t.Fatalf("the leader is told %v", err)
				}
			}
			reader := slots.New(open(t, addr, "copy"), options)
			defer reader.Close()
			var got []string
			for after := uint64(0); ; {
				g.next.Store(1)
				e, err := reader.Read(t.Context(), after)
				if errors.Is(err, io.EOF) {
					break
				}
				if err != nil {
					t.Fatal(err)
				}
				after, got = e.Pos, append(got, string(e.Data))
			}
			if !slices.Equal(got, want) {
				t.Errorf("%q is read, want %q", got, want)
			}
		})
	}
}

// A copy of which a page in front of the store was taken for the list would seem to be empty.
func TestAPageIsNoList(t *testing.T) {
	store := s3test.Start(t).Proxy(t)
	for what, page := range map[string]string{
		"a page":   "<html><body>sign in</body></html>",
		"an error": `<?xml version="1.0" encoding="UTF-8"?><Error><Code>InternalError</Code></Error>`,
		"nothing":  "",
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			var pages atomic.Int32
			front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodGet && r.URL.Query().Has("list-type") && pages.Add(-1) >= 0 {
					fmt.Fprint(w, page)
					return
				}
				store.ServeHTTP(w, r)
			}))
			defer front.Close()
			files := open(t, front.Listener.Addr().String(), strings.ReplaceAll(what, " ", "-"))
			if err := files.Create(t.Context(), "base/1.json", []byte("a base")); err != nil {
				t.Fatal(err)
			}
			pages.Store(1)
			list, err := files.List(t.Context(), "base/")
			if err == nil && len(list) != 1 {
				t.Errorf("the list of a copy that has a base is %v", list)
			}
			pages.Store(1 << 20)
			if list, err := files.List(t.Context(), "base/"); err == nil {
				t.Errorf("the list of a copy that has a base is %v, and stays so", list)
			}
		})
	}
}

// What the store itself says is not there is not there.
func TestAnObjectThatIsNotThereIsNotFound(t *testing.T) {
	store := open(t, s3test.Start(t).Addr, "copy")
	if _, err := store.Get(t.Context(), "log/1"); !errors.Is(err, replica.ErrNotFound) {
		t.Error(err)
	}
	if err := store.Delete(t.Context(), "log/1"); err != nil {
		t.Error(err)
	}
}
