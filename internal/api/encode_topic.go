package api

import (
	"encoding/base64"
	"strconv"
)

// AppendConfig appends a config with all fields of the contract, and with those beyond
// it that are set.
func AppendConfig(dst []byte, c *Config) []byte {
	dst = append(dst, `{"type":"`...)
	dst = append(dst, c.Type.String()...)
	dst = append(dst, '"')
	dst = appendNamed(dst, "ttl_ms", c.TTLMS)
	dst = appendNamed(dst, "cap_records", c.CapRecords)
	dst = appendNamed(dst, "cap_bytes", c.CapBytes)
	dst = append(dst, `,"discard":"`...)
	dst = append(dst, c.Discard.String()...)
	dst = append(dst, '"')
	dst = appendNamedBool(dst, "durable", c.Durability == Fsync)
	dst = append(dst, `,"durability":"`...)
	dst = append(dst, c.Durability.String()...)
	dst = append(dst, `","priority":`...)
	if c.HasPriority {
		dst = appendInt(dst, int64(c.Priority))
	} else {
		dst = append(dst, "null"...)
	}
	dst = appendNamedBool(dst, "auto_priority", c.AutoPriority)
	dst = appendNamedBool(dst, "auto_create", c.AutoCreate)
	dst = appendNamed(dst, "idempotency_window_ms", c.IdempotencyWindowMS)
	dst = appendNamedBool(dst, "dedupe_node", c.DedupeNode)
	dst = appendNamed(dst, "lease_ms", c.LeaseMS)
	dst = appendNamed(dst, "claim_jitter_ms", uint64(c.ClaimJitterMS))
	dst = appendNamed(dst, "max_deliveries", c.MaxDeliveries)
	dst = append(dst, `,"dead_letter":`...)
	if c.HasDeadLetter {
		dst = AppendString(dst, c.DeadLetter)
	} else {
		dst = append(dst, "null"...)
	}
	dst = appendNamedBool(dst, "leases_durable", c.LeasesDurable)
	if c.WaitSLOMS > 0 {
		dst = appendNamed(dst, "wait_slo_ms", uint64(c.WaitSLOMS))
	}
	if c.Paused {
		dst = appendNamedBool(dst, "paused", true)
	}
	return append(dst, '}')
}

// AppendPutTopic appends the answer to PUT topic.
func AppendPutTopic(dst []byte, topic string, r *PutTopicResult, totalMS float64) []byte {
	dst = appendTopic(dst, topic)
	dst = appendNamedBool(dst, "created", r.Created)
	dst = append(dst, `,"config":`...)
	dst = AppendConfig(dst, &r.Config)
	return appendEnd(dst, &Performance{TotalMS: totalMS})
}

// AppendPaused appends the answer to pause and resume.
func AppendPaused(dst []byte, topic string, paused bool, totalMS float64) []byte {
	dst = appendNamedBool(appendTopic(dst, topic), "paused", paused)
	return appendEnd(dst, &Performance{TotalMS: totalMS})
}

// AppendTopicState appends the answer to GET topic.
func AppendTopicState(dst []byte, t *TopicState, totalMS float64) []byte {
	dst = appendTopic(dst, t.Topic)
	dst = append(dst, `,"type":"`...)
	dst = append(dst, t.Config.Type.String()...)
	dst = append(dst, '"')
	dst = appendNamed(dst, "head_seq", t.HeadSeq)
	dst = appendNamed(dst, "earliest_seq", t.EarliestSeq)
	dst = appendNamed(dst, "next_seq", t.HeadSeq+1)
	dst = appendNamed(dst, "count", t.Count)
	dst = appendNamed(dst, "bytes", t.Bytes)
	dst = append(dst, `,"config":`...)
	dst = AppendConfig(dst, &t.Config)
	dst = append(dst, `,"effective_priority":`...)
	dst = appendInt(dst, t.EffectivePriority)
	dst = append(dst, `,"last_write_ts":`...)
	dst = appendTS(dst, t.LastWriteTS)
	dst = append(dst, `,"last_read_ts":`...)
	dst = appendTS(dst, t.LastReadTS)
	if t.Config.Type == TypeQueue {
		dst = append(dst, `,"queue":{"ready":`...)
		dst = appendUint(dst, t.Queue.Ready)
		dst = appendNamed(dst, "in_flight", t.Queue.InFlight)
		dst = appendNamed(dst, "delayed", t.Queue.Delayed)
		dst = appendNamed(dst, "scheduled", t.Queue.Scheduled)
		dst = appendNamed(dst, "dead_lettered", t.Queue.DeadLettered)
		if t.Overload != nil {
			dst = appendOverload(dst, t.Overload)
		}
		dst = append(dst, '}')
	}
	return appendEnd(dst, &Performance{TotalMS: totalMS})
}

