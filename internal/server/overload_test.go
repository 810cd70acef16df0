package server

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/weirmq/weir/internal/engine"
	"github.com/weirmq/weir/tests/bubble"
)

// crowd is callers and workers of one queue who know nothing but HTTP.
type crowd struct {
	t      *testing.T
	s      *Server
	queue  string
	start  time.Time
	wg     sync.WaitGroup
	ended  chan struct{}
	mu     sync.Mutex
	offers []*offer
	stored int
}

// offer is what became of one job.
type offer struct {
	tier, tries  int
	born         time.Time
	stored, done time.Time // zero: never
}

const (
	crowdDeadline = time.Second
	crowdService  = 40 * time.Millisecond
	crowdWorkers  = 5
)

var crowdTiers = []struct {
	name  string
	share float64
}{{"critical", 0.1}, {"high", 0.2}, {"normal", 0.3}, {"low", 0.4}}

// serveInMemory is a server on an engine in memory, which a bubble can end.
func serveInMemory(t *testing.T) *Server {
	t.Helper()
	s, _ := logged(nil, slog.LevelError)
	s.SetEngine(openEngine(t, engine.Options{Dir: "/data", FS: vfs.NewMem(), SegmentBytes: 1 << 20}))
	return s
}

// call makes one call with a body.
func call(s *Server, method, target, body string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, target, strings.NewReader(body))
	r.Host = "127.0.0.1"
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return w
}

// refusal reads the answer to a write that was refused.
func refusal(t *testing.T, w *httptest.ResponseRecorder) time.Duration {
	t.Helper()
	var a struct {
		Error struct {
			Code, Message string
			Detail        struct {
				Reason       string `json:"reason"`
				RetryAfterMS int64  `json:"retry_after_ms"`
			}
		}
	}
	err := json.Unmarshal(w.Body.Bytes(), &a)
	seconds, _ := strconv.ParseInt(w.Header().Get("Retry-After"), 10, 64)
	ms := a.Error.Detail.RetryAfterMS
	if w.Code != http.StatusTooManyRequests || err != nil || a.Error.Code != "throttled" || a.Error.Detail.Reason != "load_shedding" ||
		ms < 1 || seconds < 1 || seconds*1000 < ms || !strings.Contains(a.Error.Message, "wait_slo_ms is 1000") {
		t.Errorf("%d Retry-After %q %s", w.Code, w.Header().Get("Retry-After"), w.Body)
	}
	return time.Duration(ms) * time.Millisecond
}

// call is one caller, who gives up after crowdDeadline.
func (c *crowd) call(id int, o *offer, rnd *rand.Rand) {
	body := fmt.Sprintf(`{"records":[{"data":%d,"priority":%q,"fair_key":"user-%d"}]}`, id, crowdTiers[o.tier].name, id%100)
	until := o.born.Add(crowdDeadline)
	for o.tries = 1; ; o.tries++ {
		w := call(c.s, "POST", "/v0/topics/"+c.queue, body)
		if w.Code == http.StatusOK {
			c.mu.Lock()
			o.stored = time.Now()
			c.stored++
			c.mu.Unlock()
			return
		}
		wait := max(refusal(c.t, w), crowdDeadline/20<<(o.tries-1))
		wait += time.Duration(rnd.Int64N(int64(wait)))
		if o.tries == 4 || time.Until(until) <= wait {
			return
		}
		time.Sleep(wait)
	}
}

// arrive offers load times what the workers can do, for as long as is said.
func (c *crowd) arrive(load float64, length time.Duration, rnd *rand.Rand) {
	rate := load * crowdWorkers / crowdService.Seconds()
	for until := time.Now().Add(length); ; {
		time.Sleep(time.Duration(rnd.ExpFloat64() / rate * float64(time.Second)))
		if !time.Now().Before(until) {
			return
		}
		o := &offer{born: time.Now()}
		for x := rnd.Float64() - crowdTiers[0].share; x > 0 && o.tier < len(crowdTiers)-1; x -= crowdTiers[o.tier].share {
			o.tier++
		}
		c.mu.Lock()
		id := len(c.offers)
		c.offers = append(c.offers, o)
		c.mu.Unlock()
		own := rand.New(rand.NewPCG(uint64(id), 1))
		c.wg.Go(func() { c.call(id, o, own) })
	}
}

