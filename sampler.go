package weir

import (
	"bytes"
	"context"
	"encoding/json"
	"strconv"
	"time"

	"github.com/weirmq/weir/backend"
)

// Pressure is one reading of how loaded a stream is for its workers.
type Pressure struct {
	Stream string
	Group  string
	backend.Stats
}

// Pressure takes one reading; it creates nothing. The error is ErrUnavailable if the
// backend did not answer.
//
// A stream can be read before anybody has used it. One to which nothing has been published
// yet has no messages. A group to which no worker has come yet has nothing pending, and
// all that it will be given is its lag: what is stored, or nothing with start=$ on Redis.
// Missing of the reading says which of the two is not there, so that a misspelt
// name can be told from an idle one. If the first publish or the first worker would not
// create it, there is no reading but ErrStreamNotFound or ErrGroupNotFound: a Kafka topic
// without partitions=N, a group with create=never, a topic of a weir server that is a log.
func (s *Stream) Pressure(ctx context.Context) (Pressure, error) {
	stats, err := s.backend.Stats(ctx)
	if err != nil {
		return Pressure{}, err
	}
	return Pressure{Stream: s.info.Stream, Group: s.info.Group, Stats: stats}, nil
}

// Backlog returns the work that is left: pending messages and those that nobody has
// claimed yet. known is false if the server does not know the latter; Behind is counted
// then instead.
func (p Pressure) Backlog() (messages int64, known bool) {
	return p.Pending + p.waiting(), p.Lag != nil
}

// Measurement returns the reading in the form that Hooks.Measured takes.
func (p Pressure) Measurement() Measurement {
	depth, _ := p.Backlog()
	m := Measurement{Depth: depth + p.Delayed, Pending: &p.Pending, Lag: p.Lag, DeadLetters: p.DeadLetters, XLen: &p.XLen}
	if p.PendingUnknown {
		m.Pending = nil
	}
	if p.OldestSource != backend.AgeUnknown {
		m.OldestAge = &p.OldestAge
	}
	return m
}

// AppendJSON appends the reading as one JSON object without a newline. It always has
// these ten fields, in this order:
//
//	ts_ms               when it was taken, Unix milliseconds of the server's clock
//	stream_key, group   what was read
//	xlen                entries stored; reading and acknowledging do not lower it
//	pending             delivered, not acknowledged
//	lag                 not delivered yet; null if the server does not know, which is not 0
//	lag_valid           whether lag is a number
//	oldest_age_ms       age of the oldest unfinished message, 0 if there is none
//	oldest_age_source   where the age comes from, see backend.AgeSource
//	approx              whether the age is an estimate
func (p Pressure) AppendJSON(dst []byte) []byte {
	age, source, approx := max(p.OldestAge, 0), p.OldestSource, p.Approx
	dst = append(dst, `{"ts_ms":`...)
	dst = strconv.AppendInt(dst, p.At.UnixMilli(), 10)
	dst = append(dst, `,"stream_key":`...)
	dst = appendString(dst, p.Stream)
	dst = append(dst, `,"group":`...)
	dst = appendString(dst, p.Group)
	dst = append(dst, `,"xlen":`...)
	dst = strconv.AppendInt(dst, p.XLen, 10)
	dst = append(dst, `,"pending":`...)
	dst = strconv.AppendInt(dst, p.Pending, 10)
	dst = append(dst, `,"lag":`...)
	if p.Lag == nil {
		dst = append(dst, `null,"lag_valid":false`...)
	} else {
		dst = strconv.AppendInt(dst, *p.Lag, 10)
		dst = append(dst, `,"lag_valid":true`...)
	}
	dst = append(dst, `,"oldest_age_ms":`...)
	dst = strconv.AppendInt(dst, int64(age/time.Millisecond), 10)
	dst = append(dst, `,"oldest_age_source":`...)
	dst = appendString(dst, string(source))
	dst = append(dst, `,"approx":`...)
	dst = strconv.AppendBool(dst, approx)
	return append(dst, '}')
}

// MarshalJSON is AppendJSON.
func (p Pressure) MarshalJSON() ([]byte, error) { return p.AppendJSON(nil), nil }

// appendString appends s as a JSON string without escaping <, > and &.
func appendString(dst []byte, s string) []byte {
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(s) // a string can always be written
	return append(dst, bytes.TrimSuffix(text.Bytes(), []byte("\n"))...)
}
