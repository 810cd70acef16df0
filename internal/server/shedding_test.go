package server

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirmq/weir/tests/bubble"
)

// flood gives the queue jobs a worker that does ten jobs a second, and offers it a
// hundred of a low priority, until the bubble's end.
func flood(t *testing.T, s *Server) {
	t.Helper()
	over := make(chan struct{})
	var wg sync.WaitGroup
	t.Cleanup(func() { close(over); wg.Wait() })
	every := func(d time.Duration, do func()) {
		wg.Go(func() {
			tick := time.NewTicker(d)
			defer tick.Stop()
			for {
				select {
				case <-over:
					return
				case <-tick.C:
					do()
				}
			}
		})
	}
	every(100*time.Millisecond, func() {
		w := call(s, "POST", "/v0/topics/jobs/claim", `{"node":"w","max":1}`)
		var got struct {
			Claimed []struct {
				Seq uint64 `json:"$seq"`
			} `json:"claimed"`
		}
		if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
			t.Error(err)
		}
		for _, j := range got.Claimed {
			time.Sleep(90 * time.Millisecond)
			call(s, "POST", "/v0/topics/jobs/ack", fmt.Sprintf(`{"node":"w","seqs":[%d]}`, j.Seq))
		}
	})
	every(10*time.Millisecond, func() { call(s, "POST", "/v0/topics/jobs", `{"records":[{"data":0,"priority":"low"}]}`) })
	time.Sleep(5 * time.Second)
}

func mustPut(t *testing.T, s *Server, topic, config string) {
	t.Helper()
	if w := call(s, "PUT", "/v0/topics/"+topic, config); w.Code/100 != 2 {
		t.Fatalf("%s %s: %d %s", topic, config, w.Code, w.Body)
	}
}

// taken is how many of n writes are not refused.
func taken(t *testing.T, s *Server, n int, body string) (took int) {
	t.Helper()
	for range n {
		w := call(s, "POST", "/v0/topics/jobs", body)
		switch w.Code {
		case http.StatusOK:
			took++
		case http.StatusTooManyRequests:
			refusal(t, w)
		default:
			t.Fatalf("%d %s", w.Code, w.Body)
		}
	}
	return took
}

func state(t *testing.T, s *Server, topic string) (got struct {
	Count  uint64
	Config struct {
		WaitSLO *uint64 `json:"wait_slo_ms"`
	}
	Queue struct {
		DeadLettered uint64 `json:"dead_lettered"`
		Overload     *struct {
			Wait   *int64   `json:"wait_ms"`
			Drain  *float64 `json:"drain_per_second"`
			Share  float64  `json:"refused"`
			Lowest string   `json:"lowest_tier"`
		}
	}
},
) {
	t.Helper()
	w := call(s, "GET", "/v0/topics/"+topic, "")
	if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	return got
}

// What has been accepted is accepted: a repeat gets the first answer, copies of routers
// and dead letters come, and a writer that asks for it is never refused.
func TestWhatASheddingQueueNeverRefuses(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		s := serveInMemory(t)
		mustPut(t, s, "jobs", `{"type":"queue","wait_slo_ms":1000}`)
		keyed := `{"records":[{"data":0,"priority":"background"}],"idempotency_key":"k"}`
		if w := call(s, "POST", "/v0/topics/jobs", keyed); w.Code != http.StatusOK {
			t.Fatal(w.Body)
		}
		flood(t, s)
		if w := call(s, "POST", "/v0/topics/jobs", keyed); w.Code != http.StatusOK || !strings.Contains(w.Body.String(), `"deduped":true`) {
			t.Errorf("a repeat: %d %s", w.Code, w.Body)
		}
		if n := taken(t, s, 50, `{"records":[{"data":0,"priority":"background"}],"disable_backpressure":true}`); n != 50 {
			t.Errorf("%d of 50 writes that are not to be refused", n)
		}
		mustPut(t, s, "source", `{}`)
		if w := call(s, "PUT", "/v0/routers/r", `{"source":"source","dest":"jobs"}`); w.Code != http.StatusCreated {
			t.Fatal(w.Body)
		}
		before := state(t, s, "jobs").Count
		call(s, "POST", "/v0/topics/source", `{"records":[`+strings.Repeat(`{"data":1},`, 99)+`{"data":1}]}`)
		if got := state(t, s, "jobs").Count; got < before+90 {
			t.Errorf("%d jobs after 100 copies, before %d", got, before)
		}
		mustPut(t, s, "dying", `{"type":"queue","max_deliveries":1,"dead_letter":"jobs"}`)
		call(s, "POST", "/v0/topics/dying", `{"records":[{"data":1}]}`)
		call(s, "POST", "/v0/topics/dying/claim", `{"node":"w"}`)
		call(s, "POST", "/v0/topics/dying/nack", `{"node":"w","seqs":[1]}`)
		call(s, "POST", "/v0/topics/dying/claim", `{"node":"w"}`)
		if n := state(t, s, "dying").Queue.DeadLettered; n != 1 {
			t.Errorf("%d dead letters moved", n)
		}
	})
}

