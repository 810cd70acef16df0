package main

import (
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/term"
)

// progressEvery is how often the line on a terminal is drawn.
const progressEvery = 100 * time.Millisecond

// progress shows on a terminal how far a publish has come. Anywhere else it
// says only when the server starts and stops answering.
type progress struct {
	out      io.Writer
	terminal bool
	drawn    time.Time
	sent     uint64
	rate     float64
	waits    int
	waited   time.Duration
	outage   string // what was last said about waiting
}

func newProgress(out io.Writer) *progress {
	f, ok := out.(*os.File)
	return &progress{out: out, terminal: ok && term.IsTerminal(int(f.Fd()))}
}

// update is told how much has been acknowledged since the start.
func (p *progress) update(sent uint64, started time.Time) {
	p.sent = sent
	p.rate = float64(sent) / max(time.Since(started).Seconds(), 1e-9)
	if p.outage != "" && !p.terminal {
		fmt.Fprintln(p.out, "weir publish: going on")
	}
	p.outage = ""
	p.draw("")
}

// waiting is told why the next try is put off.
func (p *progress) waiting(err error, d time.Duration) {
	p.waits++
	p.waited += d
	text := err.Error()
	if !p.terminal && p.outage == "" {
		fmt.Fprintf(p.out, "weir publish: waiting: %s\n", text)
	}
	p.outage = text
	p.drawn = time.Time{}
	p.draw(" — " + text)
}

func (p *progress) draw(tail string) {
	if !p.terminal || time.Since(p.drawn) < progressEvery {
		return
	}
	p.drawn = time.Now()
	fmt.Fprintf(p.out, "\r\x1b[K%d sent, %.0f/s, %d waits%s", p.sent, p.rate, p.waits, tail)
}

// finish leaves the terminal's line empty for what follows.
func (p *progress) finish() {
	if p.terminal {
		fmt.Fprint(p.out, "\r\x1b[K")
	}
}
