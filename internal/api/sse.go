package api

import (
	"bytes"
	"strings"
)

// The frames of a stream. An SSE frame is an event whose id line the stream
// puts in front; a WebSocket message is the same object with an op.

// FrameStyle says for which kind of connection a frame is encoded.
type FrameStyle uint8

// The two kinds.
const (
	SSE FrameStyle = iota
	WebSocket
)

func (s FrameStyle) open(dst []byte, event, op string) []byte {
	if s == WebSocket {
		dst = append(dst, `{"op":"`...)
		dst = append(dst, op...)
		return append(dst, `","topic":`...)
	}
	dst = append(dst, "event: "...)
	dst = append(dst, event...)
	return append(dst, "\ndata: {\"topic\":"...)
}

func (s FrameStyle) close(dst []byte) []byte {
	if s == WebSocket {
		return append(dst, '}')
	}
	return append(dst, "}\n\n"...)
}

// AppendRecordsHead opens a record frame up to its first record.
func (s FrameStyle) AppendRecordsHead(dst []byte, topic string, fromSeq, headSeq uint64) []byte {
	dst = s.open(dst, "record", "record")
	dst = AppendString(dst, topic)
	dst = appendNamed(dst, "from_seq", fromSeq)
	dst = appendNamed(dst, "head_seq", headSeq)
	return append(dst, `,"records":[`...)
}

// AppendFrameRecord appends the next record behind AppendRecordsHead.
func AppendFrameRecord(dst []byte, r *Record, o *WatchOptions) []byte {
	return appendRecord(appendComma(dst), r, o.IncludeTags, o.IncludeData, o.IncludeMeta, nil)
}

// AppendRecordsTail closes a record frame; toSeq is the last number examined.
func (s FrameStyle) AppendRecordsTail(dst []byte, toSeq uint64) []byte {
	dst = append(dst, ']')
	dst = appendNamed(dst, "to_seq", toSeq)
	return s.close(dst)
}

// AppendUnfiltered says behind AppendRecordsTail, in a message for a relay, that node
// filters do not count for the topic.
func AppendUnfiltered(dst []byte) []byte {
	return append(dst[:len(dst)-1], `,"dedupe_node":false}`...)
}

// AppendTombstoneFrame appends the announcement of a gap.
func (s FrameStyle) AppendTombstoneFrame(dst []byte, topic string, t *Tombstone) []byte {
	dst = s.open(dst, "tombstone", "tombstone")
	dst = AppendString(dst, topic)
	dst = append(dst, `,"reason":`...)
	dst = AppendString(dst, string(t.Reason))
	dst = appendNamed(dst, "gap_from", t.GapFrom)
	dst = appendNamed(dst, "gap_to", t.GapTo)
	dst = appendNamed(dst, "earliest_seq", t.EarliestSeq)
	dst = appendNamed(dst, "head_seq", t.HeadSeq)
	return s.close(dst)
}

// AppendCaughtUpFrame says that nothing is left to send.
func (s FrameStyle) AppendCaughtUpFrame(dst []byte, topic string, headSeq uint64) []byte {
	dst = s.open(dst, "caught-up", "caught_up")
	dst = AppendString(dst, topic)
	dst = appendNamed(dst, "head_seq", headSeq)
	return s.close(dst)
}

// AppendTopicDeletedFrame says that the topic is gone; headSeq is 0 if unknown.
func (s FrameStyle) AppendTopicDeletedFrame(dst []byte, topic string, headSeq uint64) []byte {
	dst = s.open(dst, "topic-deleted", "topic_deleted")
	dst = AppendString(dst, topic)
	dst = appendNamed(dst, "head_seq", headSeq)
	dst = append(dst, `,"reason":"deleted"`...)
	return s.close(dst)
}

// AppendAdviceFrame appends the SSE frame that names topics whose pushes are
// being paced; the stream stays open.
func AppendAdviceFrame(dst []byte, topics []string, retryAfterMS int64) []byte {
	const why = "the server is under pressure: pushes of these topics are paced; reading them with diff is not"
	dst = append(dst, "event: error\ndata: {\"code\":429,\"error\":"...)
	dst = AppendString(dst, why)
	dst = append(dst, `,"message":`...)
	dst = AppendString(dst, why)
	dst = append(dst, `,"retry_after_ms":`...)
	dst = appendInt(dst, retryAfterMS)
	dst = append(dst, `,"topics":[`...)
	for _, t := range topics {
		dst = AppendString(appendComma(dst), t)
	}
	return append(dst, "]}\n\n"...)
}

// EventPrefix is put in front of the names of events for clients that ask for it: an
// EventSource of a browser has an event "error" of its own.
const EventPrefix = "weir-"

// PrefixEvents appends frames to dst, with EventPrefix in front of the names of their events.
// A line that begins like that of a name is one, since data is one line.
func PrefixEvents(dst, frames []byte) []byte {
	const field = "event: "
	for len(frames) > 0 {
		if bytes.HasPrefix(frames, []byte(field)) {
			dst = append(append(dst, field...), EventPrefix...)
			frames = frames[len(field):]
		}
		end := bytes.IndexByte(frames, '\n') + 1
		if end == 0 {
			end = len(frames)
		}
		dst = append(dst, frames[:end]...)
		frames = frames[end:]
	}
	return dst
}

// The words of Sec-WebSocket-Protocol by which a page, which cannot set other headers, sends
// its key: the protocol, and the key behind SocketKeyPrefix.
const (
	SocketProtocol  = "weir"
	SocketKeyPrefix = "weir.token."
)

// SocketKey returns the key among the protocols that a client of a WebSocket offers.
func SocketKey(offered []string) (key string, ok bool) {
	for _, line := range offered {
		for word := range strings.SplitSeq(line, ",") {
			if key, ok = strings.CutPrefix(strings.TrimSpace(word), SocketKeyPrefix); ok {
				return key, true
			}
		}
	}
	return "", false
}
