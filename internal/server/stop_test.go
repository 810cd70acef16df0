package server

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirmq/weir/tests/bubble"
)

// A client in the middle of its work learns that its next request was not done, and that the
// connection ends: without an answer it could not know whether to repeat it.
func TestAStopAnswersTheNextRequestOfAConnectionInUse(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		s := serveInMemory(t)
		l := pipes{make(chan net.Conn), make(chan net.Conn)}
		served := make(chan error, 1)
		go func() { served <- s.Serve(l) }()
		type client struct {
			net.Conn
			answers *bufio.Reader
		}
		ask := func(c *client, method, target, body string) *http.Response {
			r, err := http.NewRequest(method, "http://127.0.0.1"+target, strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Content-Type", "application/json")
			if err := r.Write(c); err != nil {
				t.Errorf("%s %s: %v", method, target, err)
				return nil
			}
			res, err := http.ReadResponse(c.answers, r)
			if err != nil {
				t.Errorf("%s %s: %v", method, target, err)
				return nil
			}
			defer res.Body.Close()
			if _, err := io.Copy(io.Discard, res.Body); err != nil {
				t.Error(err)
			}
			return res
		}
		dial := func() *client {
			c, err := l.dial(t.Context(), "", "")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { c.Close() })
			return &client{c, bufio.NewReader(c)}
		}
		writer, poller := dial(), dial()
		const write = `{"records":[{"data":1}]}`
		if res := ask(writer, "POST", "/v0/topics/a", write); res == nil || res.Close {
			t.Fatalf("before the stop: %+v", res)
		}
		polled := make(chan *http.Response, 1)
		go func() { polled <- ask(poller, "POST", "/v0/topics/a/diff", `{"from_seq":1,"wait_ms":20000}`) }()
		synctest.Wait()
		stopped := make(chan struct{})
		begin := time.Now()
		go func() { s.Stop(); close(stopped) }()
		synctest.Wait()
		if res := <-polled; res == nil || res.StatusCode != 200 || !res.Close {
			t.Errorf("the poll that waited: %+v", res)
		}
		time.Sleep(20 * time.Millisecond) // the way there
		if res := ask(writer, "POST", "/v0/topics/a", write); res == nil || res.StatusCode != 503 || !res.Close {
			t.Errorf("the write that was on its way: %+v", res)
		}
		<-stopped
		if took := time.Since(begin); took > time.Second {
			t.Errorf("the stop took %s", took)
		}
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
}
