package load_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/weirmq/weir/bench/load"
)

func serve(t *testing.T, h http.HandlerFunc) string {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s.Listener.Addr().String()
}

func dial(t *testing.T, addr string) *load.Conn {
	t.Helper()
	c, err := load.Dial(context.Background(), addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// Bodies of every size come back whole, with a length or in chunks, on one
// connection.
func TestFetchReadsEveryBodyOnOneConnection(t *testing.T) {
	addr := serve(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if r.URL.Path == "/chunks" {
			for len(body) > 0 {
				n := min(len(body), 1000)
				w.Write(body[:n])
				w.(http.Flusher).Flush()
				body = body[n:]
			}
			return
		}
		w.Header().Set("Content-Length", fmt.Sprint(len(body)))
		w.WriteHeader(http.StatusCreated)
		w.Write(body)
	})
	c := dial(t, addr)
	for _, size := range []int{0, 1, 999, 64 << 10, 64<<10 + 1, 300_000} {
		want := strings.Repeat("x", size)
		for path, code := range map[string]int{"/length": 201, "/chunks": 200} {
			status, body, err := c.Fetch(load.Request("POST", path, []byte(want)))
			if err != nil || status != code || string(body) != want {
				t.Fatalf("%s with %d bytes: status %d, %d bytes, error %v", path, size, status, len(body), err)
			}
		}
	}
}

func TestRunCountsOnlyAfterTheWarmup(t *testing.T) {
	addr := serve(t, func(http.ResponseWriter, *http.Request) {})
	request := load.Request("GET", "/", nil)
	begun := false
	s, err := load.Run(context.Background(), load.Plan{
		Addr: addr, Conns: 4, Warmup: 20 * time.Millisecond, Length: 50 * time.Millisecond,
		Begin: func() { begun = true },
		Step: func(int) load.Step {
			return func(c *load.Conn) (int, error) {
				_, err := c.Do(request)
				return 10, err
			}
		},
	})
	if err != nil || !begun {
		t.Fatalf("begun %v, error %v", begun, err)
	}
	if s.Steps == 0 || s.Units != 10*s.Steps || s.Rate() <= 0 || s.Elapsed < 50*time.Millisecond {
		t.Fatalf("sample %+v", s)
	}
	if p50, p99 := s.Latency.Quantile(0.5), s.Latency.Quantile(0.99); p50 <= 0 || p99 < p50 {
		t.Fatalf("p50 %v, p99 %v", p50, p99)
	}
}

func TestRunStopsAtItsUnitsAndAtTheFirstError(t *testing.T) {
	addr := serve(t, func(http.ResponseWriter, *http.Request) {})
	unit := func(int) load.Step { return func(*load.Conn) (int, error) { return 1, nil } }
	s, err := load.Run(context.Background(), load.Plan{Addr: addr, Conns: 2, Units: 1000, Step: unit})
	if err != nil || s.Units < 900 || s.Units > 1001 {
		t.Fatalf("%d units, error %v", s.Units, err)
	}
	broken := errors.New("broken")
	fail := func(int) load.Step { return func(*load.Conn) (int, error) { return 0, broken } }
	if _, err := load.Run(context.Background(), load.Plan{Addr: addr, Conns: 2, Step: fail}); !errors.Is(err, broken) {
		t.Fatalf("error %v", err)
	}
}

func TestQuantileIsWithinThreePercent(t *testing.T) {
	var l load.Latency
	for i := 1; i <= 1000; i++ {
		l.Add(time.Duration(i) * time.Microsecond)
	}
	for q, want := range map[float64]time.Duration{0.5: 501, 0.99: 991, 1: 1000} {
		want *= time.Microsecond
		if got := l.Quantile(q); got < want || got > want*103/100+time.Nanosecond {
			t.Errorf("quantile %v is %v, want about %v", q, got, want)
		}
	}
}
