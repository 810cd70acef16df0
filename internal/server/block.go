package server

import "sync"

// block is a piece of memory for a body. Small ones are pooled on the heap.
// Large ones lie outside of it: a slow 64 MiB body then costs the bytes that
// have arrived, leaves no garbage, and does not make the collector wait for
// twice its size.
type block struct {
	b      []byte
	class  int8
	mapped bool
}

// blockSizes are close together, so that a block is at most half as large again
// as what was reserved for it.
var blockSizes = [...]int{8 << 10, 12 << 10, 16 << 10, 24 << 10, 32 << 10, 48 << 10, 64 << 10, 96 << 10, 128 << 10, 192 << 10, 256 << 10}

var blockPools [len(blockSizes)]sync.Pool

// newBlock returns a block of at least size bytes, which may hold old content.
func newBlock(size int) *block {
	for i, s := range blockSizes {
		if size > s {
			continue
		}
		if k, ok := blockPools[i].Get().(*block); ok {
			return k
		}
		return &block{b: make([]byte, s), class: int8(i)}
	}
	if b, err := mapMemory(size); err == nil {
		return &block{b: b, class: -1, mapped: true}
	}
	return &block{b: make([]byte, size), class: -1}
}

// free gives the block back. Nothing may point into it any more.
func (k *block) free() {
	switch {
	case k.mapped:
		b := k.b
		k.b = nil
		if err := unmapMemory(b); err != nil {
			panic("server: giving back the memory of a body: " + err.Error())
		}
	case k.class >= 0:
		blockPools[k.class].Put(k)
	}
}
