package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	recordBytes = 4 << 10
	fillBatch   = 200
	loadBatch   = 20
	capBytes    = 256 << 20
	writers     = 3
)

// load writes topics whose every number has one possible content: base, filled
// once; load-N, capped; jobs, a queue with two workers.
type load struct {
	url  string
	http *http.Client

	base    atomic.Uint64 // records of the topic base
	heads   [writers]atomic.Uint64
	jobs    atomic.Uint64
	done    atomic.Int64 // records written and acked
	refused atomic.Int64 // answers that were not 2xx
	slowest atomic.Int64 // ns
	all     sync.WaitGroup
	stopped atomic.Bool

	mu    sync.Mutex
	err   error
	tried map[uint64]bool // jobs, before the ack's answer
	acked map[uint64]bool // and after

	// What had been answered when the backup began.
	atHeads [writers]uint64
	atJobs  uint64
	atAcked map[uint64]bool
}

func newLoad(url string) *load {
	return &load{url: url, http: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 16}},
		tried: map[uint64]bool{}, acked: map[uint64]bool{}}
}

// content is what a number of a topic holds.
func content(topic string, seq uint64, size int) string {
	mark := fmt.Sprintf("%s-%d.", topic, seq)
	return strings.Repeat(mark, size/len(mark)+1)[:size]
}

type refusal struct {
	status int
	text   string
}

func (r *refusal) Error() string { return fmt.Sprintf("%d: %s", r.status, r.text) }

func (l *load) call(url, method, path string, body, answer any) error {
	b, err := json.Marshal(body)
	if err != nil {
		return err
	}
	req, err := http.NewRequest(method, url+path, bytes.NewReader(b))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := l.http.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode/100 != 2 {
		return &refusal{resp.StatusCode, string(text)}
	}
	if answer == nil {
		return nil
	}
	return json.Unmarshal(text, answer)
}

type record struct {
	Seq  uint64 `json:"$seq,omitempty"`
	Data string `json:"data"`
}

// write appends the numbers from first on.
func (l *load) write(topic string, first uint64, n, size int) error {
	batch := make([]record, n)
	for i := range batch {
		batch[i].Data = content(topic, first+uint64(i), size)
	}
	var answer struct {
		First uint64 `json:"first_seq"`
		Head  uint64 `json:"head_seq"`
	}
	begin := time.Now()
	err := l.call(l.url, "POST", "/v0/topics/"+topic+"?return_seqs=false", map[string]any{"records": batch}, &answer)
	for took := int64(time.Since(begin)); ; {
		if old := l.slowest.Load(); took <= old || l.slowest.CompareAndSwap(old, took) {
			break
		}
	}
	if err != nil {
		return err
	}
	if want := first + uint64(n) - 1; answer.Head != want {
		return fmt.Errorf("the head of %s is %d, want %d", topic, answer.Head, want)
	}
	return nil
}

func (l *load) longest() time.Duration {
	return time.Duration(l.slowest.Swap(0)).Round(time.Millisecond)
}

func (l *load) fill(size int64) error {
	for i := range writers {
		if err := l.call(l.url, "PUT", "/v0/topics/"+loadTopic(i), map[string]any{"cap_bytes": capBytes, "durability": "fsync"}, nil); err != nil {
			return err
		}
	}
	if err := l.call(l.url, "PUT", "/v0/topics/jobs", map[string]any{"type": "queue", "durability": "fsync"}, nil); err != nil {
		return err
	}
	for n := uint64(0); int64(n)*recordBytes < size; n += fillBatch {
		if err := l.write("base", n+1, fillBatch, recordBytes); err != nil {
			return err
		}
		l.base.Store(n + fillBatch)
	}
	return nil
}

func loadTopic(i int) string { return fmt.Sprint("load-", i) }

// start begins the load; the call that it returns ends it.
func (l *load) start() (stop func()) {
	for i := range writers {
		l.client(func() (int, error) {
			first := l.heads[i].Load() + 1
			err := l.write(loadTopic(i), first, loadBatch, 1<<10)
			if err == nil {
				l.heads[i].Add(loadBatch)
			}
			return loadBatch, err
		})
	}
	l.client(func() (int, error) {
		if l.jobs.Load() > uint64(len(l.ackedNow()))+5000 {
			time.Sleep(time.Millisecond)
			return 0, nil
		}
		err := l.write("jobs", l.jobs.Load()+1, loadBatch, 1<<10)
		if err == nil {
			l.jobs.Add(loadBatch)
		}
		return loadBatch, err
	})
	for _, node := range []string{"a", "b"} {
		l.client(func() (int, error) { return l.work(node) })
	}
	return func() {
		l.stopped.Store(true)
		l.all.Wait()
	}
}

func (l *load) ackedNow() map[uint64]bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.acked
}

func (l *load) client(round func() (int, error)) {
	l.all.Go(func() {
		for !l.stopped.Load() {
			n, err := round()
			var no *refusal
			switch {
			case err == nil:
				l.done.Add(int64(n))
			case errors.As(err, &no):
				if l.refused.Add(1) == 1 {
					fmt.Println("the first refusal:", err)
				}
				time.Sleep(10 * time.Millisecond)
			default:
				l.mu.Lock()
				l.err = errors.Join(l.err, err)
				l.mu.Unlock()
				return
			}
		}
	})
}

func (l *load) failed() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

func (l *load) work(node string) (int, error) {
	var got struct {
		Claimed []record `json:"claimed"`
	}
	if err := l.call(l.url, "POST", "/v0/topics/jobs/claim", map[string]any{"node": node, "max": 20, "lease_ms": 600_000}, &got); err != nil {
		return 0, err
	}
	if len(got.Claimed) == 0 {
		time.Sleep(time.Millisecond)
		return 0, nil
	}
	var seqs []uint64
	for _, j := range got.Claimed {
		seqs = append(seqs, j.Seq)
	}
	l.noteJobs(l.tried, seqs)
	if err := l.call(l.url, "POST", "/v0/topics/jobs/ack", map[string]any{"node": node, "seqs": seqs}, nil); err != nil {
		return 0, err
	}
	l.noteJobs(l.acked, seqs)
	return len(seqs), nil
}

func (l *load) noteJobs(in map[uint64]bool, seqs []uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range seqs {
		in[s] = true
	}
}
