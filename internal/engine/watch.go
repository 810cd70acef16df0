package engine

import (
	"context"

	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/internal/engine/push"
)

// Stream is what one connection watches; see push.Stream.
type Stream = push.Stream

// OpenSession makes a watch session for owner, who alone may open its streams.
// An unknown topic is 404 unless req.Lenient; too many sessions are 429. The
// session outlives a restart once it is made, by the class disk, unless the log
// takes nothing now.
func (e *Engine) OpenSession(req *api.WatchRequest, owner Owner) (api.WatchResult, error) {
	defer guard()
	if err := e.usable(); err != nil {
		return api.WatchResult{}, err
	}
	return e.push.OpenSession(e.stop, req, owner)
}

// Positions resolves a watch for a relay, which keeps the session itself: where each topic
// begins, and which life of it that is. An unknown topic is 404 unless req.Lenient.
func (e *Engine) Positions(req *api.WatchRequest) (api.WatchResult, error) {
	defer guard()
	if err := e.usable(); err != nil {
		return api.WatchResult{}, err
	}
	return e.push.Positions(e.stop, req)
}

// SessionOwner returns who made the session. The error is not_found for a
// session that does not exist.
func (e *Engine) SessionOwner(wid string) (Owner, error) {
	defer guard()
	owner, err := e.push.SessionOwner(wid)
	if err != nil {
		return Owner{}, err
	}
	return owner.(Owner), nil
}

// KeepSessions ends the watch sessions without a stream whose owner keep does not know.
func (e *Engine) KeepSessions(keep func(Owner) bool) {
	defer guard()
	e.push.Keep(func(owner any) bool { return keep(owner.(Owner)) })
}

// OpenStream opens a stream on a session. It begins behind what was written to
// the session's newest stream, or where lastEventID says, but never beyond what
// the session was handed. The error is not_found for a session that does not
// exist. The stream has to be closed.
func (e *Engine) OpenStream(wid, lastEventID string) (*Stream, error) {
	defer guard()
	if err := e.usable(); err != nil {
		return nil, err
	}
	return e.push.OpenStream(wid, lastEventID)
}

// NewSocket returns the stream of a WebSocket; it watches nothing yet and has
// to be closed.
func (e *Engine) NewSocket() *Stream {
	defer guard()
	return e.push.NewSocket()
}

// pushEnv is what the streams get of the engine.
func (e *Engine) pushEnv() push.Env {
	return push.Env{
		Find: func(ctx context.Context, name string) (*push.Topic, error) {
			t, err := e.lockToRead(ctx, name)
			if err != nil {
				return nil, err
			}
			if t.push.Source == nil {
				t.push.Source = source{e, t}
			}
			return &t.push, nil
		},
		Sync:        func() error { return storageError(e.log.Sync()) },
		DrainTimeMS: e.drainTimeMS,
		Guard:       guard,
		Diary:       diary{e},
		MaxTopics:   e.opt.Limits.MaxWatchTopics,
		MaxSessions: e.opt.Limits.MaxWatchSessions,
		MaxHeld:     e.opt.Limits.MaxInflightBytes,
	}
}

// source is a topic as its streams see it.
type source struct {
	e *Engine
	t *entry
}

func (s source) Lock()            { s.t.mu.Lock() }
func (s source) Unlock()          { s.t.mu.Unlock() }
func (s source) Earliest() uint64 { return s.t.Earliest() }

func (s source) State() push.State {
	t := s.t
	return push.State{Name: t.Name, ID: t.Life(), Head: t.Head, Synced: t.Config.Durability == api.Fsync, Gone: t.gone}
}

// Read reads one frame as a diff would. The visit may come late: what has expired meanwhile is gone.
func (s source) Read(ctx context.Context, cursor uint64, r *push.Reading) error {
	s.e.dropExpired(s.t)
	req := api.DiffRequest{FromSeq: cursor, Limit: r.Opt.Limit, MaxBatchBytes: r.Most}
	d := diff{e: s.e, t: s.t, req: &req, upTo: r.UpTo}
	dedupe := s.t.Config.DedupeNode
	if dedupe {
		d.nodes = r.Opt.Nodes
	}
	d.start()
	d.visit = func(rec *api.Record) {
		if r.N == 0 {
			r.Body = r.Style.AppendRecordsHead(r.Body, s.t.Name, d.from, d.res.HeadSeq)
		}
		r.Body = api.AppendFrameRecord(r.Body, rec, r.Opt)
		r.N++
	}
	res, err := d.run(ctx)
	if err != nil {
		return err
	}
	r.From, r.Tomb, r.Head = d.from, res.Tombstone, res.HeadSeq
	if r.Next = res.NextFromSeq; r.N > 0 {
		r.Body = r.Style.AppendRecordsTail(r.Body, r.Next)
		if r.Opt.Relay && !dedupe {
			r.Body = api.AppendUnfiltered(r.Body)
		}
	}
	return nil
}
