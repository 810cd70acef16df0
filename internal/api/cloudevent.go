package api

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"
)

// The prefix of the headers that carry an event's attributes, in the form of net/http, and
// what is said in the attributes of a record that did not come as an event.
const (
	EventHeader = "Ce-"
	eventType   = "weir.record"
	eventSource = "/v0/topics/"
)

// maxAttributes is how many attributes an event may have, besides its data.
const maxAttributes = MaxMetaKeys

// Event is the envelope of a CloudEvent 1.0, which is all but its data.
type Event struct {
	// Attributes is a compact JSON object of them, without data and data_base64.
	Attributes  []byte
	ContentType string // the attribute datacontenttype; empty if it has none
}

var requiredAttributes = []string{"specversion", "id", "source", "type"}

// event is one that is being read.
type event struct {
	names  []string
	given  []string // those of attributes that are not null
	attrs  []byte   // the members read so far, without braces
	kind   string   // datacontenttype
	data   []byte
	base64 bool // data is the JSON string of data_base64
	has    bool // data was there
}

// readEvent reads the attributes of a stored event; nil if they are not those of one.
func readEvent(object []byte) *Event {
	var ev event
	s := scanner{b: object, index: -1}
	s.event(&ev)
	if s.end(); s.err != nil || ev.has {
		return nil
	}
	return &Event{Attributes: object, ContentType: ev.kind}
}

// DecodeEvents reads a body of structured mode into w: an event, or an array of events for
// a batch.
func DecodeEvents(body []byte, batch bool, lim *Limits, w *WriteRequest) error {
	w.Reset()
	s := scanner{b: body, index: -1, depth: dataDepth - 1}
	if batch {
		s.depth--
	}
	var meta []byte
	var ev event
	read := func() {
		ev = event{names: ev.names[:0], given: ev.given[:0], attrs: ev.attrs[:0]}
		s.event(&ev)
		if s.err != nil || len(w.Records) > lim.MaxBatchRecords {
			return // of a batch that is too large the rest is only checked
		}
		r := Record{Data: ev.data}
		encoding := ""
		switch {
		case !ev.has:
			r.Data, encoding = []byte("null"), EncodingNone
		case ev.base64:
			encoding = EncodingBase64
		}
		if room := len(ev.attrs) + metaRoom; cap(meta)-len(meta) < room {
			meta = make([]byte, 0, max(room, min(len(body), 64<<10)))
		}
		r.Meta, meta = cut(meta, appendEventMeta(meta, ev.attrs, encoding))
		w.Records = append(w.Records, r)
	}
	s.peek()
	switch {
	case !batch:
		read()
	case !s.open('['):
		return Errorf(CodeInvalidRequest, "a batch must be an array of events (at byte %d)", s.i)
	default:
		for i := 0; s.element(); i++ {
			s.prefix = fmt.Sprintf("[%d].", i)
			read()
		}
	}
	if s.end(); s.err != nil {
		return s.err
	}
	return nil
}

func appendEventMeta(dst, attrs []byte, encoding string) []byte {
	dst = append(dst, `{"`+MetaCloudEvent+`":{`...)
	dst = append(append(dst, attrs...), '}')
	return append(appendEncoding(dst, encoding), '}')
}

// event reads an event in JSON.
func (s *scanner) event(ev *event) {
	if !s.open('{') {
		if s.err == nil {
			s.err = Errorf(CodeInvalidRequest, "an event must be a JSON object (at byte %d)", s.i)
		}
		return
	}
	for {
		name, ok := s.member()
		if !ok {
			break
		}
		n := string(name)
		if slices.Contains(ev.names, n) {
			s.err = Errorf(CodeInvalidRequest, "field %q is there twice; send it once (again at byte %d)", s.field(n), s.i)
			return
		}
		if ev.names = append(ev.names, n); len(ev.names) > maxAttributes+1 {
			s.err = Errorf(CodeInvalidRequest, "the event has more than %d attributes (at byte %d)", maxAttributes, s.i)
			return
		}
		switch n {
		case "data":
			s.oneData(ev)
			ev.data, ev.has = s.raw(), true
		case "data_base64":
			s.oneData(ev)
			if s.null() {
				continue
			}
			at := s.i
			text := s.text(n, "a string in base64")
			if s.err == nil && !isBase64(text) {
				s.i = at
				s.wrong(n, "standard base64 with padding, on one line")
			}
			if ev.data = s.b[at:s.i:s.i]; len(text) != len(ev.data)-len(`""`) { // it had escapes
				ev.data = append(append([]byte{'"'}, text...), '"')
			}
			ev.base64, ev.has = true, true
		default:
			s.attribute(ev, n)
		}
	}
	s.checkEvent(ev)
}

