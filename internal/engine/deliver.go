package engine

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/internal/engine/sched"
	"github.com/weirmq/weir/internal/engine/watch"
	"github.com/weirmq/weir/internal/op"
)

// deliverLoop visits the dirty topics of one shard.
func (e *Engine) deliverLoop(shard int) {
	var v visit
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for e.stop.Err() == nil {
		now := e.mono()
		task, kind, ok := e.sched.Next(shard, now)
		if ok {
			t := task.Owner().(*entry)
			if e.hooks.begin != nil {
				e.hooks.begin(t.Name)
			}
			e.visit(&v, t, kind)
			continue
		}
		sleep := time.Hour
		if due, held := e.sched.NextDue(shard, now); held {
			sleep = due - now
		}
		timer.Reset(sleep)
		select {
		case <-e.stop.Done():
			return
		case <-e.sched.Park(shard):
		case <-timer.C:
		}
	}
}

// visitHooks let a test run between the steps of a visit; they are nil
// otherwise. They are set before any topic is dirty.
type visitHooks struct {
	begin    func(topic string) // the topic was picked up
	headRead func(topic string) // the visit knows how far it goes
}

// visit is what one worker keeps from visit to visit.
type visit struct {
	subs   []*sub
	groups []group
	body   []byte
}

// group is the live subs of a topic that get the same frames: same options,
// same cursor.
type group struct {
	opt   *api.WatchOptions
	style api.FrameStyle
	pos   uint64
	subs  []*sub
}

func (g *group) takes(w *sub) bool {
	return g.pos == w.pos && g.style == w.s.style && (g.opt == w.opt || sameFrames(g.opt, w.opt))
}

func sameFrames(a, b *api.WatchOptions) bool {
	return a.Limit == b.Limit && a.MaxBatchBytes == b.MaxBatchBytes && a.IncludeMeta == b.IncludeMeta &&
		a.IncludeTags == b.IncludeTags && a.IncludeData == b.IncludeData && slices.Equal(a.Nodes, b.Nodes)
}

// visit does a topic's work: its routers, then its streams.
func (e *Engine) visit(v *visit, t *entry, kind sched.Kind) {
	if kind&sched.Routers != 0 && t.hasRouters() {
		begin := time.Now()
		more := e.forward(e.stop, t, visitBudget)
		e.push.routing.Add(int64(time.Since(begin)))
		if more {
			e.sched.Again(&t.push.task, e.mono())
		}
	}
	if kind&sched.Streams != 0 && t.push.watchers.n.Load() > 0 {
		e.deliver(v, t)
	}
}

// visitBudget is how many source records a visit copies for each router
// (scheduler 2.9).
const visitBudget = 1024

// deliver puts what is new into the outboxes of the topic's live subs, each
// frame encoded once for all who get it.
func (e *Engine) deliver(v *visit, t *entry) {
	now := e.clock()
	t.mu.Lock()
	head, gone := t.Head, t.gone
	t.mu.Unlock()
	if gone {
		return
	}
	if e.hooks.headRead != nil {
		e.hooks.headRead(t.Name)
	}
	t.lastRead.Store(now)
	v.subs = t.push.watchers.list(v.subs[:0])
	v.groups = v.groups[:0]
	for _, w := range v.subs {
		v.sort(w, head)
	}
	for i := range v.groups {
		e.feed(v, t, &v.groups[i], head)
	}
	clear(v.subs)
	clear(v.groups)
}

// sort puts a live sub that is behind into its group; a strong watch, which
// must see synced records only, reads for itself.
func (v *visit) sort(w *sub, head uint64) {
	s := w.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if !w.live || s.lagged || w.pos == head {
		return
	}
	if w.opt.Strong {
		w.live = false
		s.enqueue(w)
		s.wake()
		return
	}
	for i := range v.groups {
		if g := &v.groups[i]; g.takes(w) {
			g.subs = append(g.subs, w)
			return
		}
	}
	if len(v.groups) == maxGroups {
		w.live = false
		s.enqueue(w)
		s.wake()
		return
	}
	if len(v.groups) < cap(v.groups) {
		v.groups = v.groups[:len(v.groups)+1]
		g := &v.groups[len(v.groups)-1]
		*g = group{opt: w.opt, style: s.style, pos: w.pos, subs: append(g.subs[:0], w)}
		return
	}
	v.groups = append(v.groups, group{opt: w.opt, style: s.style, pos: w.pos, subs: []*sub{w}})
}

