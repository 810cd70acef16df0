package api

import (
	"errors"
	"math"
	"slices"
	"strconv"
	"time"
)

// Claimed is the answer to a claim as its caller reads it.
type Claimed struct {
	Topic  string
	Jobs   []HeldJob
	Waited time.Duration // until the server leased the jobs or gave up
}

// answerNesting is how many levels an answer may have beyond MaxNesting: routers put the meta of
// what they copy into that of the copy.
const answerNesting = 128

// DecodeClaimed reads the answer to a claim. It passes over members that it does not know,
// since the server may be newer, and takes null for none. c keeps nothing of body.
func DecodeClaimed(body []byte, c *Claimed) error {
	s := scanner{b: body, index: -1, deeper: answerNesting}
	s.body(nil, func(name []byte) bool {
		if s.null() {
			return true
		}
		switch string(name) {
		case "topic":
			c.Topic = string(s.text("topic", "a string"))
		case "claimed":
			s.heldJobs(c)
		case "performance":
			s.waited(c)
		default:
			return false
		}
		return true
	})
	return s.answered()
}

// DecodeRecords reads the records of an answer or a frame, as leniently.
func DecodeRecords(body []byte) (records []Record, err error) {
	s := scanner{b: body, index: -1, deeper: answerNesting}
	s.peek()
	switch {
	case s.null():
	case !s.open('['):
		s.wrong("records", "an array of records")
	default:
		for s.element() {
			records = append(records, Record{})
			if r := &records[len(records)-1]; !s.object(nil, func(name []byte) bool { return s.sent(name, r) }) {
				s.wrong("records", "an array of records")
			}
		}
	}
	return records, s.answered()
}

// answered is finish for what a server has sent: an error is no refusal by it.
func (s *scanner) answered() error {
	if err := s.finish(); err != nil {
		return errors.New(Sentence(err))
	}
	return nil
}

func (s *scanner) waited(c *Claimed) {
	known := s.object(nil, func(name []byte) bool {
		if string(name) != "claim_wait_ms" {
			return false
		}
		ms, err := strconv.ParseFloat(string(s.raw()), 64)
		if err != nil {
			s.wrong("claim_wait_ms", "a number")
		}
		c.Waited = time.Duration(ms) * time.Millisecond
		return true
	})
	if !known {
		s.wrong("performance", "an object")
	}
}

func (s *scanner) heldJobs(c *Claimed) {
	if !s.open('[') {
		s.wrong("claimed", "an array of jobs")
		return
	}
	for s.element() {
		c.Jobs = append(c.Jobs, HeldJob{})
		s.heldJob(&c.Jobs[len(c.Jobs)-1])
	}
}

func (s *scanner) heldJob(j *HeldJob) {
	known := s.object(nil, func(name []byte) bool {
		switch {
		case string(name) == "lease_id" && !s.null():
			j.Lease = string(s.text("lease_id", "a string"))
		case string(name) == "deliveries" && !s.null():
			j.Deliveries = s.uint("deliveries", math.MaxUint64)
		default:
			return s.sent(name, &j.Record)
		}
		return true
	})
	if !known {
		s.wrong("claimed", "an array of jobs")
	}
}

// sent reads a member of a record that a server has sent; it returns false for one that it
// does not know.
func (s *scanner) sent(name []byte, r *Record) bool {
	if s.null() {
		if string(name) == "data" {
			r.Data = []byte("null")
		}
		return true
	}
	switch string(name) {
	case "$seq":
		r.Seq = s.uint("$seq", math.MaxUint64)
	case "$ts":
		var err error
		if r.TS, err = strconv.ParseInt(string(s.raw()), 10, 64); err != nil {
			s.wrong("$ts", "an integer")
		}
	case "$node":
		r.Node, r.HasNode = slices.Clone(s.text("$node", "a string")), true
	case "$tag":
		r.Tag, r.HasTag = slices.Clone(s.text("$tag", "a string")), true
	case "$priority":
		if t, ok := ParseTier(string(s.text("$priority", "a string"))); ok {
			r.Tier = t
		}
	case "$fair_key":
		r.FairKey = slices.Clone(s.text("$fair_key", "a string"))
	case "data":
		r.Data = slices.Clone(s.raw())
	case "meta":
		r.Meta = slices.Clone(s.raw())
	default:
		return false
	}
	return true
}

// MetaStrings returns the members of a record's meta that are strings, and the attributes of an
// event, which are an object, as their text; nil if there are none, or meta is no object.
func MetaStrings(meta []byte) map[string]string {
	if len(meta) <= len("{}") {
		return nil
	}
	s := scanner{b: meta, index: -1, deeper: answerNesting}
	var out map[string]string
	s.body(nil, func(name []byte) bool {
		key := string(name) // name is overwritten by a text with escapes
		var text []byte
		switch {
		case s.i < len(s.b) && s.b[s.i] == '"':
			text = s.text(key, "a string")
		case key == MetaCloudEvent && s.i < len(s.b) && s.b[s.i] == '{':
			text = s.raw()
		default:
			delete(out, key) // of two members of a name the last counts
			return false
		}
		if out == nil {
			out = make(map[string]string)
		}
		out[key] = string(text)
		s.scratch = s.scratch[:0]
		return true
	})
	if s.finish() != nil {
		return nil
	}
	return out
}
