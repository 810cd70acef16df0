package push

import (
	"encoding/base64"
	"encoding/json"
	"strconv"

	"github.com/weirmq/weir/internal/api"
)

// AppendID appends the event id for the positions of all topics of a stream,
// whose names ascend: base64url, without padding, of the JSON object name →
// position. scratch is used for the JSON and returned for the next call.
func AppendID(dst, scratch []byte, n int, at func(i int) (string, uint64)) (id, _ []byte) {
	js := append(scratch[:0], '{')
	for i := range n {
		if i > 0 {
			js = append(js, ',')
		}
		name, pos := at(i)
		js = api.AppendString(js, name)
		js = append(js, ':')
		js = strconv.AppendUint(js, pos, 10)
	}
	js = append(js, '}')
	return base64.RawURLEncoding.AppendEncode(dst, js), js
}

// maxID is the longest id that is looked at: 256 names of 255 bytes, their
// positions, and base64.
const maxID = 128 << 10

// ParseID reads an event id that a client sent back; ok is false for anything
// that AppendID would not have made.
func ParseID(id string) (positions map[string]uint64, ok bool) {
	if id == "" || len(id) > maxID {
		return nil, false
	}
	js, err := base64.RawURLEncoding.DecodeString(id)
	if err != nil {
		return nil, false
	}
	var at map[string]*uint64 // a pointer tells null from 0
	if err := json.Unmarshal(js, &at); err != nil || at == nil {
		return nil, false
	}
	positions = make(map[string]uint64, len(at))
	for name, pos := range at {
		if pos == nil {
			return nil, false
		}
		positions[name] = *pos
	}
	return positions, true
}