// isBase64 reports whether text is what a base64.Encoding writes. Its decoder passes over the
// ends of lines.
func isBase64(text []byte) bool {
	if bytes.ContainsAny(text, "\r\n") {
		return false
	}
	strict := base64.StdEncoding.Strict()
	var piece [3 << 10]byte
	for ; len(text) > 4<<10; text = text[4<<10:] {
		if n, err := strict.Decode(piece[:], text[:4<<10]); err != nil || n < len(piece) {
			return false
		}
	}
	_, err := strict.Decode(piece[:], text)
	return err == nil
}

func (s *scanner) oneData(ev *event) {
	if ev.has && s.err == nil {
		s.err = Errorf(CodeInvalidRequest, "the event has both data and data_base64; send one (at byte %d)", s.i)
	}
}

// attribute reads the value of an attribute: a string, an integer or a boolean; null is
// none.
func (s *scanner) attribute(ev *event, name string) {
	switch {
	case s.err != nil || s.null():
		return
	case !validAttribute(name):
		s.err = Errorf(CodeInvalidRequest, "field %.100q is no name of an attribute, which has only a-z and 0-9 (its value is at byte %d)", s.field(name), s.i)
		return
	}
	at := s.i
	value := s.raw()
	if s.err != nil {
		return
	}
	s.i, at = at, s.i
	switch c := value[0]; {
	case c == '"' && knownAttribute(name):
		text, _ := decodeText(value)
		s.checkText(ev, name, string(text))
	case c == '"':
	case knownAttribute(name) || c == '{' || c == '[':
		s.wrong(name, "a string")
	case c != 't' && c != 'f' && strings.ContainsAny(string(value), ".eE"):
		s.wrong(name, "a string, an integer or a boolean")
	}
	s.i = at
	ev.add(name, value)
}

// add appends an attribute whose value is JSON.
func (ev *event) add(name string, value []byte) {
	if len(ev.attrs) > 0 {
		ev.attrs = append(ev.attrs, ',')
	}
	ev.given = append(ev.given, name)
	ev.attrs = append(append(append(ev.attrs, '"'), name...), '"', ':')
	ev.attrs = append(ev.attrs, value...)
}

// checkText checks the value of an attribute that is a string.
func (s *scanner) checkText(ev *event, name, value string) {
	switch name {
	case "specversion":
		if value != "1.0" {
			s.wrong(name, `"1.0"`)
		}
	case "id", "source", "type", "subject", "dataschema":
		if value == "" {
			s.wrong(name, "a string that is not empty")
		}
	case "time":
		if _, err := time.Parse(time.RFC3339, value); err != nil {
			s.wrong(name, "a time as in RFC 3339")
		}
	case "datacontenttype":
		if media, _ := MediaType(value); media == "" {
			s.wrong(name, "a media type")
		}
		ev.kind = value
	}
}

func (s *scanner) checkEvent(ev *event) {
	for _, name := range requiredAttributes {
		if s.err == nil && !slices.Contains(ev.given, name) {
			s.missing(name, "a string")
		}
	}
}

func knownAttribute(name string) bool {
	switch name {
	case "specversion", "id", "source", "type", "subject", "dataschema", "time", "datacontenttype":
		return true
	}
	return false
}

func validAttribute(name string) bool {
	for i := range len(name) {
		if c := name[i]; (c < 'a' || c > 'z') && (c < '0' || c > '9') {
			return false
		}
	}
	return name != "" && name != "data"
}

// DecodeEvent reads a body of binary mode into w: the attributes are in the headers, and
// the body is the data, which has the type contentType.
func DecodeEvent(body []byte, contentType string, header map[string][]string, lim *Limits, w *WriteRequest) error {
	r := w.one()
	attrs, err := headerAttributes(contentType, header)
	if err != nil {
		return err
	}
	media, charset := MediaType(contentType)
	encoding := ""
	switch {
	case len(body) == 0:
		r.Data, encoding = []byte("null"), EncodingNone
	case contentType == "" || isJSONType(media) && IsUTF8(charset):
		s := scanner{b: body, index: -1, depth: dataDepth}
		s.peek()
		r.Data = s.raw()
		if s.endOfValue(); s.err != nil {
			return s.err
		}
	case len(body) >= lim.MaxRecordBytes:
		return errPayload(len(body), len(body)+len(`""`), lim)
	case isTextType(media) && IsUTF8(charset) && notUTF8(body) < 0:
		r.Data = AppendString(make([]byte, 0, len(body)+len(body)>>3), body)
	default:
		r.Data, encoding = appendBase64(nil, body), EncodingBase64
	}
	r.Meta = appendEventMeta(nil, attrs, encoding)
	return nil
}

// dataDepth is how deep data is nested in a write, and the same in what reads show.
const dataDepth = 3

// endOfValue checks that only white space follows a value that is a whole body.
func (s *scanner) endOfValue() {
	if s.err == nil {
		if s.peek(); s.i < len(s.b) {
			s.fail(s.i, "unexpected bytes after the value")
		}
	}
}

