package op

import (
	"encoding/binary"
	"errors"

	"github.com/weirmq/weir/internal/api"
)

// WatchID is what a wid is made of.
type WatchID [16]byte

// Mark tells whose a watch session is without saying who that is; the zero Mark
// is nobody's in particular.
type Mark [16]byte

// Watch is a watch session as the log knows it.
type Watch struct {
	ID     WatchID
	Owner  Mark
	Since  int64 // since when it has no stream, on the lease clock; 0: it has one
	Opt    api.WatchOptions
	Topics []WatchPlace // ascending by name
	again  uint64       // see Again
	former map[int][2]uint64
}

// WatchPlace is how far a session has come in one topic.
type WatchPlace struct {
	Name string
	Life uint64 // State.Life
	Seq  uint64
}

// WatchMove says that a session has a stream again, or none any more, and where
// it stands in the topics that have moved. Indexes behind those of the topics begin anew at the first of
// them: the client knows that life of it. Those behind these do so once more: Life and Seq are
// the first and the last number that the client may still name of the life before.
type WatchMove struct {
	Since  int64
	Places []MovedPlace
}

// MovedPlace is a topic of a session, by its index, and how far that has come.
type MovedPlace struct {
	At        int
	Life, Seq uint64
}

// Again reports whether the client of the session may not know yet that a topic, by its index,
// lives again. If it has more than againTopics of them, that may be true of another one.
// from and to are the numbers that it may still name of the life before; a table does not have them.
func (w *Watch) Again(at int) (from, to uint64, ok bool) {
	if f, ok := w.former[at]; ok {
		return f[0], f[1], true
	}
	return 0, api.NoSeq, w.again>>(at%againTopics)&1 != 0
}

// againTopics is how many topics have a bit of their own, behind those of the options.
const againTopics = 64 - watchBits

// Move applies a WatchMove.
func (w *Watch) Move(m *WatchMove) {
	w.Since = m.Since
	for _, p := range m.Places {
		switch n := len(w.Topics); {
		case p.At < n:
			if w.Topics[p.At].Life != p.Life {
				w.again |= 1 << (p.At % againTopics)
				delete(w.former, p.At)
			}
			w.Topics[p.At].Life, w.Topics[p.At].Seq = p.Life, p.Seq
		case p.At < 2*n:
			w.again &^= 1 << ((p.At - n) % againTopics)
			delete(w.former, p.At-n)
		case p.At < 3*n:
			if w.former == nil {
				w.former = make(map[int][2]uint64)
			}
			w.former[p.At-2*n] = [2]uint64{p.Life, p.Seq}
		}
	}
}

const (
	watchMeta = 1 << iota
	watchTags
	watchData
	watchStrong

	watchBits = iota
)

func (w *Watch) appendFields(dst []byte) []byte {
	o := &w.Opt
	bits := w.again << watchBits
	for i, on := range []bool{o.IncludeMeta, o.IncludeTags, o.IncludeData, o.Strong} {
		if on {
			bits |= 1 << i
		}
	}
	dst = append(append(dst, w.ID[:]...), w.Owner[:]...)
	dst = binary.AppendVarint(dst, w.Since)
	dst = appendUvarints(dst, bits, uint64(o.Limit), uint64(o.MaxBatchBytes), uint64(o.HeartbeatMS), uint64(len(o.Nodes)))
	for _, n := range o.Nodes {
		dst = appendString(dst, n)
	}
	dst = appendUvarints(dst, uint64(len(w.Topics)))
	for _, t := range w.Topics {
		dst = appendUvarints(appendString(dst, t.Name), t.Life, t.Seq)
	}
	return dst
}

func (d *decoder) watch(w *Watch) {
	copy(w.ID[:], d.take(len(w.ID)))
	copy(w.Owner[:], d.take(len(w.Owner)))
	w.Since = d.varint()
	bits := d.uvarint()
	w.again = bits >> watchBits
	o := &w.Opt
	o.IncludeMeta, o.IncludeTags, o.IncludeData, o.Strong = bits&watchMeta != 0, bits&watchTags != 0, bits&watchData != 0, bits&watchStrong != 0
	o.Limit, o.MaxBatchBytes, o.HeartbeatMS = int(d.uint32()), int64(d.uint32()), int64(d.uint32())
	for n := d.count(1); n > 0; n-- {
		o.Nodes = append(o.Nodes, d.string())
	}
	for n := d.count(3); n > 0; n-- {
		w.Topics = append(w.Topics, WatchPlace{d.string(), d.uvarint(), d.uvarint()})
	}
}

func (m *WatchMove) appendFields(dst []byte) []byte {
	dst = binary.AppendVarint(dst, m.Since)
	dst = appendUvarints(dst, uint64(len(m.Places)))
	for _, p := range m.Places {
		dst = appendUvarints(dst, uint64(p.At), p.Life, p.Seq)
	}
	return dst
}

func (d *decoder) watchMove(m *WatchMove) {
	m.Since = d.varint()
	for n := d.count(3); n > 0; n-- {
		m.Places = append(m.Places, MovedPlace{int(d.uint32()), d.uvarint(), d.uvarint()})
	}
}

// watchVersion is the first byte of an encoded Watch.
const watchVersion = 1

// EncodeWatch appends the session to dst.
func (w *Watch) EncodeWatch(dst []byte) []byte { return w.appendFields(append(dst, watchVersion)) }

// DecodeWatch reads what EncodeWatch wrote.
func DecodeWatch(b []byte) (*Watch, error) {
	if len(b) == 0 || b[0] != watchVersion {
		return nil, errors.New("op: watch session of unknown version")
	}
	w := new(Watch)
	d := decoder{b: b[1:]}
	d.watch(w)
	if d.bad || len(d.b) > 0 {
		return nil, errors.New("op: malformed watch session")
	}
	return w, nil
}
