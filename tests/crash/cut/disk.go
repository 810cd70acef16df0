package main

import (
	"math/rand/v2"
	"sync"
)

const blockSize = 4096

// object is a file or directory as the disk knows it: what programs see now,
// and what would be there after a power cut.
type object struct {
	ino   uint64
	dir   bool
	mode  uint32
	links int

	data    []byte       // now
	durable []byte       // at the last sync
	dirty   map[int]bool // blocks written since

	entries map[string]*object // now
	synced  map[string]*object // at the last sync of the directory
	changes []change           // since, oldest first
}

// change is one change of a directory: names it sets (nil: removes). A rename
// within a directory is one change.
type change map[string]*object

// disk is a volume in memory that forgets what was not synced.
type disk struct {
	mu   sync.Mutex
	root *object
	last uint64
	rnd  *rand.Rand
}

func newDisk(seed uint64) *disk {
	d := &disk{rnd: rand.New(rand.NewPCG(seed, 3))}
	d.root = d.object(true, 0o700)
	return d
}

func (d *disk) object(dir bool, mode uint32) *object {
	d.last++
	o := &object{ino: d.last, dir: dir, mode: mode, dirty: map[int]bool{}}
	if dir {
		o.entries, o.synced = map[string]*object{}, map[string]*object{}
	}
	return o
}

// alter applies a change to a directory.
func (o *object) alter(c change) {
	o.changes = append(o.changes, c)
	c.apply(o.entries)
}

func (c change) apply(entries map[string]*object) {
	for name, to := range c {
		if to == nil {
			delete(entries, name)
		} else {
			entries[name] = to
		}
	}
}

func (o *object) write(p []byte, off int64) {
	end := int(off) + len(p)
	o.resize(max(end, len(o.data)))
	copy(o.data[off:], p)
	o.touch(int(off), end)
}

// resize sets the length; new bytes are zero.
func (o *object) resize(n int) {
	if n <= len(o.data) {
		clear(o.data[n:])
		o.data = o.data[:n]
		return
	}
	old := len(o.data)
	if n > cap(o.data) {
		grown := make([]byte, old, n+n/4)
		copy(grown, o.data)
		o.data = grown
	}
	o.data = o.data[:n]
	o.touch(old, n)
}

func (o *object) touch(from, to int) {
	for b := from / blockSize; b*blockSize < to; b++ {
		o.dirty[b] = true
	}
}

// sync makes the present state the durable one.
func (o *object) sync() {
	if o.dir {
		for _, c := range o.changes {
			c.apply(o.synced)
		}
		o.changes = nil
		return
	}
	o.durable = fit(o.durable, len(o.data))
	for b := range o.dirty {
		copyBlock(o.durable, o.data, b)
	}
	clear(o.dirty)
}

func fit(p []byte, n int) []byte {
	if n <= len(p) {
		return p[:n]
	}
	grown := make([]byte, n)
	copy(grown, p)
	return grown
}

func copyBlock(to, from []byte, b int) {
	if at := b * blockSize; at < len(to) && at < len(from) {
		copy(to[at:min(at+blockSize, len(to))], from[at:])
	}
}

// cut is a loss of power: every unsynced block and directory change survives
// with the chance keep, each on its own.
func (d *disk) cut(keep float64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.cutObject(d.root, keep, map[*object]bool{})
}

func (d *disk) cutObject(o *object, keep float64, done map[*object]bool) {
	if done[o] {
		return
	}
	done[o] = true
	survives := func() bool { return d.rnd.Float64() < keep }
	if !o.dir {
		d.cutFile(o, survives)
		return
	}
	for _, c := range o.changes {
		if survives() {
			c.apply(o.synced)
		}
	}
	o.changes = nil
	clear(o.entries)
	for name, child := range o.synced {
		o.entries[name] = child
		d.cutObject(child, keep, done)
	}
}

func (d *disk) cutFile(o *object, survives func() bool) {
	size := len(o.durable)
	if len(o.data) != size && survives() {
		size = len(o.data)
	}
	after := fit(append([]byte(nil), o.durable...), size)
	for b := range o.dirty {
		if survives() {
			copyBlock(after, o.data, b)
		}
	}
	o.data, o.durable = after, append([]byte(nil), after...)
	clear(o.dirty)
}
