package store

import (
	"maps"
	"slices"

	"github.com/weirmq/weir/internal/op"
)

// leaseRoom is the least number of leases at which those of records that are gone are
// looked for.
const leaseRoom = 1 << 10

// lease applies a part that takes, extends or gives back leases. Those of records
// that are gone are not kept; what is above the head may come later in the operation.
func (sh *shadow) lease(st *op.State, p *op.Part) {
	gone := func(seq uint64) bool { return seq <= st.Head && !st.Live(seq) }
	for _, l := range p.Leases {
		if !gone(l.Seq) {
			sh.now[l.Seq] = Lease{Topic: p.Topic, Node: p.Node, Lease: l, Released: p.Kind == op.KindRelease}
		}
	}
	if len(sh.now) < sh.room {
		return
	}
	maps.DeleteFunc(sh.now, func(seq uint64, _ Lease) bool { return gone(seq) })
	if len(sh.now) < sh.room/4 { // a map does not shrink
		left := make(map[uint64]Lease, len(sh.now))
		maps.Copy(left, sh.now)
		sh.now = left
	}
	sh.room = max(leaseRoom, 2*len(sh.now))
}

// forgetLeases drops what the operations up to a drop of the topic did.
func (sh *shadow) forgetLeases() {
	if sh.room == leaseRoom {
		clear(sh.now)
		return
	}
	sh.now, sh.room = make(map[uint64]Lease), leaseRoom
}

// leaseDiff writes what changed in the leases of a topic. Leases of records
// that are gone are gone.
func (sh *shadow) leaseDiff(st *op.State, out *entries) error {
	var seqs []uint64
	if len(sh.now) > 0 {
		maps.DeleteFunc(sh.now, func(seq uint64, _ Lease) bool { return !st.Live(seq) })
		seqs = slices.Sorted(maps.Keys(sh.now))
	}
	gone := goneKeys{out: out}
	var k, v []byte
	write := func(seq uint64) {
		gone.end()
		l := sh.now[seq]
		k, v = topicNumberKey(k[:0], prefixLease, st.ID, seq), l.encode(v[:0])
		out.set(k, v)
	}
	it := sh.leases
	for ok := sh.known && it.SeekGE(topicKey(k, prefixLease, st.ID)); ok && hasTopic(it.Key(), prefixLease, st.ID); ok = it.Next() {
		v, err := it.ValueAndErr()
		if err != nil {
			return err
		}
		old, err := parseLease(it.Key(), v)
		if err != nil {
			return err
		}
		for ; len(seqs) > 0 && seqs[0] < old.Seq; seqs = seqs[1:] {
			write(seqs[0])
		}
		changed := len(seqs) > 0 && seqs[0] == old.Seq
		if changed {
			seqs = seqs[1:]
		}
		switch {
		case !st.Live(old.Seq):
			gone.add(it.Key())
		case changed && sh.now[old.Seq] != old:
			write(old.Seq)
		default:
			gone.end()
		}
	}
	for _, seq := range seqs {
		write(seq)
	}
	gone.end()
	return it.Error()
}
