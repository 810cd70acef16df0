// Package store keeps sealed segments of the log in Pebble.
//
// Pebble is never written to: it has no log of its own and its memtable stays
// empty. Every change is a set of finished tables that one atomic Ingest (with
// an excise, where something goes) takes in, so that after a crash the store is
// exactly what it was before or after that change.
//
// Integers in keys are big-endian and of fixed size, so that keys sort by value:
//
//	d · segment u32 · topic u64 · last seq u64  → chunk of records (see Chunk)
//	i · segment u32 · topic u64 · hash [16]     → idempotency key: first, n, ts, sum
//	m · topic u64                               → topic state without its holes
//	n                                           → format version of this layout
//	q · topic u64 · seq u64                     → durable lease
//	r · source u64 · router u64                 → router with its position
//	s · topic u64 · segment u32                 → Run: what of a topic is in a segment
//	t · segment u32                             → totals of a segment
//	w · id [16]                             → watch session
//	x · topic u64 · page u64                    → bitmap of deleted numbers
//	y                                           → how the clocks stood at last
//	z                                           → number of the last operation taken in
//
// Records (d) and idempotency keys (i) of a segment have tables of their own.
// No other table overlaps them, so they land in the lowest level, are never
// compacted, and their files go as soon as the segment does. The few bytes of
// all other keys are compacted by Pebble as usual.
package store
