package push

import (
	"context"
	"slices"
	"sort"
	"time"

	"github.com/weirmq/weir/internal/api"
)

// NewSocket returns the stream of a WebSocket; it watches nothing yet and has
// to be closed.
func (r *Room) NewSocket() *Stream {
	return r.newStream(&api.WatchOptions{}, api.WebSocket, newOutbox(&r.held, wsFrames, wsBytes))
}

// Subscribe adds topics to a WebSocket's stream, all or none; a topic that is
// watched already is watched anew. It returns where each begins.
func (s *Stream) Subscribe(ctx context.Context, req *api.WatchRequest) ([]api.WatchPosition, error) {
	defer s.guard()
	res, err := s.room.Positions(ctx, req)
	if err != nil {
		return nil, err
	}
	if err := s.SubscribeAt(&req.WatchOptions, res.Topics); err != nil {
		return nil, err
	}
	if !req.Relay {
		for i := range res.Topics {
			res.Topics[i].Life = 0
		}
	}
	return res.Topics, nil
}

// SubscribeAt is Subscribe with positions that are known.
func (s *Stream) SubscribeAt(options *api.WatchOptions, topics []api.WatchPosition) error {
	defer s.guard()
	opt, now := *options, time.Now()
	var added []*sub
	for _, p := range topics {
		added = append(added, &sub{s: s, name: p.Topic, life: p.Life, pos: p.FromSeq, sent: p.FromSeq, first: true, since: now, owes: true, opt: &opt})
	}
	kept := len(s.subs)
	for _, w := range s.subs {
		if slices.ContainsFunc(added, func(n *sub) bool { return n.name == w.name }) {
			kept--
		}
	}
	if limit := s.room.env.MaxTopics; kept+len(added) > limit {
		return api.Errorf(api.CodeInvalidRequest, "the socket would watch %d topics; at most %d", kept+len(added), limit)
	}
	names := make([]string, len(added))
	for i, w := range added {
		names[i] = w.name
	}
	s.Unsubscribe(names)
	s.subs = append(s.subs, added...)
	sort.Slice(s.subs, func(i, j int) bool { return s.subs[i].name < s.subs[j].name })
	s.mu.Lock()
	for _, w := range added {
		s.enqueue(w)
	}
	s.mu.Unlock()
	s.wake()
	return nil
}

// Unsubscribe ends the watching of topics; no frame of them follows.
func (s *Stream) Unsubscribe(topics []string) {
	defer s.guard()
	for _, w := range s.subs {
		if !w.ended && slices.Contains(topics, w.name) {
			s.end(w)
		}
	}
	s.subs = slices.DeleteFunc(s.subs, func(w *sub) bool { return w.ended })
}
