package topic

import (
	"slices"

	"github.com/weirmq/weir/internal/op"
)

// Key is the remembered result of a write that carried an idempotency key.
type Key struct {
	First uint64
	N     uint32
	At    int64  // when it was written, on the lease clock
	Sum   uint32 // of the records; 0: not known
	// Pending is set until the write is visible; LSN, Gen and Need say what to
	// wait for.
	Pending  bool
	LSN, Gen uint64
	Need     uint8
}

// Keys is the idempotency window of a topic, by the hash of the key.
type Keys struct {
	m     map[op.KeyHash]Key
	order []keyAge // by age, oldest first
	most  int      // results that m was made for
}

type keyAge struct {
	hash op.KeyHash
	at   int64
}

// Get returns the result under the key if it is not older than the window.
func (k *Keys) Get(hash op.KeyHash, now int64, windowMS uint64) (Key, bool) {
	e, ok := k.m[hash]
	if !ok || windowMS == 0 || !e.Pending && outside(e.At, now, windowMS) {
		return Key{}, false
	}
	return e, true
}

// At returns when the result that begins at number first was written.
func (k *Keys) At(hash op.KeyHash, first uint64) (at int64, ok bool) {
	e, ok := k.m[hash]
	return e.At, ok && e.First == first
}

func outside(at, now int64, windowMS uint64) bool {
	return windowMS == 0 || now > at && uint64(now-at) > windowMS
}

// Put remembers a result.
func (k *Keys) Put(hash op.KeyHash, e Key) {
	if k.m == nil {
		k.m = make(map[op.KeyHash]Key)
	}
	k.m[hash] = e
	k.most = max(k.most, len(k.m))
	k.order = append(k.order, keyAge{hash, e.At})
}

// Expire forgets what is older than the window, at most so many results, and
// reports whether there is more.
func (k *Keys) Expire(now int64, windowMS uint64, most int) (more bool) {
	n := 0
	for n < len(k.order) && outside(k.order[n].at, now, windowMS) {
		if more = n == most; more {
			break
		}
		o := k.order[n]
		if e, ok := k.m[o.hash]; ok && e.At == o.at {
			if e.Pending {
				break
			}
			delete(k.m, o.hash)
		}
		n++
	}
	k.order = k.order[n:]
	k.shrink(n)
	return more
}

// shrink gives memory back: a map never does by itself, and a slice keeps what
// was cut off in front.
func (k *Keys) shrink(cut int) {
	if len(k.m) == 0 {
		k.m, k.most = nil, 0
	} else if k.most > 1024 && len(k.m) < k.most/8 {
		m := make(map[op.KeyHash]Key, len(k.m))
		for hash, e := range k.m { // a clone would keep the size
			m[hash] = e
		}
		k.m, k.most = m, len(m)
	}
	if len(k.order) == 0 {
		k.order = nil
	} else if cut > len(k.order) {
		k.order = slices.Clone(k.order)
	}
}

// Publish remembers a result that is visible; one that was put as pending is
// that from here on.
func (k *Keys) Publish(hash op.KeyHash, e Key) {
	if have, ok := k.m[hash]; ok && have.Pending {
		e.At = have.At
		k.m[hash] = e
		return
	}
	k.Put(hash, e)
}

// NotAfter ends a recovery, which does not know of every result when it was written: none was after
// now.
func (k *Keys) NotAfter(now int64) {
	for i := range k.order {
		o := &k.order[i]
		if o.at <= now {
			continue
		}
		if e, ok := k.m[o.hash]; ok && e.At == o.at {
			e.At = now
			k.m[o.hash] = e
		}
		o.at = now
	}
}

// Forget removes a result whose write failed.
func (k *Keys) Forget(hash op.KeyHash) { delete(k.m, hash) }

// Len is the number of results remembered.
func (k *Keys) Len() int { return len(k.m) }