// maxGroups bounds the different kinds of frames that a visit makes; a sub that
// needs another kind reads for itself.
const maxGroups = 64

// feed reads from the group's cursor up to the head and offers the frames.
func (e *Engine) feed(v *visit, t *entry, g *group, head uint64) {
	for pos := g.pos; pos < head && len(g.subs) > 0; {
		t.mu.Lock()
		if t.gone {
			t.mu.Unlock()
			return
		}
		rd := reading{e: e, t: t, opt: g.opt, style: g.style, upTo: t.Head, body: v.body[:0]}
		if err := rd.run(e.stop, pos); err != nil {
			for _, w := range g.subs {
				w.readAlone(pos) // it meets the error by itself
			}
			return
		}
		frames := g.frames(t.Name, &rd)
		if v.body = rd.body; cap(v.body) > maxPooled {
			v.body = nil
		}
		caughtUp := rd.next >= head
		if caughtUp && rd.n > 0 {
			frames = append(frames, &watch.Frame{Body: g.style.AppendCaughtUpFrame(nil, t.Name, rd.head), Pos: rd.next, Kind: watch.CaughtUp})
		}
		kept := g.subs[:0]
		for _, w := range g.subs {
			if w.offer(pos, frames) {
				kept = append(kept, w)
			}
		}
		clear(g.subs[len(kept):])
		g.subs = kept
		pos = rd.next
	}
}

// frames are what one reading gave.
func (g *group) frames(name string, rd *reading) []*watch.Frame {
	frames := make([]*watch.Frame, 0, 3)
	if rd.tomb != nil {
		frames = append(frames, &watch.Frame{Body: g.style.AppendTombstoneFrame(nil, name, rd.tomb), Pos: rd.from, Kind: watch.Tombstone})
	}
	if rd.n > 0 {
		return append(frames, &watch.Frame{Body: slices.Clone(rd.body), Pos: rd.next, Kind: watch.Records})
	}
	return append(frames, &watch.Frame{Pos: rd.next, Kind: watch.Position})
}

// offer queues frames that begin at the cursor pos and reports whether all of
// them were taken. If not, the stream is lagged from here on.
func (w *sub) offer(pos uint64, frames []*watch.Frame) bool {
	s := w.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if !w.live || s.lagged || w.pos != pos {
		return false
	}
	for _, f := range frames {
		if !s.out.Offer(w, f) {
			s.lagged = true
			s.e.push.lagged.Add(1)
			s.e.push.laggedTotal.Add(1)
			s.wake()
			return false
		}
		w.pos = f.Pos
		switch f.Kind {
		case watch.Records:
			w.owes = true
		case watch.CaughtUp:
			w.owes = false
		}
	}
	s.wake()
	return true
}

// readAlone takes a sub at the cursor pos out of the visits.
func (w *sub) readAlone(pos uint64) {
	s := w.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if w.live && w.pos == pos {
		w.live = false
		s.enqueue(w)
		s.wake()
	}
}

// pushRoom pushes what is published to the streams of its topic.
type pushRoom struct{ e *Engine }

func (p pushRoom) published(t *entry, what outcome) {
	if what.news {
		p.e.mark(t)
	}
}

func (pushRoom) evicting(*entry, op.Range, bool) {} // a stream's next read finds the gap

func (pushRoom) appended(*entry, []op.Span) {}

// ended lets the streams find that the topic has ended.
func (p pushRoom) ended(t *entry) {
	p.e.sched.Remove(&t.push.task)
	for _, w := range t.push.watchers.list(nil) {
		s := w.s
		s.mu.Lock()
		if w.live {
			w.live = false
			s.enqueue(w)
		}
		s.mu.Unlock()
		s.wake()
	}
}

// pushCounters are the numbers of the push half.
type pushCounters struct {
	lagged, laggedTotal, droppedSlow atomic.Int64
	routing                          atomic.Int64 // ns spent forwarding
	sealing                          atomic.Int64 // ns spent building tables, without the pacer's waits
}
