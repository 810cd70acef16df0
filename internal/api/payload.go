package api

import (
	"encoding/base64"
	"mime"
	"slices"
	"strings"
)

// Members of meta that say what data is of, if it is not plain JSON. Whoever writes JSON
// may set them, too, and so copies a record with all that it means.
const (
	// MetaContentType is the Content-Type of a payload that is not JSON.
	MetaContentType = "$content_type"
	// MetaEncoding says how data has the bytes, if that is not evident; the library has
	// used it before the server did.
	MetaEncoding = "weir-encoding"
	// MetaCloudEvent is an object with the attributes of a CloudEvent.
	MetaCloudEvent = "$cloudevent"
)

// Values of MetaEncoding.
const (
	EncodingBase64 = "base64"    // data is a string: the bytes in standard base64
	EncodingLine   = "json-line" // data is any value: its text with a line feed behind it
	EncodingNone   = "none"      // an event without data; data is null
)

// Content types of answers.
const (
	TypeJSON   = "application/json"
	TypeBytes  = "application/octet-stream"
	TypeEvent  = "application/cloudevents+json"
	TypeEvents = "application/cloudevents-batch+json"
)

// metaRoom is about what the meta of a payload needs.
const metaRoom = 96

// one resets the request to a single empty record.
func (w *WriteRequest) one() *Record {
	w.Reset()
	w.Records = append(w.Records, Record{})
	return &w.Records[0]
}

// DecodeBytes makes a write of one record whose payload is body, any bytes at all.
func DecodeBytes(body []byte, contentType string, lim *Limits, w *WriteRequest) error {
	r := w.one()
	n := base64.StdEncoding.EncodedLen(len(body)) + len(`""`)
	if n > lim.MaxRecordBytes {
		return errPayload(len(body), n, lim)
	}
	w.scratch = slices.Grow(w.scratch[:0], n+metaRoom+len(contentType))
	r.Data, w.scratch = cut(w.scratch, appendBase64(w.scratch, body))
	r.Meta, w.scratch = cut(w.scratch, appendPayloadMeta(w.scratch, contentType, EncodingBase64))
	return nil
}

// DecodeText makes a write of one record whose payload is body, a text in UTF-8.
func DecodeText(body []byte, contentType string, lim *Limits, w *WriteRequest) error {
	r := w.one()
	if n := len(body) + len(`""`); n > lim.MaxRecordBytes {
		return errPayload(len(body), n, lim)
	}
	if at := notUTF8(body); at >= 0 {
		return Errorf(CodeInvalidRequest, "the body is not UTF-8 at byte %d; send other bytes as %s", at, TypeBytes)
	}
	w.scratch = slices.Grow(w.scratch[:0], len(body)+len(body)>>3+metaRoom+len(contentType))
	r.Data, w.scratch = cut(w.scratch, AppendString(w.scratch, body))
	r.Meta, w.scratch = cut(w.scratch, appendPayloadMeta(w.scratch, contentType, ""))
	return nil
}

func errPayload(body, n int, lim *Limits) error {
	return Errorf(CodeRecordTooLarge, "the payload of %d bytes is %d bytes of JSON; %d are accepted", body, n, lim.MaxRecordBytes)
}

// cut returns what was appended to before, which is the front of after, and after itself.
func cut(before, after []byte) (added, all []byte) {
	return after[len(before):len(after):len(after)], after
}

func appendBase64(dst, payload []byte) []byte {
	dst = append(dst, '"')
	dst = base64.StdEncoding.AppendEncode(dst, payload)
	return append(dst, '"')
}

func appendPayloadMeta(dst []byte, contentType, encoding string) []byte {
	dst = append(dst, `{"`+MetaContentType+`":`...)
	dst = AppendString(dst, contentType)
	return append(appendEncoding(dst, encoding), '}')
}

// appendEncoding appends the member of an encoding behind another member.
func appendEncoding(dst []byte, encoding string) []byte {
	if encoding == "" {
		return dst
	}
	dst = append(dst, `,"`+MetaEncoding+`":"`...)
	return append(append(dst, encoding...), '"')
}

