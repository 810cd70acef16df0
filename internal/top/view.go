package top

import (
	"fmt"
	"strings"

	tea "charm.land/bubbletea/v2"
)

// View draws the screen.
func (m *model) View() tea.View {
	var lines []string
	switch {
	case m.width < 1 || m.height < 1:
	case m.help:
		lines = strings.Split(helpText, "\n")
	case m.page != nil:
		lines = m.page.lines(m)
	default:
		lines = m.list()
	}
	lines = lines[:min(len(lines), max(m.height, 0))]
	for i := range lines {
		lines[i] = Fit(lines[i], m.width)
	}
	v := tea.NewView(strings.Join(lines, "\n"))
	v.AltScreen = true
	v.WindowTitle = "weir top"
	return v
}

const helpText = `weir top

  ↑ ↓ pgup pgdn home end   choose a stream
  enter                    its groups, workers, what they hold, dead letters
  s  S                     sort by the next column, or the one before
  r                        turn the order round
  /                        show only what has a text in its name, group or state
  esc                      back; in the list, show all again
  q  ctrl-c                quit

On the page of a stream
  ↑ ↓                      choose a dead letter
  r  R                     send back the chosen one, or all, after a question

STATE is what pools hold, beside lag_warn and lag_pause (--lag-warn, --lag-pause):
nominal, elevated, backpressure, or – worker off if nobody asks for messages;
paused if they are given none (weir queue resume).
– is not known, which is not 0. PRESSURE is the server's, from 0 to 1.

Any key goes back.`

// titleLines are the first line and those of the servers.
func (m *model) titleLines(all []row) []string {
	per := map[state]int{}
	for i := range all {
		per[all[i].state]++
	}
	parts := []string{in(bold, "weir top"), m.now.Format("15:04:05"), countOf(len(all), "stream")}
	for _, s := range []state{unreachable, deserted, backpressure, paused, elevated, nominal, workerOff} {
		if n := per[s]; n > 0 {
			what := s.String()
			if s == deserted {
				what = "without a worker"
			}
			parts = append(parts, in(s.colour(), fmt.Sprintf("%d %s", n, what)))
		}
	}
	lines := []string{strings.Join(parts, "  ")}
	for i := range m.feeds {
		if line := m.feeds[i].serverLine(); line != "" && len(lines) <= m.height/6 {
			lines = append(lines, line)
		}
	}
	return lines
}

// serverLine says how a server is.
func (f *feed) serverLine() string {
	s := f.state.Server
	if s == nil || f.err != nil {
		return ""
	}
	line := fmt.Sprintf("%s  weir %s  pressure %.2f  rung %d of 4  %s", clean(f.name), clean(s.Version), s.Pressure, s.Rung, countOf(s.Connections, "connection"))
	if s.FsyncMS != nil {
		line += fmt.Sprintf("  fsync %.1f ms", *s.FsyncMS)
	}
	switch {
	case !s.Ready:
		line += "  " + in(yellow, "not ready")
	case !s.Writable:
		line += "  " + in(red, "refuses writes: "+clean(s.Why))
	}
	if f.state.More {
		line += "  more topics than these"
	}
	return line
}

// listHeight is how many rows the list has room for.
func (m *model) listHeight() int { return max(1, m.height-len(m.titleLines(nil))-3) }

func (m *model) list() []string {
	all, at := m.visible()
	list, first := shown(m.width)
	lines := m.titleLines(all)
	room := m.listHeight()
	m.top = min(max(m.top, at-room+1, 0), at, max(0, len(all)-room))
	lines = append(lines, strings.Repeat(" ", len(marker))+m.titles(list, first))
	for i := m.top; i < min(len(all), m.top+room); i++ {
		r := &all[i]
		text := line(r, list, first)
		if r.state == unreachable {
			text = awayLine(r, first, m.width-first-len(marker)-1)
		}
		if i == at {
			lines = append(lines, in(bold, marker)+strings.Replace(text, left(r.name, first), in(invert, left(r.name, first)), 1))
		} else {
			lines = append(lines, strings.Repeat(" ", len(marker))+text)
		}
	}
	if len(all) == 0 {
		lines = append(lines, m.nothing())
	}
	for len(lines) < m.height-2 {
		lines = append(lines, "")
	}
	found := ""
	if len(all) > 0 {
		found = all[at].finding
	}
	return append(lines, found, m.footer())
}

// titles are the names of the columns, the one that it is sorted by marked.
func (m *model) titles(list []int, first int) string {
	text := line(nil, list, first)
	title := columns[m.by].title
	at := strings.Index(text, title)
	if at < 0 {
		return in(bold, text)
	}
	return in(bold, text[:at]) + in("1;4", title) + in(bold, text[at+len(title):])
}

func (m *model) nothing() string {
	switch {
	case m.filter != "":
		return "  nothing matches; esc shows all"
	case len(m.feeds) > 0 && m.feeds[0].since == nil:
		return "  reading …"
	}
	return "  there are no streams"
}

func (m *model) footer() string {
	switch {
	case m.typing:
		return "/" + m.filter + "█  enter keep  esc all"
	case m.filter != "":
		return "/" + clean(m.filter) + "  esc all  enter open  s sort  ? help  q quit"
	}
	return "↑↓ choose  enter open  s sort  r reverse  / filter  ? help  q quit"
}
