package api

// Bits of the fields of a router.
const (
	routerSource = 1 << iota
	routerDest
	routerNode
	routerTag
	routerCreate
	routerFilter
	routerCycle
	routerGuarantee
)

var routerFields = []string{"source", "dest", "filter", "guarantee", "preserve_node", "preserve_tag", "create_dest", "allow_cycle"}

// DecodeRouter reads the body of PUT router, laid over the defaults. CheckRouter checks
// the names in it.
func DecodeRouter(body []byte, warn *Warnings) (RouterConfig, error) {
	c := RouterConfig{PreserveNode: true, PreserveTag: true, CreateDest: true}
	s := scanner{b: body, index: -1, warnings: warn}
	s.router(&c)
	return c, s.finish()
}

func (s *scanner) router(c *RouterConfig) {
	var seen uint32
	s.body(routerFields, func(name []byte) bool {
		switch string(name) {
		case "source":
			if s.once(&seen, routerSource, "source") {
				c.Source = string(s.text("source", acceptString))
			}
		case "dest":
			if s.once(&seen, routerDest, "dest") {
				c.Dest = string(s.text("dest", acceptString))
			}
		case "filter":
			if s.once(&seen, routerFilter, "filter") && !s.null() {
				c.Filter = s.predicate("filter")
			}
		case "guarantee":
			if s.once(&seen, routerGuarantee, "guarantee") {
				c.Guarantee = Guarantee(s.enum("guarantee", guarantees[:]))
			}
		default:
			return s.routerFlag(name, &seen, c)
		}
		return true
	})
	if seen&routerSource == 0 {
		s.missing("source", "the name of a topic")
	}
	if seen&routerDest == 0 {
		s.missing("dest", "the name of a topic")
	}
}

// routerFlag reads the fields that are true or false.
func (s *scanner) routerFlag(name []byte, seen *uint32, c *RouterConfig) bool {
	for _, f := range [...]struct {
		name string
		bit  uint32
		to   *bool
	}{
		{"preserve_node", routerNode, &c.PreserveNode},
		{"preserve_tag", routerTag, &c.PreserveTag},
		{"create_dest", routerCreate, &c.CreateDest},
		{"allow_cycle", routerCycle, &c.AllowCycle},
	} {
		if string(name) == f.name {
			if s.once(seen, f.bit, f.name) {
				*f.to = s.bool(f.name)
			}
			return true
		}
	}
	return false
}
