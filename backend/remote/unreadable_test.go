package remote_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/tests/weirtest"
)

// garbler passes calls on to a server, and gives other answers to what stores something.
type garbler struct {
	base   string
	answer atomic.Pointer[string] // nil: the server's
}

func (g *garbler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	req, err := http.NewRequestWithContext(r.Context(), r.Method, g.base+r.URL.String(), r.Body)
	if err != nil {
		w.WriteHeader(http.StatusBadGateway)
		return
	}
	req.Header = r.Header.Clone()
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		w.WriteHeader(http.StatusBadGateway)
		return
	}
	defer resp.Body.Close()
	stores := r.Method == http.MethodPost && (strings.HasSuffix(r.URL.Path, "/jobs") || strings.HasSuffix(r.URL.Path, "/writes"))
	if answer := g.answer.Load(); answer != nil && stores && resp.StatusCode/100 == 2 {
		fmt.Fprint(w, *answer)
		return
	}
	w.WriteHeader(resp.StatusCode)
	_, _ = io.Copy(w, resp.Body)
}

// What was sent and is answered with a success that cannot be read, as by something in
// between that cuts answers or gives its own, may be stored: nobody may say that it is, or
// that it is not, and least of all send it again by itself.
func TestAnAnswerThatCannotBeReadIsOfUnknownOutcome(t *testing.T) {
	s := weirtest.Start(t, weirtest.Options{})
	g := &garbler{base: s.URL}
	between := httptest.NewServer(g)
	t.Cleanup(between.Close)
	b := open(t, between.URL+"/jobs")
	if _, err := b.Append(t.Context(), message); err != nil {
		t.Fatal(err)
	}
	keyed := []backend.Message{{Data: []byte("x"), IdempotencyKey: "a"}, {Data: []byte("y"), IdempotencyKey: "b"}}
	for _, answer := range []string{`{"first_seq":1,"last_`, "", "<html>ok</html>", "{}", `{"ok":true}`, `{"results":[{},{}]}`} {
		g.answer.Store(&answer)
		for _, msgs := range [][]backend.Message{message, keyed} {
			if out, err := b.Append(t.Context(), msgs); !errors.Is(err, backend.ErrOutcomeUnknown) {
				t.Errorf("%q: %+v, %v", answer, out, err)
			}
		}
	}
}

// A proxy has limits of its own; the same message will not pass the next time either.
func TestABodyThatAProxyRefusesIsTooLarge(t *testing.T) {
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			w.WriteHeader(http.StatusRequestEntityTooLarge)
			fmt.Fprint(w, "<html>413 Request Entity Too Large</html>")
			return
		}
		fmt.Fprint(w, "{}")
	}))
	t.Cleanup(proxy.Close)
	_, err := open(t, proxy.URL+"/jobs").Append(t.Context(), message)
	if !errors.Is(err, backend.ErrTooLarge) || !strings.Contains(fmt.Sprint(err), "client_max_body_size") {
		t.Errorf("append: %v", err)
	}
}
