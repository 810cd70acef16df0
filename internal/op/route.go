package op

import (
	"errors"

	"github.com/weirmq/weir/internal/api"
)

// Route is a router as the log knows it. Its topics go by number.
type Route struct {
	ID     uint64
	Source uint64 // topic
	Dest   uint64 // topic
	Name   string
	// Config is its configuration without the names of the topics.
	Config api.RouterConfig
	Pos    uint64 // last number of the source that it has dealt with
	Total  uint64 // copies made
}

const (
	routeNode = 1 << iota
	routeTag
	routeCycle
	routeExactly
	routeFilter
	routeGlob
)

// Apply applies a cursor to the route.
func (r *Route) Apply(p *Part) { r.Pos, r.Total = p.To, p.Count }

func (r *Route) appendFields(dst []byte) []byte {
	c := &r.Config
	var bits, filter uint64
	var value string
	if c.Filter != nil {
		filter, value = 1, c.Filter.Value
	}
	for i, on := range []bool{c.PreserveNode, c.PreserveTag, c.AllowCycle, c.Guarantee == api.ExactlyOnce,
		filter == 1, filter == 1 && c.Filter.Glob} {
		if on {
			bits |= 1 << i
		}
	}
	dst = appendUvarints(dst, r.Dest, bits, r.Pos, r.Total)
	return appendString(appendString(dst, r.Name), value)
}

func (d *decoder) route(r *Route) {
	r.Dest = d.uvarint()
	bits := d.uvarint()
	r.Pos, r.Total = d.uvarint(), d.uvarint()
	r.Name = d.string()
	value := d.string()
	c := &r.Config
	c.PreserveNode, c.PreserveTag, c.AllowCycle = bits&routeNode != 0, bits&routeTag != 0, bits&routeCycle != 0
	if bits&routeExactly != 0 {
		c.Guarantee = api.ExactlyOnce
	}
	if bits&routeFilter != 0 {
		c.Filter = &api.Predicate{Glob: bits&routeGlob != 0, Value: value}
	}
}

// EncodeRoute appends the route without its number and that of its source.
func (r *Route) EncodeRoute(dst []byte) []byte { return r.appendFields(append(dst, routeVersion)) }

// routeVersion is the first byte of an encoded Route.
const routeVersion = 1

// DecodeRoute reads what EncodeRoute wrote.
func DecodeRoute(source, id uint64, b []byte) (Route, error) {
	if len(b) == 0 || b[0] != routeVersion {
		return Route{}, errors.New("op: router of unknown version")
	}
	r := Route{ID: id, Source: source}
	d := decoder{b: b[1:]}
	d.route(&r)
	if d.bad || len(d.b) > 0 {
		return Route{}, errors.New("op: malformed router")
	}
	return r, nil
}
