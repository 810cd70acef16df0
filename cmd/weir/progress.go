package main

import (
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/weirmq/weir"
)

// progressEvery is how often the line on a terminal is drawn.
const progressEvery = 100 * time.Millisecond

// progress shows the progress of a publish on a terminal, in its last line. Elsewhere it
// only reports when a wait begins and ends. The guard's log is written through it, so that
// the two do not mix.
type progress struct {
	out      io.Writer
	terminal bool

	mu     sync.Mutex
	drawn  time.Time
	sent   uint64
	rate   float64
	waits  int
	lost   time.Duration // by waiting
	outage string        // why it waits
}

func newProgress(out io.Writer) *progress {
	return &progress{out: out, terminal: isScreen(out)}
}

// update shows how much has been acknowledged since the start.
func (p *progress) update(sent uint64, started time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sent = sent
	p.rate = float64(sent) / max(time.Since(started).Seconds(), 1e-9)
	if p.outage != "" && !p.terminal {
		fmt.Fprintln(p.out, "weir publish: going on")
	}
	p.outage = ""
	p.draw("")
}

// isWaiting reports whether it has been said why the next try is delayed.
func (p *progress) isWaiting() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.outage != ""
}

// waiting says once why the next try is delayed, until something was sent.
func (p *progress) waiting(why string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.clear()
	fmt.Fprintf(p.out, "weir publish: waiting: %s\n", why)
	p.outage = why
	p.draw(" — " + why)
}

// waited counts a wait.
func (p *progress) waited(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.waits++
	p.lost += d
	p.drawn = time.Time{}
	p.draw(" — " + p.outage)
}

// slowed shows that the guard has delayed a publish.
func (p *progress) slowed(kind weir.SlowKind, d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.waits++
	p.lost += d
	p.drawn = time.Time{}
	p.draw(fmt.Sprintf(" — the workers are behind: %s of %s", kind, d.Round(time.Millisecond)))
}

// totals returns how often and how long the publish had to wait.
func (p *progress) totals() (waits int, waited time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.waits, p.lost
}

// Write prints a log line above the progress line.
func (p *progress) Write(line []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.clear()
	return p.out.Write(line)
}

// clear makes room for another line.
func (p *progress) clear() {
	if p.terminal {
		redraw(p.out, "")
		p.drawn = time.Time{}
	}
}

func (p *progress) draw(tail string) {
	if !p.terminal || time.Since(p.drawn) < progressEvery {
		return
	}
	p.drawn = time.Now()
	redraw(p.out, fmt.Sprintf("%d sent, %.0f/s, %s (%s)%s", p.sent, p.rate, countOf(p.waits, "wait"), p.lost.Round(time.Second), tail))
}

// finish clears the terminal's line for what follows.
func (p *progress) finish() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.clear()
}
