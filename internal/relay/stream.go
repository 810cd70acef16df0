package relay

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/internal/engine/push"
)

const (
	// recheckEvery is how often the upstream is asked about callers whose streams are open,
	// and recheckSpace the time there is for each of them, so that many callers are asked
	// about less often. Right after a lost connection all of them are, at once: a server that
	// was restarted may have other keys.
	recheckEvery = 2 * time.Second
	recheckSpace = 5 * time.Millisecond
	// mostRechecks is how many such questions may run at once.
	mostRechecks = 16
)

// Stream is a stream of a caller. It ends when the upstream refuses the caller what it
// shows.
type Stream struct {
	*push.Stream
	relay  *Relay
	caller Caller
	end    func(error)

	topics map[string]bool // guarded by open.mu
}

// open are the streams that are, by caller.
type open struct {
	mu   sync.Mutex
	all  map[Caller]map[*Stream]bool
	wake chan struct{} // ask about all of them now
}

func (o *open) init() { o.all, o.wake = make(map[Caller]map[*Stream]bool), make(chan struct{}, 1) }

func (o *open) add(s *Stream) *Stream {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.all[s.caller] == nil {
		o.all[s.caller] = make(map[*Stream]bool)
	}
	o.all[s.caller][s] = true
	return s
}

// callers are those with open streams.
func (o *open) callers() []Caller {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Collect(maps.Keys(o.all))
}

// of returns the streams of a caller with the topics of each, sorted.
func (o *open) of(c Caller) map[*Stream][]string {
	o.mu.Lock()
	defer o.mu.Unlock()
	streams := make(map[*Stream][]string, len(o.all[c]))
	for s := range o.all[c] {
		streams[s] = slices.Sorted(maps.Keys(s.topics))
	}
	return streams
}

// again has all callers asked about at once.
func (o *open) again() {
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// OpenStream opens a stream of a caller on a session, which has to be closed. It begins
// where lastEventID says or, without that, behind what this relay has sent of the session.
// If the upstream refuses the caller later, end is called, from another goroutine.
func (r *Relay) OpenStream(ctx context.Context, s Session, caller Caller, lastEventID string, end func(error)) (*Stream, error) {
	topics := s.ss.positions()
	if err := r.await(ctx, topics); err != nil {
		return nil, err
	}
	if err := r.room.Resume(s.wid, nil, &s.ss.Opt, topics); err != nil {
		return nil, err
	}
	src, err := r.room.OpenStream(s.wid, lastEventID)
	if err != nil {
		return nil, err
	}
	opened := &Stream{Stream: src, relay: r, caller: caller, end: end, topics: make(map[string]bool, len(topics))}
	for _, t := range topics {
		opened.topics[t.Topic] = true
	}
	return r.open.add(opened), nil
}

// NewSocket returns the stream of a caller's WebSocket; it watches nothing yet and has to be
// closed. end is as for OpenStream.
func (r *Relay) NewSocket(caller Caller, end func(error)) *Stream {
	return r.open.add(&Stream{Stream: r.room.NewSocket(), relay: r, caller: caller, end: end, topics: make(map[string]bool)})
}

// Subscribe adds topics to a WebSocket's stream, if the upstream grants it to the caller.
func (s *Stream) Subscribe(ctx context.Context, req *api.WatchRequest) ([]api.WatchPosition, error) {
	r := s.relay
	res, err := r.resolve(ctx, s.caller, req)
	if err != nil {
		return nil, err
	}
	if err := r.await(ctx, res.Topics); err != nil {
		return nil, err
	}
	if err := s.SubscribeAt(&req.WatchOptions, res.Topics); err != nil {
		return nil, err
	}
	r.open.mu.Lock()
	defer r.open.mu.Unlock()
	for i := range res.Topics {
		res.Topics[i].Life = 0
		s.topics[res.Topics[i].Topic] = true
	}
	return res.Topics, nil
}

// Unsubscribe takes topics off a WebSocket's stream.
func (s *Stream) Unsubscribe(topics []string) {
	s.Stream.Unsubscribe(topics)
	s.relay.open.mu.Lock()
	defer s.relay.open.mu.Unlock()
	for _, name := range topics {
		delete(s.topics, name)
	}
}

// Close ends the stream.
func (s *Stream) Close() {
	s.Stream.Close()
	o := &s.relay.open
	o.mu.Lock()
	defer o.mu.Unlock()
	if delete(o.all[s.caller], s); len(o.all[s.caller]) == 0 {
		delete(o.all, s.caller)
	}
}

// await subscribes topics. One that is gone is announced by the stream.
func (r *Relay) await(ctx context.Context, topics []api.WatchPosition) error {
	for i := range topics {
		if _, err := r.wanted(topics[i].Topic); err != nil { // all of them at once
			return err
		}
	}
	for i := range topics {
		m, err := r.mirror(ctx, topics[i].Topic, topics[i].Life)
		switch {
		case err == nil:
			m.mu.Unlock()
		case !api.IsCode(err, api.CodeTopicNotFound):
			return err
		}
	}
	return nil
}

// DroppedSlow counts a stream that was closed because nothing could be written.
func (r *Relay) DroppedSlow() { r.room.DroppedSlow() }

// recheck ends the streams of callers that the upstream does not grant them any more, until
// ctx ends.
func (r *Relay) recheck(ctx context.Context) {
	for ctx.Err() == nil {
		callers := r.open.callers()
		if !r.Connected() {
			callers = nil
		}
		slots := make(chan struct{}, mostRechecks)
		var all sync.WaitGroup
		for _, c := range callers {
			slots <- struct{}{}
			all.Go(func() {
				r.recheckCaller(ctx, c)
				<-slots
			})
		}
		all.Wait()
		select {
		case <-time.After(max(recheckEvery, time.Duration(len(callers))*recheckSpace)):
		case <-r.open.wake:
		case <-ctx.Done():
		}
	}
}

// recheckCaller asks about all topics of a caller and, if that is refused, about those of
// each stream.
func (r *Relay) recheckCaller(ctx context.Context, caller Caller) {
	ctx, cancel := context.WithTimeout(ctx, recheckEvery)
	defer cancel()
	streams := r.open.of(caller)
	all := make(map[string]bool)
	for _, topics := range streams {
		for _, name := range topics {
			all[name] = true
		}
	}
	if r.refuses(ctx, caller, slices.Sorted(maps.Keys(all))) == nil {
		return
	}
	r.asked.forget()
	verdicts := make(map[string]error)
	for s, topics := range streams {
		set := names(topics)
		err, ok := verdicts[set]
		if !ok {
			err = r.refuses(ctx, caller, topics)
			verdicts[set] = err
		}
		if err != nil {
			s.end(err)
		}
	}
}

// refuses returns the upstream's refusal to let a caller read topics; nil if it grants that
// or cannot be asked.
func (r *Relay) refuses(ctx context.Context, caller Caller, topics []string) error {
	refusal := func(err error) error {
		if isRefusal(err) {
			return err
		}
		return nil
	}
	if len(topics) == 0 {
		return refusal(r.asks(ctx, caller, knownPath))
	}
	for some := range slices.Chunk(topics, r.opt.Limits.MaxWatchTopics) {
		req := api.WatchRequest{Lenient: true}
		for _, name := range some {
			req.Topics = append(req.Topics, api.WatchTopic{Topic: name})
		}
		if _, err := r.resolve(ctx, caller, &req); refusal(err) != nil {
			return err
		}
	}
	return nil
}
