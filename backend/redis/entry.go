package redis

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weirmq/weir/backend"
)

// appendFields adds the fields of a message to the arguments of an XADD; now is in Unix ms.
func appendFields(args []any, m *backend.Message, now any) ([]any, error) {
	args = append(args, fieldData, m.Data)
	if _, given := m.Headers[backend.FieldEnqueued]; !given {
		args = append(args, backend.FieldEnqueued, now)
	}
	if m.Priority != backend.Normal {
		if !m.Priority.Valid() {
			return nil, fmt.Errorf("redis: %s is no tier", m.Priority)
		}
		args = append(args, backend.HeaderPriority, m.Priority.String())
	}
	if m.FairKey != "" {
		args = append(args, backend.HeaderFairKey, m.FairKey)
	}
	if !m.Deadline.IsZero() {
		args = append(args, backend.HeaderDeadline, backend.FormatDeadline(m.Deadline))
	}
	if len(m.Headers) == 0 {
		return args, nil
	}
	// In a fixed order, so that the server stores the names of similar entries once.
	names := make([]string, 0, len(m.Headers))
	for name := range m.Headers {
		if name == fieldData {
			return nil, fmt.Errorf("redis: header %q is the name of the payload's field; use another name", name)
		}
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		args = append(args, name, m.Headers[name])
	}
	return args, nil
}

// field is a name and a value; both point into a reply.
type field struct{ name, value []byte }

// content is a decoded entry.
type content struct {
	data     []byte
	headers  map[string]string
	enqueued time.Time
}

// decode reads the fields of an entry. What it returns is a copy.
func decode(fields []field) content {
	var c content
	for _, f := range fields {
		if string(f.name) == fieldData {
			c.data = append(make([]byte, 0, len(f.value)), f.value...)
		}
	}
	foreign := c.data == nil
	for _, f := range fields {
		switch {
		case string(f.name) == backend.FieldEnqueued && c.setEnqueued(f.value):
		case string(f.name) == fieldData, foreign && !ours(string(f.name)):
			continue
		default:
			if c.headers == nil {
				c.headers = make(map[string]string, len(fields))
			}
			c.headers[string(f.name)] = string(f.value)
		}
	}
	if foreign {
		c.data = objectOf(fields)
	}
	return c
}

func (c *content) setEnqueued(value []byte) bool {
	ms, err := strconv.ParseInt(string(value), 10, 64)
	if err != nil || ms <= 0 {
		return false
	}
	c.enqueued = time.UnixMilli(ms)
	return true
}

// ours reports whether a field of an entry without data is a header nevertheless.
func ours(name string) bool {
	return strings.HasPrefix(name, backend.HeaderPrefix) || name == backend.HeaderTrace || name == backend.HeaderState
}

// objectOf returns the fields as a JSON object, in their order.
func objectOf(fields []field) []byte {
	object := []byte{'{'}
	for _, f := range fields {
		if strings.HasPrefix(string(f.name), backend.HeaderPrefix) {
			continue
		}
		if len(object) > 1 {
			object = append(object, ',')
		}
		object = append(append(appendJSON(object, f.name), ':'), appendJSON(nil, f.value)...)
	}
	return append(object, '}')
}

func appendJSON(to, text []byte) []byte {
	quoted, _ := json.Marshal(string(text)) // a string cannot fail
	return append(to, quoted...)
}

// entry reads [id, [name, value, ...]]. Without fields (nil) the entry is gone;
// an entry that is nil altogether has no ID either.
func (r *replyReader) entry(fields []field) (id []byte, _ []field, err error) {
	n, err := r.array()
	if err != nil || n < 0 {
		return nil, nil, err
	}
	if n < 2 {
		return nil, nil, errReply
	}
	if id, err = r.bytes(); err != nil {
		return nil, nil, err
	}
	if fields, err = r.fields(fields); err != nil {
		return nil, nil, err
	}
	for range n - 2 { // newer servers may send more
		if _, err = r.bytes(); err != nil {
			return nil, nil, err
		}
	}
	return id, fields, nil
}

// fields reads [name, value, ...] into a slice that may be reused; nil for null.
func (r *replyReader) fields(into []field) ([]field, error) {
	n, err := r.array()
	if err != nil || n < 0 {
		return nil, err
	}
	into = into[:0]
	if into == nil {
		into = make([]field, 0, n/2)
	}
	for range n / 2 {
		var f field
		if f.name, err = r.bytes(); err != nil {
			return nil, err
		}
		if f.value, err = r.bytes(); err != nil {
			return nil, err
		}
		into = append(into, f)
	}
	return into, nil
}
