package contract

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/weirmq/weir/tests/weirtest"
)

// patience is how long something that happens at once may take on a busy machine.
const patience = 20 * time.Second

// reply is a decoded answer; err is set if there was none.
type reply struct {
	status int
	header http.Header
	body   map[string]any
	took   time.Duration
	err    error
}

func (r reply) number(name string) float64 { f, _ := r.body[name].(float64); return f }

func (r reply) errorDetail(name string) any {
	e, _ := r.body["error"].(map[string]any)
	d, _ := e["detail"].(map[string]any)
	return d[name]
}

// peer sends requests to one server, with a key if set. The connections of its
// requests are its own.
type peer struct {
	url, key string
	client   *http.Client
}

func newPeer(t *testing.T, s *weirtest.Server, key string) *peer {
	transport := &http.Transport{MaxIdleConnsPerHost: 64}
	t.Cleanup(transport.CloseIdleConnections)
	return &peer{url: s.URL, key: key, client: &http.Client{Transport: transport, Timeout: requestTimeout}}
}

func (p *peer) do(method, path, body string) reply {
	begin := time.Now()
	req, err := http.NewRequest(method, p.url+path, bytes.NewReader([]byte(body)))
	if err != nil {
		return reply{err: err}
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	if p.key != "" {
		req.Header.Set("Authorization", "Bearer "+p.key)
	}
	resp, err := p.client.Do(req)
	if err != nil {
		return reply{err: err}
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	r := reply{status: resp.StatusCode, header: resp.Header, took: time.Since(begin), err: err}
	if len(text) > 0 && err == nil {
		r.err = json.Unmarshal(text, &r.body)
	}
	return r
}

// must is do for a step that has to succeed.
func (p *peer) must(t *testing.T, method, path, body string) reply {
	t.Helper()
	r := p.do(method, path, body)
	if r.err != nil || r.status/100 != 2 {
		t.Fatalf("%s %s: status %d, body %v, error %v", method, path, r.status, r.body, r.err)
	}
	return r
}

// together runs n calls at the same moment and returns their replies.
func together(n int, call func(i int) reply) []reply {
	replies := make([]reply, n)
	start := make(chan struct{})
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			<-start
			replies[i] = call(i)
		})
	}
	close(start)
	wg.Wait()
	return replies
}

func countStatus(replies []reply, status int) (n int) {
	for _, r := range replies {
		if r.err == nil && r.status == status {
			n++
		}
	}
	return n
}

func TestOfConcurrentWritesWithOneKeyExactlyOneAppends(t *testing.T) {
	p := newPeer(t, weirtest.Start(t, weirtest.Options{}), "")
	for round := range 5 {
		body := fmt.Sprintf(`{"records":[{"data":1},{"data":2}],"idempotency_key":"k%d"}`, round)
		appended := 0
		for _, r := range together(16, func(int) reply { return p.do("POST", "/v0/topics/t", body) }) {
			if r.err != nil || r.status != 200 && r.status != 201 {
				t.Fatalf("status %d, error %v", r.status, r.err)
			}
			if r.body["deduped"] == false {
				appended++
			}
			if want := float64(2*round + 1); r.number("first_seq") != want {
				t.Errorf("first_seq is %v, want %v", r.number("first_seq"), want)
			}
		}
		if appended != 1 {
			t.Errorf("%d writes appended, want 1", appended)
		}
	}
}

func TestConcurrentCreationIsAnsweredWithCreatedOnce(t *testing.T) {
	p := newPeer(t, weirtest.Start(t, weirtest.Options{}), "")
	puts := together(16, func(int) reply { return p.do("PUT", "/v0/topics/a", `{}`) })
	if n := countStatus(puts, 201); n != 1 {
		t.Errorf("%d PUTs answered 201, want 1", n)
	}
	writes := together(16, func(int) reply { return p.do("POST", "/v0/topics/b", `{"records":[{"data":1}]}`) })
	if n := countStatus(writes, 201); n != 1 {
		t.Errorf("%d writes answered 201, want 1", n)
	}
}

func TestMaxTopicsIsExactUnderRacingCallers(t *testing.T) {
	p := newPeer(t, weirtest.Start(t, weirtest.Options{Env: []string{"WEIR_MAX_TOPICS=10"}}), "")
	replies := together(40, func(i int) reply {
		if i%2 == 0 {
			return p.do("PUT", fmt.Sprintf("/v0/topics/t%d", i), `{}`)
		}
		return p.do("POST", fmt.Sprintf("/v0/topics/t%d", i), `{"records":[{"data":1}]}`)
	})
	if made, refused := countStatus(replies, 201), countStatus(replies, 429); made != 10 || refused != 30 {
		t.Errorf("%d made and %d refused, want 10 and 30", made, refused)
	}
}

