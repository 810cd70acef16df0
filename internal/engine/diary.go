package engine

import (
	"cmp"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/internal/engine/push"
	"github.com/weirmq/weir/internal/op"
	"github.com/weirmq/weir/internal/wal"
)

// Owner tells whose a watch session is, also after a restart; the zero Owner is
// nobody's in particular.
type Owner = op.Mark

// maxKeptWatch is the largest session that the log takes, in bytes: more than 256
// topics with the longest names. A session with many nodes may be larger, and ends
// with the server.
const maxKeptWatch = 128 << 10

// widPrefix is what a wid has in front of its number.
const widPrefix = "wid_"

func watchIDOf(wid string) (id op.WatchID) {
	if len(wid) >= len(widPrefix) {
		_, _ = base64.RawURLEncoding.Decode(id[:], []byte(wid[len(widPrefix):])) // push has made it
	}
	return id
}

func widOf(id op.WatchID) string { return widPrefix + base64.RawURLEncoding.EncodeToString(id[:]) }

// diary notes the watch sessions in the log. What happens to a session while
// the log takes nothing is not noted: a restart then finds it as it was before,
// or not at all, and its client makes a new one.
type diary struct{ e *Engine }

// Began logs a session with the class disk. It is refused where a write would be,
// for lack of disk space.
func (d diary) Began(k *push.Kept) error {
	owner, _ := k.Owner.(Owner)
	w := op.Watch{ID: watchIDOf(k.WID), Owner: owner, Since: d.e.leaseClock(), Opt: *k.Opt}
	for _, p := range k.Places {
		w.Topics = append(w.Topics, op.WatchPlace{Name: p.Topic, Life: p.Life, Seq: p.Seq})
	}
	part := op.Part{Kind: op.KindWatch, Watch: &w}
	b := part.Encode(nil)
	if len(b) > maxKeptWatch {
		return errors.New("the session is too large for the log")
	}
	if err := d.e.space.room(int64(len(b))); err != nil {
		return err
	}
	tk, err := d.log(b, wal.Written)
	if err != nil {
		return err
	}
	return d.e.wait(tk)
}

// Moved logs what has become of a session.
func (d diary) Moved(wid string, streams bool, to []push.Place) {
	m := op.WatchMove{Since: d.e.leaseClock()}
	if streams {
		m.Since = 0
	}
	for _, p := range to {
		m.Places = append(m.Places, op.MovedPlace{At: p.At, Life: p.Life, Seq: p.Seq})
	}
	part := op.Part{Kind: op.KindWatchMove, Session: watchIDOf(wid), Move: &m}
	_, _ = d.log(part.Encode(nil), wal.Memory) // see diary
}

// Ended logs that sessions have ended.
func (d diary) Ended(wids []string) {
	var b []byte
	for _, wid := range wids {
		part := op.Part{Kind: op.KindWatchEnd, Session: watchIDOf(wid)}
		b = part.Encode(b)
	}
	_, _ = d.log(b, wal.Memory) // see diary
}

func (d diary) log(b []byte, class wal.Class) (ticket, error) {
	gen := d.e.log.Gen()
	lsn, _, err := d.e.log.AppendUnslotted(gen, b, nil, noFrames, class)
	if err != nil {
		return ticket{}, err
	}
	d.e.ingested.Add(int64(len(b)))
	return ticket{lsn, gen, class}, nil
}

// foundWatches are the sessions that a recovery has found so far.
type foundWatches struct {
	all    map[op.WatchID]*op.Watch
	newest int64 // highest Since
	room   int   // how many there may be before those whose time is over go
}

const watchedRoom = 1 << 12

func (x *foundWatches) init() { x.all, x.room = make(map[op.WatchID]*op.Watch), watchedRoom }

// put takes in a session of the store or of the log.
func (x *foundWatches) put(w *op.Watch) {
	x.all[w.ID] = w
	x.newest = max(x.newest, w.Since)
	if len(x.all) <= x.room {
		return
	}
	maps.DeleteFunc(x.all, func(_ op.WatchID, w *op.Watch) bool { return w.Since > 0 && x.newest-w.Since > api.SessionTTLMS })
	x.room = max(watchedRoom, 2*len(x.all))
}

// replay applies a part of a session.
func (x *foundWatches) replay(p *op.Part) {
	switch p.Kind {
	case op.KindWatch:
		x.put(p.Watch)
	case op.KindWatchMove:
		if w := x.all[p.Session]; w != nil {
			w.Move(p.Move)
			x.newest = max(x.newest, w.Since)
		}
	case op.KindWatchEnd:
		delete(x.all, p.Session)
	}
}

// reviveSessions lets the sessions of before the restart go on for the time that they have left,
// those that had a stream for the whole time from now on. With a directory made from a backup none
// does: the ids of its clients are those of another history. If more are left than there may
// be, those that had a stream last stay.
func (e *Engine) reviveSessions() error {
	all := slices.Collect(maps.Values(e.found.all))
	e.found.all = nil
	last := func(w *op.Watch) int64 { return cmp.Or(w.Since, e.startMS) }
	slices.SortFunc(all, func(a, b *op.Watch) int { return cmp.Compare(last(b), last(a)) })
	var said []byte
	n := int64(0)
	for _, w := range all { // the topics may be gone without a trace
		for _, p := range w.Topics {
			e.nextTopic.Store(op.Beyond(e.nextTopic.Load(), p.Life))
			e.created = max(e.created, op.Created(p.Life))
		}
	}
	for _, w := range all {
		idle := max(0, e.startMS-last(w))
		if idle > api.SessionTTLMS {
			break // and so are those behind it
		}
		part := op.Part{Kind: op.KindWatchMove, Session: w.ID, Move: &op.WatchMove{Since: e.startMS}}
		if limit := e.opt.Limits.MaxWatchSessions; e.dir.backup || limit > 0 && n >= limit {
			part.Kind = op.KindWatchEnd
			said = part.Encode(said)
			continue
		}
		if w.Since == 0 {
			said = part.Encode(said)
		}
		e.push.Revive(e.keptOf(w, time.Duration(idle)*time.Millisecond))
		n++
	}
	if len(said) == 0 {
		return nil
	}
	if _, err := (diary{e}).log(said, wal.Memory); err != nil {
		return fmt.Errorf("watch sessions: %w", err)
	}
	return nil
}

func (e *Engine) keptOf(w *op.Watch, idle time.Duration) *push.Kept {
	k := push.Kept{WID: widOf(w.ID), Owner: w.Owner, Opt: &w.Opt, Idle: idle}
	for i, p := range w.Topics {
		place := push.Place{At: i, Topic: p.Name, Life: p.Life, Seq: p.Seq}
		place.From, place.To, place.Again = w.Again(i)
		if t := e.reg.byName[p.Name]; t != nil && t.Life() == p.Life {
			place.Handed = t.Head
		} else if t != nil {
			place.From, place.To, place.Again = 0, api.NoSeq, true
		}
		k.Places = append(k.Places, place)
	}
	return &k
}
