package top

import (
	"context"
	"fmt"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/weirmq/weir/internal/board"
	"github.com/weirmq/weir/internal/dash"
)

// patience is how long the details of a stream may take.
const patience = 5 * time.Second

// page is one stream with its groups, workers and dead letters.
type page struct {
	place  place
	source Source

	loading bool
	detail  *board.Detail // nil: not read yet
	letters *board.LetterPage
	why     string // the last attempt to read them failed

	sel    int // chosen letter; -1: none
	offset int // first line on the screen

	ask  *question
	busy bool   // letters are on their way
	note string // what became of the last action
}

// question is a redrive that waits for a yes.
type question struct {
	redrive board.Redrive
	text    string
}

// pageMsg is what a command of a page found out.
type pageMsg struct {
	place    place
	read     *reading
	redrive  *board.Redrive // what was asked for
	progress board.Progress
}

// reading is what a page shows besides the numbers.
type reading struct {
	detail  board.Detail
	letters board.LetterPage
	err     error // of both
	noList  error // of the letters
}

// refresh reads the page again, unless that is under way.
func (p *page) refresh(m *model) tea.Cmd {
	if p == nil || p.loading {
		return nil
	}
	p.loading = true
	src, at, base := p.source, p.place, m.ctx
	return func() tea.Msg {
		ctx, cancel := context.WithTimeout(base, patience)
		defer cancel()
		var r reading
		if r.detail, r.err = src.detail(ctx, at.id); r.err == nil {
			r.letters, r.noList = src.letters(ctx, at.id)
		}
		return pageMsg{place: at, read: &r}
	}
}

// take takes over what a command found out. It may come after the page was left.
func (p *page) take(m *model, msg pageMsg) tea.Cmd {
	if p == nil || p.place != msg.place {
		return nil
	}
	if msg.read == nil {
		p.told(msg.redrive, msg.progress)
		if p.ask != nil {
			return nil
		}
		return p.refresh(m)
	}
	p.loading = false
	r := msg.read
	if p.why = ""; r.err != nil {
		p.why = clean(r.err.Error())
		return nil
	}
	p.detail = &r.detail
	id := p.chosenID()
	if p.letters = &r.letters; r.noList != nil {
		p.letters = nil
	}
	p.choose(id)
	return nil
}

func (p *page) count() int {
	if p.letters == nil {
		return 0
	}
	return len(p.letters.Letters)
}

// chosenID is the letter under the cursor, empty if there is none.
func (p *page) chosenID() string {
	if p.sel < 0 || p.sel >= p.count() {
		return ""
	}
	return p.letters.Letters[p.sel].ID
}

// choose keeps the cursor on a letter, or near where it was.
func (p *page) choose(id string) {
	for i := range p.count() {
		if p.letters.Letters[i].ID == id {
			p.sel = i
			return
		}
	}
	p.sel = min(p.sel, p.count()-1)
}

func (p *page) key(m *model, name string) tea.Cmd {
	switch name {
	case "esc", "backspace", "left":
		m.page = nil
	case "up", "k":
		p.sel = max(p.sel-1, -1)
		if p.sel < 0 {
			p.offset = 0
		}
	case "down", "j":
		p.sel = min(p.sel+1, p.count()-1)
	case "pgup", "ctrl+b":
		p.offset, p.sel = max(0, p.offset-m.height/2), -1
	case "pgdown", "ctrl+f", "space":
		p.offset, p.sel = p.offset+m.height/2, -1
	case "r":
		if id := p.chosenID(); id != "" {
			return p.try(m, board.Redrive{Choice: board.Choice{IDs: []string{id}}})
		}
		p.note = "choose a dead letter with ↓, or send back all with R"
		if p.count() == 0 {
			p.note = "there are no dead letters"
		}
	case "R":
		if p.count() > 0 {
			return p.try(m, board.Redrive{Choice: board.Choice{All: true}})
		}
		p.note = "there are no dead letters"
	}
	return nil
}

// try finds out what a redrive would do.
func (p *page) try(m *model, r board.Redrive) tea.Cmd {
	r.DryRun = true
	return p.run(m, r)
}

func (p *page) run(m *model, r board.Redrive) tea.Cmd {
	if p.busy {
		return nil
	}
	p.busy, p.note = true, "sending back …"
	if r.DryRun {
		p.note = "counting …"
	}
	src, at, ctx := p.source, p.place, m.ctx
	return func() tea.Msg {
		return pageMsg{place: at, redrive: &r, progress: src.redrive(ctx, at.id, &r)}
	}
}

// told goes on after a redrive: a dry run and one that others would get too ask.
func (p *page) told(r *board.Redrive, done board.Progress) {
	p.busy, p.note = false, ""
	next := *r
	next.DryRun = false
	switch {
	case len(done.Others) > 0 && !r.ToOthers && done.Sent == 0:
		next.ToOthers = true
		p.ask = &question{next, fmt.Sprintf("They also go to %s. Send them?", clean(strings.Join(done.Others, ", ")))}
	case done.Error != "":
		p.note = fmt.Sprintf("%d sent back, then: %s", done.Sent, clean(done.Error))
		if r.DryRun {
			p.note = "nothing was sent: " + clean(done.Error)
		}
	case r.DryRun && done.Sent == 0:
		p.note = "there is nothing to send back"
	case r.DryRun:
		p.ask = &question{next, fmt.Sprintf("Send %s back to %s?", countOf(done.Sent, "dead letter"), clean(p.place.id))}
	default:
		p.note = countOf(done.Sent, "dead letter") + " sent back"
		if done.Failed > 0 {
			p.note += fmt.Sprintf(", %d failed", done.Failed)
		}
	}
}

// countOf says how many of something there are: 1 stream, 2 streams.
func countOf[N int | int64](n N, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

func (p *page) answer(m *model, name string) tea.Cmd {
	r := p.ask.redrive
	if p.ask = nil; name == "y" || name == "Y" {
		return p.run(m, r)
	}
	p.note = "nothing was sent"
	return nil
}

// gone is a stream that its source does not tell of any more.
func gone(id string) dash.Stream {
	return dash.Stream{ID: id, Name: id, Error: "it is not there any more"}
}
