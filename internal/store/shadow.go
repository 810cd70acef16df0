package store

import (
	"bytes"
	"cmp"
	"slices"

	"github.com/cockroachdb/pebble/v2"

	"github.com/weirmq/weir/internal/op"
)

// entries are keys and values that wait for their place in a table. They are
// added in ascending order.
type entries struct {
	arena []byte
	list  []entry
}

type entry struct {
	key, end int // the key is arena[key:end]
	value    int // bytes of the value behind it; -1 deletes the key
}

func (e *entries) set(key, value []byte) { e.add(key, value, len(value)) }

func (e *entries) delete(key []byte) { e.add(key, nil, -1) }

func (e *entries) add(key, value []byte, n int) {
	at := len(e.arena)
	e.arena = append(append(e.arena, key...), value...)
	e.list = append(e.list, entry{key: at, end: at + len(key), value: n})
}

func (e *entries) write(tb *table) error {
	for _, en := range e.list {
		key := e.arena[en.key:en.end]
		var err error
		if en.value < 0 {
			err = tb.delete(key)
		} else {
			err = tb.set(key, e.arena[en.end:en.end+en.value])
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// shadow reads the topics that a segment touches, in ascending order, as they
// are in the store.
type shadow struct {
	s      *Store
	metas  *pebble.Iterator
	pages  *pageReader
	diff   *pebble.Iterator // pages once more, to compare
	leases *pebble.Iterator
	routes *pebble.Iterator

	stored map[uint64]Lease // of the topic loaded last
	now    map[uint64]Lease // changes; by number

	routers map[uint64]op.Route // of the topic loaded last, changes applied; by number
	changed map[uint64]bool     // routers to write, or to delete if they are not in routers
}

func (s *Store) newShadow() (*shadow, error) {
	sh := &shadow{s: s, stored: make(map[uint64]Lease), now: make(map[uint64]Lease),
		routers: make(map[uint64]op.Route), changed: make(map[uint64]bool)}
	var err error
	open := func(prefix byte) *pebble.Iterator {
		if err != nil {
			return nil
		}
		var it *pebble.Iterator
		it, err = s.kv.Load().NewIter(&pebble.IterOptions{LowerBound: []byte{prefix}, UpperBound: []byte{prefix + 1}})
		return it
	}
	sh.metas, sh.diff, sh.leases, sh.routes = open(prefixTopic), open(prefixPage), open(prefixLease), open(prefixRouter)
	sh.pages = &pageReader{it: open(prefixPage)}
	if err != nil {
		return nil, cmp.Or(err, sh.close())
	}
	return sh, nil
}

func (sh *shadow) close() error {
	var err error
	for _, it := range []*pebble.Iterator{sh.metas, sh.diff, sh.leases, sh.routes, sh.pages.it} {
		if it != nil {
			err = cmp.Or(err, it.Close())
		}
	}
	return err
}

// load reads the state of a topic with its holes and leases; nil and false if
// the store does not know it.
func (sh *shadow) load(topic uint64) (st *op.State, existed bool, err error) {
	clear(sh.stored)
	clear(sh.now)
	clear(sh.routers)
	clear(sh.changed)
	var buf [topicKeyLen]byte
	k := topicKey(buf[:0], prefixTopic, topic)
	if !sh.metas.SeekGE(k) || !bytes.Equal(sh.metas.Key(), k) {
		return nil, false, sh.metas.Error()
	}
	v, err := sh.metas.ValueAndErr()
	if err != nil {
		return nil, false, err
	}
	if st, err = decodeState(topic, v); err != nil {
		return nil, false, err
	}
	if err := sh.pages.fill(st); err != nil {
		return nil, false, err
	}
	for ok := sh.leases.SeekGE(topicKey(buf[:0], prefixLease, topic)); ok && hasTopic(sh.leases.Key(), prefixLease, topic); ok = sh.leases.Next() {
		v, err := sh.leases.ValueAndErr()
		if err != nil {
			return nil, false, err
		}
		l, err := parseLease(sh.leases.Key(), v)
		if err != nil {
			return nil, false, err
		}
		sh.stored[l.Seq] = l
	}
	if err := sh.leases.Error(); err != nil {
		return nil, false, err
	}
	return st, true, sh.loadRoutes(topic)
}

// lease applies a part that takes, extends or gives back leases.
func (sh *shadow) lease(p *op.Part) {
	for _, l := range p.Leases {
		sh.now[l.Seq] = Lease{Topic: p.Topic, Node: p.Node, Lease: l, Released: p.Kind == op.KindRelease}
	}
}

// forgetLeases drops what the operations up to a drop of the topic did.
func (sh *shadow) forgetLeases() { clear(sh.now) }

// leaseDiff writes what changed in the leases of a topic. Leases of records
// that are gone are gone.
func (sh *shadow) leaseDiff(st *op.State, out *entries) {
	seqs := make([]uint64, 0, len(sh.stored)+len(sh.now))
	for seq := range sh.stored {
		seqs = append(seqs, seq)
	}
	for seq := range sh.now {
		if _, ok := sh.stored[seq]; !ok {
			seqs = append(seqs, seq)
		}
	}
	slices.Sort(seqs)
	var k, v []byte
	for _, seq := range seqs {
		old, stored := sh.stored[seq]
		l, changed := sh.now[seq]
		k = topicNumberKey(k[:0], prefixLease, st.ID, seq)
		switch {
		case !st.Live(seq):
			if stored {
				out.delete(k)
			}
		case changed && (!stored || l != old):
			v = l.encode(v[:0])
			out.set(k, v)
		}
	}
}

// pagesDiff writes what changed in the holes of a topic.
func (sh *shadow) pagesDiff(st *op.State, out *entries) error {
	type newPage struct {
		idx    uint64
		bitmap []byte
	}
	var list []newPage
	st.Holes.Pages(func(idx uint64, bitmap []byte) { list = append(list, newPage{idx, bitmap}) })
	slices.SortFunc(list, func(a, b newPage) int {
		if a.idx < b.idx {
			return -1
		}
		return 1
	})
	var buf [topicNumberKeyLen]byte
	it := sh.diff
	ok := it.SeekGE(topicKey(buf[:0], prefixPage, st.ID))
	stored := func() bool { return ok && hasTopic(it.Key(), prefixPage, st.ID) }
	for _, p := range list {
		for ; stored() && pageNumber(it.Key()) < p.idx; ok = it.Next() {
			out.delete(it.Key())
		}
		if stored() && pageNumber(it.Key()) == p.idx {
			v, err := it.ValueAndErr()
			if err != nil {
				return err
			}
			same := bytes.Equal(v, p.bitmap)
			ok = it.Next()
			if same {
				continue
			}
		}
		out.set(topicNumberKey(buf[:0], prefixPage, st.ID, p.idx), p.bitmap)
	}
	for ; stored(); ok = it.Next() {
		out.delete(it.Key())
	}
	return it.Error()
}
