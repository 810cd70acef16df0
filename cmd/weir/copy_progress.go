package main

import (
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/weirmq/weir/internal/engine"
)

// copyTold is how often a command that copies or checks much says how far it is where no
// terminal shows it. Whoever reads that may be a log.
const copyTold = 5 * time.Second

// copyProgress shows how far a command is that copies or checks a directory: in the last line
// of a terminal; elsewhere with a line now and then. What else the command says meanwhile is
// written through it. A nil one shows nothing.
type copyProgress struct {
	out      io.Writer
	what     string // the command, in front of its lines
	terminal bool
	every    time.Duration

	mu   sync.Mutex
	told time.Time
}

func newCopyProgress(out io.Writer, what string) *copyProgress {
	p := &copyProgress{out: out, what: what, terminal: isScreen(out), every: copyTold, told: time.Now()}
	if p.terminal {
		p.every = progressEvery
	}
	return p
}

// tell shows a line if it is time for one.
func (p *copyProgress) tell(format string, args ...any) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if time.Since(p.told) < p.every {
		return
	}
	p.told = time.Now()
	line := fmt.Sprintf(format, args...)
	if p.terminal {
		redraw(p.out, line)
		return
	}
	fmt.Fprintf(p.out, "%s: %s\n", p.what, line)
}

// bytes shows how many bytes the command has copied, or whatever the verb says.
func (p *copyProgress) bytes(verb string, done, total int64) {
	if total > 0 {
		p.tell("%s %d of %d MiB (%d %%)", verb, done>>20, (total+1<<20-1)>>20, 100*done/total)
		return
	}
	p.tell("%s %d MiB", verb, done>>20)
}

// copied shows how much of the copy of a log has been read; the log behind its base first, of which
// nobody knows how much it is.
func (p *copyProgress) copied(done, total int64) {
	if total == 0 {
		p.bytes("looking through the log:", done, 0)
		return
	}
	p.bytes("copied", done, total)
}

// counted returns a writer that counts the bytes of one step, whose total may be unknown (0).
func (p *copyProgress) counted(verb string, total int64) io.Writer {
	if p == nil {
		return io.Discard
	}
	return &countedBytes{p: p, verb: verb, total: total}
}

type countedBytes struct {
	p           *copyProgress
	verb        string
	done, total int64
}

func (c *countedBytes) Write(b []byte) (int, error) {
	c.done += int64(len(b))
	c.p.bytes(c.verb, c.done, c.total)
	return len(b), nil
}

// verifying has the engine tell what it reads of a directory.
func (p *copyProgress) verifying(dir string) engine.Options {
	opt := engine.Options{Dir: dir}
	if p != nil {
		opt.Progress = func(share float64) { p.tell("replayed %.0f %% of the log", 100*share) }
		opt.Verified = func(c engine.Contents) { p.tell("read %s", countOf(c.Records, "record")) }
		opt.Checked = func(read, all int64) { p.bytes("read", read, all) }
	}
	return opt
}

// Write prints a line above the one of the terminal.
func (p *copyProgress) Write(line []byte) (int, error) { return p.above(p.out).Write(line) }

// above returns a writer to out whose lines come above the one of the terminal.
func (p *copyProgress) above(out io.Writer) io.Writer { return linesAbove{p, out} }

type linesAbove struct {
	p   *copyProgress
	out io.Writer
}

func (l linesAbove) Write(line []byte) (int, error) {
	l.p.mu.Lock()
	defer l.p.mu.Unlock()
	l.p.clear()
	return l.out.Write(line)
}

// finish clears the terminal's line for what follows.
func (p *copyProgress) finish() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.clear()
}

func (p *copyProgress) clear() {
	if p.terminal {
		redraw(p.out, "")
	}
}