// notUTF8 returns where b stops being UTF-8, -1 if it does not.
func notUTF8(b []byte) int {
	for i := 0; i < len(b); {
		if b[i] < 0x80 {
			i++
			continue
		}
		n := runeLen(b[i:])
		if n == 0 {
			return i
		}
		i += n
	}
	return -1
}

// MediaType returns the type of a Content-Type in lower case, without parameters, and the
// charset among these; both are empty if it cannot be read.
func MediaType(contentType string) (media, charset string) {
	media, params, err := mime.ParseMediaType(contentType)
	if err != nil || strings.ContainsFunc(contentType, notInHeader) {
		return "", ""
	}
	return media, strings.ToLower(params["charset"])
}

// notInHeader reports whether no header can have the character.
func notInHeader(c rune) bool { return c < ' ' && c != '\t' || c == 0x7f }

// IsUTF8 reports whether a charset, as MediaType returns it, is UTF-8 or a part of it.
func IsUTF8(charset string) bool {
	return charset == "" || charset == "utf-8" || charset == "utf8" || charset == "us-ascii"
}

func isJSONType(media string) bool {
	return media == TypeJSON || media == "text/json" || strings.HasSuffix(media, "+json")
}

func isTextType(media string) bool {
	return strings.HasPrefix(media, "text/") || media == "application/xml" || strings.HasSuffix(media, "+xml")
}

// Payload is what a record holds, as the bytes that its writer sent.
type Payload struct {
	ContentType string // of Body; empty if there is none
	Body        []byte // may be borrowed from the record
	Event       *Event // nil: the record did not come as a CloudEvent

	encoding string
	kind     string // the MetaContentType
}

// ReadPayload returns the payload of a record. What meta says and data does not bear out
// is passed over: data is then JSON.
func ReadPayload(r *Record) Payload {
	var p Payload
	p.readMeta(r.Meta)
	kind := p.kind
	if p.Event != nil {
		kind = p.Event.ContentType
	}
	media, _ := MediaType(kind)
	if kind != "" && media == "" {
		kind = TypeBytes // no header can have it
	}
	p.ContentType = kind
	if p.encoding == EncodingNone && p.Event != nil {
		return p
	}
	text, isText := decodeText(r.Data)
	if p.encoding == EncodingBase64 && isText {
		if body, err := base64.StdEncoding.Strict().DecodeString(string(text)); err == nil {
			if p.Body = body; kind == "" {
				p.ContentType = TypeBytes
			}
			return p
		}
	}
	if kind == "" {
		p.ContentType = TypeJSON
	}
	if p.encoding != EncodingLine {
		p.encoding = ""
	}
	asJSON := kind == "" || p.Event != nil && isJSONType(media)
	switch {
	case isText && !asJSON:
		p.Body = text
	case p.encoding == EncodingLine && !isText:
		p.Body = append(slices.Clip(r.Data), '\n')
	default:
		p.Body = r.Data
	}
	return p
}

// readMeta finds the members of meta that are about the payload. A router may have put the
// record's own meta into a member of another.
func (p *Payload) readMeta(meta []byte) {
	if len(meta) <= len("{}") {
		return
	}
	s := scanner{b: meta, index: -1}
	s.object(nil, func(name []byte) bool {
		isString := s.i < len(s.b) && s.b[s.i] == '"'
		switch {
		case isString && string(name) == MetaContentType:
			p.kind = string(s.text(MetaContentType, acceptString))
		case isString && string(name) == MetaEncoding:
			p.encoding = string(s.text(MetaEncoding, acceptString))
		case string(name) == MetaCloudEvent:
			p.Event = readEvent(s.raw())
		case string(name) == originalKey:
			p.readMeta(s.raw())
		default:
			return false
		}
		return true
	})
}

// decodeText returns the text of a JSON string; false if data is another value.
func decodeText(data []byte) ([]byte, bool) {
	if len(data) < 2 || data[0] != '"' {
		return nil, false
	}
	s := scanner{b: data, index: -1}
	text := s.text("data", acceptString)
	return text, s.err == nil
}
