package server

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
)

// TestWhatDeafClientsHoldMakesOtherAnswersSmall and takes no more of the memory: nobody is
// refused, and everything comes.
func TestWhatDeafClientsHoldMakesOtherAnswersSmall(t *testing.T) {
	const records, full = 100, 80
	s := serveEngine(t, func(c *Config) { c.Limits.MaxInflightBytes = 16 << 20 })
	data := strings.Repeat("x", 100_000)
	for range records {
		for topic, config := range map[string]string{"log": "{}", "q": `{"type":"queue"}`} {
			if r := s.ask("POST", "/v0/topics/"+topic, `{"records":[{"data":"`+data+`"}],"config":`+config+`}`, nil); r.status >= 300 {
				t.Fatalf("%d %.200s", r.status, r.body)
			}
		}
	}
	read := func(from int) (n, next int) {
		var answer struct {
			Records []struct{} `json:"records"`
			Next    int        `json:"next_from_seq"`
		}
		r := s.ask("POST", "/v0/topics/log/diff", fmt.Sprintf(`{"from_seq":%d,"max_batch_bytes":8388608}`, from), nil)
		if err := json.Unmarshal([]byte(r.body), &answer); err != nil || r.status != 200 || len(answer.Records) == 0 {
			t.Fatalf("%d %.200s %v", r.status, r.body, err)
		}
		return len(answer.Records), answer.Next
	}
	if n, _ := read(0); n < full {
		t.Fatalf("of %d records an answer has %d", records, n)
	}
	deaf := make([]net.Conn, 2)
	for i := range deaf {
		deaf[i] = s.dial()
		if err := deaf[i].(*net.TCPConn).SetReadBuffer(4096); err != nil {
			t.Fatal(err)
		}
		body := `{"from_seq":0,"max_batch_bytes":8388608}`
		fmt.Fprintf(deaf[i], "POST /v0/topics/log/diff HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", s.addr, len(body), body)
		if _, err := io.ReadFull(deaf[i], make([]byte, 10)); err != nil { // it is being sent
			t.Fatal(err)
		}
	}
	all := 0
	for from := 0; all < records; {
		n, next := read(from)
		if all, from = all+n, next; n > full/4 {
			t.Fatalf("while others hold 16 MiB, an answer has %d records of 100 kB", n)
		}
	}
	if r := s.ask("POST", "/v0/topics/q/claim", `{"node":"w","max":100}`, nil); r.status != 200 || strings.Count(r.body, `"$seq"`) == 0 || len(r.body) > 2<<20 {
		t.Errorf("a claim: %d, %d bytes", r.status, len(r.body))
	}
	for _, c := range deaf {
		c.Close()
	}
	s.eventually(func() bool { n, _ := read(0); return n >= full })
}

// TestWhatDeafWatchersHoldMakesOtherFramesSmall too: eight megabytes of records each, read for
// them alone, would be all of the memory.
func TestWhatDeafWatchersHoldMakesOtherFramesSmall(t *testing.T) {
	const records, full = 100, 80
	s := serveEngine(t, func(c *Config) { c.Limits.MaxInflightBytes = 16 << 20 })
	data := strings.Repeat("x", 100_000)
	for range records {
		if r := s.ask("POST", "/v0/topics/log", `{"records":[{"data":"`+data+`"}]}`, nil); r.status >= 300 {
			t.Fatalf("%d %.200s", r.status, r.body)
		}
	}
	most := func(frames func(func(records int))) int {
		all, most := 0, 0
		frames(func(n int) { all, most = all+n, max(most, n) })
		if all != records {
			t.Fatalf("of %d records %d came", records, all)
		}
		return most
	}
	watch := func() net.Conn {
		var made struct{ WID string }
		r := s.ask("POST", "/v0/watch", `{"topics":{"log":{"from_seq":0}},"max_batch_bytes":8388608}`, nil)
		if err := json.Unmarshal([]byte(r.body), &made); err != nil || made.WID == "" {
			t.Fatalf("%d %.200s %v", r.status, r.body, err)
		}
		c := s.dial()
		fmt.Fprintf(c, "GET /v0/watch/%s HTTP/1.0\r\nHost: %s\r\n\r\n", made.WID, s.addr)
		return c
	}
	stream := func(yield func(int)) {
		c := watch()
		defer c.Close()
		lines := bufio.NewReader(c)
		for all := 0; all < records; {
			line, err := lines.ReadString('\n')
			if err != nil {
				t.Fatal(err)
			}
			if n := strings.Count(line, `"$seq"`); n > 0 {
				all += n
				yield(n)
			}
		}
	}
	socket := func(yield func(int)) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		conn, _, err := websocket.Dial(ctx, "ws://"+s.addr+"/v0/ws", nil)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.CloseNow()
		conn.SetReadLimit(-1)
		text := `{"op":"subscribe","topics":{"log":{"from_seq":0}},"max_batch_bytes":8388608}`
		if err := conn.Write(ctx, websocket.MessageText, []byte(text)); err != nil {
			t.Fatal(err)
		}
		for all := 0; all < records; {
			_, msg, err := conn.Read(ctx)
			if err != nil {
				t.Fatal(err)
			}
			if n := strings.Count(string(msg), `"$seq"`); n > 0 {
				all += n
				yield(n)
			}
		}
	}
	if a, b := most(stream), most(socket); a < full || b < 8 {
		t.Fatalf("of %d records a frame has %d, a message %d", records, a, b)
	}
	deaf := make([]net.Conn, 2)
	for i := range deaf {
		deaf[i] = watch()
		if err := deaf[i].(*net.TCPConn).SetReadBuffer(4096); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(deaf[i], make([]byte, 4096)); err != nil { // a frame is being sent
			t.Fatal(err)
		}
	}
	if a, b := most(stream), most(socket); a > full/4 || b > 8 {
		t.Errorf("while others hold 16 MiB, a frame has %d records of 100 kB, a message %d", a, b)
	}
	for _, c := range deaf {
		c.Close()
	}
	s.eventually(func() bool { return most(stream) >= full })
}

