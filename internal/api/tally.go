package api

// MaxBins is how many counters the producers of a queue may keep together.
const MaxBins = 1024

// TallyResult is the answer to a tally.
type TallyResult struct {
	Sums   []uint32 // the counters, as many as were given
	Exists bool     // there is such a queue; what follows is zero if not
	TopicCounters
	Queue    QueueCounters
	Finished int64 // jobs done, or dead, since the queue is in memory
	Paused   bool
}

const (
	tallyOf = 1 << iota
	tallyBins
	tallyAdd
)

var tallyFields = []string{"of", "bins", "add"}

// DecodeTally reads the body of a tally: what to add to each of the first counters.
func DecodeTally(body []byte, warn *Warnings) ([]uint32, error) {
	s := scanner{b: body, index: -1, warnings: warn}
	var seen uint32
	var bins, add []uint64
	of := uint64(MaxBins)
	s.body(tallyFields, func(name []byte) bool {
		switch string(name) {
		case "of":
			if s.once(&seen, tallyOf, "of") {
				of = s.uint("of", MaxBins)
			}
		case "bins":
			if s.once(&seen, tallyBins, "bins") {
				bins = s.uints("bins", MaxBins-1)
			}
		case "add":
			if s.once(&seen, tallyAdd, "add") {
				add = s.uints("add", maxUint32)
			}
		default:
			return false
		}
		return true
	})
	if err := s.finish(); err != nil {
		return nil, err
	}
	if len(bins) != len(add) {
		return nil, Errorf(CodeInvalidRequest, "field \"add\" holds %d numbers for %d bins; send one for each", len(add), len(bins))
	}
	counts := make([]uint32, of)
	for i, b := range bins {
		if b >= of {
			return nil, Errorf(CodeInvalidRequest, "field \"bins\" names %d; the counters are 0 to %d, as \"of\" says", b, int(of)-1)
		}
		counts[b] += uint32(add[i])
	}
	return counts, nil
}

// uints reads an array of at most MaxBins numbers up to max.
func (s *scanner) uints(name string, max uint64) (all []uint64) {
	if !s.open('[') {
		s.wrong(name, "an array of numbers")
		return nil
	}
	for s.element() {
		if all = append(all, s.uint(name, max)); len(all) > MaxBins {
			s.wrong(name, "an array of at most 1024 numbers")
			return nil
		}
	}
	return all
}

// AppendTally appends the answer to a tally: the counters that are not 0, and how the
// queue stands.
func AppendTally(dst []byte, topic string, r *TallyResult, totalMS float64) []byte {
	dst = appendTopic(dst, topic)
	dst = append(dst, `,"bins":[`...)
	for b, n := range r.Sums {
		if n != 0 {
			dst = appendUint(appendComma(dst), uint64(b))
		}
	}
	dst = append(dst, `],"sums":[`...)
	for _, n := range r.Sums {
		if n != 0 {
			dst = appendUint(appendComma(dst), uint64(n))
		}
	}
	dst = append(dst, ']')
	if r.Exists {
		dst = appendNamed(dst, "head_seq", r.HeadSeq)
		dst = appendNamed(dst, "count", r.Count)
		dst = append(dst, `,"queue":{"ready":`...)
		dst = appendUint(dst, r.Queue.Ready)
		dst = appendNamed(dst, "in_flight", r.Queue.InFlight)
		dst = appendNamed(dst, "finished", uint64(r.Finished))
		if r.Queue.Scheduled > 0 {
			dst = appendNamed(dst, "scheduled", r.Queue.Scheduled)
		}
		if r.Paused {
			dst = appendNamedBool(dst, "paused", true)
		}
		dst = append(dst, '}')
	}
	return appendEnd(dst, &Performance{TotalMS: totalMS})
}