// appendOverload appends what a queue takes: null where it is not known.
func appendOverload(dst []byte, o *Overload) []byte {
	dst = append(dst, `,"overload":{"wait_ms":`...)
	if o.Wait < 0 {
		dst = append(dst, "null"...)
	} else {
		dst = appendInt(dst, o.Wait.Milliseconds())
	}
	dst = append(dst, `,"drain_per_second":`...)
	if o.Drain == 0 {
		dst = append(dst, "null"...)
	} else {
		dst = strconv.AppendFloat(dst, o.Drain, 'f', 2, 64)
	}
	dst = append(dst, `,"refused":`...)
	dst = strconv.AppendFloat(dst, o.Refused, 'f', 3, 64)
	dst = append(dst, `,"lowest_tier":"`...)
	return append(append(dst, o.Lowest.String()...), '"', '}')
}

// appendTS appends a time, or null for 0, which is never.
func appendTS(dst []byte, ts int64) []byte {
	if ts == 0 {
		return append(dst, "null"...)
	}
	return appendInt(dst, ts)
}

// AppendTopicList appends one page of the topic list.
func AppendTopicList(dst []byte, l *TopicList, totalMS float64) []byte {
	dst = append(dst, `{"topics":[`...)
	for i := range l.Topics {
		t := &l.Topics[i]
		dst = appendTopic(appendComma(dst), t.Topic)
		dst = appendNamed(dst, "head_seq", t.HeadSeq)
		dst = appendNamed(dst, "earliest_seq", t.EarliestSeq)
		dst = appendNamed(dst, "count", t.Count)
		dst = appendNamed(dst, "bytes", t.Bytes)
		dst = appendNamedBool(dst, "durable", t.Durable)
		dst = append(dst, `,"effective_priority":`...)
		dst = appendInt(dst, t.EffectivePriority)
		dst = append(dst, '}')
	}
	dst = append(dst, ']')
	if l.More {
		dst = append(dst, `,"next_cursor":"`...)
		dst = append(dst, EncodeCursor(l.Last)...)
		dst = append(dst, '"')
	}
	return appendEnd(dst, &Performance{TotalMS: totalMS})
}

// AppendDeleteTopic appends the answer to DELETE topic.
func AppendDeleteTopic(dst []byte, topic string, r *DeleteTopicResult, totalMS float64) []byte {
	dst = appendTopic(dst, topic)
	dst = appendNamedBool(dst, "deleted", r.Deleted)
	dst = append(dst, `,"routers_removed":`...)
	dst = appendStrings(dst, r.RoutersRemoved)
	return appendEnd(dst, &Performance{TotalMS: totalMS})
}

// A cursor of a list is this byte, its version, and the last name looked at,
// in URL-safe base64 without padding.
const cursorVersion = 1

// EncodeCursor returns the opaque cursor that continues a list after name.
func EncodeCursor(name string) string {
	return base64.RawURLEncoding.EncodeToString(append([]byte{cursorVersion}, name...))
}

// DecodeCursor returns the name a cursor stands for.
func DecodeCursor(cursor string) (string, error) {
	b, err := base64.RawURLEncoding.DecodeString(cursor)
	// The decoder ignores line breaks and stray bits; our own cursors have none.
	if err != nil || len(b) == 0 || b[0] != cursorVersion || !ValidRouterName(string(b[1:])) ||
		EncodeCursor(string(b[1:])) != cursor {
		return "", Errorf(CodeInvalidRequest, "query parameter \"cursor\" was not returned by a list; leave it out to start over")
	}
	return string(b[1:]), nil
}
