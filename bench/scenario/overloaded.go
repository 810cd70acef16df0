package scenario

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/weirmq/weir/bench/load"
	"github.com/weirmq/weir/bench/report"
)

var sheddingFigures = []figure{
	{rows: []report.Figure{
		{Name: "shed-http", Title: "ten times a queue's load, refusals over HTTP, p99", Unit: "ms", Goal: 5},
	}, measure: refusals},
}

// createShedding makes a queue that holds the wait of its jobs.
func (w *weir) createShedding(ctx context.Context, name, class string) error {
	body := fmt.Appendf(nil, `{"type":"queue","durability":%q,"wait_slo_ms":1000}`, class)
	return w.do(ctx, "PUT", "/v0/topics/"+name, body, nil)
}

// sheddingWrites writes to a queue with a wait_slo_ms and to one without. Nobody works,
// so that nothing is refused: what is compared is the price of deciding.
func sheddingWrites(ctx context.Context, s *session) (measure, measure, error) {
	w, err := s.freshTopic(ctx, "plain", "queue", "fsync")
	if err != nil {
		return nil, nil, err
	}
	if err := w.createShedding(ctx, "shedding", "fsync"); err != nil {
		return nil, nil, err
	}
	return over(w.proc, s.writers(w.addr, "shedding", manyConns, 1)), over(w.proc, s.writers(w.addr, "plain", manyConns, 1)), nil
}

const (
	shedConns  = 4
	shedPause  = 4 * time.Millisecond   // of a connection, between its writes: 1000 a second in all
	shedWork   = 100 * time.Millisecond // that the worker takes for ten jobs
	leastSheds = 200
)

// refusals offers a queue ten times what its worker does and times what is refused.
func refusals(ctx context.Context, s *session) ([]value, error) {
	w, err := s.weir(ctx, "weir")
	if err != nil {
		return nil, err
	}
	if err := w.createShedding(ctx, "shedding", "disk"); err != nil {
		return nil, err
	}
	ctx, end := context.WithCancel(ctx)
	defer end()
	begin := time.Now()
	var all load.Latency
	var mu sync.Mutex
	var wg sync.WaitGroup
	errs := make(chan error, shedConns+1)
	wg.Go(func() { errs <- slowWorker(ctx, w.addr, "shedding") })
	for range shedConns {
		wg.Go(func() {
			errs <- offer(ctx, w.addr, "shedding", func(took time.Duration) {
				mu.Lock()
				defer mu.Unlock()
				if all.Add(took); all.Count() >= leastSheds && time.Since(begin) >= s.Sample {
					end()
				}
			})
		})
	}
	err = <-errs
	end()
	wg.Wait()
	p99 := all.Quantile(0.99).Seconds() * 1000
	return []value{{p99, fmt.Sprintf("of %d", all.Count())}}, err
}

// offer writes until ctx ends and tells how long each refusal took.
func offer(ctx context.Context, addr, topic string, refused func(time.Duration)) error {
	c, err := load.Dial(ctx, addr)
	if err != nil {
		return err
	}
	defer c.Close()
	request := writeRequest(topic, 1)
	for ctx.Err() == nil {
		began := time.Now()
		status, err := c.Do(request)
		switch {
		case err != nil:
			return err
		case status == 429:
			refused(time.Since(began))
		case status != 200:
			return fmt.Errorf("write: status %d", status)
		}
		time.Sleep(shedPause)
	}
	return nil
}

// slowWorker works on ten jobs at a time until ctx ends.
func slowWorker(ctx context.Context, addr, topic string) error {
	c, err := load.Dial(ctx, addr)
	if err != nil {
		return err
	}
	defer c.Close()
	claim := load.Request("POST", "/v0/topics/"+topic+"/claim", []byte(`{"node":"worker-0","max":10}`))
	var seqs []uint64
	for ctx.Err() == nil {
		status, answer, err := c.Fetch(claim)
		if err != nil || status != 200 {
			return fmt.Errorf("claim: status %d, %w", status, err)
		}
		seqs = appendSeqs(seqs[:0], answer)
		time.Sleep(shedWork)
		if len(seqs) == 0 {
			continue
		}
		if status, err := c.Do(load.Request("POST", "/v0/topics/"+topic+"/ack", appendAckBody(nil, 0, seqs))); err != nil || status != 200 {
			return fmt.Errorf("ack: status %d, %w", status, err)
		}
	}
	return nil
}
