package api

import (
	"cmp"
	"slices"
	"strconv"
)

// The numbers of contract 12 for the frames of a stream.
const (
	DefaultWatchBytes  = 256 << 10
	DefaultHeartbeatMS = 15_000
	DefaultSocketLimit = 1_000
	MinHeartbeatMS     = 1_000
	MaxHeartbeatMS     = 60_000
)

// Bits of the known fields of a watch and of a WebSocket message.
const (
	watchTopics = 1 << iota
	watchNode
	watchLimit
	watchBytes
	watchHeartbeat
	watchMeta
	watchTags
	watchData
	watchConsistency
	socketOp
	socketRequest
	socketTopic
	socketFrom
	socketTail
	socketLenient
	socketSeqs
	socketRelay
)

// Bits of the options of one topic.
const (
	topicFrom = 1 << iota
	topicTail
)

var (
	frameFields = []string{"node", "limit", "max_batch_bytes", "include_meta", "include_tags", "include_data"}
	watchFields = slices.Concat([]string{"topics", "heartbeat_ms", "consistency"}, frameFields)
	startFields = []string{"from_seq", "tail"}
)

// DecodeWatch reads the body of a watch and applies defaults and clamps; minHeartbeatMS
// is the shortest heartbeat, MinHeartbeatMS outside tests. The caller sets Lenient.
func DecodeWatch(body []byte, lim *Limits, minHeartbeatMS int64, warn *Warnings) (WatchRequest, error) {
	w := WatchRequest{WatchOptions: WatchOptions{
		Limit:         min(DefaultDiffLimit, lim.MaxLimit),
		MaxBatchBytes: DefaultWatchBytes,
		HeartbeatMS:   DefaultHeartbeatMS,
		IncludeMeta:   true,
		IncludeData:   true,
	}}
	s := scanner{b: body, index: -1, warnings: warn}
	s.watch(lim, &w)
	if err := s.finish(); err != nil {
		return WatchRequest{}, err
	}
	w.HeartbeatMS = min(max(w.HeartbeatMS, minHeartbeatMS), MaxHeartbeatMS)
	if len(w.Topics) == 0 {
		return WatchRequest{}, Errorf(CodeInvalidRequest, "field \"topics\" is empty; name at least one topic")
	}
	if err := w.settle(lim); err != nil {
		return WatchRequest{}, err
	}
	return w, nil
}

// settle sorts the topics and checks their number and that none is named twice.
func (w *WatchRequest) settle(lim *Limits) error {
	if len(w.Topics) > lim.MaxWatchTopics {
		return Errorf(CodeInvalidRequest, "field \"topics\" names more than %d topics; use several watches", lim.MaxWatchTopics)
	}
	slices.SortFunc(w.Topics, func(a, b WatchTopic) int { return cmp.Compare(a.Topic, b.Topic) })
	for i := 1; i < len(w.Topics); i++ {
		if w.Topics[i].Topic == w.Topics[i-1].Topic {
			return Errorf(CodeInvalidRequest, "field \"topics\" names %.300q twice; name it once", w.Topics[i].Topic)
		}
	}
	return nil
}

func (s *scanner) watch(lim *Limits, w *WatchRequest) {
	var seen uint32
	s.body(watchFields, func(name []byte) bool {
		switch string(name) {
		case "topics":
			if s.once(&seen, watchTopics, "topics") {
				s.topics(lim, w)
			}
		case "heartbeat_ms":
			if s.once(&seen, watchHeartbeat, "heartbeat_ms") {
				w.HeartbeatMS = int64(min(s.uint("heartbeat_ms", maxUint64), MaxHeartbeatMS))
			}
		case "consistency":
			if s.once(&seen, watchConsistency, "consistency") {
				w.Strong = s.strong()
			}
		default:
			return s.frames(name, &seen, lim, &w.WatchOptions)
		}
		return true
	})
	if seen&watchTopics == 0 {
		s.missing("topics", acceptTopics)
	}
}

