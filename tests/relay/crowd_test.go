package relay

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirmq/weir/tests/weirtest"
)

var crowd = flag.Int("listeners", 500, "listeners of TestACrowdSeesTheWholeSequence")

const topic = "news"

// patience bounds every wait for what has to come.
const patience = 2 * time.Minute

// listener follows the topic with one watch session, on one relay after the other, and keeps
// what it has seen.
type listener struct {
	client *http.Client
	relays []string
	moves  bool // to the other relay after each few frames

	stream string // path of the session
	lastID string
	at     atomic.Uint64 // cursor
	sum    uint64        // of all records so far
	lost   int           // tombstones
	frames int
}

// sumOf continues the sum of a sequence by a record.
func sumOf(sum, seq uint64, data string) uint64 {
	sum = sum*1099511628211 ^ seq
	for i := range len(data) {
		sum = sum*1099511628211 ^ uint64(data[i])
	}
	return sum
}

type recordFrame struct {
	FromSeq uint64 `json:"from_seq"`
	ToSeq   uint64 `json:"to_seq"`
	Records []struct {
		Seq  uint64          `json:"$seq"`
		Data json.RawMessage `json:"data"`
	} `json:"records"`
}

func (l *listener) open(ctx context.Context) error {
	var made struct {
		URL string `json:"stream_url"`
	}
	if err := call(ctx, l.client, l.relays[0]+"/v0/watch", `{"topics":{"`+topic+`":{}}}`, &made); err != nil {
		return err
	}
	l.stream = made.URL
	return nil
}

// follow reads streams until ctx ends, or what comes is not whole.
func (l *listener) follow(ctx context.Context) error {
	for turn := 0; ctx.Err() == nil; turn++ {
		err := l.connection(ctx, l.relays[turn%len(l.relays)])
		if err != nil && ctx.Err() == nil {
			return err
		}
	}
	return nil
}

var errMoved = errors.New("the listener goes to the other relay")

// connection reads one stream; nil means that it ended and another one may follow.
func (l *listener) connection(ctx context.Context, base string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, base+l.stream, nil)
	if err != nil {
		return err
	}
	if l.lastID != "" {
		req.Header.Set("Last-Event-ID", l.lastID)
	}
	resp, err := l.client.Do(req)
	if err != nil {
		return nil
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusServiceUnavailable {
		time.Sleep(50 * time.Millisecond) // as it asks for
		return nil
	}
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(resp.Body)
		return fmt.Errorf("status %d: %s", resp.StatusCode, text)
	}
	err = l.read(bufio.NewReaderSize(resp.Body, 2<<10))
	if errors.Is(err, errMoved) {
		return nil
	}
	return err
}

func (l *listener) read(r *bufio.Reader) error {
	var event, id string
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			return nil
		}
		name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
		switch name {
		case "id":
			id = value
		case "event":
			event = value
		case "data":
			if err := l.take(event, value); err != nil {
				return err
			}
			if id != "" {
				l.lastID = id
			}
			if l.frames++; l.moves && l.frames%7 == 0 {
				return errMoved
			}
		}
	}
}

// take checks one event.
func (l *listener) take(event, data string) error {
	switch event {
	case "tombstone":
		l.lost++
		return fmt.Errorf("nothing was lost, and at %d came a tombstone: %s", l.at.Load(), data)
	case "record":
		var f recordFrame
		if err := json.Unmarshal([]byte(data), &f); err != nil {
			return err
		}
		at := l.at.Load()
		if f.FromSeq != at || len(f.Records) == 0 {
			return fmt.Errorf("a frame begins at %d, the listener is at %d", f.FromSeq, at)
		}
		for _, rec := range f.Records {
			if rec.Seq != at+1 {
				return fmt.Errorf("record %d comes behind %d", rec.Seq, at)
			}
			at = rec.Seq
			l.sum = sumOf(l.sum, rec.Seq, string(rec.Data))
		}
		if at != f.ToSeq {
			return fmt.Errorf("a frame to %d ends with record %d", f.ToSeq, at)
		}
		l.at.Store(at)
	}
	return nil
}

func call(ctx context.Context, client *http.Client, url, body string, out any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader([]byte(body)))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode/100 != 2 {
		return fmt.Errorf("status %d: %s", resp.StatusCode, text)
	}
	return json.Unmarshal(text, out)
}

// place is a server with relays in front of it.
type place struct {
	server *weirtest.Server
	relays []*weirtest.Server
	client *http.Client
}

func start(t *testing.T, relays, listeners int) *place {
	t.Helper()
	limits := []string{fmt.Sprintf("WEIR_MAX_SSE_CONNECTIONS=%d", 2*listeners+10), fmt.Sprintf("WEIR_MAX_WATCH_SESSIONS=%d", 2*listeners+10), "WEIR_RELAY_KEY=shared"}
	p := &place{client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}}
	t.Cleanup(p.client.CloseIdleConnections)
	p.server = weirtest.Start(t, weirtest.Options{})
	p.server.SetEnv([]string{"WEIR_PORT=" + p.server.Addr[strings.LastIndexByte(p.server.Addr, ':')+1:]})
	for range relays {
		p.relays = append(p.relays, weirtest.Start(t, weirtest.Options{Env: limits, Args: []string{"--upstream", p.server.URL}}))
	}
	return p
}

