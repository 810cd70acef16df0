package server

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/klauspost/compress/gzip"

	"github.com/weirmq/weir/internal/api"
)

// An upload of lines is stored in batches, which are cut where one of these is reached.
// Nothing else may decide about a cut: the batches of a repeated upload have the same
// keys, and have to be the same.
const (
	uploadRecords = 1_000
	uploadBytes   = 1 << 20 // of lines with their ends
)

// maxUploadKey leaves room for the number of a batch behind the key.
const maxUploadKey = api.MaxIdempotencyKeyBytes - 16

// upload is a body of lines on its way into a topic. It holds one batch at a time.
type upload struct {
	q    *request
	opt  api.WriteOptions
	key  []byte // of the whole; nil: none
	src  io.Reader
	buf  []byte // buf[r:w] was read and is not taken
	r, w int
	gz   bool
	eof  bool

	patient bool // it may take long to store the last batch
	reused  bool // a batch's key came with other lines before

	unwatch func() // ends watch; may be called again

	line int // lines taken
	done api.LinesResult
}

// postLines stores a record for each line of the body, which may be longer than any memory.
func (q *request) postLines() error {
	opt, err := q.options()
	if err != nil {
		return err
	}
	u := &upload{q: q, opt: opt}
	if err := u.open(); err != nil {
		return err
	}
	defer u.close()
	defer q.whileStands(q.key)()
	u.watch()
	defer u.unwatch()
	if err := u.run(); err != nil {
		return u.refusal(err)
	}
	q.pacer.stop()
	q.bodyDone = true
	q.out = api.AppendLinesResult(q.out[:0], q.topic(), &u.done, q.millis())
	status := http.StatusOK
	if u.done.Created {
		status = http.StatusCreated
	}
	return q.send(status)
}

// open checks what can be checked before the body is read, and takes the memory.
func (u *upload) open() error {
	q := u.q
	if q.r.ContentLength == 0 {
		return errNoLines()
	}
	coding := codingOf(q.r)
	if u.gz = coding == "gzip"; u.gz {
		coding = ""
	}
	if err := q.checkType(coding); err != nil {
		return err
	}
	var w api.WriteRequest
	u.opt.Apply(&w)
	u.key = w.IdempotencyKey
	if key := q.r.Header.Get("Idempotency-Key"); key != "" && u.key == nil {
		u.key = []byte(key)
	}
	if len(u.key) > maxUploadKey {
		return api.Errorf(api.CodeInvalidRequest, "field \"idempotency_key\" is %d bytes long; %d are accepted for lines", len(u.key), maxUploadKey)
	}
	u.patient = w.DisableBackpressure
	// A batch ends with the line that reaches its size, so both fit; one byte more shows
	// that a line is too long or that the body is over.
	room := uploadBytes + q.s.limits.MaxRecordBytes + 2
	if n := q.r.ContentLength; n > 0 && !u.gz {
		room = int(min(int64(room), n+1))
	}
	if err := q.reserve(room); err != nil {
		return err
	}
	buf := q.small[:]
	if room > len(buf) {
		q.block = newBlock(room)
		buf = q.block.b
	}
	u.buf, u.src = buf[:room], q.pace()
	if !u.gz {
		return nil
	}
	zr, err := openGzip(u.src)
	if err != nil {
		return q.gzipFailure(err, nil, 0)
	}
	u.src = zr
	return nil
}

func (u *upload) close() {
	if zr, ok := u.src.(*gzip.Reader); ok {
		closeGzip(zr)
	}
}

// watch ends the reading of the body once the key or the server ends, however slowly it comes.
func (u *upload) watch() {
	q, done := u.q, make(chan struct{})
	var watcher sync.WaitGroup
	watcher.Go(func() {
		select {
		case <-q.s.drained:
		case <-q.r.Context().Done():
		case <-done:
			return
		}
		// Every connection that net/http serves supports deadlines.
		_ = q.pacer.rc.SetReadDeadline(time.Unix(1, 0))
	})
	u.unwatch = sync.OnceFunc(func() {
		close(done)
		watcher.Wait()
	})
}

// ended says that the key or the server has ended.
func (u *upload) ended() error {
	switch q := u.q; {
	case !q.key.stands():
		return errKey()
	case q.s.draining.Load():
		return api.Errorf(api.CodeShuttingDown, "the server is shutting down; send the rest to the next one")
	}
	return nil
}

func errNoLines() error {
	return api.Errorf(api.CodeInvalidRequest, "the body has no record; send a JSON value on each line")
}