// work is one worker, until the crowd has ended and nothing is left.
func (c *crowd) work(rnd *rand.Rand) {
	for over := false; ; {
		w := call(c.s, "POST", "/v0/topics/"+c.queue+"/claim", `{"node":"w","max":1}`)
		var got struct {
			Claimed []struct {
				Seq  uint64 `json:"$seq"`
				Data int    `json:"data"`
			} `json:"claimed"`
		}
		if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
			c.t.Error(err)
		}
		if len(got.Claimed) == 0 {
			if over {
				return
			}
			select {
			case <-c.ended:
				over = true
			case <-time.After(5 * time.Millisecond):
			}
			continue
		}
		time.Sleep(time.Duration(rnd.ExpFloat64() * float64(crowdService)))
		j := got.Claimed[0]
		if w := call(c.s, "POST", "/v0/topics/"+c.queue+"/ack", fmt.Sprintf(`{"node":"w","seqs":[%d]}`, j.Seq)); w.Code != http.StatusOK {
			c.t.Errorf("%d %s", w.Code, w.Body)
		}
		c.mu.Lock()
		c.offers[j.Data].done = time.Now()
		c.mu.Unlock()
	}
}

// run is a calm phase, load times the capacity, and a calm phase again.
func (c *crowd) run(load float64, before, plateau, after time.Duration) {
	rnd := rand.New(rand.NewPCG(3, uint64(load)))
	c.ended = make(chan struct{})
	var workers sync.WaitGroup
	for i := range crowdWorkers {
		own := rand.New(rand.NewPCG(uint64(i), 9))
		workers.Go(func() { c.work(own) })
	}
	c.arrive(0.7, before, rnd)
	c.start = time.Now()
	c.arrive(load, plateau, rnd)
	c.arrive(0.7, after, rnd)
	c.wg.Wait()
	close(c.ended)
	workers.Wait()
}

// judge returns goodput and the share of the top tier done in time in the plateau, what
// was stored and done, and the share of callers afterwards that were refused at first.
func (c *crowd) judge(plateau time.Duration) (goodput, top float64, stored, done int, turned float64) {
	var good, tops, topsDone, later, again float64
	end := c.start.Add(plateau)
	for _, o := range c.offers {
		inTime := !o.done.IsZero() && o.done.Sub(o.born) <= crowdDeadline
		if !o.stored.IsZero() {
			stored++
		}
		if !o.done.IsZero() {
			done++
		}
		if o.born.After(end.Add(crowdDeadline)) {
			later++
			if o.tries > 1 {
				again++
			}
		}
		if o.born.Before(c.start) || o.born.After(end) {
			continue
		}
		if inTime {
			good++
		}
		if o.tier == 0 {
			tops++
			if inTime {
				topsDone++
			}
		}
	}
	return good / (plateau.Seconds() * crowdWorkers / crowdService.Seconds()), topsDone / tops, stored, done, again / later
}

// Callers in any language write ten times what the workers can do to a queue with a
// wait_slo_ms: the workers go on doing what is still wanted, the most important first;
// what is accepted is done, and afterwards nobody is refused.
func TestAQueueWithAWaitSLOIsUsefulUnderAnyLoad(t *testing.T) {
	for _, load := range []float64{2, 10} {
		bubble.Run(t, func(t *testing.T) {
			c := &crowd{t: t, s: serveInMemory(t), queue: "jobs"}
			if w := call(c.s, "PUT", "/v0/topics/jobs", `{"type":"queue","durability":"ephemeral","wait_slo_ms":1000}`); w.Code != http.StatusCreated {
				t.Fatal(w.Body)
			}
			const plateau = 8 * time.Second
			c.run(load, 4*time.Second, plateau, 5*time.Second)
			goodput, top, stored, done, turned := c.judge(plateau)
			t.Logf("load %g: goodput %.3f, top tier %.3f, stored %d, done %d, refused later %.3f", load, goodput, top, stored, done, turned)
			if goodput < 0.85 || top < 0.8 || stored != done || turned > 0.1 {
				t.Error("the queue does not do what is still wanted")
			}
		})
	}
}
