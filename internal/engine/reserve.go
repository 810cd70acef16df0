package engine

import (
	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/internal/op"
	"github.com/weirmq/weir/internal/wal"
)

// reserve is how far ahead of a topic's head numbers are safe to hand out: a
// number beyond may be given twice if the machine loses power, because the
// write that took it may be lost after its acknowledgement.
type reserve struct {
	safe    uint64 // numbers up to here are covered by a synced reservation
	next    uint64 // covered once what is logged at lsn is synced
	lsn     uint64
	gen     uint64
	step    uint32
	pending bool // next was put into an operation that has no place yet
}

const (
	minReserve = 1 << 10
	maxReserve = 1 << 24
)

func (r *reserve) logged(lsn, gen uint64) {
	if r.pending {
		r.lsn, r.gen, r.pending = lsn, gen, false
	}
}

// reserveHead adds a reservation to an operation if the topic's class can lose
// acknowledged writes and last comes near the end of the one before. synced
// says that the operation has to be synced before it is acknowledged, because
// last is beyond what is covered.
func (e *Engine) reserveHead(head []byte, t *entry, last uint64) (_ []byte, synced bool) {
	if t.Config.Durability == api.Fsync {
		return head, false
	}
	r := &t.reserve
	if r.next > r.safe {
		if r.gen != e.log.Gen() {
			r.next = r.safe // the log has failed since: it may not be there
		} else if e.log.Durable(r.lsn) >= wal.Synced {
			r.safe = r.next
		}
	}
	if r.step == 0 {
		r.step = minReserve
	}
	if half := uint64(r.step / 2); r.safe >= last+half || r.next >= last+half {
		return head, last > r.safe
	}
	if last > r.safe {
		r.step = uint32(min(maxReserve, max(2*uint64(r.step), 4*(last-t.Head))))
	}
	r.next, r.pending = last+uint64(r.step), true
	part := op.Part{Kind: op.KindReserve, Topic: t.ID, To: r.next}
	return part.Encode(head), last > r.safe
}
