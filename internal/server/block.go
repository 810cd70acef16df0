package server

import "sync"

// block is a piece of memory for a body. Small blocks are pooled on the heap. Large
// ones lie outside the heap: a slow 64 MiB body then costs only the bytes that have
// arrived, leaves no garbage, and does not let the heap grow to twice its size before a
// collection.
type block struct {
	b      []byte
	class  int8
	mapped bool
}

// blockSizes are close together, so that a block is at most 1.5 times as large as what
// was reserved for it.
var blockSizes = [...]int{8 << 10, 12 << 10, 16 << 10, 24 << 10, 32 << 10, 48 << 10, 64 << 10, 96 << 10, 128 << 10, 192 << 10, 256 << 10}

var blockPools [len(blockSizes)]sync.Pool

// newBlock returns a block of at least size bytes, which may contain old data.
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

// free releases the block. Nothing may point into it any longer.
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
