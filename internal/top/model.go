package top

import (
	"context"
	"slices"
	"time"
	"unicode/utf8"

	tea "charm.land/bubbletea/v2"
)

// model is what the terminal shows. Whatever may wait happens in commands, so that keys
// and the screen never do.
type model struct {
	ctx     context.Context
	sources []Source
	send    func(tea.Msg)
	now     time.Time

	feeds         []feed
	width, height int

	by      int // column
	reverse bool
	filter  string
	typing  bool // the filter is being edited
	chosen  place
	top     int // first row on the screen

	page *page // nil: the list
	help bool
}

// ticked comes each second.
type ticked time.Time

func tick() tea.Cmd { return tea.Tick(time.Second, func(t time.Time) tea.Msg { return ticked(t) }) }

func newModel(ctx context.Context, sources []Source) *model {
	m := &model{ctx: ctx, sources: sources, by: byState, feeds: make([]feed, len(sources)), now: time.Now()}
	for i, s := range sources {
		m.feeds[i].name = s.name()
	}
	return m
}

// Init starts to read the sources. They are commands, so that a panic restores the terminal.
func (m *model) Init() tea.Cmd {
	cmds := []tea.Cmd{tick()}
	for i, s := range m.sources {
		cmds = append(cmds, func() tea.Msg {
			watch(m.ctx, i, s, func(h heard) { m.send(h) })
			return nil
		})
	}
	return tea.Batch(cmds...)
}

func (m *model) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.width, m.height = msg.Width, msg.Height
	case ticked:
		m.now = time.Time(msg)
		return m, tea.Batch(tick(), m.page.refresh(m))
	case heard:
		m.feeds[msg.source].take(&msg)
	case tea.PasteMsg:
		if m.typing {
			m.filter += clean(msg.Content)
		}
	case tea.KeyPressMsg:
		return m, m.key(msg)
	case pageMsg:
		return m, m.page.take(m, msg)
	}
	return m, nil
}

func (m *model) key(k tea.KeyPressMsg) tea.Cmd {
	name := k.String()
	switch {
	case name == "ctrl+c":
		return tea.Quit
	case name == "ctrl+z":
		return tea.Suspend
	case m.help:
		m.help = false
		return nil
	case m.typing:
		m.edit(name, k.Text)
		return nil
	case m.page != nil && m.page.ask != nil:
		return m.page.answer(m, name)
	}
	switch name {
	case "q":
		return tea.Quit
	case "?":
		m.help = true
		return nil
	}
	if m.page != nil {
		return m.page.key(m, name)
	}
	return m.listKey(name)
}

// edit changes the filter.
func (m *model) edit(name, text string) {
	switch name {
	case "enter":
		m.typing = false
	case "esc":
		m.typing, m.filter = false, ""
	case "backspace":
		_, size := utf8.DecodeLastRuneInString(m.filter)
		m.filter = m.filter[:len(m.filter)-size]
	case "ctrl+u":
		m.filter = ""
	default:
		m.filter += clean(text)
	}
}

func (m *model) listKey(name string) tea.Cmd {
	switch name {
	case "s", "right":
		m.cycle(1)
	case "S", "left":
		m.cycle(-1)
	case "r":
		m.reverse = !m.reverse
	case "/":
		m.typing = true
	case "esc":
		m.filter = ""
	case "up", "k":
		m.move(-1)
	case "down", "j":
		m.move(1)
	case "pgup", "ctrl+b":
		m.move(-m.listHeight())
	case "pgdown", "ctrl+f", "space":
		m.move(m.listHeight())
	case "home", "g":
		m.move(-1 << 30)
	case "end", "G":
		m.move(1 << 30)
	case "enter":
		return m.open()
	}
	return nil
}

// cycle sorts by the next column that is on the screen.
func (m *model) cycle(step int) {
	list, _ := shown(m.width)
	at := slices.Index(list, m.by)
	m.by, m.reverse = list[((at+step)%len(list)+len(list))%len(list)], false
}

// visible returns the rows in their order, and where the chosen one is.
func (m *model) visible() (all []row, at int) {
	all = matching(rows(m.feeds), m.filter)
	order(all, &columns[m.by], m.reverse)
	at = slices.IndexFunc(all, func(r row) bool { return r.place() == m.chosen })
	return all, max(at, 0)
}

func (m *model) move(by int) {
	all, at := m.visible()
	if len(all) > 0 {
		m.chosen = all[min(max(at+by, 0), len(all)-1)].place()
	}
}

// open shows the page of the chosen stream.
func (m *model) open() tea.Cmd {
	all, at := m.visible()
	if len(all) == 0 || all[at].ID == "" {
		return nil
	}
	m.chosen = all[at].place()
	m.page = &page{place: m.chosen, source: m.sources[m.chosen.source], sel: -1}
	return m.page.refresh(m)
}

// row returns the chosen stream as it is now.
func (m *model) row(p place) *row {
	for _, r := range rows(m.feeds) {
		if r.place() == p {
			return &r
		}
	}
	return &row{Stream: gone(p.id), source: p.source, name: clean(p.id)}
}
