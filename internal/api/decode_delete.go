package api

const (
	deleteBefore = 1 << iota
	deleteMatch
	deleteMin
)

var deleteFields = []string{"before_seq", "match", "min_seq"}

// DecodeDelete reads the body of delete records. CheckDelete checks that it has a
// selector.
func DecodeDelete(body []byte, warn *Warnings) (DeleteRequest, error) {
	var d DeleteRequest
	s := scanner{b: body, index: -1, warnings: warn}
	s.delete(&d)
	return d, s.finish()
}

func (s *scanner) delete(d *DeleteRequest) {
	var seen uint32
	s.body(deleteFields, func(name []byte) bool {
		switch string(name) {
		case "before_seq":
			if s.once(&seen, deleteBefore, "before_seq") && !s.null() {
				d.BeforeSeq, d.HasBefore = s.uint("before_seq", maxUint64), true
			}
		case "min_seq":
			if s.once(&seen, deleteMin, "min_seq") && !s.null() {
				d.MinSeq = s.uint("min_seq", maxUint64)
			}
		case "match":
			if s.once(&seen, deleteMatch, "match") && !s.null() {
				d.Match = s.predicate("match")
			}
		default:
			return false
		}
		return true
	})
}

const acceptPredicate = `["tag","Eq",value], ["tag","Glob","prefix*"], a string (with a star at its end: a Glob), or null`

// predicate reads a predicate of contract 9; it is nil on an error.
func (s *scanner) predicate(field string) *Predicate {
	start := s.i
	if !s.open('[') {
		v := string(s.text(field, acceptPredicate))
		if n := len(v); n > 0 && v[n-1] == '*' {
			return &Predicate{Glob: true, Value: v[:n-1]}
		}
		return &Predicate{Value: v}
	}
	var parts [3]string
	n := 0
	for ; s.element(); n++ {
		if n == len(parts) {
			s.i = start
			s.wrong(field, acceptPredicate)
			return nil
		}
		parts[n] = string(s.text(field, acceptPredicate))
	}
	p := Predicate{Glob: parts[1] == "Glob", Value: parts[2]}
	last := len(p.Value) - 1
	if n != len(parts) || parts[0] != "tag" || !p.Glob && parts[1] != "Eq" ||
		p.Glob && (last < 0 || p.Value[last] != '*') {
		s.i = start
		s.wrong(field, acceptPredicate)
		return nil
	}
	if p.Glob {
		p.Value = p.Value[:last]
	}
	return &p
}

// CheckDelete refuses a delete without a selector.
func CheckDelete(d *DeleteRequest) error {
	if !d.HasBefore && d.Match == nil {
		return Errorf(CodeInvalidRequest, "field \"before_seq\" or \"match\" is needed; send at least one of them")
	}
	return nil
}
