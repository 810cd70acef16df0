package scenario

import (
	"bytes"
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/weirmq/weir/bench/load"
)

const (
	workers    = 10
	claimBatch = 100
	fillBatch  = 1000
)

// fill writes n records to a topic, uncounted.
func fill(ctx context.Context, w *weir, topic string, n int64) error {
	if n <= 0 {
		return nil
	}
	batch := min(n, fillBatch)
	if err := writeAll(ctx, w, topic, n/batch, int(batch)); err != nil {
		return err
	}
	if rest := n % batch; rest > 0 {
		return writeAll(ctx, w, topic, 1, int(rest))
	}
	return nil
}

// writeAll writes exactly so many batches of n records.
func writeAll(ctx context.Context, w *weir, topic string, batches int64, n int) error {
	conns := min(bulkConns, batches)
	request := writeRequest(topic, n)
	_, err := load.Run(ctx, load.Plan{Addr: w.addr, Conns: int(conns), Step: func(i int) load.Step {
		send := repeatRequest(request, n)
		left := batches / conns
		if int64(i) < batches%conns {
			left++
		}
		return func(c *load.Conn) (int, error) {
			if left == 0 {
				return 0, nil
			}
			left--
			return send(c)
		}
	}})
	return err
}

// claims compares cycles of one claim and one ack with the same two requests
// to a handler that reads and forgets them. A sample ends when its time is
// over or the queue is empty, whichever comes first.
func claims(ctx context.Context, s *session) (measure, measure, error) {
	w, err := s.weir(ctx, "weir")
	if err != nil {
		return nil, nil, err
	}
	sample := 0
	weirSide := func(ctx context.Context) (measured, error) {
		sample++
		topic := fmt.Sprintf("jobs-%d", sample)
		if err := w.createTopic(ctx, topic, "queue", "disk"); err != nil {
			return measured{}, err
		}
		if err := fill(ctx, w, topic, s.size.jobs); err != nil {
			return measured{}, err
		}
		plan := s.timed(w.addr, workers, func(i int) load.Step { return claimAndAck(topic, i) })
		plan.Warmup = 0
		m, err := runPlan(ctx, w.proc, plan)
		if err != nil {
			return m, err
		}
		return m, w.do(ctx, "DELETE", "/v0/topics/"+topic, nil, nil)
	}
	peer, err := s.handler(ctx, s.timed("", workers, emptyCycle), "empty")
	return weirSide, peer, err
}

// claimRequest and ackBody are what worker i sends.
func claimRequest(topic string, i int) []byte {
	return load.Request("POST", "/v0/topics/"+topic+"/claim",
		fmt.Appendf(nil, `{"node":"worker-%d","max":%d}`, i, claimBatch))
}

func appendAckBody(dst []byte, i int, seqs []uint64) []byte {
	dst = append(dst, `{"node":"worker-`...)
	dst = strconv.AppendInt(dst, int64(i), 10)
	dst = append(dst, `","seqs":[`...)
	for k, seq := range seqs {
		if k > 0 {
			dst = append(dst, ',')
		}
		dst = strconv.AppendUint(dst, seq, 10)
	}
	return append(dst, "]}"...)
}

// claimAndAck is one cycle of worker i: claim a batch, ack all of it. It is
// worth the jobs it acked, and nothing once the queue has no more.
func claimAndAck(topic string, i int) load.Step {
	claim := claimRequest(topic, i)
	ackPath := "/v0/topics/" + topic + "/ack"
	var seqs []uint64
	var body, request []byte
	return func(c *load.Conn) (int, error) {
		status, answer, err := c.Fetch(claim)
		if err != nil {
			return 0, err
		}
		if status != 200 {
			return 0, fmt.Errorf("claim: status %d: %.200s", status, answer)
		}
		seqs = appendSeqs(seqs[:0], answer)
		if len(seqs) == 0 {
			return 0, nil
		}
		body = appendAckBody(body[:0], i, seqs)
		request = load.AppendRequest(request[:0], "POST", ackPath, body)
		status, answer, err = c.Fetch(request)
		if err != nil {
			return 0, err
		}
		if status != 200 || !bytes.Contains(answer, fmt.Appendf(nil, `"acked":%d,`, len(seqs))) {
			return 0, fmt.Errorf("ack of %d jobs: status %d: %.200s", len(seqs), status, answer)
		}
		return len(seqs), nil
	}
}

