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
	// Less than -1: a key of -1-value bytes is behind it, and what the store has from
	// one to the other is deleted.
}

func (e *entries) set(key, value []byte) { e.add(key, value, len(value)) }

func (e *entries) delete(key []byte) { e.add(key, nil, -1) }

// deleteStored deletes what the store has from first to last.
func (e *entries) deleteStored(first, last []byte) { e.add(first, last, -1-len(last)) }

func (e *entries) add(key, value []byte, n int) {
	at := len(e.arena)
	e.arena = append(append(e.arena, key...), value...)
	e.list = append(e.list, entry{key: at, end: at + len(key), value: n})
}

func (e *entries) write(tb *table) error {
	for _, en := range e.list {
		key := e.arena[en.key:en.end]
		var err error
		switch {
		case en.value < -1:
			until := append(bytes.Clone(e.arena[en.end:en.end-1-en.value]), 0)
			err = tb.t.s.kv.Load().scan(key, until, func(k, _ []byte) error { return tb.delete(k) })
		case en.value < 0:
			err = tb.delete(key)
		default:
			err = tb.set(key, e.arena[en.end:en.end+en.value])
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// goneKeys gathers keys that follow each other in the store and are to be deleted.
type goneKeys struct {
	out         *entries
	first, last []byte
}

func (g *goneKeys) add(k []byte) {
	if len(g.last) == 0 {
		g.first = append(g.first[:0], k...)
	}
	g.last = append(g.last[:0], k...)
}

// end is called before something else is added, and at the end.
func (g *goneKeys) end() {
	switch {
	case len(g.last) == 0:
	case bytes.Equal(g.first, g.last):
		g.out.delete(g.last)
	default:
		g.out.deleteStored(g.first, g.last)
	}
	g.last = g.last[:0]
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

	known bool // the store has the topic loaded last

	now  map[uint64]Lease // changes to its leases; by number
	room int              // entries of now at which those of records that are gone are taken out

	routers map[uint64]op.Route // of the topic loaded last, changes applied; by number
	stored  map[uint64]bool     // routers that the store has of it
	changed map[uint64]bool     // routers to write, or to delete if they are not in routers
}

func (s *Store) newShadow() (*shadow, error) {
	sh := &shadow{s: s, routers: make(map[uint64]op.Route), stored: make(map[uint64]bool), changed: make(map[uint64]bool)}
	sh.forgetLeases()
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

// load reads the state of a topic with its holes and routers; nil and false if
// the store does not know it.
func (sh *shadow) load(topic uint64) (st *op.State, existed bool, err error) {
	sh.forgetLeases()
	clear(sh.stored)
	clear(sh.routers)
	clear(sh.changed)
	var buf [topicKeyLen]byte
	k := topicKey(buf[:0], prefixTopic, topic)
	if sh.known = sh.metas.SeekGE(k) && bytes.Equal(sh.metas.Key(), k); !sh.known {
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
	return st, true, sh.loadRoutes(topic)
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
