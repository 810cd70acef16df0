package overload

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirmq/weir/tests/weirtest"
)

const (
	largestBody  = 64 << 20
	bodiesCap    = 256 << 20 // WEIR_MAX_INFLIGHT_BYTES
	bodiesAtOnce = bodiesCap / largestBody
	// memoryBound is every body and its copy for the log, the group that is being
	// written, and the server itself. On a busy machine all of them come together.
	memoryBound = 2*bodiesCap + largestBody + 64<<20
)

// largeBody is a write of 64 records that is exactly largestBody long.
func largeBody() []byte {
	var b strings.Builder
	b.Grow(largestBody)
	b.WriteString(`{"records":[`)
	const record = 1<<20 - 64
	for i := range 64 {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(`{"data":"`)
		b.WriteString(strings.Repeat("x", record))
		b.WriteString(`"}`)
	}
	b.WriteString(`]}`)
	b.WriteString(strings.Repeat(" ", largestBody-b.Len()))
	return []byte(b.String())
}

// slowBody is one body on its way.
type slowBody struct {
	c    net.Conn
	r    *bufio.Reader
	rest []byte
}

func startBody(t *testing.T, addr, topic string, body []byte) *slowBody {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if err := c.SetDeadline(time.Now().Add(2 * time.Minute)); err != nil {
		t.Fatal(err)
	}
	head := fmt.Sprintf("POST /v0/topics/%s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", topic, len(body))
	if _, err := io.WriteString(c, head); err != nil {
		t.Fatal(err)
	}
	return &slowBody{c: c, r: bufio.NewReader(c), rest: body}
}

func (b *slowBody) send(n int) error {
	n = min(n, len(b.rest))
	_, err := b.c.Write(b.rest[:n])
	b.rest = b.rest[n:]
	return err
}

func (b *slowBody) answer() (int, error) {
	res, err := http.ReadResponse(b.r, nil)
	if err != nil {
		return 0, err
	}
	defer res.Body.Close()
	_, err = io.Copy(io.Discard, res.Body)
	return res.StatusCode, err
}

func TestSlowLargeBodiesStayInBoundedMemory(t *testing.T) {
	s := weirtest.Start(t, weirtest.Options{})
	body := largeBody()
	var slow []*slowBody
	for i := range bodiesAtOnce {
		slow = append(slow, startBody(t, s.Addr, fmt.Sprintf("slow%d", i), body))
	}
	// All but the last few bytes arrive, piece by piece, and then nothing.
	for len(slow[0].rest) > 4096 {
		for _, b := range slow {
			if err := b.send(min(1<<20, len(b.rest)-4096)); err != nil {
				t.Fatal(err)
			}
		}
	}
	awaitRefusal(t, s)
	held := s.PeakRSS()
	t.Logf("%d bodies of %d MiB held: %d MiB resident", len(slow), largestBody>>20, held>>20)

	// Others are refused before their bodies are read, however many they are.
	var refused atomic.Int64
	var all sync.WaitGroup
	for i := range 16 {
		b := startBody(t, s.Addr, fmt.Sprintf("more%d", i), body)
		all.Go(func() {
			if status, err := b.answer(); err == nil && status == http.StatusTooManyRequests {
				refused.Add(1)
			} else {
				t.Errorf("a body over the cap got %d, %v", status, err)
			}
		})
	}
	all.Wait()
	for _, b := range slow {
		all.Go(func() {
			if err := b.send(len(b.rest)); err != nil {
				t.Error(err)
				return
			}
			if status, err := b.answer(); err != nil || status != http.StatusCreated {
				t.Errorf("a slow body got %d, %v", status, err)
			}
		})
	}
	all.Wait()
	peak := s.PeakRSS()
	t.Logf("all stored, %d refused: %d MiB resident at most", refused.Load(), peak>>20)
	if held > memoryBound || peak > memoryBound {
		t.Errorf("%d MiB while held and %d MiB at most, want at most %d MiB", held>>20, peak>>20, memoryBound>>20)
	}
	if code := s.Stop(); code != 0 {
		t.Errorf("the server ended with %d", code)
	}
}

// awaitRefusal waits until the bodies on their way have taken up the cap.
func awaitRefusal(t *testing.T, s *weirtest.Server) {
	t.Helper()
	weirtest.Eventually(t, "the bodies have taken up the cap", func() bool {
		res, err := http.Post(s.URL+"/v0/topics/small", "application/json", strings.NewReader(`{"records":[{"data":1}]}`))
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		return res.StatusCode == http.StatusTooManyRequests
	})
}
