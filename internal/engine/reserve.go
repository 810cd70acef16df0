package engine

import (
	"time"

	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/internal/op"
	"github.com/weirmq/weir/internal/wal"
)

// reserve is how far ahead of a topic's head numbers are safe to hand out: a
// number beyond may be given twice if the machine loses power, because the
// write that took it may be lost after its acknowledgement. With a copy that may
// lag, that goes for the loss of the machine and its disk.
type reserve struct {
	safe    uint64 // numbers up to here are covered by a reservation that is safe
	next    uint64 // covered once what is logged at lsn is safe
	lsn     uint64
	gen     uint32 // of the log, which does not fail that often
	step    uint32
	at      uint32 // with a copy that may lag: when next was chosen; see reserveTick
	pending bool   // next was put into an operation that has no place yet
}

const (
	minReserve = 1 << 10
	maxReserve = 1 << 24

	// With a copy that may lag, a reservation is to last for as long as the store
	// of the copy may be away without holding anybody up.
	minReserveCopied = 1 << 16
	maxReserveCopied = 1 << 31
	reserveCopied    = 15 * time.Minute
	// reserveTick is the unit of the times of reservations, counted from the start, beginning
	// with 1.
	reserveTick = 100 * time.Millisecond
	// firstLook is after how long the rate of a topic is known well enough.
	firstLook = uint32(time.Second / reserveTick)
)

func (r *reserve) logged(lsn, gen uint64) {
	if r.pending {
		r.lsn, r.gen, r.pending = lsn, uint32(gen), false
	}
}

// copyLags reports whether what is acknowledged may be missing in the copy, so
// that every class reserves numbers, and a reservation is safe in the copy only.
func (e *Engine) copyLags() bool { return e.opt.Replica != nil && !e.opt.Replica.Sync }

// reserveHead adds a reservation to an operation if the topic's class can lose
// acknowledged writes and last comes near the end of the one before. The class
// that it returns is what the operation needs before it is acknowledged, because
// last is beyond what is covered; Memory if it is not.
func (e *Engine) reserveHead(head []byte, t *entry, last uint64) (_ []byte, need wal.Class) {
	lags := e.copyLags()
	if t.Config.Durability == api.Fsync && !lags {
		return head, wal.Memory
	}
	safe := wal.Synced
	if lags {
		safe = wal.Shipped
	}
	r := &t.reserve
	if r.next > r.safe {
		if r.gen != uint32(e.log.Gen()) {
			r.next = r.safe // the log has failed since: it may not be there
		} else if e.log.Durable(r.lsn) >= safe {
			r.safe = r.next
		}
	}
	if last > r.safe {
		need = safe
	}
	if lags && r.step < minReserveCopied {
		r.step = minReserveCopied
	} else if r.step == 0 {
		r.step = minReserve
	}
	now := uint32(0)
	if lags {
		now = 1 + uint32(time.Since(e.startAt)/reserveTick)
	}
	if half := uint64(r.step / 2); (r.safe >= last+half || r.next >= last+half) && !(lags && r.short(last, now)) {
		return head, need
	}
	if lags {
		r.pace(last, now)
	} else if last > r.safe {
		r.step = uint32(min(maxReserve, max(2*uint64(r.step), 4*(last-t.Head))))
	}
	r.next, r.pending = last+uint64(r.step), true
	part := op.Part{Kind: op.KindReserve, Topic: t.ID, To: r.next}
	return part.Encode(head), need
}

// short reports whether the reservation was chosen for much less than what has come since:
// a topic that was idle until then may write a lot while the store is away.
func (r *reserve) short(last uint64, now uint32) bool {
	return r.at > 0 && now > r.at+firstLook && r.next <= r.safe && r.want(last, now) > uint64(r.step)+uint64(r.step/2)
}

// pace sets the step by the rate since the reservation before: it is renewed when
// half of it is left, and that half is to last.
func (r *reserve) pace(last uint64, now uint32) {
	if r.at > 0 { // not the first since the start
		r.step = uint32(min(maxReserveCopied, max(minReserveCopied, r.want(last, now))))
	}
	r.at = now
}

// want is the step for the rate since the reservation was chosen.
func (r *reserve) want(last uint64, now uint32) uint64 {
	used := last - min(last, r.next-min(r.next, uint64(r.step)))
	return 2 * used * uint64(reserveCopied/reserveTick) / uint64(max(1, now-min(now, r.at)))
}
