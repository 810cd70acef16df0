package engine

import (
	"errors"
	"sync"

	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/internal/engine/topic"
	"github.com/weirmq/weir/internal/op"
	"github.com/weirmq/weir/internal/wal"
)

// damageRecord is what is known of the damage found since the start.
type damageRecord struct {
	mu       sync.Mutex
	segments map[uint32]bool // sealed ones that hold a damaged place
	ranges   uint64          // lost, as they were announced
	records  uint64          // in them
}

func (r *damageRecord) add(segment uint32, sealed bool, ranges, records uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ranges += ranges
	r.records += records
	if !sealed {
		return
	}
	if r.segments == nil {
		r.segments = make(map[uint32]bool)
	}
	r.segments[segment] = true
}

// has reports whether a sealed segment holds a damaged place: its bytes stay as
// they are until `weir repair --mark`.
func (r *damageRecord) has(segment uint32) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.segments[segment]
}

func (r *damageRecord) totals() (ranges, records uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ranges, r.records
}

// stillAt reports whether the damaged place is where the topic's index still
// looks for its numbers. The topic's lock is held.
func (d *damaged) stillAt(t *entry) bool {
	ref, run, inLog, sealed := t.Index.Find(d.from)
	if d.sealed {
		return sealed && run.Segment == d.segment
	}
	return inLog && ref.Segment == d.segment
}

// lose announces the live numbers at a damaged place as lost, with the reason
// crash. It logs and stages the loss, so that every verb skips them from here
// on, and returns what to wait for until readers see it, and how many numbers
// it took. The topic's lock is held.
func (e *Engine) lose(t *entry, d *damaged) (wait ticket, n uint64, err error) {
	e.advance(t)
	if d.stillAt(t) {
		if n, err = e.stageLoss(t, d); err != nil {
			return ticket{}, 0, err
		}
		e.advance(t)
	}
	lsn, gen, need := t.Pending()
	return ticket{lsn, gen, wal.Class(need)}, n, nil
}

func (e *Engine) stageLoss(t *entry, d *damaged) (n uint64, err error) {
	to := min(d.to, t.Head)
	if at, ok := t.Index.NextInMemory(d.from); ok && at <= to {
		to = at - 1 // of another place
	}
	var lost op.Range
	for seq := t.NextFree(d.from - 1); seq <= to; seq = t.NextFree(seq) {
		if n++; n == 1 {
			lost.From = seq
		}
		lost.To = seq
	}
	if n == 0 {
		return 0, nil // deleted or announced meanwhile
	}
	size := min(uint64(d.size*float64(n)), t.PlannedBytes())
	if n == t.PlannedCount() {
		size = t.PlannedBytes()
	}
	// First their count goes; then the range holds no record and can be lost.
	count := op.Part{Kind: op.KindDelete, Topic: t.ID, N: n, Bytes: size}
	gap := op.Part{Kind: op.KindLose, Topic: t.ID, From: lost.From, To: lost.To, Cause: op.CauseCrash}
	tk, _, err := e.append(t, gap.Encode(count.Encode(nil)), nil, noFrames, wal.Memory, nil)
	if err != nil {
		return 0, err
	}
	t.stage(topic.Staged{LSN: tk.lsn, Gen: tk.gen, Need: uint8(tk.need), Parts: []op.Part{count, gap}})
	e.account(t)
	e.damage.add(d.segment, d.sealed, 1, n)
	text := "records cannot be read and are announced as lost"
	if d.sealed {
		text += "; the bytes stay until `weir repair --mark`"
	}
	e.opt.Logger.Error(text,
		"topic", t.Name, "from_seq", lost.From, "to_seq", lost.To, "records", n, "file", d.file, "error", d.err.Error())
	return n, nil
}

// stepOver announces the loss of damaged records that a reader met, and returns
// once it is visible. The topic's lock is free.
func (e *Engine) stepOver(t *entry, d *damaged) error {
	return e.changeAgain(e.stop, t, func(t *entry) (ticket, error) {
		tk, _, err := e.lose(t, d)
		return tk, err
	})
}

// stepOverHeld is stepOver within a plan that met err: if that is damage it
// announces the loss and returns nil, and the plan looks again. The topic's
// lock is held.
func (e *Engine) stepOverHeld(t *entry, err error) error {
	var d *damaged
	if !errors.As(err, &d) {
		return err
	}
	_, n, err := e.lose(t, d)
	if err == nil && n == 0 {
		return unreadable(t, d.from, d.err) // it is not visible yet
	}
	return err
}

// itemOrGuess is item for a record that is removed by number, readable or not.
// The topic's lock is held.
func (e *Engine) itemOrGuess(t *entry, seq uint64) (item, error) {
	it, err := e.item(t, seq)
	var d *damaged
	if errors.As(err, &d) {
		return item{seq: seq, size: uint32(d.size), logged: true}, nil
	}
	return it, err
}

// maxReplans is how often a reader plans again without getting on before the
// record counts as unreadable.
const maxReplans = 10

// replans counts the plans that got nowhere.
type replans struct {
	at uint64
	n  int
}

// again reports whether a reader that stopped in front of seq with err may
// plan again; otherwise it returns the error to answer with. What is damaged is
// announced as lost, and stepped over. The records of a
// topic that has ended are nowhere: that is no damage. The topic's lock is free.
func (r *replans) again(e *Engine, t *entry, seq uint64, err error) (bool, error) {
	var d *damaged
	switch {
	case err == nil:
		return true, nil
	case errors.As(err, &d):
		seq = d.from
		if err := e.stepOver(t, d); err != nil {
			return false, err
		}
	case err != errMoved:
		return false, err
	case t.isGone():
		return false, api.TopicNotFound(t.Name)
	}
	if r.at != seq {
		r.at, r.n = seq, 0
	}
	if r.n++; r.n > maxReplans {
		return false, unreadable(t, seq, nil)
	}
	return true, nil
}
