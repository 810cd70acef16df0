package queue

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/internal/api"
)

// The member of meta that says how data encodes the payload, if that is not evident.
const (
	headerEncoding = api.MetaEncoding
	encodingBase64 = api.EncodingBase64
	encodingLine   = api.EncodingLine
	encodingNone   = api.EncodingNone
)

// What a message has to leave free in meta for its dead letter.
const (
	deadMetaKeys  = 12
	deadMetaBytes = 4 << 10
)

// encode makes the record of a message.
func (b *Backend) encode(m *backend.Message) (api.Record, error) {
	headers := maps.Clone(m.Headers)
	if headers == nil {
		headers = make(map[string]string, 2)
	}
	if !m.Priority.Valid() {
		return api.Record{}, fmt.Errorf("priority %d is unknown; use one from Background to Critical", m.Priority)
	}
	if m.Priority != backend.Normal {
		headers[backend.HeaderPriority] = m.Priority.String()
	}
	if m.FairKey != "" {
		headers[backend.HeaderFairKey] = m.FairKey
	}
	if !m.Deadline.IsZero() {
		headers[backend.HeaderDeadline] = backend.FormatDeadline(m.Deadline)
	}
	r, err := encodeRecord(m.Data, headers)
	if err != nil {
		return r, err
	}
	if m.IsDelayed() {
		delay, err := m.DueIn(time.Now())
		if err != nil {
			return r, err
		}
		r.Delay = uint64(delay.Milliseconds())
	}
	limits := b.opt.Limits
	limits.MaxMetaBytes -= deadMetaBytes
	switch {
	case len(headers) > api.MaxMetaKeys-deadMetaKeys:
		return r, fmt.Errorf("%w: field Headers: %d with weir's own; a weir queue takes %d", backend.ErrTooLarge, len(headers), api.MaxMetaKeys-deadMetaKeys)
	case len(r.Meta) > limits.MaxMetaBytes:
		return r, fmt.Errorf("%w: field Headers: %d bytes as JSON, with weir's own; a weir queue takes %d", backend.ErrTooLarge, len(r.Meta), limits.MaxMetaBytes)
	}
	if err := api.CheckWrite(&api.WriteRequest{Records: []api.Record{r}}, &limits); err != nil {
		return r, translate(err, true)
	}
	return r, nil
}

// encodeRecord makes a record of a payload and headers; it takes those that the record
// has fields for out of headers.
func encodeRecord(data []byte, headers map[string]string) (api.Record, error) {
	var r api.Record
	delete(headers, headerEncoding)
	if tag, ok := headers[backend.HeaderTag]; ok {
		r.Tag, r.HasTag = []byte(tag), true
		delete(headers, backend.HeaderTag)
	}
	line := data
	if n := len(data) - 1; n > 0 && data[n] == '\n' {
		line = data[:n]
	}
	if t, ok := api.ParseTier(headers[backend.HeaderPriority]); ok {
		r.Tier = t
		delete(headers, backend.HeaderPriority)
	}
	if key := headers[backend.HeaderFairKey]; key != "" && len(key) <= api.MaxFairKeyBytes && utf8.ValidString(key) {
		r.FairKey = []byte(key)
		delete(headers, backend.HeaderFairKey)
	}
	_, isEvent := headers[api.MetaCloudEvent]
	_, asIs := headers[backend.HeaderJSON]
	delete(headers, backend.HeaderJSON)
	switch {
	case isEvent && len(data) == 0:
		r.Data, headers[headerEncoding] = []byte("null"), encodingNone
	case asIs && json.Valid(data):
		r.Data = slices.Clone(data)
	case len(line) > 0 && line[0] != '"' && api.StoredAsIs(line): // a string could be taken for text
		r.Data = slices.Clone(line)
		if len(line) < len(data) {
			headers[headerEncoding] = encodingLine
		}
	default:
		if r.Data = encodeText(data); r.Data == nil {
			r.Data = append(base64.StdEncoding.AppendEncode([]byte{'"'}, data), '"')
			headers[headerEncoding] = encodingBase64
		}
	}
	var err error
	r.Meta, err = encodeMeta(headers)
	return r, err
}

// encodeText returns data as a JSON string, nil if it is not UTF-8, or shorter in base64. That
// is found out first: escaped, a message of control characters takes six times its room.
func encodeText(data []byte) []byte {
	if !utf8.Valid(data) || shorterInBase64(data) {
		return nil
	}
	return api.AppendString(make([]byte, 0, len(data)+2), data)
}

