package board

import (
	"context"
	"errors"

	"github.com/weirmq/weir"
	"github.com/weirmq/weir/backend"
)

// observed is how many of each kind a stream's page lists, and recordBytes how much of a
// record.
const (
	observed    = 12
	recordBytes = 2000
)

// Detail is what the page of a stream shows besides its numbers. What is null is not
// known.
type Detail struct {
	Groups  []Group  `json:"groups"`
	Workers []Worker `json:"workers"`
	Held    []Held   `json:"held"`    // the oldest first
	Records []Record `json:"records"` // the newest first
	Gap     *Gap     `json:"gap"`     // what is missing before the oldest record
	Routers []Router `json:"routers"`
}

// Group is a group of a stream.
type Group struct {
	Name    string `json:"name"`
	Workers int64  `json:"workers"`
	Pending int64  `json:"pending"`
	Lag     *int64 `json:"lag"`
}

// Worker is a worker of the stream's group.
type Worker struct {
	Name   string `json:"name"`
	Holds  int64  `json:"holds"`
	IdleMS *int64 `json:"idle_ms"` // since it has done anything
}

// Held is a message that a worker has.
type Held struct {
	ID         string `json:"id"`
	Worker     string `json:"worker"`
	Deliveries int64  `json:"deliveries"`
	IdleMS     *int64 `json:"idle_ms"`       // since the last sign of life for it
	LeaseMS    *int64 `json:"lease_ends_ms"` // until others get it
}

// Record is one stored message.
type Record struct {
	ID      string            `json:"id"`
	AtMS    *int64            `json:"ts_ms"`
	Headers map[string]string `json:"headers"`
	Payload
	Shown
}

// Gap is a range of records that are gone.
type Gap struct {
	From   string `json:"from"`
	To     string `json:"to"`
	Reason string `json:"reason"`
	Missed *int64 `json:"missed"`
}

// Router is a way from one topic to another.
type Router struct {
	Name      string `json:"name"`
	Source    string `json:"source"`
	Dest      string `json:"dest"`
	Filter    string `json:"filter,omitempty"`
	Forwarded uint64 `json:"forwarded_total"`
}

// Examine reads the detail of a stream.
func Examine(ctx context.Context, s *weir.Stream) (d Detail, err error) {
	if o, ok := s.Backend().(backend.Observer); ok {
		var got backend.Observed
		if got, err = o.Observe(ctx, observed); err != nil {
			return d, err
		}
		d.take(&got)
	}
	if r, ok := s.Backend().(backend.Reader); ok {
		first, err := r.Read(ctx, backend.ReadRequest{After: backend.CursorStart, Max: 1})
		if err != nil && !errors.Is(err, backend.ErrStreamNotFound) {
			return d, err
		}
		if g := first.Gap; g != nil {
			d.Gap = &Gap{g.From, g.To, g.Reason, g.Missed}
		}
	}
	return d, nil
}

func (d *Detail) take(o *backend.Observed) {
	for _, g := range o.Groups {
		d.Groups = append(d.Groups, Group{g.Name, g.Consumers, g.Pending, g.Lag})
	}
	for _, c := range o.Consumers {
		idle := c.Idle.Milliseconds()
		d.Workers = append(d.Workers, Worker{c.Name, c.Pending, &idle})
	}
	if o.Held != nil {
		d.Held = []Held{}
	}
	for _, h := range o.Held {
		idle := h.Idle.Milliseconds()
		d.Held = append(d.Held, Held{ID: h.ID, Worker: h.Consumer, Deliveries: h.Deliveries, IdleMS: &idle})
	}
	if o.Last != nil {
		d.Records = []Record{}
	}
	for _, r := range o.Last {
		part, shown := cut(r.Data, recordBytes)
		out := Record{ID: r.ID, Headers: r.Headers, Payload: payloadOf(part), Shown: shown}
		if !r.At.IsZero() {
			ms := r.At.UnixMilli()
			out.AtMS = &ms
		}
		d.Records = append(d.Records, out)
	}
}
