package store

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/cockroachdb/pebble/v2"

	"github.com/weirmq/weir/internal/op"
)

// Load reads everything about the topics that exist: states with their holes in
// the order of their numbers, runs in the order of topic and segment, keys in
// the order of their segments, leases in the order of topic and number. The
// callback may keep the state. An error of a callback ends the load.
func (s *Store) Load(state func(*op.State) error, run func(Run) error, key func(Key) error, lease func(Lease) error) error {
	l := loader{s: s}
	for _, step := range []func() error{
		func() error { return l.states(state) },
		func() error { return l.runs(run) },
		func() error { return l.keys(key) },
		func() error { return l.leases(lease) },
	} {
		if err := step(); err != nil {
			return fmt.Errorf("store: %s: %w", s.dir, plain{err})
		}
	}
	return nil
}

type loader struct {
	s      *Store
	topics []uint64 // those that exist, ascending
}

func (l *loader) states(fn func(*op.State) error) error {
	pages, err := l.s.pages()
	if err != nil {
		return err
	}
	err = l.s.kv.Load().scan([]byte{prefixTopic}, []byte{prefixTopic + 1}, func(k, v []byte) error {
		topic, err := keyTopic(k, topicKeyLen)
		if err != nil {
			return err
		}
		st, err := decodeState(topic, v)
		if err != nil {
			return err
		}
		if err := pages.fill(st); err != nil {
			return err
		}
		l.topics = append(l.topics, topic)
		return fn(st)
	})
	return cmp.Or(err, pages.it.Close())
}

func decodeState(topic uint64, v []byte) (*op.State, error) {
	st, err := op.DecodeState(v)
	if err != nil {
		return nil, fmt.Errorf("%w: topic %d: %w", errMalformed, topic, err)
	}
	if st.ID != topic {
		return nil, fmt.Errorf("%w: the state of topic %d is that of topic %d", errMalformed, topic, st.ID)
	}
	return st, nil
}

// pageReader reads the holes of topics in ascending order.
type pageReader struct {
	it     *pebble.Iterator
	at     uint64 // topic of the page it stands on
	topic  bool   // it stands on a page
	placed bool
}

func (s *Store) pages() (*pageReader, error) {
	it, err := s.kv.Load().NewIter(&pebble.IterOptions{LowerBound: []byte{prefixPage}, UpperBound: []byte{prefixPage + 1}})
	if err != nil {
		return nil, err
	}
	return &pageReader{it: it}, nil
}

func (p *pageReader) arrive(valid bool) (err error) {
	p.placed, p.topic = true, valid
	if !valid {
		return p.it.Error()
	}
	p.at, err = keyTopic(p.it.Key(), topicNumberKeyLen)
	return err
}

// fill puts the pages of the topic into its state.
func (p *pageReader) fill(st *op.State) error {
	if !p.placed || (p.topic && p.at < st.ID) {
		var k [topicKeyLen]byte
		if err := p.arrive(p.it.SeekGE(topicKey(k[:0], prefixPage, st.ID))); err != nil {
			return err
		}
	}
	for p.topic && p.at == st.ID {
		v, err := p.it.ValueAndErr()
		if err != nil {
			return err
		}
		if !st.Holes.SetPage(pageNumber(p.it.Key()), v) {
			return badValue(p.it.Key())
		}
		if err := p.arrive(p.it.Next()); err != nil {
			return err
		}
	}
	return nil
}

func (l *loader) exists(topic uint64) bool {
	_, ok := slices.BinarySearch(l.topics, topic)
	return ok
}

func (l *loader) runs(fn func(Run) error) error {
	return l.s.kv.Load().scan([]byte{prefixRun}, []byte{prefixRun + 1}, func(k, v []byte) error {
		r, err := parseRun(k, v)
		if err != nil || !l.exists(r.Topic) {
			return err
		}
		return fn(r)
	})
}

func (l *loader) keys(fn func(Key) error) error {
	return l.s.kv.Load().scan([]byte{prefixKey}, []byte{prefixKey + 1}, func(k, v []byte) error {
		key, err := parseIdempotency(k, v)
		if err != nil || !l.exists(key.Topic) {
			return err
		}
		return fn(key)
	})
}

func (l *loader) leases(fn func(Lease) error) error {
	return l.s.kv.Load().scan([]byte{prefixLease}, []byte{prefixLease + 1}, func(k, v []byte) error {
		lease, err := parseLease(k, v)
		if err != nil || !l.exists(lease.Topic) {
			return err
		}
		return fn(lease)
	})
}
