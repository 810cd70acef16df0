package kafka

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/weirmq/weir/backend"
)

// idOf is the ID of a record: its partition and offset.
func idOf(partition int32, offset int64) string {
	return strconv.Itoa(int(partition)) + ":" + strconv.FormatInt(offset, 10)
}

// names makes IDs of records, many of them with one allocation. It must not be copied.
type names struct{ text strings.Builder }

// mostName is the length of the longest ID, namesAtOnce how many bytes of them share an
// allocation.
const (
	mostName    = 32
	namesAtOnce = 512
)

func (n *names) of(partition int32, offset int64) string {
	if n.text.Cap()-n.text.Len() < mostName {
		n.text.Reset()
		n.text.Grow(namesAtOnce)
	}
	var room [mostName]byte
	name := strconv.AppendInt(room[:0], int64(partition), 10)
	name = strconv.AppendInt(append(name, ':'), offset, 10)
	begin := n.text.Len()
	n.text.Write(name)
	return n.text.String()[begin:]
}

// recordOf makes the record of a message. It copies the data: a record whose outcome is
// not known when its context ends stays in the producer's buffer.
func recordOf(topic string, m *backend.Message, now time.Time) (*kgo.Record, error) {
	if !m.Priority.Valid() {
		return nil, fmt.Errorf("kafka: %s is no tier", m.Priority)
	}
	if m.IsDelayed() {
		return nil, fmt.Errorf("kafka: a message with Delay or NotBefore: %w: a partition is read in its order", backend.ErrUnsupported)
	}
	r := &kgo.Record{Topic: topic, Value: copied(m.Data), Timestamp: now}
	add := func(name, value string) {
		r.Headers = append(r.Headers, kgo.RecordHeader{Key: name, Value: []byte(value)})
	}
	if m.FairKey != "" {
		r.Key = []byte(m.FairKey)
		add(backend.HeaderFairKey, m.FairKey)
	}
	if m.Priority != backend.Normal {
		add(backend.HeaderPriority, m.Priority.String())
	}
	if !m.Deadline.IsZero() {
		add(backend.HeaderDeadline, backend.FormatDeadline(m.Deadline))
	}
	for name, value := range m.Headers {
		if name == backend.FieldEnqueued {
			if ms, err := strconv.ParseInt(value, 10, 64); err == nil && ms > 0 {
				r.Timestamp = time.UnixMilli(ms)
				continue
			}
		}
		add(name, value)
	}
	return r, nil
}

// buffers are those of records that have been stored. Most of what an append leaves to the
// garbage collector would be the copy of its data.
var buffers sync.Pool

// Buffers of other sizes are not worth keeping.
const (
	leastBuffer = 256
	mostBuffer  = 64 << 10
)

// copied returns a copy that is not nil: null is a tombstone.
func copied(data []byte) []byte {
	if len(data) >= leastBuffer {
		if kept, _ := buffers.Get().(*[]byte); kept != nil && cap(*kept) >= len(data) {
			return append((*kept)[:0], data...)
		}
	}
	return append(make([]byte, 0, len(data)), data...)
}

// recycle takes the buffer that copied made for a record that has been stored: no request
// holds it any more.
func recycle(r *kgo.Record) {
	if buf := r.Value; cap(buf) >= leastBuffer && cap(buf) <= mostBuffer {
		buffers.Put(&buf)
	}
	r.Value = nil
}

// maker makes the deliveries of a claim, several with one allocation. What its receiver keeps
// of one keeps the others in memory, so few share one.
type maker struct {
	count int // how many are still to be made
	left  []backend.Delivery
	data  []byte // room for payloads
}

const (
	madeAtOnce = 16
	// dataAtOnce is how many bytes of payloads share an allocation; a larger one than a
	// quarter has its own.
	dataAtOnce = 4 << 10
)

// delivery makes a delivery of a record; the lease is the caller's business.
func (m *maker) delivery(r *kgo.Record) *backend.Delivery {
	if len(m.left) == 0 {
		m.left = make([]backend.Delivery, max(1, min(m.count, madeAtOnce)))
	}
	d := &m.left[0]
	m.left = m.left[1:]
	d.Data, d.Headers, d.Enqueued = m.copied(r.Value), headersOf(r), publishedAt(r)
	m.count--
	d.Deadline = backend.DeadlineOf(d.Headers)
	return d
}

// copied returns a copy that is not nil and whose receiver may append to it.
func (m *maker) copied(data []byte) []byte {
	n := len(data)
	switch {
	case n == 0:
		return []byte{}
	case n > dataAtOnce/4:
		return slices.Clone(data)
	case n > len(m.data):
		m.data = make([]byte, max(n, min(n*m.count, dataAtOnce)))
	}
	own := m.data[:n:n]
	m.data = m.data[n:]
	copy(own, data)
	return own
}

// publishedAt is when a record was published; zero if it does not say so.
func publishedAt(r *kgo.Record) time.Time {
	if r.Timestamp.UnixMilli() < 0 {
		return time.Time{}
	}
	return r.Timestamp
}

func headersOf(r *kgo.Record) map[string]string {
	if len(r.Headers) == 0 {
		return nil
	}
	headers := make(map[string]string, len(r.Headers))
	for _, h := range r.Headers {
		headers[h.Key] = string(h.Value)
	}
	return headers
}

// letterRecord makes the record of a dead letter: the message as it was published, and headers
// that say what became of it.
func letterRecord(to string, key []byte, l *backend.DeadLetter, published *kgo.Record) *kgo.Record {
	r := &kgo.Record{Topic: to, Key: key, Value: l.Data, Timestamp: l.DeadAt}
	add := func(name, value string) {
		r.Headers = append(r.Headers, kgo.RecordHeader{Key: name, Value: []byte(value)})
	}
	if published.Key != nil {
		add(headerKey, string(published.Key))
	}
	if l.Data == nil { // as it is, it would be a tombstone
		r.Value = []byte{}
		add(headerNull, "")
	}
	for name, value := range l.Headers {
		if !strings.HasPrefix(name, deadPrefix) {
			add(name, value)
		}
	}
	if l.Redrives > 0 {
		add(backend.HeaderRedrives, strconv.Itoa(l.Redrives))
	}
	if !l.Enqueued.IsZero() {
		add(backend.FieldEnqueued, strconv.FormatInt(l.Enqueued.UnixMilli(), 10))
	}
	add(backend.HeaderDeadStream, l.Stream)
	add(backend.HeaderDeadGroup, l.Group)
	add(backend.HeaderDeadID, l.OriginID)
	add(backend.HeaderDeadAttempts, strconv.Itoa(l.Attempts))
	add(backend.HeaderDeadReason, l.Reason)
	add(backend.HeaderDeadError, l.Error)
	add(backend.HeaderDeadConsumer, l.Consumer)
	add(backend.HeaderDeadAt, strconv.FormatInt(l.DeadAt.UnixMilli(), 10))
	return r
}

const (
	deadPrefix = backend.HeaderPrefix + "dead-"
	headerKey  = deadPrefix + "key"  // the key of the message's record, if it had one
	headerNull = deadPrefix + "null" // there if its value was null
)

// parseID reads what idOf has written.
func parseID(id string) (partition int32, offset int64, ok bool) {
	p, o, found := strings.Cut(id, ":")
	n, err := strconv.ParseInt(p, 10, 32)
	offset, err2 := strconv.ParseInt(o, 10, 64)
	return int32(n), offset, found && err == nil && err2 == nil
}
