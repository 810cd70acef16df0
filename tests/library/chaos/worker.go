package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirmq/weir"
	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/open"
)

// workerEnv tells a process that it is a worker, and which one.
const workerEnv = "WEIR_CHAOS_WORKER"

// workerConfig is what a worker process is told.
type workerConfig struct {
	URL          string
	Addr         string // the server's, past the slow link
	Name         string // of its consumer
	Journal      string
	Workers      int
	Limit        int
	ReclaimAfter time.Duration
	Fault        string
}

// Kinds of messages, by what their handler does.
const (
	kindGood   = 'g'
	kindFails  = 'f' // an error each time: dead at the limit
	kindPoison = 'p' // dead at once
)

// task is what a message carries.
type task struct {
	seq  int
	kind byte
	work time.Duration
}

func (t task) data(padding string) []byte {
	return fmt.Appendf(nil, "%d %c %d %s", t.seq, t.kind, t.work.Milliseconds(), padding)
}

func parseTask(data []byte) (t task, err error) {
	var ms int
	_, err = fmt.Sscanf(string(data[:min(len(data), 64)]), "%d %c %d", &t.seq, &t.kind, &ms)
	t.work = time.Duration(ms) * time.Millisecond
	return t, err
}

// workerMain runs a pool until SIGTERM.
func workerMain(text string) error {
	var cfg workerConfig
	if err := json.Unmarshal([]byte(text), &cfg); err != nil {
		return err
	}
	go func() { // its parent holds the other end
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(3)
	}()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	j, err := openJournal(cfg.Journal)
	if err != nil {
		return err
	}
	go j.watchStalls(ctx, cfg.ReclaimAfter/6)
	s, err := openPatiently(ctx, cfg.URL)
	if err != nil {
		return err
	}
	defer s.Close()
	all, ok := s.Backend().(abilities)
	if !ok {
		return fmt.Errorf("the backend of %s lacks an ability", s.Info().Kind)
	}
	r := &recorder{abilities: all, journal: j, slow: cfg.ReclaimAfter / 6, fault: cfg.Fault, limit: cfg.Limit}
	if cfg.Fault == faultCountTwice {
		r.client = redis.NewClient(&redis.Options{Addr: cfg.Addr, Protocol: 2, DisableIdentity: true})
		defer r.client.Close()
	}
	pool, err := weir.NewPool(weir.New(r), r.handle, weir.PoolConfig{
		Workers: cfg.Workers, Consumer: cfg.Name, ReclaimAfter: cfg.ReclaimAfter, MaxDeliveries: cfg.Limit,
		Block: 500 * time.Millisecond, RetryBase: 100 * time.Millisecond, RetryMax: time.Second, DrainTimeout: 10 * time.Second,
	})
	if err != nil {
		return err
	}
	return pool.Run(ctx)
}

// openPatiently opens a stream whose server may be away at the moment.
func openPatiently(ctx context.Context, url string) (*weir.Stream, error) {
	for {
		call, cancel := context.WithTimeout(ctx, 10*time.Second)
		s, err := open.URL(call, url)
		cancel()
		if err == nil || ctx.Err() != nil || !backend.Retryable(err) && !errors.Is(err, context.DeadlineExceeded) {
			return s, err
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// abilities are those of a backend that a pool uses.
type abilities interface {
	backend.Backend
	backend.Signaler
	backend.Trimmer
}

// recorder is the backend and the handler of a pool, and notes both in the journal.
type recorder struct {
	abilities
	journal *journal
	slow    time.Duration // calls that take longer are noted

	// For planted faults.
	fault  string
	limit  int
	client *redis.Client
	seqs   sync.Map // string → int: what was claimed
}

func (r *recorder) Claim(ctx context.Context, req backend.ClaimRequest) (backend.Claimed, error) {
	asked := time.Now()
	got, err := r.abilities.Claim(ctx, req)
	if err != nil && !errors.Is(err, context.Canceled) {
		r.journal.trouble("claim", asked)
	}
	r.spoilClaim(ctx, &got)
	for _, d := range got.Deliveries {
		if t, err := parseTask(d.Data); err == nil {
			if r.fault != "" {
				r.seqs.Store(d.ID, t.seq)
			}
			r.journal.claimed(asked, t.seq, d.Lease)
		}
	}
	return got, err
}

func (r *recorder) Ack(ctx context.Context, leases []backend.Lease) ([]string, error) {
	asked := time.Now()
	for _, l := range leases {
		r.journal.ackAsked(l)
	}
	lost, err := r.spoiledAck(ctx, leases)
	if err != nil || time.Since(asked) > r.slow {
		r.journal.trouble("ack", asked)
	}
	if err != nil {
		return lost, err
	}
	gone := make(map[string]bool, len(lost))
	for _, id := range lost {
		gone[id] = true
	}
	for _, l := range leases {
		r.journal.ackAnswered(l, !gone[l.ID])
	}
	return lost, err
}

func (r *recorder) Extend(ctx context.Context, leases []backend.Lease, d time.Duration) ([]string, error) {
	asked := time.Now()
	lost, err := r.abilities.Extend(ctx, leases, d)
	if err != nil || time.Since(asked) > r.slow {
		r.journal.trouble("extend", asked)
	}
	return lost, err
}

func (r *recorder) Nack(ctx context.Context, returns []backend.Return) ([]string, error) {
	asked := time.Now()
	lost, err := r.spoiledNack(ctx, returns)
	if err != nil || time.Since(asked) > r.slow {
		r.journal.trouble("nack", asked)
	}
	return lost, err
}

// handle does what a message asks for.
func (r *recorder) handle(ctx context.Context, d *weir.Delivery) error {
	t, err := parseTask(d.Data)
	if err != nil {
		return weir.Poison(fmt.Errorf("%q is no task of this program: %w", d.Data[:min(len(d.Data), 40)], err))
	}
	if r.fault == faultAckFirst {
		_, _ = r.abilities.Ack(ctx, []backend.Lease{d.Lease})
	}
	r.journal.begun(t, d.Lease)
	timer := time.NewTimer(t.work)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		r.journal.ended(t, d.Lease, resultCancelled)
		return context.Cause(ctx)
	}
	switch t.kind {
	case kindFails:
		r.journal.ended(t, d.Lease, resultFailed)
		return errors.New("this one cannot be done")
	case kindPoison:
		r.journal.ended(t, d.Lease, resultPoison)
		return weir.Poison(errors.New("this one can never be done"))
	}
	r.journal.ended(t, d.Lease, resultDone)
	return nil
}
