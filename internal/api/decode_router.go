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

// DecodeRouter reads the body of PUT router, laid over the defaults. The names
// in it are CheckRouter's.
func DecodeRouter(body []byte) (RouterConfig, *Error) {
	c := RouterConfig{PreserveNode: true, PreserveTag: true, CreateDest: true}
	s := scanner{b: body, index: -1}
	s.router(&c)
	s.end()
	if s.err != nil {
		return RouterConfig{}, s.err
	}
	return c, nil
}

func (s *scanner) router(c *RouterConfig) {
	if s.peek(); !s.open('{') {
		s.notObject()
		return
	}
	var seen uint32
	for {
		name, ok := s.member()
		if !ok {
			break
		}
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
			s.routerFlag(name, &seen, c)
		}
	}
	if seen&routerSource == 0 {
		s.missing("source", "the name of a topic")
	}
	if seen&routerDest == 0 {
		s.missing("dest", "the name of a topic")
	}
}

// routerFlag reads the fields that are true or false, and skips unknown ones.
func (s *scanner) routerFlag(name []byte, seen *uint32, c *RouterConfig) {
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
			return
		}
	}
	s.skip()
}
