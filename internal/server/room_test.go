package server

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
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