func TestMaxTotalBytesIsExactUnderRacingCallers(t *testing.T) {
	p := newPeer(t, weirtest.Start(t, weirtest.Options{Env: []string{"WEIR_MAX_TOTAL_BYTES=100"}}), "")
	replies := together(40, func(i int) reply {
		return p.do("POST", fmt.Sprintf("/v0/topics/t%d", i%4), `{"records":[{"data":"12345678"}]}`)
	})
	taken := countStatus(replies, 200) + countStatus(replies, 201)
	if refused := countStatus(replies, 429); taken != 10 || refused != 30 {
		t.Errorf("%d taken and %d refused, want 10 and 30", taken, refused)
	}
}

func TestARejectCapIsExactUnderRacingCallers(t *testing.T) {
	p := newPeer(t, weirtest.Start(t, weirtest.Options{}), "")
	p.must(t, "PUT", "/v0/topics/t", `{"cap_records":10,"discard":"reject"}`)
	replies := together(40, func(int) reply { return p.do("POST", "/v0/topics/t", `{"records":[{"data":1}]}`) })
	if taken, full := countStatus(replies, 200), countStatus(replies, 422); taken != 10 || full != 30 {
		t.Errorf("%d taken and %d refused, want 10 and 30", taken, full)
	}
	if r := p.must(t, "GET", "/v0/topics/t", ""); r.number("count") != 10 {
		t.Errorf("count is %v, want 10", r.number("count"))
	}
}

func TestBatchesOfConcurrentWritersStayContiguous(t *testing.T) {
	p := newPeer(t, weirtest.Start(t, weirtest.Options{}), "")
	const writers, size = 24, 7
	together(writers, func(i int) reply {
		record := fmt.Sprintf(`{"data":%d}`, i)
		return p.do("POST", "/v0/topics/t", `{"records":[`+string(bytes.Repeat([]byte(record+","), size-1))+record+`]}`)
	})
	r := p.must(t, "POST", "/v0/topics/t/diff", `{"limit":1000}`)
	records, _ := r.body["records"].([]any)
	if len(records) != writers*size {
		t.Fatalf("%d records, want %d", len(records), writers*size)
	}
	var lastTS float64
	for i, item := range records {
		record := item.(map[string]any)
		if record["$seq"] != float64(i+1) {
			t.Fatalf("record %d has $seq %v", i, record["$seq"])
		}
		if first := records[i-i%size].(map[string]any); record["data"] != first["data"] {
			t.Errorf("$seq %d belongs to writer %v inside the batch of writer %v", i+1, record["data"], first["data"])
		}
		ts := record["$ts"].(float64)
		if ts < lastTS {
			t.Errorf("$ts goes back at $seq %d", i+1)
		}
		lastTS = ts
	}
}

func TestALongPollIsWokenByTheNextCommit(t *testing.T) {
	p := newPeer(t, weirtest.Start(t, weirtest.Options{}), "")
	p.must(t, "PUT", "/v0/topics/t", `{}`)
	for seq := range 60 {
		waiting := make(chan reply, 1)
		go func() {
			waiting <- p.do("POST", "/v0/topics/t/diff", fmt.Sprintf(`{"from_seq":%d,"wait_ms":30000}`, seq))
		}()
		p.must(t, "POST", "/v0/topics/t", `{"records":[{"data":1}]}`)
		r := <-waiting
		if r.err != nil || r.number("next_from_seq") != float64(seq+1) {
			t.Fatalf("answer %v, error %v, want next_from_seq %d", r.body, r.err, seq+1)
		}
		if r.took > patience {
			t.Fatalf("the commit of %d was missed: answered after %v", seq+1, r.took)
		}
	}
}

func TestALongPollSeesOnlyItsOwnNewRecordsAsAMovedCursor(t *testing.T) {
	p := newPeer(t, weirtest.Start(t, weirtest.Options{}), "")
	p.must(t, "PUT", "/v0/topics/t", `{}`)
	waiting := make(chan reply, 1)
	go func() { waiting <- p.do("POST", "/v0/topics/t/diff", `{"node":"me","wait_ms":30000}`) }()
	p.must(t, "POST", "/v0/topics/t", `{"node":"me","records":[{"data":1}]}`)
	r := <-waiting
	if records, _ := r.body["records"].([]any); r.err != nil || len(records) != 0 || r.number("next_from_seq") != 1 {
		t.Errorf("answer %v, error %v, want no records and next_from_seq 1", r.body, r.err)
	}
}

func TestALongPollOnATopicThatIsDeletedIsAnsweredAtOnce(t *testing.T) {
	p := newPeer(t, weirtest.Start(t, weirtest.Options{}), "")
	for range 20 {
		p.must(t, "PUT", "/v0/topics/t", `{}`)
		waiting := make(chan reply, 1)
		go func() { waiting <- p.do("POST", "/v0/topics/t/diff", `{"wait_ms":30000}`) }()
		p.must(t, "DELETE", "/v0/topics/t", "")
		if r := <-waiting; r.err != nil || r.status != 404 || r.took > patience {
			t.Fatalf("status %d after %v, error %v, want 404 at once", r.status, r.took, r.err)
		}
	}
}

