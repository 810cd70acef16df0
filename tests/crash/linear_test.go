package crash

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/weirmq/weir/tests/crash/rounds"
	"github.com/weirmq/weir/tests/oracle"
	"github.com/weirmq/weir/tests/weirtest"
)

// Size of the linearizability test.
const (
	linearHistories = 100
	linearClients   = 8
	linearOps       = 50 // per client
	linearAtOnce    = 10 // histories that run side by side
	linearJobs      = 24
	linearDeliver   = 4 // max_deliveries
	linearTimeout   = 5 * time.Minute
)

// jobInput is one operation on one job, with the times between which the
// server did it, in epoch ms, widened by one where they were cut.
type jobInput struct {
	kind       oracle.Kind // claim, ack, nack, extend; read = how the job ended
	lease      string
	from, to   int64
	accepted   bool
	deadline   int64 // of a claim or extend
	delay      int64 // of a nack
	deliveries int   // of a claim
	end        string
}

// How a job ended.
const (
	endLive = "live"
	endDead = "dead letter"
	endGone = "gone"
)

type jobState struct {
	lease      string // "" = not leased
	deadline   int64
	notBefore  int64
	deliveries int
	acked      bool
}

// jobModel is the life of one job: available, leased until a deadline that may
// pass at any moment the clocks allow, and acked or dead in the end.
var jobModel = porcupine.Model{
	Init: func() any { return jobState{} },
	Step: func(state, input, _ any) (bool, any) {
		return stepJob(state.(jobState), input.(jobInput))
	},
	DescribeOperation: func(input, _ any) string { return fmt.Sprintf("%+v", input) },
}

func stepJob(s jobState, in jobInput) (bool, any) {
	held := s.lease != "" && s.lease == in.lease && !s.acked
	switch in.kind {
	case oracle.Claim:
		free := s.lease == "" && in.to >= s.notBefore || s.lease != "" && in.to > s.deadline
		ok := !s.acked && free && in.deliveries == s.deliveries+1 && in.deliveries <= linearDeliver
		return ok, jobState{lease: in.lease, deadline: in.deadline, deliveries: in.deliveries}
	case oracle.Read:
		switch in.end {
		case endGone:
			return s.acked, s
		case endDead:
			return !s.acked && s.deliveries == linearDeliver && (s.lease == "" || in.to > s.deadline), s
		}
		return !s.acked, s
	}
	if !in.accepted {
		return !held || in.to > s.deadline, s
	}
	if !held || in.from > s.deadline {
		return false, s
	}
	switch in.kind {
	case oracle.Ack:
		return true, jobState{acked: true, deliveries: s.deliveries}
	case oracle.Nack:
		return true, jobState{notBefore: in.from + in.delay, deliveries: s.deliveries}
	}
	s.deadline = in.deadline
	return true, s
}

// logInput is a write or a look at the head of one topic.
type logInput struct {
	write       bool
	first, last uint64
	head        uint64
}

// logModel is a register that only grows: a write takes the next numbers, a
// read sees exactly the last one taken.
var logModel = porcupine.Model{
	Init: func() any { return uint64(0) },
	Step: func(state, input, _ any) (bool, any) {
		head, in := state.(uint64), input.(logInput)
		if in.write {
			return in.first == head+1, in.last
		}
		return in.head == head, head
	},
}

func TestConcurrentClientsSeeALinearHistory(t *testing.T) {
	s := weirtest.Start(t, weirtest.Options{})
	client := rounds.NewClient(s.URL)
	defer client.Close()
	seed := uint64(time.Now().UnixNano())
	var wg sync.WaitGroup
	slots := make(chan struct{}, linearAtOnce)
	claims := make([]int, linearHistories)
	for h := range linearHistories {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			run := &linearRun{client: client, name: fmt.Sprintf("linear%d", h), seed: seed + uint64(h)}
			events, err := run.play(t.Context())
			if err != nil {
				t.Errorf("history %d (seed %d): %v", h, run.seed, err)
				return
			}
			claims[h] = checkLinear(t, run, events)
		})
	}
	wg.Wait()
	total := 0
	for _, n := range claims {
		total += n
	}
	if total < 20*linearHistories {
		t.Errorf("only %d jobs were claimed in %d histories: nothing was tested", total, linearHistories)
	}
	t.Logf("%d histories of %d operations, %d deliveries", linearHistories, linearClients*linearOps, total)
}

