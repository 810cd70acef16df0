// Package top shows streams in a terminal: what the dashboard shows, as rows, with a page
// for each stream and its dead letters. Where there is no terminal it prints lines.
package top

import (
	"context"
	"encoding/json"
	"errors"
	"net/url"
	"time"

	"github.com/weirmq/weir/internal/board"
	"github.com/weirmq/weir/internal/client"
	"github.com/weirmq/weir/internal/dash"
)

// Source is one URL: a stream, or all topics of a server.
type Source interface {
	// watch tells what is read until ctx ends; an error means that nothing was.
	watch(ctx context.Context, tell func(dash.State, error))
	name() string
	detail(ctx context.Context, id string) (board.Detail, error)
	letters(ctx context.Context, id string) (board.LetterPage, error)
	redrive(ctx context.Context, id string, r *board.Redrive) board.Progress
}

// Streams returns the streams of a board. Each is read by itself.
func Streams(b *board.Board, limits dash.Config) (all []Source) {
	for id, read := range b.Each() {
		all = append(all, &stream{id: id, board: b, dash: dash.New(read, limits)})
	}
	return all
}

type stream struct {
	id    string
	board *board.Board
	dash  *dash.Dash
}

func (s *stream) name() string { return s.id }

func (s *stream) watch(ctx context.Context, tell func(dash.State, error)) {
	s.dash.Watch(ctx, func(state dash.State) { tell(state, nil) })
}

func (s *stream) detail(ctx context.Context, id string) (board.Detail, error) {
	found, err := s.board.Find(ctx, id)
	if err != nil {
		return board.Detail{}, err
	}
	return board.Examine(ctx, found)
}

func (s *stream) letters(ctx context.Context, id string) (board.LetterPage, error) {
	found, err := s.board.Find(ctx, id)
	if err != nil {
		return board.LetterPage{}, err
	}
	return (&board.Letters{Stream: found}).Page(ctx, "")
}

func (s *stream) redrive(ctx context.Context, id string, r *board.Redrive) board.Progress {
	found, err := s.board.Find(ctx, id)
	if err != nil {
		return board.Progress{Done: true, Error: err.Error()}
	}
	return (&board.Letters{Stream: found}).Redrive(ctx, r, func(board.Progress) {})
}

// Server returns all topics of a weir server, or what a weir dash shows, as its own page
// has them.
func Server(c *client.Client) Source { return &server{c} }

type server struct{ client *client.Client }

const (
	// silence is how long a server may say nothing; it has news each second.
	silence = 5 * time.Second
	// redriveSilence is longer: only heartbeats are sure to come.
	redriveSilence = 40 * time.Second
)

func (s *server) name() string {
	u, err := url.Parse(s.client.Base())
	if err != nil {
		return s.client.Base()
	}
	return u.Host
}

func (s *server) watch(ctx context.Context, tell func(dash.State, error)) {
	for n := 0; ctx.Err() == nil; n++ {
		old := true // the first numbers may be those of 5 s ago, when nobody looked
		err := s.client.DashboardEvents(ctx, "/ui/live", nil, silence, func(data []byte) error {
			var state dash.State
			if err := json.Unmarshal(data, &state); err != nil {
				return errors.New("this is no dashboard of a weir server")
			}
			if !old {
				tell(state, nil)
			}
			old, n = false, 0
			return nil
		})
		if err == nil {
			err = errors.New("the server ended the stream of its numbers")
		}
		if ctx.Err() == nil {
			tell(dash.State{}, err)
		}
		if client.Sleep(ctx, client.Backoff(n, 250*time.Millisecond, 2*time.Second)) != nil {
			return
		}
	}
}

func (s *server) detail(ctx context.Context, id string) (d board.Detail, err error) {
	return d, s.client.Dashboard(ctx, "/ui/streams/"+url.PathEscape(id), &d)
}

func (s *server) letters(ctx context.Context, id string) (p board.LetterPage, err error) {
	return p, s.client.Dashboard(ctx, "/ui/letters/"+url.PathEscape(id), &p)
}

func (s *server) redrive(ctx context.Context, id string, r *board.Redrive) (p board.Progress) {
	body, err := json.Marshal(r)
	if err == nil {
		err = s.client.DashboardEvents(ctx, "/ui/redrive/"+url.PathEscape(id), body, redriveSilence, func(data []byte) error {
			return json.Unmarshal(data, &p)
		})
	}
	switch {
	case err != nil && p.Error == "":
		p.Error = err.Error()
	case err == nil && !p.Done && p.Error == "":
		p.Error = "the server ended before it was done"
	}
	return p
}
