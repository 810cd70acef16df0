package top

import (
	"fmt"
	"strings"
	"time"

	"github.com/weirmq/weir/internal/board"
)

// lines draws the page of a stream.
func (p *page) lines(m *model) []string {
	r := m.row(p.place)
	head := []string{in(bold, Fit(r.name, m.width)), p.numbers(r), r.finding}
	body, at := p.body(m)
	room := max(1, m.height-len(head)-2)
	if at >= 0 {
		p.offset = min(max(p.offset, at-room+1), at)
	}
	p.offset = max(0, min(p.offset, len(body)-room))
	lines := append(head, body[p.offset:min(len(body), p.offset+room)]...)
	for len(lines) < m.height-2 {
		lines = append(lines, "")
	}
	switch {
	case p.ask != nil:
		return append(lines, in(bold, p.ask.text+" [y/N]"), "y send  any other key: send nothing")
	case p.why != "":
		return append(lines, in(red, "cannot be read now: ")+p.why, pageKeys)
	}
	return append(lines, p.note, pageKeys)
}

const pageKeys = "↑↓ choose a dead letter  r send it back  R send all back  esc back  ? help  q quit"

func (p *page) numbers(r *row) string {
	if r.state == unreachable {
		return awayLine(r, 0, 1<<10)
	}
	parts := []string{in(r.state.colour(), stateText(r))}
	for i := range columns {
		if c := &columns[i]; i > byState {
			parts = append(parts, strings.ToLower(c.title)+" "+c.text(r))
		}
	}
	return strings.Join(parts, "  ")
}

// body is what is below the numbers; at is the line of the chosen letter, -1 without one.
func (p *page) body(m *model) (lines []string, at int) {
	if p.detail == nil {
		return []string{"", "reading …"}, -1
	}
	d := p.detail
	t := table{width: m.width}
	t.section("GROUPS", d.Groups == nil, len(d.Groups), []cell{{"GROUP", 0}, {"WORKERS", 8}, {"PENDING", 8}, {"BACKLOG", 8}}, func(i int) []string {
		g := &d.Groups[i]
		return []string{g.Name, count(&g.Workers), count(&g.Pending), count(g.Lag)}
	})
	t.section("WORKERS", d.Workers == nil, len(d.Workers), []cell{{"WORKER", 0}, {"HOLDS", 8}, {"IDLE", 8}}, func(i int) []string {
		w := &d.Workers[i]
		return []string{w.Name, count(&w.Holds), age(w.IdleMS)}
	})
	t.section("HELD, the oldest first", d.Held == nil, len(d.Held), []cell{{"MESSAGE", 22}, {"WORKER", 0}, {"IDLE", 8}, {"LEASE", 8}, {"DELIVERIES", 10}}, func(i int) []string {
		h := &d.Held[i]
		return []string{h.ID, h.Worker, age(h.IdleMS), p.lease(m, h), count(&h.Deliveries)}
	})
	at = p.letterLines(&t)
	return t.lines, at
}

// lease is how long a message stays with its worker.
func (p *page) lease(m *model, h *board.Held) string {
	if h.LeaseMS == nil {
		return unknown
	}
	ms := max(0, *h.LeaseMS)
	return age(&ms)
}

func (p *page) letterLines(t *table) (at int) {
	var list []board.ShownLetter
	title := "DEAD LETTERS"
	if p.letters != nil {
		list = p.letters.Letters
		title += " in " + clean(p.letters.Name)
		if p.letters.Next != "" {
			title += fmt.Sprintf(", the first %d", len(list))
		}
	}
	cells := []cell{{"ID", 20}, {"DIED", 8}, {"ATTEMPTS", 8}, {"REDRIVES", 8}, {"REASON", 14}, {"ERROR", 0}}
	if t.width >= 110 {
		cells = append(cells, cell{"DATA", 24})
	}
	at = len(t.lines) + 3 + p.sel
	t.chosen = p.sel
	t.section(title, p.letters == nil, len(list), cells, func(i int) []string {
		l := &list[i]
		dead := time.Since(time.UnixMilli(l.DeadMS)).Milliseconds()
		return []string{l.ID, age(&dead), count(&l.Attempts), count(&l.Redrives), l.Reason, l.Error, dataOf(l)}
	})
	if p.sel < 0 {
		return -1
	}
	return at
}

func dataOf(l *board.ShownLetter) string {
	if l.Data != nil {
		return *l.Data
	}
	return countOf(l.Bytes, "byte")
}

// cell is a column of a section; the one without a width takes what is left.
type cell struct {
	title string
	width int
}

// table lays out the sections of a page.
type table struct {
	width  int
	chosen int // row of the section to come that is marked
	lines  []string
}

func (t *table) section(title string, missing bool, n int, cells []cell, row func(i int) []string) {
	t.lines = append(t.lines, "")
	switch {
	case missing:
		t.lines = append(t.lines, in(bold, title)+"  "+unknown)
		return
	case n == 0:
		t.lines = append(t.lines, in(bold, title)+"  none")
		return
	}
	rest := t.width - len(marker)
	for _, c := range cells {
		if c.width > 0 {
			rest -= c.width + 1
		}
	}
	lay := func(texts []string) string {
		var b strings.Builder
		for i, c := range cells {
			width := c.width
			if width == 0 {
				width = max(rest, 8)
			}
			if i > 0 {
				b.WriteByte(' ')
			}
			b.WriteString(left(clean(texts[i]), width))
		}
		return b.String()
	}
	titles := make([]string, len(cells))
	for i, c := range cells {
		titles[i] = c.title
	}
	t.lines = append(t.lines, in(bold, title), strings.Repeat(" ", len(marker))+lay(titles))
	letters := strings.HasPrefix(title, "DEAD")
	for i := range n {
		if text := lay(row(i)); letters && i == t.chosen {
			t.lines = append(t.lines, in(bold, marker)+in(invert, text))
		} else {
			t.lines = append(t.lines, strings.Repeat(" ", len(marker))+text)
		}
	}
}