// checkLinear checks one history and returns how many deliveries it had.
func checkLinear(t *testing.T, run *linearRun, events []oracle.Event) int {
	t.Helper()
	for _, v := range oracle.Check(events, time.Second) {
		t.Errorf("seed %d: %v", run.seed, v)
	}
	jobs, logOps := linearOperations(events, run.name)
	deliveries := 0
	for seq, ops := range jobs {
		for _, op := range ops {
			if op.Input.(jobInput).kind == oracle.Claim {
				deliveries++
			}
		}
		if res := porcupine.CheckOperationsTimeout(jobModel, ops, linearTimeout); res != porcupine.Ok {
			t.Errorf("%s seq %d (seed %d): history is %s:\n%s", run.name, seq, run.seed, res, describe(ops))
		}
	}
	if res := porcupine.CheckOperationsTimeout(logModel, logOps, linearTimeout); res != porcupine.Ok {
		t.Errorf("%s (seed %d): the order of writes and reads is %s", run.name, run.seed, res)
	}
	return deliveries
}

func describe(ops []porcupine.Operation) (text string) {
	for _, op := range ops {
		text += fmt.Sprintf("  %d..%d %+v\n", op.Call, op.Return, op.Input)
	}
	return text
}

// linearOperations turns events into the operations on each job and on the log.
func linearOperations(events []oracle.Event, queue string) (map[uint64][]porcupine.Operation, []porcupine.Operation) {
	jobs := map[uint64][]porcupine.Operation{}
	var logOps []porcupine.Operation
	add := func(seq uint64, e *oracle.Event, in jobInput) {
		in.from, in.to = e.Invoke/1e6-1, e.Return/1e6+1
		jobs[seq] = append(jobs[seq], porcupine.Operation{Input: in, Call: e.Invoke, Return: e.Return})
	}
	live, dead := map[uint64]bool{}, map[uint64]bool{}
	var last *oracle.Event
	for i := range events {
		e := &events[i]
		switch e.Kind {
		case oracle.Write:
			logOps = append(logOps, porcupine.Operation{Input: logInput{write: true, first: e.First, last: e.Last}, Call: e.Invoke, Return: e.Return})
		case oracle.Claim:
			for _, j := range e.Jobs {
				add(j.Seq, e, jobInput{kind: oracle.Claim, lease: j.Lease, deadline: j.Deadline, deliveries: j.Deliveries})
			}
		case oracle.Ack, oracle.Nack, oracle.Extend:
			for _, it := range e.Items {
				add(it.Seq, e, jobInput{kind: e.Kind, lease: it.Lease, accepted: it.Accepted, deadline: it.Deadline, delay: linearDelay.Milliseconds()})
			}
		case oracle.Read:
			if e.Topic != queue {
				for _, r := range e.Recs {
					dead[r.FromSeq] = true
				}
				continue
			}
			logOps = append(logOps, porcupine.Operation{Input: logInput{head: e.Head}, Call: e.Invoke, Return: e.Return})
			if e.Quiet {
				last = e
				for _, r := range e.Recs {
					live[r.Seq] = true
				}
			}
		}
	}
	for seq := range jobs {
		end := endGone
		switch {
		case live[seq]:
			end = endLive
		case dead[seq]:
			end = endDead
		}
		add(seq, last, jobInput{kind: oracle.Read, end: end})
	}
	return jobs, logOps
}

const linearDelay = 20 * time.Millisecond

// linearRun is one history: clients on one queue of their own.
type linearRun struct {
	client *rounds.Client
	name   string
	seed   uint64
}

