package oracle

import (
	"encoding/json"
	"strconv"
	"strings"
)

// Payload is everything a writer sends for one record, derived from its id.
type Payload struct {
	Data string // JSON text
	Tag  string // "" for none
	Node string // "" for none
	Meta string // JSON text of an object, "" for none
}

const alphabet = "abcdefghijklmnopqrstuvwxyz0123456789 <>&é"

var letters = []rune(alphabet)

// PayloadOf derives the payload of record i of a batch of size records.
func PayloadOf(b BatchID, i, size int) Payload {
	rnd := mix(uint64(b.Writer)<<40 ^ b.N<<10 ^ uint64(i))
	next := func(n uint64) uint64 {
		rnd = mix(rnd)
		return rnd % n
	}
	buf := make([]byte, 0, 256)
	buf = append(buf, `{"w":`...)
	buf = strconv.AppendUint(buf, uint64(b.Writer), 10)
	buf = append(buf, `,"n":`...)
	buf = strconv.AppendUint(buf, b.N, 10)
	buf = append(buf, `,"i":`...)
	buf = strconv.AppendInt(buf, int64(i), 10)
	buf = append(buf, `,"z":`...)
	buf = strconv.AppendInt(buf, int64(size), 10)
	buf = append(buf, `,"p":"`...)
	length := next(120)
	if next(200) == 0 {
		length = 2000 + next(6000)
	}
	for range length {
		rnd = rnd*6364136223846793005 + 1442695040888963407
		buf = append(buf, string(letters[(rnd>>33)%uint64(len(letters))])...)
	}
	p := Payload{Data: string(append(buf, `"}`...))}
	if next(3) > 0 {
		p.Tag = "t" + strconv.FormatUint(next(8), 10)
	}
	if next(3) > 0 {
		p.Node = "n" + strconv.FormatUint(next(4), 10)
	}
	if next(3) == 0 {
		p.Meta = `{"k":` + strconv.FormatUint(next(1000), 10) + `}`
	}
	return p
}

// mix spreads a number over 64 bits (the finalizer of splitmix64).
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// Hash is a number over every byte of the payload and over which parts it has.
func (p Payload) Hash() uint64 {
	h := uint64(14695981039346656037)
	for _, part := range [...]string{p.Data, p.Tag, p.Node, p.Meta} {
		for i := range len(part) {
			h = (h ^ uint64(part[i])) * 1099511628211
		}
		h = (h ^ 0x1ff) * 1099511628211
	}
	return h
}

// NewRec reduces what a reader saw to a Rec. A text without an id is kept in Bad.
func NewRec(seq uint64, ts int64, seen Payload) Rec {
	r := Rec{Seq: seq, TS: ts, Hash: seen.Hash(), Bytes: len(seen.Data) + len(seen.Meta)}
	var id struct {
		W *uint32 `json:"w"`
		N *uint64 `json:"n"`
		I *int    `json:"i"`
		Z *int    `json:"z"`
	}
	err := json.Unmarshal([]byte(seen.Data), &id)
	if err != nil || id.W == nil || id.N == nil || id.I == nil || id.Z == nil {
		r.Bad = seen.Data[:min(len(seen.Data), 200)]
		if r.Bad == "" {
			r.Bad = "(nothing)"
		}
		return r
	}
	r.Batch, r.I, r.Size = BatchID{*id.W, *id.N}, *id.I, *id.Z
	return r
}

// NewDeadLetter reduces a record of a dead-letter topic to a Rec: its hash is
// over data, tag and node only, since the move adds to meta.
func NewDeadLetter(seq uint64, ts int64, seen Payload, from string, fromSeq uint64) Rec {
	bytes := len(seen.Data) + len(seen.Meta)
	seen.Meta = ""
	r := NewRec(seq, ts, seen)
	r.Bytes, r.From, r.FromSeq = bytes, from, fromSeq
	return r
}

// mark is what an exactly_once router adds to the meta of a copy.
const mark = `"_topics_router":`

// StripMark takes the mark of a router out of a record's meta.
func StripMark(meta string) (plain, router, source string, seq uint64, marked bool) {
	at := strings.Index(meta, mark)
	if at < 0 {
		return meta, "", "", 0, false
	}
	var m struct {
		Router string `json:"router"`
		Source string `json:"source_topic"`
		Seq    uint64 `json:"source_seq"`
	}
	if err := json.NewDecoder(strings.NewReader(meta[at+len(mark):])).Decode(&m); err != nil {
		return meta, "", "", 0, false
	}
	if plain = strings.TrimSuffix(meta[:at], ","); plain != "{" {
		return plain + "}", m.Router, m.Source, m.Seq, true
	}
	return "", m.Router, m.Source, m.Seq, true
}

// NewCopy reduces what an exactly_once router made to a Rec; seen is without the
// mark in its meta, bytes the length of data and meta with it.
func NewCopy(seq uint64, ts int64, seen Payload, bytes int, router, source string, sourceSeq uint64) Rec {
	r := NewRec(seq, ts, seen)
	r.Bytes, r.Router, r.Source, r.SourceSeq = bytes, router, source, sourceSeq
	return r
}
