package api

// MaxDiffNodes is how many node names the filter of one diff may hold. The contract
// sets no limit; without one a body could contain millions, each to be compared with
// every record.
const MaxDiffNodes = 10_000

// MaxDiffNodeBytes is how long these names may be together: a watch session keeps them for as
// long as it lives.
const MaxDiffNodeBytes = 256 << 10

const (
	diffFrom = 1 << iota
	diffLimit
	diffNode
	diffTags
	diffMeta
	diffData
	diffWait
	diffBytes
	diffRelay
)

const maxUint32 = 1<<32 - 1

var diffFields = []string{"from_seq", "limit", "node", "include_tags", "include_meta", "include_data", "wait_ms", "max_batch_bytes", "relay"}

// DecodeDiff reads the body of a diff and applies defaults and clamps. A body of zero
// bytes counts as {}.
func DecodeDiff(body []byte, lim *Limits, warn *Warnings) (DiffRequest, error) {
	d := DiffRequest{
		Limit:         min(DefaultDiffLimit, lim.MaxLimit),
		IncludeMeta:   true,
		MaxBatchBytes: DefaultDiffBytes,
	}
	if len(body) == 0 {
		return d, nil
	}
	s := scanner{b: body, index: -1, warnings: warn}
	s.diff(lim, &d)
	return d, s.finish()
}

func (s *scanner) diff(lim *Limits, d *DiffRequest) {
	var seen uint32
	s.body(diffFields, func(name []byte) bool {
		switch string(name) {
		case "from_seq":
			if s.once(&seen, diffFrom, "from_seq") {
				d.FromSeq = s.uint("from_seq", maxUint64)
			}
		case "limit":
			if s.once(&seen, diffLimit, "limit") {
				if v := s.uint("limit", maxUint32); v > 0 {
					d.Limit = int(min(v, uint64(lim.MaxLimit)))
				}
			}
		case "node":
			if s.once(&seen, diffNode, "node") && !s.null() {
				d.Nodes = s.nodes()
			}
		case "include_tags":
			if s.once(&seen, diffTags, "include_tags") {
				d.IncludeTags = s.bool("include_tags")
			}
		case "include_meta":
			if s.once(&seen, diffMeta, "include_meta") {
				d.IncludeMeta = s.bool("include_meta")
			}
		case "include_data":
			if s.once(&seen, diffData, "include_data") {
				d.OmitData = !s.bool("include_data")
			}
		case "wait_ms":
			if s.once(&seen, diffWait, "wait_ms") {
				d.WaitMS = uint32(min(s.uint("wait_ms", maxUint32), MaxWaitMS))
			}
		case "max_batch_bytes":
			if s.once(&seen, diffBytes, "max_batch_bytes") {
				if v := s.uint("max_batch_bytes", maxUint64); v > 0 {
					d.MaxBatchBytes = int64(min(v, MaxDiffBytes))
				}
			}
		case "relay":
			if s.once(&seen, diffRelay, "relay") {
				d.Relay = s.bool("relay")
			}
		default:
			return false
		}
		return true
	})
}

// nodes reads a string or an array of strings.
func (s *scanner) nodes() []string {
	const accepted = "a string, an array of strings, or null"
	if !s.open('[') {
		at, node := s.i, s.text("node", accepted)
		if s.tooLong(len(node), at) {
			return nil
		}
		return []string{string(node)}
	}
	var nodes []string
	bytes := 0
	for s.element() {
		at := s.i
		node := s.text("node", accepted)
		s.scratch = s.scratch[:0]
		if len(nodes) == MaxDiffNodes {
			s.err = Errorf(CodeInvalidRequest, "field \"node\" holds more than %d names (at byte %d)", MaxDiffNodes, at)
			return nil
		}
		if bytes += len(node); s.tooLong(bytes, at) {
			return nil
		}
		nodes = append(nodes, string(node))
	}
	return nodes
}

// tooLong refuses so many bytes of node names.
func (s *scanner) tooLong(bytes, at int) bool {
	if bytes > MaxDiffNodeBytes {
		s.err = Errorf(CodeInvalidRequest, "field \"node\" holds more than %d bytes of names (at byte %d)", MaxDiffNodeBytes, at)
	}
	return bytes > MaxDiffNodeBytes
}
