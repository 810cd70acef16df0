package main

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io/fs"
	"os"
	"time"

	"github.com/weirmq/weir/internal/atomicfile"
)

// place is the progress of a publish: the number of acknowledged records and a hash
// of them. With a path it is kept in a file, so that another run can continue.
type place struct {
	path  string // empty: not kept
	topic string // or stream
	run   string // names the run in its idempotency keys
	count uint64 // records added
	sum   hash.Hash

	want    uint64 // as read from the file
	wantSum string

	// sending is when the current write began, zero if there is none. A killed run
	// leaves it in the file: whether that write was stored is unknown.
	sending time.Time
}

type placeFile struct {
	Format  int    `json:"format"`
	Topic   string `json:"topic"`
	Run     string `json:"run"`
	Records uint64 `json:"records"`
	SHA256  string `json:"sha256"`               // of the records, each preceded by its length
	Sending int64  `json:"sending_ms,omitempty"` // when the current write began, Unix ms
}

const placeFormat = 1

func newPlace(path, topic, run string) *place {
	return &place{path: path, topic: topic, run: run, sum: sha256.New()}
}

// source names the run's input.
func (p *place) source() string { return "publish:" + p.run }

// key returns the idempotency key of the message n records after this place.
func (p *place) key(n uint64) string { return fmt.Sprintf("%s:%d", p.source(), p.count+n) }

// add advances the place by one record.
func (p *place) add(data []byte) {
	var n [8]byte
	binary.LittleEndian.PutUint64(n[:], uint64(len(data)))
	p.sum.Write(n[:])
	p.sum.Write(data)
	p.count++
}

func (p *place) digest() string { return hex.EncodeToString(p.sum.Sum(nil)) }

// load reads the file, or writes it if there is none: the
// run's name must be on disk before the first batch that uses it.
func (p *place) load() error {
	if p.path == "" {
		return nil
	}
	text, err := os.ReadFile(p.path)
	if errors.Is(err, fs.ErrNotExist) {
		return p.save()
	}
	if err != nil {
		return fmt.Errorf("--resume: %w", err)
	}
	var f placeFile
	if err := json.Unmarshal(text, &f); err != nil || f.Format != placeFormat || f.Run == "" {
		return fmt.Errorf("--resume %s: weir publish did not write this file", p.path)
	}
	if f.Topic != p.topic {
		return fmt.Errorf("--resume %s: the file belongs to stream %q, the URL names %q", p.path, f.Topic, p.topic)
	}
	p.run, p.want, p.wantSum = f.Run, f.Records, f.SHA256
	if f.Sending > 0 {
		p.sending = time.UnixMilli(f.Sending)
	}
	return nil
}

// check compares the records that were skipped with those that were sent.
func (p *place) check() error {
	if p.want == 0 || p.digest() == p.wantSum {
		return nil
	}
	return fmt.Errorf("--resume %s: the input does not begin with what was sent, %s; it is not the same input", p.path, countOf(p.want, "record"))
}

// begin records that a write is starting. It returns when a write of an earlier run
// began that may be the same, zero if there was none.
func (p *place) begin(now time.Time) (earlier time.Time, err error) {
	earlier, p.sending = p.sending, now
	if !earlier.IsZero() {
		p.sending = earlier // still unknown: the next run has to see it
	}
	return earlier, p.save()
}

// end records that the write has ended.
func (p *place) end() error {
	p.sending = time.Time{}
	return p.save()
}

// save replaces the file in one step.
func (p *place) save() error {
	if p.path == "" {
		return nil
	}
	content := placeFile{Format: placeFormat, Topic: p.topic, Run: p.run, Records: p.count, SHA256: p.digest()}
	if !p.sending.IsZero() {
		content.Sending = p.sending.UnixMilli()
	}
	text, err := json.Marshal(content)
	if err != nil {
		return err
	}
	if err := atomicfile.WriteUnsynced(behindLinks(p.path), append(text, '\n')); err != nil {
		return fmt.Errorf("--resume: %w", err)
	}
	return nil
}
