package client

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/tests/bubble"
)

// slowServer takes its time for a request's bytes, and sends an answer in parts with pauses.
type slowServer struct {
	rate   int // bytes a second of a request; 0: no limit
	pauses []time.Duration
	answer string
}

func (s slowServer) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body != nil {
		n, _ := io.Copy(io.Discard, r.Body)
		if s.rate > 0 {
			if err := Sleep(r.Context(), time.Duration(n)*time.Second/time.Duration(s.rate)); err != nil {
				return nil, err
			}
		}
	}
	return &http.Response{StatusCode: http.StatusOK, ContentLength: -1, Header: http.Header{}, Body: &slowBody{r, s.pauses, s.answer}, Request: r}, nil
}

// slowBody has the whole of the answer behind the last pause, and blanks between them.
type slowBody struct {
	r      *http.Request
	pauses []time.Duration
	answer string
}

func (b *slowBody) Read(p []byte) (int, error) {
	if len(b.pauses) > 0 {
		if err := Sleep(b.r.Context(), b.pauses[0]); err != nil {
			return 0, err
		}
		b.pauses = b.pauses[1:]
		return copy(p, " "), nil
	}
	n := copy(p, b.answer)
	if b.answer = b.answer[n:]; b.answer == "" {
		return n, io.EOF
	}
	return n, nil
}

func (b *slowBody) Close() error { return nil }

// A slow link is no server that is away: what is large has the time that it takes, as long as something comes.
func TestACallHasTimeForWhatIsOnItsWay(t *testing.T) {
	large := &api.WriteRequest{Records: []api.Record{{Data: []byte(`"` + strings.Repeat("x", 4<<20) + `"`)}}}
	small := &api.WriteRequest{Records: []api.Record{{Data: []byte(`"` + strings.Repeat("x", 100) + `"`)}}}
	part, hour := callTimeout-time.Second, make([]time.Duration, 200)
	for i := range hour {
		hour[i] = part
	}
	for name, c := range map[string]struct {
		server slowServer
		write  *api.WriteRequest
		within time.Duration // it fails; 0: it succeeds
	}{
		"an answer in parts":                 {slowServer{pauses: []time.Duration{part, part, part, part}}, small, 0},
		"an answer that stops":               {slowServer{pauses: []time.Duration{part, part, callTimeout + time.Second}}, small, 3 * callTimeout},
		"an answer that never comes":         {slowServer{pauses: []time.Duration{callTimeout + time.Second}}, small, callTimeout + time.Second},
		"an answer that never ends":          {slowServer{pauses: hour}, small, answerTimeout + callTimeout + time.Second},
		"a large request over a slow link":   {slowServer{rate: slowLink}, large, 0},
		"a small one to a server that hangs": {slowServer{rate: 1}, small, callTimeout + time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Run(t, func(t *testing.T) {
				c.server.answer = stored
				client := New("http://server", "")
				client.http.Transport = c.server
				began := time.Now()
				_, err := client.Write(t.Context(), "t", c.write)
				took := time.Since(began)
				if c.within == 0 && err != nil || c.within > 0 && (!errors.Is(err, backend.ErrOutcomeUnknown) && !errors.Is(err, backend.ErrUnavailable) || !Retryable(err) || took > c.within) {
					t.Errorf("%v after %v", err, took)
				}
				if late := err != nil && took < answerTimeout; errors.Is(err, errLate) != late {
					t.Errorf("%v: that it is late is to be said: %v", err, late)
				}
			})
		})
	}
}
