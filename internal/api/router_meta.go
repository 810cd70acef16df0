package api

import (
	"slices"
	"strconv"
)

const (
	stampKey    = "_topics_router"
	originalKey = "_topics_original_meta"
)

// Origin says where a copy made by an exactly_once router comes from.
type Origin struct {
	Router string
	Source string
	ID     uint64 // the source's number
	Epoch  int64  // Unix ms at which the source was created
	Seq    uint64 // the record's number there
}

// AppendStampedMeta appends the meta of a copy: the members of meta, a compact JSON
// object or nothing, and the stamp of the router. An earlier router's stamp is
// replaced; a meta without room for the stamp is moved beside it.
func AppendStampedMeta(dst, meta []byte, o *Origin) []byte {
	dst = append(dst, '{')
	kept, n, isObject := membersBut(meta, stampKey)
	switch {
	case !isObject || n >= MaxMetaKeys:
		dst = append(dst, `"`+originalKey+`":`...)
		dst = append(append(dst, meta...), ',')
	case n > 0:
		dst = append(append(dst, kept...), ',')
	}
	return append(appendStamp(dst, o), '}')
}

// UnstampedMeta returns the meta that a copy's was made of, which may be nothing; one without
// a stamp is returned as it is.
func UnstampedMeta(meta []byte) []byte {
	var stamped bool
	var original []byte
	s := scanner{b: meta, index: -1}
	s.object(nil, func(name []byte) bool {
		switch string(name) {
		case stampKey:
			stamped = true
		case originalKey:
			original = s.raw()
			return true
		}
		return false
	})
	switch {
	case !stamped:
		return meta
	case original != nil:
		return original
	}
	members, n, _ := membersBut(meta, stampKey)
	if n == 0 {
		return nil
	}
	return append(append([]byte{'{'}, members...), '}')
}

func appendStamp(dst []byte, o *Origin) []byte {
	id := strconv.FormatUint(o.ID, 10)
	epoch := strconv.FormatInt(o.Epoch, 10)
	seq := strconv.FormatUint(o.Seq, 10)
	dst = append(dst, `"`+stampKey+`":{"idempotency_key":`...)
	dst = AppendString(dst, o.Router+"/"+id+"/"+epoch+"/"+seq)
	dst = append(dst, `,"router":`...)
	dst = AppendString(dst, o.Router)
	dst = append(dst, `,"source_topic":`...)
	dst = AppendString(dst, o.Source)
	dst = append(dst, `,"source_topic_id":`+id+`,"source_epoch":`+epoch+`,"source_seq":`+seq...)
	return append(dst, '}')
}

// membersBut returns the members of a compact object except those with these names,
// separated by commas, and their number. An empty text counts as {}.
func membersBut(object []byte, names ...string) (members []byte, n int, isObject bool) {
	if len(object) == 0 {
		return nil, 0, true
	}
	s := scanner{b: object, index: -1}
	if s.peek(); !s.open('{') {
		return nil, 0, false
	}
	for {
		from := s.i + 1
		if object[s.i] != ',' { // the first member has no comma before it
			from = s.i
		}
		key, ok := s.member()
		if !ok {
			break
		}
		drop := slices.Contains(names, string(key))
		if !s.skip() {
			return nil, 0, false
		}
		if drop {
			continue
		}
		if n > 0 {
			members = append(members, ',')
		}
		members = append(members, object[from:s.i]...)
		n++
	}
	return members, n, s.err == nil
}
