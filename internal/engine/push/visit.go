package push

import (
	"context"
	"slices"

	"github.com/weirmq/weir/internal/api"
)

// Visit is what one worker keeps from visit to visit.
type Visit struct {
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
	return a.Relay == b.Relay && a.Limit == b.Limit && a.MaxBatchBytes == b.MaxBatchBytes && a.IncludeMeta == b.IncludeMeta &&
		a.IncludeTags == b.IncludeTags && a.IncludeData == b.IncludeData && slices.Equal(a.Nodes, b.Nodes)
}

// Deliver puts what is new up to the topic's head, as it was a moment ago, into
// the outboxes of its live subs, each frame encoded once for all who get it.
func (v *Visit) Deliver(ctx context.Context, t *Topic, head uint64) {
	v.subs = t.list(v.subs[:0])
	v.groups = v.groups[:0]
	for _, w := range v.subs {
		v.sort(w, head)
	}
	for i := range v.groups {
		v.feed(ctx, t, &v.groups[i], head)
	}
	clear(v.subs)
	clear(v.groups)
}

// sort puts a live sub that is behind into its group; a strong watch, which
// must see synced records only, reads for itself.
func (v *Visit) sort(w *sub, head uint64) {
	s := w.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if !w.live || s.lagged || w.pos >= head {
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
func (v *Visit) feed(ctx context.Context, t *Topic, g *group, head uint64) {
	for pos := g.pos; pos < head && len(g.subs) > 0; {
		t.Lock()
		is := t.State()
		if is.Gone {
			t.Unlock()
			return
		}
		rd := Reading{Opt: g.opt, Style: g.style, Most: g.opt.MaxBatchBytes, UpTo: is.Head, Visit: true, Body: v.body[:0]}
		if err := t.Read(ctx, pos, &rd); err != nil {
			for _, w := range g.subs {
				w.readAlone(pos) // it meets the error by itself
			}
			return
		}
		frames := g.frames(is.Name, &rd)
		if v.body = rd.Body; cap(v.body) > maxKept {
			v.body = nil
		}
		if rd.Next >= rd.Head && !is.More {
			frames = append(frames, &frame{body: g.style.AppendCaughtUpFrame(nil, is.Name, rd.Head), pos: rd.Next, kind: kindCaughtUp})
		}
		kept := g.subs[:0]
		for _, w := range g.subs {
			if w.offer(pos, frames) {
				kept = append(kept, w)
			}
		}
		clear(g.subs[len(kept):])
		g.subs = kept
		pos = rd.Next
	}
}

// frames are what one reading gave.
func (g *group) frames(name string, rd *Reading) []*frame {
	frames := make([]*frame, 0, 3)
	if rd.Tomb != nil {
		frames = append(frames, &frame{body: g.style.AppendTombstoneFrame(nil, name, rd.Tomb), pos: rd.From, kind: kindTombstone})
	}
	if rd.N > 0 {
		return append(frames, &frame{body: slices.Clone(rd.Body), pos: rd.Next, kind: kindRecords})
	}
	return append(frames, &frame{pos: rd.Next, kind: kindPosition})
}

// offer queues frames that begin at the cursor pos and reports whether all of
// them were taken. If not, the stream is lagged from here on.
func (w *sub) offer(pos uint64, frames []*frame) bool {
	s := w.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if !w.live || s.lagged || w.pos != pos {
		return false
	}
	for _, f := range frames {
		if f.kind == kindCaughtUp && !w.owes {
			continue // it got no record
		}
		if !s.out.offer(w, f) {
			s.lagged = true
			s.room.lagged.Add(1)
			s.room.laggedTotal.Add(1)
			s.wake()
			return false
		}
		w.pos = f.pos
		switch f.kind {
		case kindRecords:
			w.owes = true
		case kindTombstone: // a relay has to know that nothing comes behind it
			w.owes = w.owes || w.opt.Relay
		case kindCaughtUp:
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
