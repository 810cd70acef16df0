package top

import (
	"cmp"
	"strings"
)

// column is one column of the list.
type column struct {
	title string
	width int // 0: what is left
	from  int // of the terminal's width, for the column to be there
	left  bool
	text  func(*row) string
	// value is what the column is sorted by, biggest first; ok is false if it is not
	// known. Without value it is sorted by its text, from a to z.
	value func(*row) (v float64, ok bool)
}

var columns = []column{
	{title: "STREAM", left: true, text: func(r *row) string { return r.name }},
	{title: "STATE", width: 16, left: true, text: stateText, value: func(r *row) (float64, bool) { return -float64(r.state), true }},
	{title: "BACKLOG", width: 7, text: func(r *row) string { return count(r.Lag) }, value: func(r *row) (float64, bool) { return number(r.Lag) }},
	{title: "PENDING", width: 7, text: func(r *row) string { return count(r.Pending) }, value: func(r *row) (float64, bool) { return number(r.Pending) }},
	{title: "IN/S", width: 6, from: 64, text: func(r *row) string { return rate(r.InRate) }, value: func(r *row) (float64, bool) { return number(r.InRate) }},
	{title: "OUT/S", width: 6, from: 64, text: func(r *row) string { return rate(r.OutRate) }, value: func(r *row) (float64, bool) { return number(r.OutRate) }},
	{title: "OLDEST", width: 7, from: 50, text: func(r *row) string { return age(r.OldestMS) }, value: func(r *row) (float64, bool) { return number(r.OldestMS) }},
	{title: "DEAD", width: 5, from: 72, text: func(r *row) string { return count(r.Dead) }, value: func(r *row) (float64, bool) { return number(r.Dead) }},
	{title: "WORKERS", width: 7, from: 88, text: func(r *row) string { return count(r.Workers) }, value: func(r *row) (float64, bool) { return number(r.Workers) }},
	{title: "REFUSED/S", width: 9, from: 100, text: func(r *row) string { return rate(r.Refusals) }, value: func(r *row) (float64, bool) { return number(r.Refusals) }},
	{title: "PRESSURE", width: 8, from: 110, text: func(r *row) string { return share(r.pressure) }, value: func(r *row) (float64, bool) { return number(r.pressure) }},
	{title: "GROUP", width: 14, from: 126, left: true, text: func(r *row) string { return orUnknown(r.Group) }},
	{title: "KIND", width: 8, from: 136, left: true, text: func(r *row) string { return orUnknown(r.Kind) }},
}

// byState is the column by which the list is sorted at first: the worst on top.
const byState = 1

func number[T ~int | ~int64 | ~float64](v *T) (float64, bool) {
	if v == nil {
		return 0, false
	}
	return float64(*v), true
}

func orUnknown(s string) string {
	if s == "" {
		return unknown
	}
	return clean(s)
}

// stateText is the state with its number: what lag_warn and lag_pause are compared with.
func stateText(r *row) string {
	switch r.state {
	case backpressure, elevated, nominal:
		return r.state.String() + " " + count(r.Signal)
	case deserted, workerOff:
		return unknown + " " + r.state.String()
	}
	return r.state.String()
}

// compare says which row comes first.
func (c *column) compare(a, b *row, reverse bool) int {
	v := 0
	if c.value == nil {
		v = strings.Compare(c.text(a), c.text(b))
	} else {
		x, xok := c.value(a)
		y, yok := c.value(b)
		if !xok || !yok {
			return cmp.Compare(boolean(!xok), boolean(!yok))
		}
		v = cmp.Compare(y, x)
	}
	if reverse {
		return -v
	}
	return v
}

func boolean(b bool) int {
	if b {
		return 1
	}
	return 0
}

// shown returns the columns that fit, and the width of the first.
func shown(width int) (list []int, first int) {
	first = width - len(marker)
	for i := range columns {
		if c := &columns[i]; width >= c.from {
			list = append(list, i)
			if c.width > 0 {
				first -= c.width + 1
			}
		}
	}
	for first < 8 && len(list) > 2 { // what is too narrow even so loses its last columns
		first += columns[list[len(list)-1]].width + 1
		list = list[:len(list)-1]
	}
	return list, max(first, 1)
}

// marker is in front of the row that is chosen, and as many blanks of the others: a
// terminal without inverse video needs it.
const marker = "> "

// awayLine is the row of a stream without numbers.
func awayLine(r *row, first, rest int) string {
	text := "unreachable"
	if !r.since.IsZero() {
		text += " since " + r.since.Format("15:04:05")
	}
	return left(r.name, first) + " " + in(red, Fit(text, rest)) + Fit(": "+clean(r.Error), rest-len(text))
}

// line lays out one row, or the titles if r is nil.
func line(r *row, list []int, first int) string {
	var b strings.Builder
	for n, i := range list {
		c := &columns[i]
		width, text := c.width, c.title
		if width == 0 {
			width = first
		}
		if r != nil {
			text = c.text(r)
		}
		if n > 0 {
			b.WriteByte(' ')
		}
		lay := right
		if c.left {
			lay = left
		}
		text = lay(text, width)
		if r != nil && i == byState {
			text = in(r.state.colour(), text)
		}
		b.WriteString(text)
	}
	return b.String()
}
