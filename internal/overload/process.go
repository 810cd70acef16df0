package overload

import (
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirmq/weir"
)

// Process is a process that runs Callers. In is what that reads, Out what it writes; Wait
// returns once the process is gone, which the end of In makes it soon.
type Process struct {
	In   io.WriteCloser
	Out  io.ReadCloser
	Wait func() error
}

// job is what a process of callers is told first; a time, at which the run starts, follows
// when it is ready.
type job struct {
	Scenario Scenario
	Arm, URL string
	ID       uint64
	Part     int
}

// news is what it says: first that it is ready, then what has happened since the last time,
// and when it is done. Err ends it early.
type news struct {
	Attempts       []attempt
	About, Overrun int64
	Done           bool
	Err            string
}

// often is how many times per deadline there are news. What is stored counts as
// waiting only once it is told.
const often = 100

// Callers is a part of the callers of a run, for the process that it was started by: it
// reads what to do from in and writes what comes of it to out. It ends with in.
func Callers(ctx context.Context, in io.Reader, out io.Writer, open func(ctx context.Context, url string) (*weir.Stream, error)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	orders, say := gob.NewDecoder(in), gob.NewEncoder(out)
	var j job
	if err := orders.Decode(&j); err != nil {
		return fmt.Errorf("reading what to do: %w", err)
	}
	var streams []*weir.Stream
	defer func() {
		for _, s := range streams {
			_ = s.Close() // all that counts is stored
		}
	}()
	t := &teller{}
	c := &callers{Scenario: j.Scenario, offers: j.Scenario.offers(), id: j.ID, part: j.Part, parts: j.Scenario.Processes, tell: t.tell}
	arm, err := ParseArm(j.Arm, j.Scenario)
	if err == nil {
		err = c.hire(arm.Config, func() (*weir.Stream, error) {
			s, err := open(ctx, j.URL)
			if err == nil {
				streams = append(streams, s)
			}
			return s, err
		})
	}
	if err != nil {
		return errors.Join(err, say.Encode(news{Err: err.Error()}))
	}
	if err := say.Encode(news{}); err != nil {
		return err
	}
	var start time.Time
	if err := orders.Decode(&start); err != nil {
		return fmt.Errorf("waiting for the start: %w", err)
	}
	go func() {
		_ = orders.Decode(&struct{}{}) // nothing follows: it fails when the parent is gone
		cancel()
	}()
	now := time.Now()
	if err := c.begin(ctx, now.Add(start.Sub(now))); err != nil { // a time of this process's clock
		return err
	}
	return t.run(c, say)
}

// teller keeps what has happened until it is told.
type teller struct {
	mu   sync.Mutex
	kept []attempt
}

func (t *teller) tell(a attempt) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.kept = append(t.kept, a)
}

func (t *teller) take() []attempt {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := t.kept
	t.kept = nil
	return all
}

// run tells until the callers are done.
func (t *teller) run(c *callers, say *gob.Encoder) error {
	tick := time.NewTicker(max(c.Deadline/often, time.Millisecond))
	defer tick.Stop()
	for {
		n := news{}
		var err error
		select {
		case <-tick.C:
		case err = <-c.ended:
			n.Done = true
		}
		n.Attempts = t.take()
		n.About, n.Overrun = c.state()
		if err != nil {
			n.Err = err.Error()
		}
		if err := say.Encode(n); err != nil {
			return err
		}
		if n.Done {
			return err
		}
	}
}

// processes are the callers of a run that are in processes of their own.
type processes struct {
	all  []*process
	tell func(attempt)
}

// process is one of them.
type process struct {
	Process
	orders         *gob.Encoder
	hear           *gob.Decoder
	about, overrun atomic.Int64
	ended          chan error
}

// startProcesses starts the processes and waits until they are ready.
func (r *run) startProcesses(ctx context.Context, target Target) (*processes, error) {
	ps := &processes{tell: r.ledger.called}
	for part := range r.Processes {
		p, err := startProcess(ctx, target, job{r.Scenario, r.arm.Name, target.URL, r.id, part})
		if err != nil {
			ps.close()
			return nil, fmt.Errorf("process %d of the callers: %w", part+1, err)
		}
		ps.all = append(ps.all, p)
	}
	for i, p := range ps.all {
		var n news
		if err := p.next(&n); err != nil {
			ps.close()
			return nil, fmt.Errorf("process %d of the callers: %w", i+1, err)
		}
	}
	return ps, nil
}

func startProcess(ctx context.Context, target Target, j job) (*process, error) {
	started, err := target.Spawn(ctx)
	if err != nil {
		return nil, err
	}
	p := &process{Process: *started, ended: make(chan error, 1)}
	p.orders, p.hear = gob.NewEncoder(p.In), gob.NewDecoder(p.Out)
	if err := p.orders.Encode(j); err != nil {
		return nil, errors.Join(err, p.In.Close(), p.Wait())
	}
	return p, nil
}

// next reads the next news.
func (p *process) next(n *news) error {
	if err := p.hear.Decode(n); err != nil {
		return fmt.Errorf("it says nothing any more: %w", err)
	}
	if n.Err != "" {
		return errors.New(n.Err)
	}
	return nil
}

// begin tells all of them when the run starts.
func (ps *processes) begin(_ context.Context, start time.Time) error {
	for i, p := range ps.all {
		if err := p.orders.Encode(start); err != nil {
			return fmt.Errorf("process %d of the callers: %w", i+1, err)
		}
		go func() { p.ended <- p.follow(ps.tell) }()
	}
	return nil
}

// follow takes over what a process says until it is done.
func (p *process) follow(tell func(attempt)) error {
	for {
		var n news
		if err := p.next(&n); err != nil {
			return err
		}
		for _, a := range n.Attempts {
			tell(a)
		}
		p.about.Store(n.About)
		p.overrun.Store(n.Overrun)
		if n.Done {
			return nil
		}
	}
}

func (ps *processes) end() (err error) {
	for i, p := range ps.all {
		if e := <-p.ended; e != nil {
			err = errors.Join(err, fmt.Errorf("process %d of the callers: %w", i+1, e))
		}
	}
	return err
}

func (ps *processes) state() (about, overrun int64) {
	for _, p := range ps.all {
		about += p.about.Load()
		overrun += p.overrun.Load()
	}
	return about, overrun
}

// close ends the processes that still run.
func (ps *processes) close() {
	for _, p := range ps.all {
		_ = p.In.Close() // an error means that it is gone
		_ = p.Out.Close()
		_ = p.Wait() // what went wrong it has said
	}
}