// emptyCycle sends what claimAndAck sends and counts it as a full batch.
func emptyCycle(i int) load.Step {
	seqs := make([]uint64, claimBatch)
	for k := range seqs {
		seqs[k] = uint64(500_000 + k)
	}
	claim := claimRequest("jobs-1", i)
	ack := load.Request("POST", "/v0/topics/jobs-1/ack", appendAckBody(nil, i, seqs))
	first, second := repeatRequest(claim, 0), repeatRequest(ack, claimBatch)
	return func(c *load.Conn) (int, error) {
		if _, err := first(c); err != nil {
			return 0, err
		}
		return second(c)
	}
}

// appendSeqs appends the numbers of a claim's jobs. Payloads of this benchmark
// hold no "$seq", so the field can be searched for, and all are of one size, so that much
// needs no search.
func appendSeqs(dst []uint64, answer []byte) []uint64 {
	for {
		i := bytes.Index(answer, seqField)
		if i < 0 {
			return dst
		}
		answer = answer[i+len(seqField):]
		var seq uint64
		for len(answer) > 0 && answer[0] >= '0' && answer[0] <= '9' {
			seq = seq*10 + uint64(answer[0]-'0')
			answer = answer[1:]
		}
		dst = append(dst, seq)
		answer = answer[min(recordSize, len(answer)):]
	}
}

// claimDepth compares a deep queue with a shallow one, on a server each. On both the jobs
// of a burst are written, uncounted, on top of what waits, and both bursts take the same
// number of jobs, so the shallow queue is measured for as many as the deep one.
func claimDepth(ctx context.Context, s *session) (measure, measure, error) {
	deep, err := s.waitingQueue(ctx, "deep", s.size.manyWaiting)
	if err != nil {
		return nil, nil, err
	}
	shallow, err := s.waitingQueue(ctx, "shallow", s.size.fewWaiting)
	return deep, shallow, err
}

func (s *session) waitingQueue(ctx context.Context, name string, depth int64) (measure, error) {
	const topic = "jobs"
	w, err := s.weir(ctx, name)
	if err != nil {
		return nil, err
	}
	if err := w.createTopic(ctx, topic, "queue", "disk"); err != nil {
		return nil, err
	}
	if err := fill(ctx, w, topic, depth); err != nil {
		return nil, err
	}
	return func(ctx context.Context) (measured, error) { return s.bursts(ctx, w, topic, depth) }, nil
}

// bursts takes jobs in bursts until the bursts add up to half a sample. Before each the
// queue is filled to depth and the burst's jobs, and what is left to do of that is done:
// storing a deep queue costs the writes, not the claims.
func (s *session) bursts(ctx context.Context, w *weir, topic string, depth int64) (measured, error) {
	total := load.Sample{Latency: new(load.Latency)}
	var cpu time.Duration
	for total.Elapsed < s.Sample/2 {
		waiting, err := w.counters(ctx, topic)
		if err != nil {
			return measured{}, err
		}
		if err := fill(ctx, w, topic, depth+s.size.burst-waiting.Count); err != nil {
			return measured{}, err
		}
		w.settle(ctx)
		var before time.Duration
		burst, err := load.Run(ctx, load.Plan{
			Addr: w.addr, Conns: workers, Units: s.size.burst,
			Step:  func(i int) load.Step { return claimAndAck(topic, i) },
			Begin: func() { before = w.cpu() },
		})
		if err != nil {
			return measured{}, err
		}
		cpu += w.cpu() - before
		total.Units += burst.Units
		total.Steps += burst.Steps
		total.Elapsed += burst.Elapsed
		total.Latency.Merge(burst.Latency)
	}
	return fromSample(total, cpu), nil
}