// A write is taken or refused as a whole, and passes as often as its records would.
func TestABatchPassesAsItsRecordsWould(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		s := serveInMemory(t)
		mustPut(t, s, "jobs", `{"type":"queue","wait_slo_ms":1000}`)
		flood(t, s)
		// Both offer 200 records a second for 20 s, a hundred in all besides.
		offer := func(body string, every time.Duration) (took int) {
			for range 20 * time.Second / every {
				took += taken(t, s, 1, body)
				time.Sleep(every)
			}
			return took
		}
		one := `{"data":0,"priority":"low"}`
		single := offer(`{"records":[`+one+`]}`, 5*time.Millisecond)
		batches := 10 * offer(`{"records":[`+strings.Repeat(one+",", 9)+one+`]}`, 50*time.Millisecond)
		mixed := 10 * offer(`{"records":[`+strings.Repeat(one+",", 9)+`{"data":0,"priority":"critical"}]}`, 50*time.Millisecond)
		t.Logf("of 4000 records each: single %d, in batches %d, in batches with one critical %d", single, batches, mixed)
		for _, n := range []int{batches, mixed} {
			if n < single/3 || n > 3*single {
				t.Errorf("%d records of batches and %d single ones were taken", n, single)
			}
		}
	})
}

// The field can be set, changed and removed while the queue is in use.
func TestAWaitSLOIsShownChangedAndRemoved(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		s := serveInMemory(t)
		mustPut(t, s, "jobs", `{"type":"queue"}`)
		if got := state(t, s, "jobs"); got.Config.WaitSLO != nil || got.Queue.Overload != nil {
			t.Errorf("%+v", got)
		}
		mustPut(t, s, "jobs", `{"type":"queue","wait_slo_ms":1000}`)
		if got := state(t, s, "jobs"); got.Config.WaitSLO == nil || *got.Config.WaitSLO != 1000 || got.Queue.Overload == nil || got.Queue.Overload.Wait != nil {
			t.Errorf("%+v", got)
		}
		flood(t, s)
		low := `{"records":[{"data":0,"priority":"low"}]}`
		if n := taken(t, s, 100, low); n > 30 {
			t.Errorf("%d of 100 more were taken at ten times the load", n)
		}
		got := state(t, s, "jobs").Queue.Overload
		if got == nil || got.Wait == nil || got.Drain == nil || *got.Drain < 5 || *got.Drain > 15 || got.Share < 0.5 || got.Lowest != "low" {
			t.Errorf("%+v", got)
		}
		page := call(s, "GET", "/v0/metrics", "").Body.String()
		for _, row := range []string{
			`weir_topic_queue_wait_ms{topic="jobs"}`, `weir_topic_queue_drain_per_second{topic="jobs"}`, `weir_topic_queue_cut_tier{topic="jobs"} 2`,
			`weir_topic_queue_refused_total{priority="low",topic="jobs"}`, `weir_topic_queue_refused_total{priority="critical",topic="jobs"} 0`,
			`weir_throttled_total{reason="load_shedding"}`,
		} {
			if !strings.Contains(page, row) {
				t.Errorf("the metrics lack %s", row)
			}
		}
		mustPut(t, s, "jobs", `{"type":"queue"}`)
		if n := taken(t, s, 100, low); n != 100 {
			t.Errorf("%d of 100 were taken by a queue without a wait_slo_ms", n)
		}
		if got := state(t, s, "jobs"); got.Config.WaitSLO != nil || got.Queue.Overload != nil {
			t.Errorf("%+v", got)
		}
	})
}