// TestWhatDeafSocketsClaimMakesOtherAnswersSmall as what deaf clients of HTTP claim does, and is
// there for others once they have gone.
func TestWhatDeafSocketsClaimMakesOtherAnswersSmall(t *testing.T) {
	const full = 80
	s := serveEngine(t, func(c *Config) { c.Limits.MaxInflightBytes = 16 << 20 })
	data := strings.Repeat("x", 100_000)
	for range 3 * full {
		if r := s.ask("POST", "/v0/topics/q", `{"records":[{"data":"`+data+`"}],"config":{"type":"queue"}}`, nil); r.status >= 300 {
			t.Fatalf("%d %.200s", r.status, r.body)
		}
	}
	leased := func() int {
		var state struct {
			Queue struct {
				Leased int `json:"in_flight"`
			}
		}
		r := s.ask("GET", "/v0/topics/q", "", nil)
		if err := json.Unmarshal([]byte(r.body), &state); err != nil || r.status != 200 {
			t.Fatalf("%d %.200s %v", r.status, r.body, err)
		}
		return state.Queue.Leased
	}
	reader := s.socket(nil)
	for range 4 { // what has been sent takes no room any more
		reader.say(`{"op":"claim","topic":"q","node":"r","max":100}`)
		var answer struct {
			Claimed []struct {
				Seq uint64 `json:"$seq"`
			}
		}
		_, msg, err := reader.conn.Read(reader.ctx)
		if err == nil {
			err = json.Unmarshal(msg, &answer)
		}
		if err != nil || len(answer.Claimed) < full {
			t.Fatalf("a socket that takes its answers has claimed %d jobs: %v", len(answer.Claimed), err)
		}
		var seqs []uint64
		for _, j := range answer.Claimed {
			seqs = append(seqs, j.Seq)
		}
		list, err := json.Marshal(seqs)
		if err != nil {
			t.Fatal(err)
		}
		reader.say(`{"op":"nack","topic":"q","node":"r","started":false,"seqs":` + string(list) + `}`)
		reader.want(`"op":"nacked"`)
	}
	for range 2 { // what the first has held is there for the second
		deaf := s.deafSocket()
		for n := range 2 { // one answer is being sent, and one waits
			deaf.say(`{"op":"claim","topic":"q","node":"deaf","max":100,"lease_ms":600000}`)
			s.eventually(func() bool { return s.answers.n.Load() >= int64((n+1)*full*len(data)) })
		}
		r := s.ask("POST", "/v0/topics/q/claim", `{"node":"w","max":100}`, nil)
		other := s.socket(nil)
		other.say(`{"op":"claim","topic":"q","node":"w","max":100}`)
		_, msg, err := other.conn.Read(other.ctx)
		if err != nil || r.status != 200 {
			t.Fatalf("%d %.200s %v", r.status, r.body, err)
		}
		for from, answer := range map[string]string{"HTTP": r.body, "another socket": string(msg)} {
			if strings.Count(answer, `"$seq"`) == 0 || len(answer) > 2<<20 {
				t.Errorf("while a socket holds 16 MiB, a claim over %s: %d bytes", from, len(answer))
			}
		}
		_ = deaf.conn.CloseNow()
		s.eventually(func() bool { return leased() < full })
	}
}