// headerAttributes makes the members of an event's attributes of the headers of binary
// mode, in the order of their names.
func headerAttributes(contentType string, header map[string][]string) ([]byte, error) {
	var ev event
	s := scanner{index: -1, prefix: "ce-"}
	var names []string
	for name := range header {
		if len(name) > len(EventHeader) && name[:len(EventHeader)] == EventHeader {
			names = append(names, name)
		}
	}
	if len(names) >= maxAttributes { // the type of the data is one more
		return nil, Errorf(CodeInvalidRequest, "the event has more than %d attributes", maxAttributes)
	}
	slices.Sort(names)
	set := func(name, value string) error {
		s.checkText(&ev, name, value)
		if s.err != nil {
			return Errorf(CodeInvalidRequest, "header %q must be %s", "ce-"+name, acceptedText(name))
		}
		ev.names = append(ev.names, name)
		ev.add(name, AppendString(nil, value))
		return nil
	}
	for _, h := range names {
		name := strings.ToLower(h[len(EventHeader):])
		if name == "datacontenttype" {
			continue // it is the Content-Type
		}
		if !validAttribute(name) {
			return nil, Errorf(CodeInvalidRequest, "header %.100q is no attribute, whose name has only a-z and 0-9", h)
		}
		value := unescapeHeader(header[h][0])
		if at := notUTF8([]byte(value)); at >= 0 {
			return nil, Errorf(CodeInvalidRequest, "header %q is not UTF-8", "ce-"+name)
		}
		if err := set(name, value); err != nil {
			return nil, err
		}
	}
	if contentType != "" {
		if err := set("datacontenttype", contentType); err != nil {
			return nil, Errorf(CodeInvalidRequest, "Content-Type %.100q is no media type", contentType)
		}
	}
	for _, name := range requiredAttributes {
		if !slices.Contains(ev.names, name) {
			return nil, Errorf(CodeInvalidRequest, "header %q is missing; an event has ce-specversion, ce-id, ce-source and ce-type", "ce-"+name)
		}
	}
	return ev.attrs, nil
}

func acceptedText(name string) string {
	switch name {
	case "specversion":
		return `"1.0"`
	case "time":
		return "a time as in RFC 3339"
	}
	return "a text that is not empty"
}

// unescapeHeader undoes the percent-encoding of a header of binary mode; what is none is
// taken as it stands.
func unescapeHeader(value string) string {
	if text, err := url.PathUnescape(value); err == nil {
		return text
	}
	return value
}

// appendHeaderText appends a text as a header of binary mode has it.
func appendHeaderText(dst []byte, text []byte) []byte {
	for _, c := range text {
		if c > ' ' && c < 0x7f && c != '"' && c != '%' {
			dst = append(dst, c)
		} else {
			dst = append(dst, '%', "0123456789ABCDEF"[c>>4], "0123456789ABCDEF"[c&15])
		}
	}
	return dst
}

// EventHeaders calls set for each attribute of the record as an event in binary mode; the
// Content-Type is that of its payload.
func EventHeaders(topic string, r *Record, p *Payload, set func(name, value string)) {
	attrs := appendAttributes(nil, topic, r, p)
	s := scanner{b: append(append([]byte{'{'}, attrs...), '}'), index: -1}
	s.object(nil, func(name []byte) bool {
		n := string(name)
		value := s.raw()
		if text, ok := decodeText(value); ok {
			value = text
		}
		if n != "datacontenttype" {
			set(EventHeader+n, string(appendHeaderText(nil, value)))
		}
		return true
	})
}

// AppendEvent appends the record as an event in JSON: the one that it came as, or one that
// is made of it.
func AppendEvent(dst []byte, topic string, r *Record) []byte {
	p := ReadPayload(r)
	dst = append(dst, '{')
	dst = appendAttributes(dst, topic, r, &p)
	switch p.encoding {
	case EncodingNone:
	case EncodingBase64:
		dst = append(append(dst, `,"data_base64":`...), r.Data...)
	default:
		dst = append(append(dst, `,"data":`...), r.Data...)
	}
	return append(dst, '}')
}

// AppendNextEvent appends the next event of a batch, which begins with its bracket.
func AppendNextEvent(dst []byte, topic string, r *Record) []byte {
	return AppendEvent(appendComma(dst), topic, r)
}

// appendAttributes appends the members that are the attributes of a record.
func appendAttributes(dst []byte, topic string, r *Record, p *Payload) []byte {
	if p.Event != nil {
		return append(dst, p.Event.Attributes[1:len(p.Event.Attributes)-1]...)
	}
	dst = append(dst, `"specversion":"1.0","id":"`...)
	dst = appendUint(dst, r.Seq)
	dst = AppendString(append(dst, `","source":`...), eventSource+topic)
	dst = append(dst, `,"type":"`+eventType+`","time":"`...)
	dst = time.UnixMilli(r.TS).UTC().AppendFormat(dst, "2006-01-02T15:04:05.000Z07:00")
	return AppendString(append(dst, `","datacontenttype":`...), p.ContentType)
}
