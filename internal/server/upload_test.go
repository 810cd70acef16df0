package server

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weirmq/weir/internal/api"
)

const linesType = "application/x-ndjson"

// uploading is an upload whose body is still being sent.
type uploading struct {
	*io.PipeWriter
	answer chan *http.Response
}

// upload begins one.
func (s *testServer) upload(target string, head header) *uploading {
	s.t.Helper()
	r, w := io.Pipe()
	req, err := http.NewRequestWithContext(s.t.Context(), "POST", "http://"+s.addr+target, r)
	if err != nil {
		s.t.Fatal(err)
	}
	req.Header.Set("Content-Type", linesType)
	for k, v := range head {
		req.Header.Set(k, v)
	}
	u := &uploading{w, make(chan *http.Response, 1)}
	tr := &http.Transport{DisableKeepAlives: true}
	s.t.Cleanup(func() { w.CloseWithError(io.ErrUnexpectedEOF); tr.CloseIdleConnections() })
	go func() {
		res, err := tr.RoundTrip(req)
		if err != nil {
			res = nil
		}
		u.answer <- res
	}()
	return u
}

func numbers(from, to int) string {
	var b strings.Builder
	for i := from; i < to; i++ {
		fmt.Fprintln(&b, i)
	}
	return b.String()
}

// count is how many records a topic has.
func (s *testServer) count(topic string) int {
	s.t.Helper()
	var state struct{ Count int }
	if err := json.Unmarshal([]byte(s.ask("GET", "/v0/topics/"+topic, "", nil).body), &state); err != nil {
		s.t.Fatal(err)
	}
	return state.Count
}

func (s *testServer) send(u *uploading, text string) {
	s.t.Helper()
	if _, err := io.WriteString(u, text); err != nil {
		s.t.Fatal(err)
	}
}

func TestAnUploadIsStoredWhileItComes(t *testing.T) {
	s := serveEngine(t, nil)
	u := s.upload("/v0/topics/x", nil)
	s.send(u, numbers(0, 1500))
	s.eventually(func() bool { return s.count("x") == 1000 })
	if held := s.inflight.n.Load(); held > uploadBytes+int64(s.limits.MaxRecordBytes)+2 {
		t.Errorf("%d bytes are held", held)
	}
	s.send(u, numbers(1500, 1600))
	u.CloseWithError(io.ErrUnexpectedEOF) // the client is gone: what is no whole batch is not stored
	<-u.answer
	s.eventually(func() bool { return s.inflight.n.Load() == 0 })
	if n := s.count("x"); n != 1000 {
		t.Errorf("%d records are stored, want the first batch", n)
	}
}

// Lines are for what is larger than a batch may be, whatever that is.
func TestAnUploadKeepsToTheLimitOfABatch(t *testing.T) {
	s := serveEngine(t, func(c *Config) { c.Limits.MaxBatchRecords = 10 })
	r := s.ask("POST", "/v0/topics/x", numbers(0, 25), header{"Content-Type": linesType})
	if s.want(r, 201, ""); s.count("x") != 25 || !strings.Contains(r.body, `"batches":3`) {
		t.Errorf("%d of 25 lines are stored: %s", s.count("x"), r.body)
	}
}

// The key of an upload leaves room for the number of a batch behind it.
func TestTheKeyOfAnUploadIsALittleShorter(t *testing.T) {
	s := serveEngine(t, nil)
	for n, status := range map[int]int{maxUploadKey: 201, maxUploadKey + 1: 400} {
		target := fmt.Sprintf("/v0/topics/t%d", n)
		if r := s.ask("POST", target, "1\n", header{"Content-Type": linesType, "Idempotency-Key": strings.Repeat("k", n)}); r.status != status {
			t.Errorf("%d bytes: %d %s", n, r.status, r.body)
		}
	}
}

func TestAnUploadEndsWhenTheServerStops(t *testing.T) {
	s := serveEngine(t, nil)
	u := s.upload("/v0/topics/x", nil)
	s.send(u, numbers(0, 1000))
	s.eventually(func() bool { return s.count("x") == 1000 })
	s.send(u, "1") // and no more: the server does not wait for the rest
	s.Drain()
	res := <-u.answer
	if res == nil {
		t.Fatal("no answer")
	}
	r := readReply(t, res)
	s.want(r, 503, api.CodeShuttingDown)
	if !strings.Contains(r.body, `"stored":1000,"stored_lines":1000`) {
		t.Errorf("the answer does not say what is stored: %s", r.body)
	}
}