// run reads and stores batch by batch.
func (u *upload) run() error {
	for {
		more, err := u.gather()
		if err != nil {
			return err
		}
		if len(u.q.write.Records) > 0 {
			if err := u.store(); err != nil {
				return err
			}
		}
		if !more {
			break
		}
	}
	if u.done.Batches == 0 {
		return errNoLines()
	}
	return nil
}

// gather reads the next batch into the request's write; false: there is no more behind it.
func (u *upload) gather() (more bool, err error) {
	w, lim := &u.q.write, &u.q.s.limits
	w.Reset()
	u.w = copy(u.buf, u.buf[u.r:u.w])
	u.r = 0
	for size := 0; len(w.Records) < min(uploadRecords, lim.MaxBatchRecords) && size < uploadBytes; {
		line, n, err := u.next()
		if err != nil {
			return false, err
		}
		if n == 0 {
			return false, nil
		}
		size += n
		u.line++
		if len(line) > lim.MaxRecordBytes {
			return false, u.badLine(api.Errorf(api.CodeRecordTooLarge, "the line is longer than %d bytes", lim.MaxRecordBytes))
		}
		if _, err := api.DecodeLine(line, w); err != nil {
			return false, u.badLine(err)
		}
	}
	return true, nil
}

// next takes a line, and returns with it how many bytes it was; 0 at the end of the body.
// Of one that is too long it returns only as much as shows that.
func (u *upload) next() ([]byte, int, error) {
	seen := 0 // without the end of a line
	for {
		_, n, ok := api.NextLine(u.buf[u.r+seen : u.w])
		n += seen
		switch {
		case ok:
			line := u.buf[u.r : u.r+n-1]
			u.r += n
			return line, n, nil
		case u.eof, n > u.q.s.limits.MaxRecordBytes:
			line := u.buf[u.r : u.r+n]
			u.r += n
			return line, n, nil
		}
		seen = n
		// The pacer may have moved the deadline that watch has set, but only before this look.
		if err := u.ended(); err != nil {
			return nil, 0, err
		}
		got, err := u.src.Read(u.buf[u.w:])
		u.w += got
		if err != nil && err != io.EOF {
			if ended := u.ended(); ended != nil {
				return nil, 0, ended
			}
		}
		switch {
		case err == io.EOF:
			u.eof = true
			// What is left to do does not depend on the client.
			u.unwatch()
			if u.q.pacer.stop(); u.patient {
				u.q.mayWait()
			}
		case err != nil && u.gz:
			return nil, 0, u.q.gzipFailure(err, nil, 0)
		case err != nil:
			return nil, 0, u.q.readFailure(err)
		}
	}
}

// badLine says that it is the last line taken that err is about.
func (u *upload) badLine(err error) error {
	e, ok := errors.AsType[*api.Error](err)
	if !ok {
		return err
	}
	e.Message = fmt.Sprintf("line %d: %s", u.line, e.Message)
	return e.With("line", u.line)
}

// store writes the batch that was gathered.
func (u *upload) store() error {
	q, w := u.q, &u.q.write
	if err := u.ended(); err != nil {
		return err
	}
	u.opt.Apply(w)
	if u.key != nil {
		key := append(append([]byte(nil), u.key...), '/')
		w.IdempotencyKey, w.HasIdempotencyKey = strconv.AppendInt(key, int64(u.done.Batches), 10), true
	}
	name := q.topic()
	if w.Config != nil && q.key != nil {
		if err := checkInlineConfig(q.eng, q.key, name, w); err != nil {
			return err
		}
	}
	if err := api.CheckWrite(w, &q.s.limits); err != nil {
		return err
	}
	res, err := q.s.append(q.r.Context(), q.eng, name, w, uploadBytes)
	if err != nil {
		return err
	}
	if res.KeyReused && !u.reused {
		u.reused = true
		q.warnings.KeyReused()
		if err := q.strict(); err != nil {
			return err // the lines of this batch are not what is stored
		}
	}
	u.done.Add(&res, u.line)
	if !u.eof {
		q.pacer.restart() // the client has waited for this batch, too
	}
	return nil
}

// refusal adds to an error what is stored in spite of it.
func (u *upload) refusal(err error) error {
	e, ok := errors.AsType[*api.Error](err)
	if !ok {
		return err
	}
	said := *e
	said.Detail = maps.Clone(e.Detail)
	said.With("stored", u.done.Count).With("stored_lines", u.done.Lines)
	if u.done.Count == 0 {
		said.Message += "; nothing is stored"
		return &said
	}
	said.With("first_seq", u.done.FirstSeq).With("last_seq", u.done.LastSeq)
	said.Message += fmt.Sprintf("; lines 1 to %d are stored (%d records)", u.done.Lines, u.done.Count)
	return &said
}
