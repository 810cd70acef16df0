package api

import (
	"encoding/json"
	"math"
	"slices"
	"strconv"
	"unicode/utf8"
)

// The encoders append to dst and allocate only to grow it. They write members in the
// order of the contract's tables.

const hexDigits = "0123456789abcdef"

// AppendString appends v as a JSON string. It escapes only what JSON requires; bytes
// that are not UTF-8 become U+FFFD.
func AppendString[T string | []byte](dst []byte, v T) []byte {
	dst = append(dst, '"')
	bytes, _ := any(v).([]byte)
	from := 0
	for i := 0; i < len(v); {
		c := v[i]
		if c >= ' ' && c < utf8.RuneSelf && c != '"' && c != '\\' {
			i = skipPlain(bytes, i+1)
			continue
		}
		if c >= utf8.RuneSelf {
			n := runeLen([]byte(v[i:min(i+utf8.UTFMax, len(v))]))
			if n > 0 {
				i += n
				continue
			}
			dst = append(dst, v[from:i]...)
			dst = append(dst, "\uFFFD"...)
		} else {
			dst = append(dst, v[from:i]...)
			dst = appendEscape(dst, c)
		}
		i++
		from = i
	}
	dst = append(dst, v[from:]...)
	return append(dst, '"')
}

func appendEscape(dst []byte, c byte) []byte {
	switch c {
	case '"', '\\':
		return append(dst, '\\', c)
	case '\n':
		return append(dst, '\\', 'n')
	case '\r':
		return append(dst, '\\', 'r')
	case '\t':
		return append(dst, '\\', 't')
	}
	return append(dst, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
}

// AppendRecord appends a record as a diff shows it: $seq, $ts, $node, $tag if
// asked for, $priority and $fair_key if set, data, meta if asked for.
func AppendRecord(dst []byte, r *Record, includeTags, includeMeta bool) []byte {
	return appendRecord(dst, r, includeTags, true, includeMeta, nil)
}

func appendRecord(dst []byte, r *Record, tags, data, meta bool, times *Times) []byte {
	dst = append(dst, `{"$seq":`...)
	dst = appendUint(dst, r.Seq)
	dst = append(dst, `,"$ts":`...)
	dst = times.appendStored(dst, r.TS)
	if r.HasNode {
		dst = append(dst, `,"$node":`...)
		dst = AppendString(dst, r.Node)
	}
	if tags && r.HasTag {
		dst = append(dst, `,"$tag":`...)
		dst = AppendString(dst, r.Tag)
	}
	dst = appendFlow(dst, r)
	if data {
		dst = append(dst, `,"data":`...)
		dst = append(dst, r.Data...)
	}
	if meta && len(r.Meta) > 0 {
		dst = append(dst, `,"meta":`...)
		dst = append(dst, r.Meta...)
	}
	return append(dst, '}')
}

// appendFlow appends the tier and the fair key of a record, if it has them.
func appendFlow(dst []byte, r *Record) []byte {
	if r.Tier != TierNormal {
		dst = append(dst, `,"$priority":"`...)
		dst = append(append(dst, r.Tier.String()...), '"')
	}
	if len(r.FairKey) > 0 {
		dst = append(dst, `,"$fair_key":`...)
		dst = AppendString(dst, r.FairKey)
	}
	return dst
}

// AppendLeaseID appends the id as the string lease_<hex>.
func AppendLeaseID(dst []byte, id uint64) []byte {
	dst = append(dst, `"`+leasePrefix...)
	return append(appendHex(dst, id), '"')
}

// AppendJob appends a job as a claim shows it: without $node, and with what the worker
// needs to settle it.
func AppendJob(dst []byte, j *Job, times *Times) []byte {
	dst = append(dst, '{')
	dst = appendJobMembers(dst, j, times)
	return append(dst, '}')
}

func appendJobMembers(dst []byte, j *Job, times *Times) []byte {
	dst = append(dst, `"$seq":`...)
	dst = appendUint(dst, j.Seq)
	dst = append(dst, `,"lease_id":`...)
	dst = AppendLeaseID(dst, j.LeaseID)
	dst = append(dst, `,"deadline":`...)
	dst = times.appendDeadline(dst, j.Deadline)
	dst = append(dst, `,"$ts":`...)
	dst = times.appendStored(dst, j.TS)
	if j.HasTag {
		dst = append(dst, `,"$tag":`...)
		dst = AppendString(dst, j.Tag)
	}
	dst = appendFlow(dst, &j.Record)
	dst = append(dst, `,"deliveries":`...)
	dst = appendUint(dst, j.Deliveries)
	dst = append(dst, `,"data":`...)
	dst = append(dst, j.Data...)
	if len(j.Meta) > 0 {
		dst = append(dst, `,"meta":`...)
		dst = append(dst, j.Meta...)
	}
	return dst
}

// Performance is the object of that name in a success body.
type Performance struct {
	TotalMS    float64 // server_total_ms
	HasAppend  bool
	AppendMS   float64 // wal_append_ms
	HasSync    bool
	SyncMS     float64 // fsync_ms
	HasScanned bool
	Scanned    int     // records_scanned
	ThrottleMS float64 // throttle_wait_ms; left out if 0
	HasWait    bool
	WaitMS     float64 // claim_wait_ms
}

// AppendPerformance appends the object itself, without its name.
func AppendPerformance(dst []byte, p *Performance) []byte {
	dst = append(dst, `{"server_total_ms":`...)
	dst = appendMS(dst, p.TotalMS)
	if p.HasAppend {
		dst = append(dst, `,"wal_append_ms":`...)
		dst = appendMS(dst, p.AppendMS)
	}
	if p.HasWait {
		dst = append(dst, `,"claim_wait_ms":`...)
		dst = appendMS(dst, p.WaitMS)
	}
	if p.HasSync {
		dst = append(dst, `,"fsync_ms":`...)
		dst = appendMS(dst, p.SyncMS)
	}
	if p.HasScanned {
		dst = append(dst, `,"records_scanned":`...)
		dst = appendInt(dst, int64(p.Scanned))
	}
	if p.ThrottleMS > 0 {
		dst = append(dst, `,"throttle_wait_ms":`...)
		dst = appendMS(dst, p.ThrottleMS)
	}
	return append(dst, '}')
}

// appendEnd closes a success body with its performance.
func appendEnd(dst []byte, p *Performance) []byte {
	dst = append(dst, `,"performance":`...)
	dst = AppendPerformance(dst, p)
	return append(dst, '}')
}

// appendMS appends milliseconds with three decimals; an insane duration becomes 0.
func appendMS(dst []byte, ms float64) []byte {
	if !(ms > 0 && ms < math.MaxInt64/2000) {
		return append(dst, "0.0"...)
	}
	us := uint64(ms*1000 + 0.5)
	dst = appendUint(dst, us/1000)
	us %= 1000
	return append(dst, '.', byte('0'+us/100), byte('0'+us/10%10), byte('0'+us%10))
}

func appendUints(dst []byte, values []uint64) []byte {
	dst = append(dst, '[')
	for i, v := range values {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = appendUint(dst, v)
	}
	return append(dst, ']')
}

// appendNamed appends ,"name":v for a name that needs no escape.
func appendNamed(dst []byte, name string, v uint64) []byte {
	dst = append(dst, ',', '"')
	dst = append(dst, name...)
	dst = append(dst, '"', ':')
	return appendUint(dst, v)
}

func appendNamedBool(dst []byte, name string, v bool) []byte {
	dst = append(dst, ',', '"')
	dst = append(dst, name...)
	dst = append(dst, '"', ':')
	return strconv.AppendBool(dst, v)
}

// AppendError appends the canonical error body of contract 3.
func AppendError(dst []byte, e *Error) []byte {
	dst = append(dst, `{"error":{`...)
	return append(appendErrorMembers(dst, e), '}', '}')
}

func appendErrorMembers(dst []byte, e *Error) []byte {
	dst = append(dst, `"code":`...)
	dst = AppendString(dst, string(e.Code))
	dst = append(dst, `,"message":`...)
	message := e.Message
	if message == "" {
		message = string(e.Code)
	}
	dst = AppendString(dst, message)
	names := make([]string, 0, len(e.Detail)+1)
	for name := range e.Detail {
		names = append(names, name)
	}
	if e.RetryAfter > 0 {
		names = append(names, DetailRetryAfter)
	}
	if len(names) == 0 {
		return dst
	}
	slices.Sort(names)
	sep := `,"detail":{`
	for _, name := range names {
		dst = append(dst, sep...)
		dst = AppendString(dst, name)
		dst = append(dst, ':')
		if name == DetailRetryAfter {
			dst = appendInt(dst, e.RetryAfter.Milliseconds())
		} else {
			dst = appendDetail(dst, e.Detail[name])
		}
		sep = ","
	}
	return append(dst, '}')
}

// appendDetail appends one value of a detail; strings keep < > & as they are.
func appendDetail(dst []byte, v any) []byte {
	switch v := v.(type) {
	case string:
		return AppendString(dst, v)
	case []string:
		return appendStrings(dst, v)
	}
	text, err := json.Marshal(v)
	if err != nil {
		return append(dst, "null"...)
	}
	return append(dst, text...)
}

func appendStrings(dst []byte, values []string) []byte {
	dst = append(dst, '[')
	for i, v := range values {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = AppendString(dst, v)
	}
	return append(dst, ']')
}
