package top

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/weirmq/weir/internal/dash"
)

// row is one stream of a source, and how it stands.
type row struct {
	dash.Stream
	source   int
	name     string // as it is shown
	state    state
	since    time.Time // it cannot be reached; zero: it can
	pressure *float64  // of its server
	finding  string    // the worst, and what to do
}

// state is how a stream stands, the worst first.
type state int

const (
	unreachable state = iota
	deserted          // no worker asks for what waits
	backpressure
	paused
	elevated
	nominal
	workerOff
	isLog // nobody works on it
)

func (s state) String() string {
	return [...]string{"unreachable", "worker off", "backpressure", "paused", "elevated", "nominal", "worker off", "log"}[s]
}

// stateOf is the lag card of a stream, with the limits of its source.
func stateOf(s *dash.Stream, limits *dash.State) state {
	switch {
	case s.Error != "":
		return unreachable
	case s.Kind == "log":
		return isLog
	case s.Paused:
		return paused
	case s.Deserted():
		return deserted
	case s.Signal == nil:
		return workerOff
	case limits.LagPause > 0 && *s.Signal >= limits.LagPause:
		return backpressure
	case limits.LagWarn > 0 && *s.Signal >= limits.LagWarn:
		return elevated
	}
	return nominal
}

// place names a row.
type place struct {
	source int
	id     string
}

func (r *row) place() place { return place{r.source, r.ID} }

// feed is what one source has told.
type feed struct {
	name  string
	state dash.State
	err   error
	since map[string]time.Time // streams that cannot be reached; "" is the source
}

// heard is what a source tells.
type heard struct {
	source int
	state  dash.State
	err    error
	at     time.Time
}

// take takes over what the source tells. Of a source that fails the streams stay known,
// and their numbers do not.
func (f *feed) take(h *heard) {
	f.err = h.err
	if h.err == nil {
		f.state = h.state
	}
	since := map[string]time.Time{}
	away := func(id string) {
		since[id] = h.at
		if before, ok := f.since[id]; ok {
			since[id] = before
		}
	}
	if f.err != nil {
		away("")
	}
	for i := range f.state.Streams {
		if s := &f.state.Streams[i]; s.Error != "" {
			away(s.ID)
		}
	}
	f.since = since
}

// rows returns the streams of the feeds.
func rows(feeds []feed) (all []row) {
	servers := 0
	for i := range feeds {
		if feeds[i].state.Server != nil {
			servers++
		}
	}
	for i := range feeds {
		all = feeds[i].rows(all, i, servers > 1)
	}
	return all
}

func (f *feed) rows(all []row, source int, several bool) []row {
	if f.err != nil && len(f.state.Streams) == 0 {
		s := dash.Stream{Name: f.name, Error: f.err.Error()}
		return append(all, row{Stream: s, source: source, name: clean(f.name), since: f.since[""]})
	}
	for i := range f.state.Streams {
		s := f.state.Streams[i]
		r := row{Stream: s, source: source, name: clean(s.ID), since: f.since[s.ID]}
		if several && f.state.Server != nil {
			r.name = clean(f.name) + "/" + r.name
		}
		if f.err != nil {
			r.Stream = dash.Stream{ID: s.ID, Name: s.Name, Group: s.Group, Kind: s.Kind, Server: s.Server, Error: f.err.Error()}
			r.since = f.since[""]
		} else if f.state.Server != nil {
			r.pressure = &f.state.Server.Pressure
		}
		r.state = stateOf(&r.Stream, &f.state)
		r.finding = f.finding(&r.Stream)
		all = append(all, r)
	}
	return all
}

// finding is the worst that is known of a stream.
func (f *feed) finding(s *dash.Stream) string {
	if s.Error != "" {
		return clean(s.Error)
	}
	for _, v := range f.state.Findings {
		if v.Stream == s.ID {
			return clean(v.What + " " + v.Do)
		}
	}
	return ""
}

// order sorts rows by a column; what is not known comes last either way.
func order(all []row, by *column, reverse bool) {
	slices.SortStableFunc(all, func(a, b row) int {
		v := by.compare(&a, &b, reverse)
		return cmp.Or(v, strings.Compare(a.name, b.name), strings.Compare(a.ID, b.ID))
	})
}

// matching keeps the rows that have a text in their name, group, kind or state.
func matching(all []row, text string) []row {
	if text = strings.ToLower(text); text == "" {
		return all
	}
	return slices.DeleteFunc(all, func(r row) bool {
		return !strings.Contains(strings.ToLower(r.name+" "+r.Group+" "+r.Kind+" "+r.state.String()), text)
	})
}
