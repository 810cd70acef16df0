package relay_test

import (
	"errors"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/internal/relay"
	"github.com/weirmq/weir/tests/bubble"
)

// A client of a relay that takes no more of an answer, or of a stream that is passed on, loses
// it, and with it the stream's place.
func TestWhatNobodyTakesOfARelayIsCutOff(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		p := newPlace(t, "", func(o *relay.Options) { o.Limits.MaxSSEConnections = 1 })
		if status, answer := p.call("", "PUT", "/v0/topics/jobs", `{"type":"queue"}`); status != http.StatusCreated {
			t.Fatalf("%d %s", status, answer)
		}
		const work = "/v0/topics/jobs/work?node=w&max=3&lease_ms=600000"
		for request, most := range map[string]time.Duration{
			"GET " + work:                   45 * time.Second,
			"POST /admin/backup?rate=10000": 6 * time.Minute,
		} {
			c, err := p.front.dial(t.Context(), "", "")
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			if _, err := io.WriteString(c, request+" HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
				t.Fatal(err)
			}
			take := func() (int64, error) {
				// It fails once the other end is closed, and so does the reading.
				_ = c.SetReadDeadline(time.Now().Add(2 * time.Second))
				return io.Copy(io.Discard, c)
			}
			if n, err := take(); n == 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Fatalf("%s: %d bytes, %v", request, n, err)
			}
			p.write("jobs", 3, 50_000, api.Disk)
			time.Sleep(most)
			if n, err := take(); n > 0 || err != nil && !errors.Is(err, io.ErrClosedPipe) {
				t.Errorf("%s: %d bytes still waited, %v", request, n, err)
			}
		}
		resp := p.do("", "GET", work, "", "")
		defer resp.Body.Close()
		first := make([]byte, 10)
		if _, err := io.ReadFull(resp.Body, first); err != nil || resp.StatusCode != http.StatusOK || !strings.HasPrefix(string(first), "retry") {
			t.Errorf("another client's stream is answered %d %q %v", resp.StatusCode, first, err)
		}
	})
}

// A backup is for readers that pause, up to its last byte.
func TestABackupWaitsForAReaderThatPauses(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		p := newPlace(t, "")
		p.write("log", 1, 100, api.Fsync)
		c, err := p.wire.dial(t.Context(), "", "")
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := io.WriteString(c, "POST /admin/backup?rate=0 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		var all []byte
		for piece := make([]byte, 64<<10); err == nil; {
			var n int
			n, err = c.Read(piece)
			all = append(all, piece[:n]...)
			if strings.Contains(string(all), `"files":`) { // the last file has begun
				time.Sleep(time.Minute)
			}
		}
		if err != io.EOF || !strings.HasSuffix(string(all), "\r\n0\r\n\r\n") {
			t.Errorf("the backup breaks off after %d bytes: %v", len(all), err)
		}
	})
}
