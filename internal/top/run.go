package top

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/weirmq/weir/internal/dash"
)

// watch passes on what a source tells, with the time.
func watch(ctx context.Context, i int, s Source, tell func(heard)) {
	s.watch(ctx, func(state dash.State, err error) { tell(heard{i, state, err, time.Now()}) })
}

// Run shows the sources in the terminal until somebody quits or ctx ends.
func Run(ctx context.Context, in io.Reader, out io.Writer, sources []Source) error {
	reading, stop := context.WithCancel(ctx)
	defer stop()
	m := newModel(reading, sources)
	p := tea.NewProgram(m, tea.WithInput(in), tea.WithOutput(out), tea.WithoutSignalHandler())
	m.send = p.Send
	quit := context.AfterFunc(ctx, p.Quit)
	defer quit()
	_, err := p.Run()
	return err
}

// Print writes a line for each stream every so often, count times or, if that is 0, until
// ctx ends. It fails with the error of ctx if that comes first.
func Print(ctx context.Context, out io.Writer, sources []Source, every time.Duration, count int) error {
	ctx, stop := context.WithCancel(ctx)
	var watching sync.WaitGroup
	defer watching.Wait()
	defer stop()
	news := make(chan heard)
	for i, s := range sources {
		watching.Go(func() {
			watch(ctx, i, s, func(h heard) {
				select {
				case news <- h:
				case <-ctx.Done():
				}
			})
		})
	}
	p := printer{out: out, feeds: make([]feed, len(sources)), missing: len(sources)}
	for i, s := range sources {
		p.feeds[i].name = s.name()
	}
	ticks := time.NewTicker(every)
	defer ticks.Stop()
	for n := 0; count == 0 || n < count; {
		select {
		case <-ctx.Done():
			if count == 0 {
				return nil
			}
			return ctx.Err()
		case h := <-news:
			if first := p.take(&h); !first {
				continue
			}
			ticks.Reset(every)
		case <-ticks.C:
			if p.missing > 0 {
				continue
			}
		}
		if err := p.print(time.Now()); err != nil {
			return err
		}
		n++
	}
	return nil
}

// printer prints rows as lines.
type printer struct {
	out     io.Writer
	feeds   []feed
	missing int // sources that have not told anything yet
}

// take reports whether the last source has told something for the first time.
func (p *printer) take(h *heard) (first bool) {
	f := &p.feeds[h.source]
	first = f.since == nil
	f.take(h)
	if first {
		p.missing--
	}
	return first && p.missing == 0
}

func (p *printer) print(now time.Time) error {
	all := rows(p.feeds)
	order(all, &columns[0], false)
	w := bufio.NewWriter(p.out)
	for i := range all {
		fmt.Fprintln(w, plain(&all[i], now))
	}
	return w.Flush()
}

// plain is a row as one line: when, the stream, and key=value.
func plain(r *row, now time.Time) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s state=%s", now.UTC().Format(time.RFC3339), quoted(r.name), quoted(r.state.String()))
	if r.state == unreachable {
		fmt.Fprintf(&b, " since=%s error=%q", r.since.UTC().Format(time.RFC3339), clean(r.Error))
		return b.String()
	}
	signal := count(r.Signal)
	for _, v := range [][2]string{
		{"group", orUnknown(r.Group)}, {"kind", orUnknown(r.Kind)}, {"signal", signal}, {"backlog", whole(r.Lag)}, {"pending", whole(r.Pending)},
		{"in", rate(r.InRate)}, {"out", rate(r.OutRate)}, {"oldest_ms", whole(r.OldestMS)}, {"workers", whole(r.Workers)},
		{"pressure", share(r.pressure)}, {"refused", rate(r.Refusals)}, {"dead", whole(r.Dead)},
	} {
		b.WriteString(" " + v[0] + "=" + quoted(v[1]))
	}
	return b.String()
}

// quoted is a text as one word.
func quoted(s string) string {
	if s == "" || strings.ContainsAny(s, " \"=") {
		return fmt.Sprintf("%q", s)
	}
	return s
}

// whole is a number in full.
func whole[T ~int | ~int64](n *T) string {
	if n == nil {
		return unknown
	}
	return fmt.Sprint(*n)
}
