package server

import (
	"errors"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/weirmq/weir/internal/api"
)

// bodyRule says how a route treats a request body.
type bodyRule uint8

const (
	bodyIgnored    bodyRule = iota
	bodyRequired            // empty: 415 without a content type, 400 with one
	bodyMayBeEmpty          // empty counts as {} and needs no content type
	bodyNotEmpty            // empty: 400 even without a content type
)

const (
	// smallBody is how much a request can hold without a block of its own.
	smallBody = 4 << 10
	// grownBody is the initial size for a body of unannounced length; it grows fourfold
	// when full.
	grownBody = 64 << 10
	// movedBody is the largest such body that is moved as it grows.
	movedBody = 256 << 10
)

// readBody reads the whole body into q.body and checks it in the order of contract 18:
// size, content type, then errors in the bytes themselves. Before reading it reserves
// the bytes under max_inflight_bytes.
func (q *request) readBody(rule bodyRule) error {
	r, limit := q.r, q.s.limits.MaxBodyBytes
	if most := q.route.most; most > 0 {
		limit = min(limit, most)
	}
	if r.ContentLength == 0 {
		return q.emptyBody(rule)
	}
	coding := codingOf(r)
	gz := coding == "gzip"
	if r.ContentLength > 0 && !gz {
		if r.ContentLength > limit {
			return errBodySize(limit)
		}
		if err := q.checkType(coding); err != nil {
			return err
		}
		return q.readKnown(int(r.ContentLength))
	}
	broken := q.readGrowing(gz, int(limit))
	if broken != nil && !api.IsCode(broken, api.CodeInvalidRequest) {
		return broken
	}
	if broken == nil && len(q.body) == 0 {
		return q.emptyBody(rule)
	}
	if gz {
		coding = ""
	}
	if err := q.checkType(coding); err != nil {
		return err
	}
	return broken
}

// codingOf returns how a body is encoded; "": it is plain. The names have no case (RFC 9110, 8.4.1).
func codingOf(r *http.Request) string {
	switch coding := strings.ToLower(r.Header.Get("Content-Encoding")); coding {
	case "identity":
		return ""
	case "x-gzip":
		return "gzip"
	default:
		return coding
	}
}

func (q *request) emptyBody(rule bodyRule) error {
	q.body = nil
	if q.form == formBytes || q.form == formText || q.form == formEvent {
		return nil
	}
	if rule == bodyMayBeEmpty {
		return nil
	}
	if rule == bodyRequired {
		if err := q.checkType(""); err != nil {
			return err
		}
	}
	return api.Errorf(api.CodeInvalidRequest, "the body is empty; send a JSON object")
}

func (q *request) checkType(coding string) error {
	if coding != "" {
		return api.Errorf(api.CodeUnsupportedMediaType, "Content-Encoding %q is not supported; send the body plain or as gzip", coding)
	}
	if q.form > formOther {
		return nil
	}
	kind := q.r.Header.Get("Content-Type")
	if q.form == formJSON && isJSON(kind) {
		return nil
	}
	if q.form == formOther {
		return api.Errorf(api.CodeUnsupportedMediaType, "Content-Type %q is not supported; send application/json, application/octet-stream, text/plain in UTF-8, application/x-ndjson or a CloudEvent", kind)
	}
	return api.Errorf(api.CodeUnsupportedMediaType, "Content-Type %q is not supported; send application/json", kind)
}

func errBodySize(limit int64) error {
	return api.Errorf(api.CodePayloadTooLarge, "the body is larger than %d bytes; send fewer records at once", limit)
}

// reserve reserves n more bytes under max_inflight_bytes until the request ends.
func (q *request) reserve(n int) error {
	s := q.s
	if !s.inflight.take(int64(n), s.limits.MaxInflightBytes) {
		return api.OverLimit("max_inflight_bytes", s.limits.MaxInflightBytes)
	}
	q.reserved += int64(n)
	return nil
}

// readKnown reads a body of n bytes. A body that has fully arrived costs one read and
// no timer.
func (q *request) readKnown(n int) error {
	if err := q.reserve(n); err != nil {
		return err
	}
	buf := q.small[:]
	if n > len(buf) {
		q.block = newBlock(n)
		buf = q.block.b
	}
	if err := q.fill(buf[:n]); err != nil {
		return err
	}
	q.body = buf[:n]
	return nil
}

// fill reads the whole body into buf, which is of its length.
func (q *request) fill(buf []byte) error {
	got, err := q.r.Body.Read(buf)
	if got < len(buf) && err == nil {
		p := q.pace()
		p.note(got)
		var rest int
		rest, err = io.ReadFull(p, buf[got:])
		got += rest
	}
	if q.bodyDone = got == len(buf); !q.bodyDone {
		return q.readFailure(err)
	}
	return nil
}

