package scenario

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/weirmq/weir/bench/load"
)

const (
	readConns = 16
	readLimit = 1000
)

var seqField = []byte(`"$seq":`)

// hotDiffs reads the newest readLimit records over and over; the peer answers
// with a copy of the same response.
func hotDiffs(ctx context.Context, s *session) (measure, measure, error) {
	const topic = "hot"
	w, err := s.freshTopic(ctx, topic, "log", "disk")
	if err != nil {
		return nil, nil, err
	}
	if err := w.do(ctx, "POST", "/v0/topics/"+topic, writeBody(readLimit), nil); err != nil {
		return nil, nil, err
	}
	path := "/v0/topics/" + topic + "/diff"
	body := fmt.Appendf(nil, `{"from_seq":0,"limit":%d}`, readLimit)
	status, answer, err := w.call(ctx, "POST", path, body)
	if err != nil {
		return nil, nil, err
	}
	if n := bytes.Count(answer, seqField); status != 200 || n != readLimit {
		return nil, nil, fmt.Errorf("diff: status %d with %d records, want 200 with %d", status, n, readLimit)
	}
	file := filepath.Join(s.dir, "answer.json")
	if err := os.WriteFile(file, answer, 0o644); err != nil {
		return nil, nil, err
	}
	plan := s.timed(w.addr, readConns, everywhere(repeatRequest(load.Request("POST", path, body), readLimit)))
	peer, err := s.handler(ctx, plan, "bytes", "-file", file)
	return over(w.proc, plan), peer, err
}

// countReadable reads a topic from its beginning to its head and counts the
// records whose data is what this benchmark writes. What a server says it
// holds is not taken for what it can hand out.
func countReadable(ctx context.Context, w *weir, topic string) (int64, error) {
	c, err := load.Dial(ctx, w.addr)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	want := append([]byte(`"data":`), recordData()...)
	var total int64
	for from := uint64(0); ; {
		body := fmt.Appendf(nil, `{"from_seq":%d,"limit":%d}`, from, readLimit)
		status, answer, err := c.Fetch(load.Request("POST", "/v0/topics/"+topic+"/diff", body))
		if err != nil || status != 200 {
			return total, fmt.Errorf("diff from %d: status %d, error %v", from, status, err)
		}
		var page struct {
			Next     uint64 `json:"next_from_seq"`
			CaughtUp bool   `json:"caught_up"`
		}
		if err := json.Unmarshal(answer, &page); err != nil {
			return total, fmt.Errorf("diff from %d: %w", from, err)
		}
		total += int64(bytes.Count(answer, want))
		if page.CaughtUp {
			return total, nil
		}
		if page.Next <= from {
			return total, fmt.Errorf("diff from %d does not move on", from)
		}
		from = page.Next
	}
}
