package store

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/weirmq/weir/internal/op"
)

// Routes reads the routers that exist, in the order of their sources. An error
// of the callback ends it.
func (s *Store) Routes(fn func(op.Route) error) error {
	err := s.kv.Load().scan([]byte{prefixRouter}, []byte{prefixRouter + 1}, func(k, v []byte) error {
		r, err := parseRoute(k, v)
		if err != nil {
			return err
		}
		return fn(r)
	})
	if err != nil {
		return fmt.Errorf("store: %s: %w", s.dir, plain{err})
	}
	return nil
}

func parseRoute(k, v []byte) (op.Route, error) {
	if len(k) != topicNumberKeyLen {
		return op.Route{}, badKey(k)
	}
	r, err := op.DecodeRoute(binary.BigEndian.Uint64(k[1:]), binary.BigEndian.Uint64(k[topicKeyLen:]), v)
	if err != nil {
		return op.Route{}, badValue(k)
	}
	return r, nil
}

// Topics calls fn with the number of every topic that the store has.
func (s *Store) Topics(fn func(id uint64)) error {
	err := s.kv.Load().scan([]byte{prefixTopic}, []byte{prefixTopic + 1}, func(k, _ []byte) error {
		id, err := keyTopic(k, topicKeyLen)
		if err == nil {
			fn(id)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("store: %s: %w", s.dir, plain{err})
	}
	return nil
}

// loadRoutes reads the routers of a source.
func (sh *shadow) loadRoutes(topic uint64) error {
	var buf [topicKeyLen]byte
	it := sh.routes
	for ok := it.SeekGE(topicKey(buf[:0], prefixRouter, topic)); ok && hasTopic(it.Key(), prefixRouter, topic); ok = it.Next() {
		v, err := it.ValueAndErr()
		if err != nil {
			return err
		}
		r, err := parseRoute(it.Key(), v)
		if err != nil {
			return err
		}
		sh.routers[r.ID] = r
		sh.stored[r.ID] = true
	}
	return it.Error()
}

// route applies a part that makes, moves or ends a router.
func (sh *shadow) route(p *op.Part) {
	r, known := sh.routers[p.Router]
	switch p.Kind {
	case op.KindRouter:
		r = *p.Route
	case op.KindRouterDrop:
		if known {
			delete(sh.routers, p.Router)
			if sh.changed[p.Router] = true; !sh.stored[p.Router] {
				delete(sh.changed, p.Router)
			}
		}
		return
	default:
		if !known {
			return // a copy that was under way when its router ended
		}
		r.Apply(p)
	}
	sh.routers[r.ID] = r
	sh.changed[r.ID] = true
}

// forgetRoutes drops what the operations up to a drop of the topic did.
func (sh *shadow) forgetRoutes() {
	clear(sh.routers)
	clear(sh.changed)
}

// routesDiff writes what changed in the routers of a source.
func (sh *shadow) routesDiff(source uint64, out *entries) {
	ids := make([]uint64, 0, len(sh.changed))
	for id := range sh.changed {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	var k, v []byte
	for _, id := range ids {
		k = topicNumberKey(k[:0], prefixRouter, source, id)
		if r, ok := sh.routers[id]; ok {
			v = r.EncodeRoute(v[:0])
			out.set(k, v)
		} else {
			out.delete(k)
		}
	}
}