// readGrowing reads a body of unknown length, or a compressed one, at most limit bytes
// uncompressed.
func (q *request) readGrowing(gz bool, limit int) error {
	paced := q.pace()
	var src io.Reader = paced
	if gz {
		// Compressing incompressible bytes makes them a little longer.
		packed := &io.LimitedReader{R: paced, N: int64(limit) + int64(limit)>>8 + 4096}
		zr, err := openGzip(packed)
		if err != nil {
			return q.gzipFailure(err, packed, limit)
		}
		defer closeGzip(zr)
		src = zr
	}
	buf, n := q.small[:min(smallBody, limit+1)], 0
	if err := q.reserve(len(buf)); err != nil {
		return err
	}
	for {
		if n == len(buf) {
			var err error
			if buf, err = q.growBody(buf, limit); err != nil {
				return err
			}
		}
		got, err := src.Read(buf[n:])
		n += got
		if n > limit {
			return errBodySize(int64(limit))
		}
		if err == io.EOF {
			q.body, q.bodyDone = buf[:n], true
			return nil
		}
		if err != nil && gz {
			return q.gzipFailure(err, nil, limit)
		}
		if err != nil {
			return q.readFailure(err)
		}
	}
}

// growBody makes room for four times as much, but at most one byte more than the limit,
// which reveals a body that is too large. A body that has become large moves for the
// last time: its block has room for the limit and costs only what is written to it.
func (q *request) growBody(buf []byte, limit int) ([]byte, error) {
	size := min(max(4*len(buf), grownBody), limit+1)
	if err := q.reserve(size - len(buf)); err != nil {
		return nil, err
	}
	if q.block != nil && len(q.block.b) >= size {
		return q.block.b[:size], nil
	}
	room := size
	if size > movedBody {
		room = limit + 1
	}
	next := newBlock(room)
	copy(next.b, buf)
	if q.block != nil {
		q.block.free()
	}
	q.block = next
	return next.b[:size], nil
}

// readFailure says why a body could not be read. Over HTTP/1 the connection is unusable
// afterwards; over HTTP/2 others use it.
func (q *request) readFailure(err error) error {
	if q.r.ProtoMajor == 1 {
		q.w.Header()["Connection"] = headerClose
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return api.Errorf(api.CodeInvalidRequest, "the body came too slowly; send at least %d bytes per second", slowestBody)
	}
	if err == io.EOF || errors.Is(err, io.ErrUnexpectedEOF) {
		return api.Errorf(api.CodeInvalidRequest, "the body is shorter than announced")
	}
	return &api.Error{Code: api.CodeInvalidRequest, Message: "the body could not be read; check its framing", Err: err}
}

func (q *request) gzipFailure(err error, packed *io.LimitedReader, limit int) error {
	if packed != nil && packed.N <= 0 {
		return errBodySize(int64(limit))
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return q.readFailure(err)
	}
	return &api.Error{Code: api.CodeInvalidRequest, Message: "the body is not valid gzip", Err: err}
}

// The minimum speed of a body.
const (
	slowestBody = 1 << 10 // bytes per second, over any paceWindow
	paceWindow  = 10 * time.Second
	longestBody = 10 * time.Minute
	paceSteps   = int64(paceWindow / time.Second)
)

// pacer reads a body under a deadline that moves with the data: it is paceWindow after
// the arrival of the byte that is slowestBody × paceWindow bytes back. The first read
// is subject to the server's read timeout.
type pacer struct {
	src   io.Reader
	rc    *http.ResponseController
	start time.Time
	now   func() time.Time
	total int64
	marks [paceSteps]time.Time // marks[i % paceSteps]: when i × slowestBody bytes had arrived
	set   time.Time            // the deadline in force; zero: not set here
}

// pace returns the reader for a body that has not fully arrived.
func (q *request) pace() *pacer {
	if q.pacer == nil {
		q.pacer = &pacer{src: q.r.Body, rc: http.NewResponseController(q.w), start: q.start, now: time.Now}
	}
	return q.pacer
}

// Read reads what is available and moves the deadline.
func (p *pacer) Read(b []byte) (int, error) {
	n, err := p.src.Read(b)
	if err == nil {
		p.note(n)
	}
	return n, err
}

func (p *pacer) note(n int) {
	now := p.now()
	d := p.deadline(n, now)
	if d.Sub(p.set) < time.Second {
		return
	}
	// Every connection that net/http serves supports deadlines.
	if p.rc.SetReadDeadline(d) == nil {
		p.set = d
	}
}

// deadline counts n more bytes and returns when the next must have arrived.
func (p *pacer) deadline(n int, now time.Time) time.Time {
	before := p.total / slowestBody
	p.total += int64(n)
	after := p.total / slowestBody
	for i := max(before+1, after-paceSteps+1); i <= after; i++ {
		p.marks[i%paceSteps] = now
	}
	from := p.start
	if after >= paceSteps {
		from = p.marks[(after+1)%paceSteps]
	}
	d := from.Add(paceWindow)
	if last := p.start.Add(longestBody); d.After(last) {
		d = last
	}
	return d
}

// restart begins to measure anew: what the sender has waited for the server is not its
// fault.
func (p *pacer) restart() {
	p.start, p.total = p.now(), 0
	p.note(0)
}

// stop removes the deadline once the body has arrived: what follows may wait.
func (p *pacer) stop() {
	if !p.set.IsZero() {
		// As above; and a closed connection needs no deadline.
		_ = p.rc.SetReadDeadline(time.Time{})
		p.set = time.Time{}
	}
}
