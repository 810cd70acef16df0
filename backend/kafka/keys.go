package kafka

import "sync"

// keysKept is how many idempotency keys a handle remembers at least.
const keysKept = 50_000

// keys are the idempotency keys that this handle has used. Kafka remembers none: what
// another handle or process has stored with a key is stored again.
type keys struct {
	mu        sync.Mutex
	now, past map[string]*flight
}

// flight is an append of one message with a key.
type flight struct {
	mu   sync.Mutex
	id   string
	err  error
	over bool
	then []func(id string, err error)
}

// begin returns the flight of a key, and whether there was one already.
func (k *keys) begin(key string) (f *flight, known bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, m := range []map[string]*flight{k.now, k.past} {
		if f := m[key]; f != nil {
			return f, true
		}
	}
	if k.now == nil || len(k.now) >= keysKept {
		k.now, k.past = map[string]*flight{}, k.now
	}
	f = &flight{}
	k.now[key] = f
	return f, false
}

// forget makes a key new again: its message was not stored.
func (k *keys) forget(key string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.now, key)
	delete(k.past, key)
}

// await calls tell once the message's fate is known.
func (f *flight) await(tell func(id string, err error)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.over {
		tell(f.id, f.err)
		return
	}
	f.then = append(f.then, tell)
}

func (f *flight) land(id string, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.id, f.err, f.over = id, err, true
	for _, tell := range f.then {
		tell(id, err)
	}
	f.then = nil
}