// write writes until ctx ends, through a relay; a write without an answer is made again.
func (p *place) write(ctx context.Context, who int, done *atomic.Int64) {
	for n := 0; ctx.Err() == nil; {
		body := fmt.Sprintf(`{"records":[{"data":"%d-%d"}],"idempotency_key":"%d-%d"}`, who, n, who, n)
		var out struct{}
		if err := call(ctx, p.client, p.relays[who%len(p.relays)].URL+"/v0/topics/"+topic, body, &out); err != nil {
			time.Sleep(10 * time.Millisecond) // the server is being restarted
			continue
		}
		n++
		done.Add(1)
		time.Sleep(5 * time.Millisecond) // the pace of the writers
	}
}

// truth reads the topic from the server.
func (p *place) truth(t *testing.T) (head, sum uint64) {
	t.Helper()
	for {
		var d struct {
			recordFrame
			Next     uint64 `json:"next_from_seq"`
			CaughtUp bool   `json:"caught_up"`
		}
		if err := call(t.Context(), p.client, p.server.URL+"/v0/topics/"+topic+"/diff", fmt.Sprintf(`{"from_seq":%d,"limit":1000}`, head), &d); err != nil {
			t.Fatal(err)
		}
		for _, rec := range d.Records {
			sum = sumOf(sum, rec.Seq, string(rec.Data))
		}
		if head = d.Next; d.CaughtUp {
			return head, sum
		}
	}
}

// gather starts listeners, each tenth of which moves between the relays. The returned
// function ends them and returns what was wrong.
func (p *place) gather(t *testing.T, n int) ([]*listener, func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, ReadBufferSize: 1 << 10, WriteBufferSize: 1 << 10}}
	all := make([]*listener, n)
	errs := make(chan error, n)
	var running sync.WaitGroup
	for i := range all {
		l := &listener{client: client, moves: i%10 == 0}
		for k := range p.relays {
			l.relays = append(l.relays, p.relays[(i+k)%len(p.relays)].URL)
		}
		all[i] = l
		if err := l.open(ctx); err != nil {
			t.Fatal(err)
		}
		running.Go(func() {
			if err := l.follow(ctx); err != nil {
				errs <- fmt.Errorf("listener %d: %w", i, err)
			}
		})
	}
	return all, func() error {
		cancel()
		running.Wait()
		close(errs)
		return <-errs
	}
}

// reach waits until every listener is at least at the number.
func reach(t *testing.T, all []*listener, seq uint64, what string) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for {
		behind, least := 0, seq
		for _, l := range all {
			if at := l.at.Load(); at < seq {
				behind++
				least = min(least, at)
			}
		}
		if behind == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: %d of %d listeners have not reached %d, the last one is at %d", what, behind, len(all), seq, least)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// TestACrowdSeesTheWholeSequence has many listeners on two relays while the server behind
// them is killed under writes and comes back, twice.
func TestACrowdSeesTheWholeSequence(t *testing.T) {
	p := start(t, 2, *crowd)
	if err := call(t.Context(), p.client, p.relays[0].URL+"/v0/topics/"+topic, `{"records":[{"data":"first"}]}`, &struct{}{}); err != nil {
		t.Fatal(err)
	}
	empty := p.relays[0].RSS() + p.relays[1].RSS()
	all, end := p.gather(t, *crowd)
	reach(t, all, 1, "at the start")
	t.Logf("%d idle listeners: %.1f KiB each at the relays (resident memory)", len(all), float64(p.relays[0].RSS()+p.relays[1].RSS()-empty)/float64(len(all))/1024)
	ctx, stop := context.WithCancel(t.Context())
	var written atomic.Int64
	var writers sync.WaitGroup
	for who := range 2 {
		writers.Go(func() { p.write(ctx, who, &written) })
	}
	more := func() {
		weirtest.Eventually(t, "writes go on", func(from int64) func() bool {
			return func() bool { return written.Load() >= from+40 }
		}(written.Load()))
	}
	for range 2 {
		more()
		p.server.Kill()
		p.server.Restart()
	}
	more()
	stop()
	writers.Wait()
	head, sum := p.truth(t)
	begin := time.Now()
	reach(t, all, head, "at the end")
	t.Logf("%d records, all listeners at the head %v after the last write", head, time.Since(begin).Round(time.Millisecond))
	if err := end(); err != nil {
		t.Fatal(err)
	}
	for i, l := range all {
		if l.at.Load() != head || l.sum != sum {
			t.Fatalf("listener %d has seen something else than the topic holds (at %d of %d)", i, l.at.Load(), head)
		}
	}
}
