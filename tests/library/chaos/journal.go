package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/weirmq/weir/backend"
)

// journal is the file of one worker process: a line for each thing that it does,
// appended by one write, so that a kill takes nothing back. A line is a time in Unix
// ns, a verb and what belongs to it:
//
//	c SEQ ID ATTEMPT ASKED   claimed, by a claim that was asked at ASKED
//	b SEQ ID ATTEMPT KIND    a handler begins
//	e SEQ ID ATTEMPT RESULT  it has ended
//	a 0 ID ATTEMPT -         an ack is asked for
//	k 0 ID ATTEMPT o|l       it was answered: done, or lost to somebody else
//	! SINCE - 0 VERB         a call failed or took long
//	~ SINCE - 0 -            the process stood still
type journal struct{ file *os.File }

// Results of handlers.
const (
	resultDone      = 'o'
	resultFailed    = 'f'
	resultPoison    = 'p'
	resultCancelled = 'x'
)

func openJournal(path string) (*journal, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	return &journal{f}, nil
}

func (j *journal) line(verb byte, number int64, id string, attempt int, more string) {
	line := fmt.Appendf(nil, "%d %c %d %s %d %s\n", time.Now().UnixNano(), verb, number, id, attempt, more)
	if _, err := j.file.Write(line); err != nil {
		fmt.Fprintln(os.Stderr, "journal:", err)
		os.Exit(4)
	}
}

func (j *journal) claimed(asked time.Time, seq int, l backend.Lease) {
	j.line('c', int64(seq), l.ID, l.Attempt, fmt.Sprint(asked.UnixNano()))
}

func (j *journal) begun(t task, l backend.Lease) {
	j.line('b', int64(t.seq), l.ID, l.Attempt, string(t.kind))
}

func (j *journal) ended(t task, l backend.Lease, result rune) {
	j.line('e', int64(t.seq), l.ID, l.Attempt, string(result))
}

func (j *journal) ackAsked(l backend.Lease) { j.line('a', 0, l.ID, l.Attempt, "-") }

func (j *journal) ackAnswered(l backend.Lease, held bool) {
	answer := "l"
	if held {
		answer = "o"
	}
	j.line('k', 0, l.ID, l.Attempt, answer)
}

func (j *journal) trouble(verb string, since time.Time) { j.line('!', since.UnixNano(), "-", 0, verb) }

// watchStalls notes when this process got no time for longer than most.
func (j *journal) watchStalls(ctx context.Context, most time.Duration) {
	const every = 50 * time.Millisecond
	last := time.Now()
	for ctx.Err() == nil {
		time.Sleep(every)
		now := time.Now()
		if now.Sub(last) > every+most {
			j.line('~', last.UnixNano(), "-", 0, "-")
		}
		last = now
	}
}

// history is what the journals of all processes say.
type history struct {
	messages map[int]*message  // by number
	troubles map[string][]span // calls of a process that failed or took long
	stalls   map[string][]span // when it stood still
	foreign  []string          // entries that are none of this run's
	lines    int               // read
}

// message is one number and what became of it.
type message struct {
	ids     []string // more than one: it was stored more than once
	runs    []*delivery
	letters []letter
}

// delivery is one that a worker process got.
type delivery struct {
	process      string
	attempt      int
	asked        int64 // when the claim that brought it began
	claimed      int64 // when that was answered
	begun, ended int64 // 0: not seen
	begins       int
	result       rune // 0: not seen
	ackAsked     int64
	acked        int64 // when an ack was answered with yes
	gone         int64 // when one was first answered with no: somebody else had it by then
}

// span is a stretch of time.
type span struct{ from, to int64 }

func (s span) meets(other span) bool { return s.from <= other.to && other.from <= s.to }

func meetsAny(list []span, s span) bool {
	for _, other := range list {
		if other.meets(s) {
			return true
		}
	}
	return false
}

// key names a delivery within a process.
type key struct {
	id      string
	attempt int
}

// readJournals reads the journals in dir. A file is named for its process.
func readJournals(dir string) (*history, error) {
	h := &history{messages: map[int]*message{}, troubles: map[string][]span{}, stalls: map[string][]span{}}
	paths, err := filepath.Glob(filepath.Join(dir, "*.journal"))
	if err != nil {
		return nil, err
	}
	for _, path := range paths {
		if err := h.read(path); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
	}
	return h, nil
}

func (h *history) read(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	process := strings.TrimSuffix(filepath.Base(path), ".journal")
	deliveries := map[key]*delivery{}
	in := bufio.NewReader(f)
	for {
		line, err := in.ReadString('\n')
		if err == io.EOF {
			return nil // what a kill cut off says nothing
		}
		if err != nil {
			return err
		}
		if err := h.take(process, deliveries, line); err != nil {
			return fmt.Errorf("%q: %w", line, err)
		}
	}
}

// take takes one line in.
func (h *history) take(process string, deliveries map[key]*delivery, line string) error {
	var (
		at, number int64
		verb       rune
		k          key
		more       string
	)
	if _, err := fmt.Sscanf(line, "%d %c %d %s %d %s", &at, &verb, &number, &k.id, &k.attempt, &more); err != nil {
		return err
	}
	h.lines++
	switch verb {
	case '!':
		h.troubles[process] = append(h.troubles[process], span{number, at})
		return nil
	case '~':
		h.stalls[process] = append(h.stalls[process], span{number, at})
		return nil
	}
	d := deliveries[k]
	if d == nil || verb == 'c' && d.begins == 0 { // given back unstarted, and claimed again
		if d == nil {
			d = &delivery{process: process, attempt: k.attempt}
			deliveries[k] = d
			h.message(int(number), k.id, d)
		}
		d.claimed = at
		_, err := fmt.Sscan(more, &d.asked)
		return err
	}
	switch verb {
	case 'b':
		d.begun, d.begins = at, d.begins+1
	case 'e':
		d.ended, d.result = at, rune(more[0])
	case 'a':
		if d.ackAsked == 0 {
			d.ackAsked = at
		}
	case 'k':
		if more == "o" {
			d.acked = at
		} else if d.gone == 0 {
			d.gone = at
		}
	}
	return nil
}

// message adds a delivery to the message of a number.
func (h *history) message(seq int, id string, d *delivery) {
	m := h.messages[seq]
	if m == nil {
		m = &message{}
		h.messages[seq] = m
	}
	m.addID(id)
	m.runs = append(m.runs, d)
}

func (m *message) addID(id string) {
	for _, known := range m.ids {
		if known == id {
			return
		}
	}
	m.ids = append(m.ids, id)
}