// While nobody works, nothing is refused: stopping the callers would not help.
func TestAQueueWithoutWorkersTakesEverything(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		s := serveInMemory(t)
		mustPut(t, s, "jobs", `{"type":"queue","wait_slo_ms":1000}`)
		for range 10 {
			if n := taken(t, s, 100, `{"records":[{"data":0,"priority":"background"}]}`); n != 100 {
				t.Fatalf("%d of 100", n)
			}
			time.Sleep(100 * time.Millisecond)
		}
	})
}

func TestAWaitSLOThatCannotBeIsRefused(t *testing.T) {
	s := serveInMemory(t)
	for _, config := range []string{
		`{"wait_slo_ms":1000}`, `{"type":"log","wait_slo_ms":1}`, `{"type":"queue","wait_slo_ms":-1}`, `{"type":"queue","wait_slo_ms":1.5}`,
		`{"type":"queue","wait_slo_ms":86400001}`, `{"type":"queue","wait_slo_ms":"1s"}`,
	} {
		w := call(s, "PUT", "/v0/topics/jobs", config)
		inline := call(s, "POST", "/v0/topics/jobs", `{"records":[{"data":1}],"config":`+config+`}`)
		for _, got := range []string{w.Body.String(), inline.Body.String()} {
			if !strings.Contains(got, "invalid_request") || !strings.Contains(got, "wait_slo_ms") {
				t.Errorf("%s: %s", config, got)
			}
		}
	}
	mustPut(t, s, "jobs", `{"type":"queue","wait_slo_ms":86400000}`)
	mustPut(t, s, "other", `{"wait_slo_ms":0}`)
}

// Producers of one queue keep counters together here, and read it with the same call.
func TestProducersCountTogether(t *testing.T) {
	s := serveInMemory(t)
	offer := func(topic, body string, status int, want string) {
		t.Helper()
		if w := call(s, "POST", "/v0/topics/"+topic+"/offered", body); w.Code != status || !strings.Contains(w.Body.String(), want) {
			t.Errorf("%s %s: %d %s, want %d and %s", topic, body, w.Code, w.Body, status, want)
		}
	}
	offer("jobs", `{"of":4,"bins":[1,3],"add":[5,1]}`, 200, `{"topic":"jobs","bins":[1,3],"sums":[5,1],"performance"`)
	mustPut(t, s, "jobs", `{"type":"queue"}`)
	call(s, "POST", "/v0/topics/jobs", `{"records":[{"data":1},{"data":2},{"data":3}]}`)
	call(s, "POST", "/v0/topics/jobs/claim", `{"node":"w","max":2}`)
	call(s, "POST", "/v0/topics/jobs/ack", `{"node":"w","seqs":[1]}`)
	offer("jobs", `{"of":4,"bins":[3,3],"add":[4294967295,2]}`, 200,
		`{"topic":"jobs","bins":[1,3],"sums":[5,2],"head_seq":3,"count":2,"queue":{"ready":1,"in_flight":1,"finished":1},`)
	call(s, "POST", "/v0/topics/jobs/delete", `{"before_seq":4}`)
	offer("jobs", `{"bins":[],"add":[]}`, 200, `"finished":1}`) // what is deleted is not done
	mustPut(t, s, "log", `{}`)
	offer("log", `{"bins":[0],"add":[1]}`, 409, "not_a_queue")
	offer("-", `{"bins":[0],"add":[1]}`, 404, "topic_not_found")
	for body, field := range map[string]string{
		`{"bins":[0],"add":[]}`:                                   "add",
		`{"of":2,"bins":[2],"add":[1]}`:                           "bins",
		`{"bins":[1024],"add":[1]}`:                               "bins",
		`{"of":1025,"bins":[],"add":[]}`:                          "of",
		`{"bins":[0],"add":[4294967296]}`:                         "add",
		`{"bins":[-1],"add":[1]}`:                                 "bins",
		`{"bins":{},"add":[1]}`:                                   "bins",
		`{"bins":[` + strings.Repeat("0,", 1024) + `0],"add":[]}`: "bins",
	} {
		offer("jobs", body, 400, `field \"`+field)
	}
}
