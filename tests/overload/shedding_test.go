package overload

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirmq/weir/tests/weirtest"
)

// rush is callers without a library, and one worker who does about 50 jobs a second.
type rush struct {
	t      *testing.T
	server *weirtest.Server

	mu      sync.Mutex
	next    int
	stored  map[int]bool
	done    map[int]bool
	refused int
}

// ask makes one call.
func (r *rush) ask(method, path, body string) (status int, header http.Header, answer []byte) {
	req, err := http.NewRequestWithContext(r.t.Context(), method, r.server.URL+"/v0/topics/jobs"+path, strings.NewReader(body))
	if err != nil {
		r.t.Error(err)
		return 0, nil, nil
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		r.t.Error(err)
		return 0, nil, nil
	}
	defer res.Body.Close()
	if answer, err = io.ReadAll(res.Body); err != nil {
		r.t.Error(err)
	}
	return res.StatusCode, res.Header, answer
}

// write is one call of a caller.
func (r *rush) write() {
	r.mu.Lock()
	id := r.next
	r.next++
	r.mu.Unlock()
	status, header, answer := r.ask("POST", "", fmt.Sprintf(`{"records":[{"data":%d,"priority":"low"}]}`, id))
	r.mu.Lock()
	defer r.mu.Unlock()
	seconds, _ := strconv.Atoi(header.Get("Retry-After"))
	switch {
	case status == http.StatusOK:
		r.stored[id] = true
	case status == http.StatusTooManyRequests && seconds >= 1 && strings.Contains(string(answer), `"reason":"load_shedding"`):
		r.refused++
	default:
		r.t.Errorf("a write got %d %v %s", status, header, answer)
	}
}

// work does one job, if there is one.
func (r *rush) work() (some bool) {
	_, _, answer := r.ask("POST", "/claim", `{"node":"w","max":1}`)
	var got struct {
		Claimed []struct {
			Seq  uint64 `json:"$seq"`
			Data int    `json:"data"`
		} `json:"claimed"`
	}
	if err := json.Unmarshal(answer, &got); err != nil {
		r.t.Errorf("a claim got %s", answer)
	}
	time.Sleep(20 * time.Millisecond) // the job
	for _, j := range got.Claimed {
		if status, _, answer := r.ask("POST", "/ack", fmt.Sprintf(`{"node":"w","seqs":[%d]}`, j.Seq)); status != http.StatusOK {
			r.t.Errorf("an ack got %d %s", status, answer)
		}
		r.done[j.Data] = true
	}
	return len(got.Claimed) > 0
}

// until offers more than the worker does, until so many writes more have been refused.
func (r *rush) until(refused int) {
	over := make(chan struct{})
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for {
				select {
				case <-over:
					return
				case <-time.After(5 * time.Millisecond):
					r.write()
				}
			}
		})
	}
	enough := func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.refused >= refused || r.t.Failed()
	}
	for !enough() {
		r.work()
	}
	close(over)
	wg.Wait()
}

// A queue with a wait_slo_ms that is offered too much refuses, through a kill and a
// restart. Whatever it has taken is done once, and then it takes all again.
func TestWhatASheddingQueueTakesIsDone(t *testing.T) {
	s := weirtest.Start(t, weirtest.Options{})
	r := &rush{t: t, server: s, stored: map[int]bool{}, done: map[int]bool{}}
	if status, _, answer := r.ask("PUT", "", `{"type":"queue","wait_slo_ms":500}`); status != http.StatusCreated {
		t.Fatalf("%d %s", status, answer)
	}
	r.until(200)
	s.Kill()
	s.Restart()
	r.until(400)
	for r.work() {
	}
	if !maps.Equal(r.stored, r.done) {
		t.Errorf("%d stored, %d done", len(r.stored), len(r.done))
	}
	before := r.refused
	for range 10 {
		r.write()
		r.work()
	}
	t.Logf("%d stored and done, %d refused", len(r.stored), before)
	if r.refused != before {
		t.Errorf("%d of 10 writes to an empty queue were refused", r.refused-before)
	}
}