func (r *linearRun) play(ctx context.Context) ([]oracle.Event, error) {
	dlq := r.name + ".dlq"
	cfg := oracle.Config{Queue: true, Class: oracle.Disk, MaxDeliveries: linearDeliver, DeadLetter: dlq}
	var events []oracle.Event
	for name, c := range map[string]oracle.Config{dlq: {Class: oracle.Disk}, r.name: cfg} {
		e, err := r.client.Put(ctx, name, c)
		if err != nil || e.Outcome != oracle.OK {
			return nil, fmt.Errorf("put %s: %s %w", name, e.Note, err)
		}
		events = append(events, e)
	}
	parts := make([][]oracle.Event, linearClients)
	errs := make([]error, linearClients)
	var wg sync.WaitGroup
	for c := range linearClients {
		wg.Go(func() { parts[c], errs[c] = r.playClient(ctx, c) })
	}
	wg.Wait()
	for c, part := range parts {
		if errs[c] != nil {
			return nil, errs[c]
		}
		events = append(events, part...)
	}
	for _, name := range []string{r.name, dlq} {
		e, _, err := r.client.Diff(ctx, name, 0, 1000)
		if err != nil {
			return nil, err
		}
		e.Quiet = true
		events = append(events, e)
	}
	return events, nil
}

// playClient is one of the clients: it writes a few jobs, then claims and settles,
// now and then with a lease that is over.
func (r *linearRun) playClient(ctx context.Context, c int) (events []oracle.Event, err error) {
	rnd := rand.New(rand.NewPCG(r.seed, uint64(c)))
	node := fmt.Sprintf("n%d", c)
	var held []oracle.Job
	var seen uint64 // highest number this client knows of
	for i := range linearOps {
		var e oracle.Event
		n := rnd.IntN(100)
		switch {
		case i < linearJobs/linearClients:
			id := oracle.BatchID{Writer: uint32(c), N: uint64(i)}
			e, err = r.client.Write(ctx, r.name, id, 1+rnd.IntN(2), "")
		case n < 10:
			e, _, err = r.client.Diff(ctx, r.name, rnd.Uint64N(seen+1), 1000)
		case n < 45 || len(held) == 0:
			lease := time.Duration(100+rnd.IntN(200)) * time.Millisecond
			e, err = r.client.Claim(ctx, r.name, node, 1+rnd.IntN(3), lease)
			held = append(held, e.Jobs...)
		default:
			kind := []oracle.Kind{oracle.Ack, oracle.Nack, oracle.Nack, oracle.Extend}[rnd.IntN(4)]
			k := rnd.IntN(len(held))
			e, err = r.client.Settle(ctx, kind, r.name, node, held[k:k+1], linearDelay, 100*time.Millisecond)
			if len(held) > 6 {
				held = append(held[:k:k], held[k+1:]...)
			}
		}
		if err != nil || e.Outcome != oracle.OK {
			return nil, fmt.Errorf("%s: %s %w", e.Kind, e.Note, err)
		}
		seen = max(seen, e.Head, e.Last)
		events = append(events, e)
		time.Sleep(time.Duration(rnd.IntN(40)) * time.Millisecond) // so that leases end
	}
	return events, nil
}

func TestLinearModelFindsAStaleAck(t *testing.T) {
	at := func(call, ret int64, in jobInput) porcupine.Operation {
		in.from, in.to = call, ret
		return porcupine.Operation{Input: in, Call: call * 1e6, Return: ret * 1e6}
	}
	history := func(staleAccepted bool) []porcupine.Operation {
		return []porcupine.Operation{
			at(0, 2, jobInput{kind: oracle.Claim, lease: "a", deadline: 101, deliveries: 1}),
			at(110, 114, jobInput{kind: oracle.Claim, lease: "b", deadline: 212, deliveries: 2}),
			at(120, 122, jobInput{kind: oracle.Ack, lease: "a", accepted: staleAccepted}),
			at(130, 132, jobInput{kind: oracle.Ack, lease: "b", accepted: !staleAccepted}),
		}
	}
	if res := porcupine.CheckOperationsTimeout(jobModel, history(false), linearTimeout); res != porcupine.Ok {
		t.Errorf("a correct history is %s", res)
	}
	if res := porcupine.CheckOperationsTimeout(jobModel, history(true), linearTimeout); res != porcupine.Illegal {
		t.Errorf("an accepted stale ack is %s", res)
	}
}
