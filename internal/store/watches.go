package store

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/cockroachdb/pebble/v2"

	"github.com/weirmq/weir/internal/op"
)

// Watches reads the watch sessions, also those whose time is over. An error of
// the callback, which may keep the session, ends it.
func (s *Store) Watches(fn func(*op.Watch) error) error {
	err := s.kv.Load().scan([]byte{prefixWatch}, []byte{prefixWatch + 1}, func(k, v []byte) error {
		w, err := parseWatch(k, v)
		if err != nil {
			return err
		}
		return fn(w)
	})
	if err != nil {
		return fmt.Errorf("store: %s: %w", s.dir, plain{err})
	}
	return nil
}

// Clock reads how the clocks stood at last; zero if nothing is known.
func (s *Store) Clock() (c op.Clock, err error) {
	err = s.kv.Load().scan([]byte{prefixClock}, []byte{prefixClock + 1}, func(_, v []byte) error {
		c, err = op.DecodeClock(v)
		return err
	})
	if err != nil {
		return c, fmt.Errorf("store: %s: %w", s.dir, plain{err})
	}
	return c, nil
}

func watchKey(dst []byte, id op.WatchID) []byte { return append(append(dst, prefixWatch), id[:]...) }

func parseWatch(k, v []byte) (*op.Watch, error) {
	if len(k) != 1+len(op.WatchID{}) {
		return nil, badKey(k)
	}
	w, err := op.DecodeWatch(v)
	if err != nil || !bytes.Equal(w.ID[:], k[1:]) {
		return nil, badValue(k)
	}
	return w, nil
}

// sessions are the watch sessions that a segment begins, moves or ends; nil for
// those that are gone.
type sessions map[op.WatchID]*op.Watch

// apply applies a part. What moves a session that nobody knows is passed over; one
// that lives no more takes memory only if the store has it.
func (c sessions) apply(k *kv, p *op.Part, view View) error {
	id := p.Session
	if p.Kind == op.KindWatch {
		id = p.Watch.ID
	}
	if view != nil && !view.Watching(id) {
		w, err := k.watch(id)
		if _, known := c[id]; known || w != nil {
			c[id] = nil
		}
		return err
	}
	switch p.Kind {
	case op.KindWatch:
		c[p.Watch.ID] = p.Watch
	case op.KindWatchEnd:
		c[p.Session] = nil
	case op.KindWatchMove:
		w, known := c[p.Session]
		if !known {
			var err error
			if w, err = k.watch(p.Session); err != nil {
				return err
			}
		}
		if w != nil {
			w.Move(p.Move)
			c[p.Session] = w
		}
	}
	return nil
}

// watch reads one session; nil if it is not there.
func (k *kv) watch(id op.WatchID) (*op.Watch, error) {
	key := watchKey(nil, id)
	v, closer, err := k.Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	w, err := parseWatch(key, v)
	return w, errors.Join(err, closer.Close())
}

// watches writes the sessions that the segment has changed, and takes out those
// that live no more: their number is bounded by those that live.
func (b *sealer) watches(out *entries) error {
	changed := b.parts.sessions
	lives := func(id op.WatchID) bool { return b.view == nil || b.view.Watching(id) }
	stored := make(map[op.WatchID]bool)
	err := b.shadow.s.kv.Load().scan([]byte{prefixWatch}, []byte{prefixWatch + 1}, func(k, _ []byte) error {
		if len(k) != 1+len(op.WatchID{}) {
			return badKey(k)
		}
		id := op.WatchID(k[1:])
		stored[id] = true
		if !lives(id) {
			changed[id] = nil
		}
		return nil
	})
	if err != nil {
		return err
	}
	ids := slices.SortedFunc(maps.Keys(changed), func(x, y op.WatchID) int { return bytes.Compare(x[:], y[:]) })
	var k, v []byte
	for _, id := range ids {
		k = watchKey(k[:0], id)
		if w := changed[id]; w != nil && lives(id) {
			v = w.EncodeWatch(v[:0])
			out.set(k, v)
		} else if stored[id] {
			out.delete(k)
		}
	}
	return nil
}