func TestClaimsInOneWindowAreDealtRoundRobin(t *testing.T) {
	p := newPeer(t, weirtest.Start(t, weirtest.Options{}), "")
	p.must(t, "PUT", "/v0/topics/q", `{"type":"queue","claim_jitter_ms":1500}`)
	p.must(t, "POST", "/v0/topics/q", `{"records":[{"data":1},{"data":2},{"data":3},{"data":4},{"data":5},{"data":6},{"data":7},{"data":8},{"data":9},{"data":10}]}`)
	maxima := []int{10, 10, 1}
	replies := together(3, func(i int) reply {
		return p.do("POST", "/v0/topics/q/claim", fmt.Sprintf(`{"node":"w%d","max":%d,"lease_ms":%d}`, i, maxima[i], 60000*(i+1)))
	})
	var counts []float64
	for i, r := range replies {
		counts = append(counts, r.number("count"))
		claimed, _ := r.body["claimed"].([]any)
		var last float64
		for _, job := range claimed {
			seq := job.(map[string]any)["$seq"].(float64)
			left := time.Until(time.UnixMilli(int64(job.(map[string]any)["deadline"].(float64))))
			if want := time.Duration(i+1) * time.Minute; left > want || left < want-patience {
				t.Errorf("claimer %d: %v left of its lease of %v", i, left, want)
			}
			if seq <= last {
				t.Errorf("claimer %d: $seq %v after %v", i, seq, last)
			}
			last = seq
		}
	}
	if counts[2] != 1 || counts[0]+counts[1] != 9 || max(counts[0], counts[1]) != 5 {
		t.Errorf("dealt %v, want 5, 4 and 1", counts)
	}
}

func TestAJobHasOneHolderAmongRacingClaimers(t *testing.T) {
	p := newPeer(t, weirtest.Start(t, weirtest.Options{}), "")
	p.must(t, "PUT", "/v0/topics/q", `{"type":"queue"}`)
	const jobs = 200
	p.must(t, "POST", "/v0/topics/q", `{"records":[`+string(bytes.Repeat([]byte(`{"data":1},`), jobs-1))+`{"data":1}]}`)
	var seqs []float64
	for _, r := range together(25, func(i int) reply {
		return p.do("POST", "/v0/topics/q/claim", fmt.Sprintf(`{"node":"w%d","max":10}`, i))
	}) {
		claimed, _ := r.body["claimed"].([]any)
		for _, job := range claimed {
			seqs = append(seqs, job.(map[string]any)["$seq"].(float64))
		}
	}
	slices.Sort(seqs)
	if len(seqs) != jobs || len(slices.Compact(seqs)) != jobs {
		t.Errorf("%d deliveries of %d different jobs, want %d of each", len(seqs), len(slices.Compact(seqs)), jobs)
	}
}

func TestOfRacingAcksOneSucceeds(t *testing.T) {
	p := newPeer(t, weirtest.Start(t, weirtest.Options{}), "")
	p.must(t, "POST", "/v0/topics/q", `{"records":[{"data":1}],"config":{"type":"queue","durability":"fsync"}}`)
	p.must(t, "POST", "/v0/topics/q/claim", `{"node":"w"}`)
	var acked float64
	for _, r := range together(16, func(int) reply { return p.do("POST", "/v0/topics/q/ack", `{"node":"w","seqs":[1]}`) }) {
		acked += r.number("acked")
	}
	if acked != 1 {
		t.Errorf("acked %v times, want once", acked)
	}
}

func TestMaxInflightPerKeyCountsRunningRequestsOfOneKey(t *testing.T) {
	s := weirtest.Start(t, weirtest.Options{Env: []string{"WEIR_API_KEYS=a,b", "WEIR_MAX_INFLIGHT_PER_KEY=2"}})
	a, b := newPeer(t, s, "a"), newPeer(t, s, "b")
	a.must(t, "PUT", "/v0/topics/t", `{}`)
	waiting := make(chan reply, 2)
	for range 2 {
		go func() {
			r := a.do("POST", "/v0/topics/t/diff", `{"wait_ms":30000}`)
			for r.status == 429 { // the question below had its place
				r = a.do("POST", "/v0/topics/t/diff", `{"wait_ms":30000}`)
			}
			waiting <- r
		}()
	}
	var refused reply
	for begin := time.Now(); time.Since(begin) < patience; {
		if refused = a.do("GET", "/v0/topics/t", ""); refused.status == 429 {
			break
		}
	}
	if refused.status != 429 || refused.errorDetail("limit") != "max_inflight_per_key" || refused.errorDetail("max") != 2.0 {
		t.Fatalf("status %d, body %v, want 429 for max_inflight_per_key", refused.status, refused.body)
	}
	if got := refused.header.Get("Retry-After"); got != "1" {
		t.Errorf("Retry-After is %q, want 1", got)
	}
	b.must(t, "POST", "/v0/topics/t", `{"records":[{"data":1}]}`)
	for range 2 {
		if r := <-waiting; r.status != 200 {
			t.Errorf("a running request answers %d", r.status)
		}
	}
	a.must(t, "GET", "/v0/topics/t", "")
}