// frames reads an option that watches and subscriptions share; it returns false if name
// is not one.
func (s *scanner) frames(name []byte, seen *uint32, lim *Limits, o *WatchOptions) bool {
	switch string(name) {
	case "node":
		if s.once(seen, watchNode, "node") && !s.null() {
			o.Nodes = s.nodes()
		}
	case "limit":
		if s.once(seen, watchLimit, "limit") {
			if v := s.uint("limit", maxUint32); v > 0 {
				o.Limit = int(min(v, uint64(lim.MaxLimit)))
			}
		}
	case "max_batch_bytes":
		if s.once(seen, watchBytes, "max_batch_bytes") {
			if o.MaxBatchBytes = int64(min(s.uint("max_batch_bytes", maxUint64), MaxDiffBytes)); o.MaxBatchBytes == 0 {
				o.MaxBatchBytes = DefaultDiffBytes
			}
		}
	case "include_meta":
		if s.once(seen, watchMeta, "include_meta") {
			o.IncludeMeta = s.bool("include_meta")
		}
	case "include_tags":
		if s.once(seen, watchTags, "include_tags") {
			o.IncludeTags = s.bool("include_tags")
		}
	case "include_data":
		if s.once(seen, watchData, "include_data") {
			o.IncludeData = s.bool("include_data")
		}
	default:
		return false
	}
	return true
}

func (s *scanner) strong() bool {
	const accepted = `"eventual" or "strong"`
	start := s.i
	text := s.text("consistency", accepted)
	s.scratch = s.scratch[:0]
	switch string(text) {
	case "strong":
		return true
	case "eventual":
	default:
		s.i = start
		s.wrong("consistency", accepted)
	}
	return false
}

const acceptTopics = "an object that maps each topic to where it begins, such as {\"orders\":{\"from_seq\":0}}"

// topics reads the map of topics; if there are too many it keeps one more than lim
// allows.
func (s *scanner) topics(lim *Limits, w *WatchRequest) {
	if !s.open('{') {
		s.wrong("topics", acceptTopics)
		return
	}
	for {
		name, ok := s.member()
		if !ok {
			return
		}
		t := WatchTopic{Topic: string(name)}
		s.topicStart(&t)
		if len(w.Topics) <= lim.MaxWatchTopics {
			w.Topics = append(w.Topics, t)
		}
	}
}

// topicStart reads where one topic begins.
func (s *scanner) topicStart(t *WatchTopic) {
	var seen uint32
	shown := "topics." + beginning(t.Topic, MaxNameBytes)
	if !s.object(nil, func(name []byte) bool {
		switch string(name) {
		case "from_seq":
			if s.once(&seen, topicFrom, "from_seq") {
				t.FromSeq = s.uint("from_seq", maxUint64)
			}
		case "tail":
			if s.once(&seen, topicTail, "tail") {
				t.Tail = s.bool("tail")
			}
		default:
			s.prefix = shown + "."
			s.stray(name, startFields)
			s.prefix = ""
			return false
		}
		return true
	}) {
		s.wrong(shown, "an object, such as {\"from_seq\":0} or {\"tail\":true}")
	}
}

// AppendWatchResult appends the answer to a watch.
func AppendWatchResult(dst []byte, r *WatchResult, totalMS float64) []byte {
	if r.WID == "" {
		dst = append(dst, `{"keyed":`...)
		dst = strconv.AppendBool(dst, r.Keyed)
	} else {
		dst = append(dst, `{"wid":`...)
		dst = AppendString(dst, r.WID)
		dst = append(dst, `,"stream_url":`...)
		dst = AppendString(dst, "/v0/watch/"+r.WID)
		dst = appendNamed(dst, "session_ttl_ms", SessionTTLMS)
	}
	dst = append(dst, `,"topics":`...)
	dst = appendPositions(dst, r.Topics)
	return appendEnd(dst, &Performance{TotalMS: totalMS})
}

func appendPositions(dst []byte, all []WatchPosition) []byte {
	dst = append(dst, '{')
	for i := range all {
		p := &all[i]
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = AppendString(dst, p.Topic)
		dst = append(dst, `:{"from_seq":`...)
		dst = appendUint(dst, p.FromSeq)
		dst = appendNamed(dst, "head_seq", p.HeadSeq)
		dst = appendNamed(dst, "earliest_seq", p.EarliestSeq)
		if p.Life > 0 {
			dst = appendNamed(dst, "life", p.Life)
		}
		dst = append(dst, '}')
	}
	return append(dst, '}')
}