// shorterInBase64 reports whether base64, with a third more, is shorter than text in which a
// control character other than white space takes six bytes.
func shorterInBase64(data []byte) bool {
	controls := 0
	for _, c := range data {
		if c < ' ' && c != '\n' && c != '\t' && c != '\r' {
			if controls++; 15*controls > len(data) {
				return true
			}
		}
	}
	return false
}

// encodeMeta encodes the headers as an object, sorted by name; nil if there are none.
func encodeMeta(headers map[string]string) ([]byte, error) {
	if len(headers) == 0 {
		return nil, nil
	}
	var few [8]string
	names := few[:0]
	size := len("{}")
	for name, v := range headers {
		names = append(names, name)
		size += len(name) + len(v) + len(`"":"",`)
	}
	slices.Sort(names)
	meta := append(make([]byte, 0, size), '{')
	for i, name := range names {
		if !utf8.ValidString(name) || !utf8.ValidString(headers[name]) {
			return nil, fmt.Errorf("header %q is not UTF-8, which a weir queue requires; encode it", name)
		}
		if i > 0 {
			meta = append(meta, ',')
		}
		meta = append(api.AppendString(meta, name), ':')
		if name == api.MetaCloudEvent && api.Validate([]byte(headers[name])) == nil {
			var object bytes.Buffer
			if err := json.Compact(&object, []byte(headers[name])); err != nil {
				return nil, err
			}
			meta = append(meta, object.Bytes()...)
			continue
		}
		meta = api.AppendString(meta, headers[name])
	}
	return append(meta, '}'), nil
}

// changeMeta returns meta without some of its members and with those of set; the others stay as
// they are, whatever their type.
func changeMeta(meta []byte, set map[string]string, without ...string) ([]byte, error) {
	members := make(map[string]json.RawMessage, len(set))
	if len(meta) > 0 {
		if err := json.Unmarshal(meta, &members); err != nil {
			return nil, err
		}
	}
	for _, name := range without {
		delete(members, name)
	}
	for name, v := range set {
		members[name] = api.AppendString(nil, v)
	}
	if len(members) == 0 {
		return nil, nil
	}
	out := []byte{'{'}
	for i, name := range slices.Sorted(maps.Keys(members)) {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(append(api.AppendString(out, name), ':'), members[name]...)
	}
	return append(out, '}'), nil
}

// decode turns a record into payload and headers, which include the record's tag, tier
// and fair key but not weir-encoding.
func decode(r *api.Record) ([]byte, map[string]string) {
	headers := api.MetaStrings(r.Meta)
	encoding := headers[headerEncoding]
	delete(headers, headerEncoding)
	set := func(name, v string) {
		if headers == nil {
			headers = make(map[string]string, 1)
		}
		headers[name] = v
	}
	if r.HasTag {
		set(backend.HeaderTag, string(r.Tag))
	}
	if r.Tier != api.TierNormal {
		set(backend.HeaderPriority, r.Tier.String())
	}
	if len(r.FairKey) > 0 {
		set(backend.HeaderFairKey, string(r.FairKey))
	}
	if len(headers) == 0 {
		headers = nil
	}
	return decodeData(r.Data, encoding), headers
}

func decodeData(data []byte, encoding string) []byte {
	if encoding == encodingNone {
		return nil
	}
	if len(data) == 0 || data[0] != '"' {
		if encoding == encodingLine {
			return append(slices.Clip(data), '\n')
		}
		return data
	}
	text, ok := unquote(data)
	if !ok {
		return data // no server sends this; better than nothing
	}
	if encoding == encodingBase64 {
		if raw, err := base64.StdEncoding.AppendDecode(nil, text); err == nil {
			return raw
		}
	}
	return text
}

// unquote returns the text of a JSON string, which may be part of data.
func unquote(data []byte) (text []byte, ok bool) {
	if n := len(data) - 1; n > 0 && data[n] == '"' && bytes.IndexByte(data, '\\') < 0 {
		return data[1:n:n], true
	}
	var s string
	err := json.Unmarshal(data, &s)
	return []byte(s), err == nil
}

func formatSeq(seq uint64) string { return strconv.FormatUint(seq, 10) }

// parseSeq reads the ID of a message.
func parseSeq(id string) (uint64, bool) {
	seq, err := strconv.ParseUint(id, 10, 64)
	return seq, err == nil && seq > 0
}

// at is the time of a record.
func at(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms)
}
