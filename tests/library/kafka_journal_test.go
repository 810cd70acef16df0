package library

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strings"
)

// journal is the file in which handlers write when they begin, and read one by one.
type journal struct {
	path string
	done int64 // read so far
	runs map[string][]run
	all  int
}

// run is one that a handler has begun.
type run struct {
	attempt int
	who     string
	at      int64 // its place in the journal
}

func newJournal(path string) *journal { return &journal{path: path, runs: map[string][]run{}} }

// size is how long the journal is.
func (j *journal) size() int64 {
	info, err := os.Stat(j.path)
	if err != nil {
		return 0 // absent at first
	}
	return info.Size()
}

// begun is how many handlers have begun.
func (j *journal) begun() int {
	j.read()
	return j.all
}

// read returns the runs of each message.
func (j *journal) read() map[string][]run {
	f, err := os.Open(j.path)
	if err != nil {
		return j.runs // absent at first
	}
	defer f.Close()
	if _, err := f.Seek(j.done, io.SeekStart); err != nil {
		panic(err)
	}
	for in := bufio.NewReader(f); ; {
		line, err := in.ReadString('\n')
		if err != nil {
			return j.runs // the last line is not complete
		}
		var text string
		r := run{at: j.done}
		if _, err := fmt.Sscanf(strings.TrimSpace(line), "%s %d %s", &text, &r.attempt, &r.who); err != nil {
			panic(fmt.Sprintf("%q: %v", line, err))
		}
		j.runs[text] = append(j.runs[text], r)
		j.all++
		j.done += int64(len(line))
	}
}
