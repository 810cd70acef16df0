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
	"path/filepath"
)

// place is how far a publish has come: the records acknowledged and a hash over
// them. With a path it is kept in a file, so that another run can go on.
type place struct {
	path  string // empty: not kept
	topic string
	run   string // names the run in its idempotency keys
	count uint64 // records added
	sum   hash.Hash

	want    uint64 // what the file said
	wantSum string
}

type placeFile struct {
	Format  int    `json:"format"`
	Topic   string `json:"topic"`
	Run     string `json:"run"`
	Records uint64 `json:"records"`
	SHA256  string `json:"sha256"` // over the records, each behind its length
}

const placeFormat = 1

func newPlace(path, topic, run string) *place {
	return &place{path: path, topic: topic, run: run, sum: sha256.New()}
}

// key is the idempotency key of the write that starts at this place.
func (p *place) key() string { return fmt.Sprintf("publish:%s:%d", p.run, p.count) }

// add moves the place behind one record.
func (p *place) add(data []byte) {
	var n [8]byte
	binary.LittleEndian.PutUint64(n[:], uint64(len(data)))
	p.sum.Write(n[:])
	p.sum.Write(data)
	p.count++
}

func (p *place) digest() string { return hex.EncodeToString(p.sum.Sum(nil)) }

// load reads the file if there is one, and writes it if there is none: the
// run's name has to be on disk before the first batch that uses it.
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
		return fmt.Errorf("--resume %s: this is not a file that weir publish wrote", p.path)
	}
	if f.Topic != p.topic {
		return fmt.Errorf("--resume %s: the file belongs to topic %q, the URL names %q", p.path, f.Topic, p.topic)
	}
	p.run, p.want, p.wantSum = f.Run, f.Records, f.SHA256
	return nil
}

// check compares the records that were read over with the ones that were sent.
func (p *place) check() error {
	if p.want == 0 || p.digest() == p.wantSum {
		return nil
	}
	return fmt.Errorf("--resume %s: the first %d records of the input are not those that were sent; it is not the same input", p.path, p.want)
}

// save replaces the file in one step.
func (p *place) save() error {
	if p.path == "" {
		return nil
	}
	text, err := json.Marshal(placeFile{placeFormat, p.topic, p.run, p.count, p.digest()})
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(p.path), ".weir-place-*")
	if err != nil {
		return fmt.Errorf("--resume: %w", err)
	}
	_, err = f.Write(append(text, '\n'))
	err = errors.Join(err, f.Close())
	if err == nil {
		err = os.Rename(f.Name(), p.path)
	}
	if err != nil {
		os.Remove(f.Name())
		return fmt.Errorf("--resume: %w", err)
	}
	return nil
}