// The wait for the log is not the sender's fault.
func TestAPacerThatBeginsAnewWaitsAsLongAgain(t *testing.T) {
	now := time.Now()
	w := &deadlines{}
	p := &pacer{rc: http.NewResponseController(w), start: now, now: func() time.Time { return now }}
	p.note(100)
	now = now.Add(time.Hour)
	p.restart()
	if want := now.Add(paceWindow); !w.read.Equal(want) {
		t.Errorf("the next bytes must be there at %v, want %v", w.read, want)
	}
}

// deadlines notes the read deadline.
type deadlines struct {
	http.ResponseWriter
	read time.Time
}

func (d *deadlines) SetReadDeadline(t time.Time) error { d.read = t; return nil }

// However the lines lie in the reads, they come out one by one.
func TestAnyLinesAreTakenApartAsTheyWere(t *testing.T) {
	s := serveEngine(t, func(c *Config) { c.Limits.MaxRecordBytes = 4000 })
	rnd := rand.New(rand.NewPCG(1, 2))
	for round := range 5 {
		var body bytes.Buffer
		var want []string
		for range 1000 + rnd.IntN(1500) {
			n := rnd.IntN(60)
			if rnd.IntN(40) == 0 {
				n = 3998 - rnd.IntN(3)
			}
			line := `"` + strings.Repeat("x", n) + `"`
			want = append(want, line)
			body.WriteString(line + "\n")
			if rnd.IntN(50) == 0 {
				body.WriteString(strings.Repeat(" ", rnd.IntN(3)) + "\n")
			}
		}
		topic := "x" + strconv.Itoa(round)
		u := s.upload("/v0/topics/"+topic, nil)
		for body.Len() > 0 {
			s.send(u, string(body.Next(1+rnd.IntN(200_000))))
		}
		u.Close()
		if res := <-u.answer; res == nil || res.StatusCode != 201 {
			t.Fatalf("the answer is %v", res)
		}
		var got []string
		for len(got) < len(want) {
			r := s.ask("POST", "/v0/topics/"+topic+"/diff", fmt.Sprintf(`{"from_seq":%d,"limit":1000,"max_batch_bytes":8000000}`, len(got)), nil)
			var page struct {
				Records []struct{ Data json.RawMessage }
			}
			if err := json.Unmarshal([]byte(r.body), &page); err != nil || len(page.Records) == 0 {
				t.Fatalf("%v: %.200s", err, r.body)
			}
			for _, r := range page.Records {
				got = append(got, string(r.Data))
			}
		}
		for i := range want {
			if got[i] != want[i] {
				t.Fatalf("record %d is %.50s, want %.50s", i+1, got[i], want[i])
			}
		}
	}
}

// Batches are cut by size, too, and a repeat is cut in the same places.
func TestLargeLinesMakeBatchesOfAMebibyte(t *testing.T) {
	s := serveEngine(t, nil)
	body := strings.Repeat(`"`+strings.Repeat("x", 300_000)+`"`+"\n", 9)
	for _, want := range []string{`"count":9,"batches":3,"created":true,"deduped":false`, `"count":9,"batches":3,"created":false,"deduped":true`} {
		r := s.ask("POST", "/v0/topics/x", body, header{"Content-Type": linesType, "Idempotency-Key": "k"})
		if !strings.Contains(r.body, want) {
			t.Errorf("got %s, want %s", r.body, want)
		}
	}
}

func TestAnyBytesPassThroughTheServer(t *testing.T) {
	s := serveEngine(t, nil)
	rnd := rand.New(rand.NewPCG(3, 4))
	for i, n := range []int{0, 1, 2, 3, 255, 4095, 4096, 5000, 300_000, 786_300} {
		body := make([]byte, n)
		for j := range body {
			body[j] = byte(rnd.Uint32())
		}
		r := s.ask("POST", "/v0/topics/x", string(body), header{"Content-Type": api.TypeBytes})
		s.want(r, []int{200, 201}[max(0, 1-i)], "")
		r = s.ask("GET", "/v0/topics/x/records/"+strconv.Itoa(i+1), "", nil)
		if r.status != 200 || r.body != string(body) || r.header.Get("Content-Type") != api.TypeBytes {
			t.Errorf("%d bytes came back as %d of type %q, status %d", n, len(r.body), r.header.Get("Content-Type"), r.status)
		}
	}
	s.want(s.ask("POST", "/v0/topics/x", strings.Repeat("x", 786_431), header{"Content-Type": api.TypeBytes}), 400, api.CodeRecordTooLarge)
}
