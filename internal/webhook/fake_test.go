package webhook

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirmq/weir/internal/api"
)

// payload is the data of each job.
const payload = `{"a":1}`

var errBusy = api.Errorf(api.CodeNotReady, "the log is behind")

// fakeQueue is a queue in memory, as far as webhooks go.
type fakeQueue struct {
	mu     sync.Mutex
	wake   chan struct{} // closed when something became claimable
	jobs   map[uint64]*fakeJob
	nacks  []time.Duration
	lease  uint64
	closed error // what a claim is answered with
	claims int
	node   string    // whose the last claim was
	taken  func()    // called once, when a claim has got jobs
	torn   bool      // the next claim fails behind its first job
	drains bool      // a claim has nothing, and does not wait
	busy   time.Time // nothing can be settled before
}

type fakeJob struct {
	from       time.Time // claimable
	lease      uint64    // 0: none
	until      time.Time // end of the lease
	deliveries uint64
}

func newFakeQueue(jobs int) *fakeQueue {
	f := &fakeQueue{wake: make(chan struct{}), jobs: make(map[uint64]*fakeJob)}
	for i := range jobs {
		f.jobs[uint64(i+1)] = &fakeJob{}
	}
	return f
}

// add adds jobs, which wake a claim that waits.
func (f *fakeQueue) add(seqs ...uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, seq := range seqs {
		f.jobs[seq] = &fakeJob{}
	}
	close(f.wake)
	f.wake = make(chan struct{})
}

func (f *fakeQueue) Claim(ctx context.Context, _ string, req *api.ClaimRequest, visit func(*api.Job)) (api.ClaimResult, error) {
	end := time.After(time.Duration(req.WaitMS) * time.Millisecond)
	for {
		n, wake, soon, err := f.take(req, visit)
		if n > 0 && f.taken != nil {
			f.taken()
			f.taken = nil
		}
		if n > 0 || err != nil || f.drains && f.claims < 100 {
			return api.ClaimResult{Count: n}, err
		}
		var later <-chan time.Time
		if soon > 0 {
			later = time.After(soon)
		}
		select {
		case <-wake:
		case <-later:
		case <-end:
			return api.ClaimResult{}, nil
		case <-ctx.Done():
			return api.ClaimResult{}, ctx.Err()
		}
	}
}

func (f *fakeQueue) take(req *api.ClaimRequest, visit func(*api.Job)) (n int, wake chan struct{}, soon time.Duration, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.claims++
	f.node = req.Node
	if f.closed != nil {
		return 0, nil, 0, f.closed
	}
	var seqs []uint64
	for seq := range f.jobs {
		seqs = append(seqs, seq)
	}
	slices.Sort(seqs)
	for _, seq := range seqs {
		j := f.jobs[seq]
		if n == req.Max {
			continue
		}
		from := j.from
		if j.lease != 0 {
			from = j.until
		}
		if wait := time.Until(from); wait > 0 {
			if soon == 0 || wait < soon {
				soon = wait
			}
			continue
		}
		f.lease++
		j.lease, j.until = f.lease, time.Now().Add(time.Duration(req.LeaseMS)*time.Millisecond)
		j.deliveries++
		n++
		data := []byte(payload)
		visit(&api.Job{Record: api.Record{Seq: seq, Data: data}, LeaseID: j.lease, Deliveries: j.deliveries})
		clear(data) // as the engine may
		if f.torn {
			f.torn, j.lease = false, 0
			j.deliveries--
			return 0, nil, 0, api.Errorf(api.CodeInternal, "a job could not be read")
		}
	}
	return n, f.wake, soon, nil
}

func (f *fakeQueue) Ack(_ context.Context, _ string, req *api.SettleRequest) (api.SettleResult, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if time.Now().Before(f.busy) {
		return api.SettleResult{}, errBusy
	}
	for i, seq := range req.Seqs {
		if j := f.jobs[seq]; j == nil || j.lease != req.LeaseIDs[i] {
			panic("an ack without a lease")
		}
		delete(f.jobs, seq)
	}
	return api.SettleResult{}, nil
}

func (f *fakeQueue) Nack(_ context.Context, _ string, req *api.SettleRequest) (api.SettleResult, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if time.Now().Before(f.busy) {
		return api.SettleResult{}, errBusy
	}
	for i, seq := range req.Seqs {
		j := f.jobs[seq]
		if j == nil || j.lease != req.LeaseIDs[i] {
			panic("a nack without a lease")
		}
		delay := time.Duration(req.DelayMS) * time.Millisecond
		if j.lease, j.from = 0, time.Now().Add(delay); req.NotStarted {
			j.deliveries--
		} else {
			f.nacks = append(f.nacks, delay)
		}
	}
	close(f.wake)
	f.wake = make(chan struct{})
	return api.SettleResult{}, nil
}

// left returns how many jobs are not done, and how many of them are leased.
func (f *fakeQueue) left() (all, leased int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, j := range f.jobs {
		if j.lease != 0 {
			leased++
		}
	}
	return len(f.jobs), leased
}

// receiver is what deliveries are sent to in virtual time.
type receiver struct {
	answer func(*http.Request) (int, error) // 0 without an error: never

	mu     sync.Mutex
	at     []time.Time
	now    int // under way
	most   int
	header http.Header // to answer with
}

func (r *receiver) RoundTrip(req *http.Request) (*http.Response, error) {
	r.mu.Lock()
	r.at = append(r.at, time.Now())
	r.now++
	r.most = max(r.most, r.now)
	r.mu.Unlock()
	defer func() {
		r.mu.Lock()
		r.now--
		r.mu.Unlock()
	}()
	status, err := r.answer(req)
	if status == 0 && err == nil {
		<-req.Context().Done()
		err = req.Context().Err()
	}
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	header := r.header
	r.mu.Unlock()
	return &http.Response{StatusCode: status, Header: header, Body: io.NopCloser(strings.NewReader("ok"))}, nil
}

// retryAfter changes what is answered with from now on.
func (r *receiver) retryAfter(seconds string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.header = http.Header{"Retry-After": {seconds}}
}

func (r *receiver) times() []time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.at)
}

var errDead = errors.New("connection refused")

// newSet returns a set without a file yet.
func newSet(t *testing.T, trip http.RoundTripper) *Set {
	t.Helper()
	return New(Options{File: filepath.Join(t.TempDir(), FileName), MaxNodeBytes: 128, Logger: slog.New(slog.DiscardHandler), transport: trip})
}

func config() api.WebhookConfig {
	return api.WebhookConfig{Topic: "orders", URL: "https://example.com/jobs", Secret: "0123456789abcdef", Concurrency: 4, TimeoutMS: 10_000}
}

func put(t *testing.T, s *Set, name string, cfg api.WebhookConfig) api.WebhookState {
	t.Helper()
	st, _, _, err := s.Put(name, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return st
}

func get(t *testing.T, s *Set, name string) api.WebhookState {
	t.Helper()
	st, err := s.Get(name)
	if err != nil {
		t.Fatal(err)
	}
	return st
}
