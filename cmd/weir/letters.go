package main

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
	"unicode/utf8"

	"github.com/weirmq/weir"
	"github.com/weirmq/weir/internal/board"
)

// letterJSON is a dead letter as --json prints it.
type letterJSON board.Letter

func letterOf(l *weir.DeadLetter) letterJSON { return letterJSON(board.LetterOf(l)) }

// letterPrinter prints dead letters as a table, or as JSON lines.
type letterPrinter struct {
	output
	out   *bufio.Writer
	table *tabwriter.Writer // nil: JSON
	rows  int
}

func (o output) letters(out io.Writer) *letterPrinter {
	p := &letterPrinter{output: o, out: bufio.NewWriter(out)}
	if !o {
		p.table = tabwriter.NewWriter(p.out, 0, 0, 2, ' ', 0)
	}
	return p
}

// How many characters of a payload or error fit in a row, and how many rows are
// laid out together, so that a table of any length takes little memory.
const (
	rowText  = 40
	rowGroup = 1000
)

func (p *letterPrinter) row(l *weir.DeadLetter) error {
	p.rows++
	if p.table == nil {
		return p.print(p.out, letterOf(l))
	}
	if p.rows%rowGroup == 1 {
		if err := p.table.Flush(); err != nil {
			return err
		}
		fmt.Fprintln(p.table, "ID\tDIED\tATTEMPTS\tREDRIVES\tREASON\tERROR\tDATA")
	}
	_, err := fmt.Fprintf(p.table, "%s\t%s\t%d\t%d\t%s\t%s\t%s\n", oneLine(l.ID), l.DeadAt.Format(time.RFC3339),
		l.Attempts, l.Redrives, oneLine(l.Reason), short(l.Error), short(string(l.Data)))
	return err
}

func (p *letterPrinter) end() error {
	if p.table != nil {
		if err := p.table.Flush(); err != nil {
			return err
		}
	}
	return p.out.Flush()
}

// short returns the beginning of a text, on one line.
func short(s string) string {
	if s == "" {
		return "-"
	}
	runes := 0
	for i := range s {
		if runes++; runes > rowText {
			s = s[:i] + "…"
			break
		}
	}
	return oneCell(s)
}

func oneCell(s string) string {
	cell := []rune(oneLine(s))
	for i, r := range cell {
		if r == '\t' || r == utf8.RuneError {
			cell[i] = '.'
		}
	}
	return string(cell)
}

// String returns everything about a dead letter.
func (l letterJSON) String() string {
	var b strings.Builder
	enqueued := "unknown"
	if l.EnqueuedMS != nil {
		enqueued = time.UnixMilli(*l.EnqueuedMS).Format(time.RFC3339Nano)
	}
	for _, line := range [][2]string{
		{"id", l.ID}, {"stream", l.Stream}, {"group", l.Group}, {"origin id", l.OriginID}, {"reason", l.Reason},
		{"error", l.Error}, {"attempts", fmt.Sprint(l.Attempts)}, {"redrives", fmt.Sprint(l.Redrives)},
		{"consumer", l.Consumer}, {"published", enqueued}, {"died", time.UnixMilli(l.DeadMS).Format(time.RFC3339Nano)},
	} {
		fmt.Fprintf(&b, "%-10s %s\n", line[0], oneLine(line[1]))
	}
	for _, name := range slices.Sorted(maps.Keys(l.Headers)) {
		fmt.Fprintf(&b, "%-10s %s: %s\n", "header", oneLine(name), oneLine(l.Headers[name]))
	}
	data := string(l.Base64)
	if l.Data != nil {
		data = *l.Data
	}
	fmt.Fprintf(&b, "%-10s %s\n", "data", oneLine(data))
	return b.String()
}
