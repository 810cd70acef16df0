package engine

import (
	"context"
	"sort"
	"strings"

	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/internal/engine/topic"
	"github.com/weirmq/weir/internal/op"
	"github.com/weirmq/weir/internal/wal"
)

// PutTopic creates a topic or replaces the configuration of an existing one.
func (e *Engine) PutTopic(ctx context.Context, name string, cfg api.Config) (api.PutTopicResult, error) {
	defer guard()
	if err := e.usable(); err != nil {
		return api.PutTopicResult{}, err
	}
	if err := api.CheckTopicName(name); err != nil {
		return api.PutTopicResult{}, err
	}
	if err := api.CheckConfig(name, &cfg); err != nil {
		return api.PutTopicResult{}, err
	}
	created := false
	_, err := e.changeFound(ctx, func() (t *entry, err error) {
		for {
			if t, created, err = e.register(name, cfg); err != nil || created || e.ready(t) {
				return t, err
			}
		}
	}, func(t *entry) (ticket, error) {
		if created {
			return e.logCreate(t)
		}
		if have := t.Config.Type; have != cfg.Type {
			return ticket{}, incompatible(name, have, cfg.Type)
		}
		if err := e.expire(t, e.clock()); err != nil {
			return ticket{}, err
		}
		if !cfg.HasPaused {
			cfg.Paused = t.plannedConfig().Paused
		}
		return e.logConfig(t, cfg)
	})
	if err != nil {
		return api.PutTopicResult{}, err
	}
	return api.PutTopicResult{Created: created, Config: cfg}, nil
}

// Pause makes a queue hand out no more jobs, or hand them out again. What is leased
// stays leased, and is settled as ever.
func (e *Engine) Pause(name string, paused bool) error {
	defer guard()
	if err := e.usable(); err != nil {
		return err
	}
	_, err := e.change(e.stop, name, func(t *entry) (ticket, error) {
		if t.jobs == nil {
			return ticket{}, api.Errorf(api.CodeNotAQueue, "topic %q is a log; only a topic of type queue can be paused", name).With("topic", name)
		}
		cfg := *t.plannedConfig()
		cfg.Paused = paused
		return e.logConfig(t, cfg)
	})
	return err
}

func incompatible(name string, have, want api.TopicType) error {
	return api.Errorf(api.CodeTopicExistsIncompatible, "topic %q is a %s and cannot become a %s; the type is fixed at creation", name, have, want).
		With("topic", name).With("existing_type", have.String()).With("requested_type", want.String())
}

// logConfig logs a configuration and what its caps take at once. The topic's
// lock is held.
func (e *Engine) logConfig(t *entry, cfg api.Config) (ticket, error) {
	cfg.HasPaused = false
	before := *t.plannedConfig()
	ev, err := e.planCap(t, &cfg, nil)
	if err != nil {
		return ticket{}, err
	}
	if cfg.LeasesDurable && !before.LeasesDurable && t.jobs != nil {
		if err := e.stateLeases(t); err != nil {
			return ticket{}, err
		}
	}
	part := op.Part{Kind: op.KindConfig, Topic: t.ID, Config: cfg}
	st := topic.Staged{Parts: []op.Part{part}}
	head := part.Encode(nil)
	leaves := before.Durability == api.Ephemeral && cfg.Durability != api.Ephemeral
	last := t.PlannedHead()
	if leaves && last > t.loggedHead {
		// From here on the log has to know which numbers were given out.
		lost := op.Part{Kind: op.KindLose, Topic: t.ID, From: t.loggedHead + 1, To: last, Cause: op.CauseCrash}
		head = lost.Encode(head)
	}
	if ev.To > 0 {
		evict := op.Part{Kind: op.KindEvict, Topic: t.ID, To: ev.LoggedTo, Cause: op.CauseCap, N: ev.LoggedN, Bytes: ev.LoggedBytes, TS: e.clock()}
		if ev.LoggedN > 0 {
			head = evict.Encode(head)
		}
		evict.To, evict.N, evict.Bytes = ev.To, ev.N, ev.Bytes
		st.Parts = append(st.Parts, evict)
	}
	tk, _, err := e.append(t, head, nil, noFrames, wal.Synced, nil)
	if err != nil {
		return ticket{}, err
	}
	if leaves {
		t.leaving = tk
	}
	t.next = &cfg
	st.LSN, st.Gen, st.Need = tk.lsn, tk.gen, uint8(wal.Synced)
	st.Then = func() {
		if t.next == &cfg {
			t.next = nil
		}
		e.count(&before, -1)
		e.count(&cfg, 1)
		t.setPriority()
		t.nextExpiry = 0
		if before.Paused && !cfg.Paused {
			e.resumed(t)
			e.wakeWorkers(t)
		}
		if cfg.LeasesDurable && t.jobs != nil {
			t.jobs.outdated = nil // stated
		}
		if leaves {
			t.loggedHead = last
		}
	}
	t.stage(st)
	return tk, nil
}

// Topic returns the state of a topic; touch marks it as just read.
func (e *Engine) Topic(name string, touch bool) (api.TopicState, error) {
	defer guard()
	if err := e.catchUp(e.stop, name); err != nil {
		return api.TopicState{}, e.usable()
	}
	t, err := e.lock(name)
	if err != nil {
		return api.TopicState{}, err
	}
	defer t.mu.Unlock()
	if touch {
		t.lastRead.Store(e.clock())
	}
	s := api.TopicState{Topic: t.Name, Config: t.Config, LastWriteTS: t.lastWrite, LastReadTS: t.lastRead.Load(), TopicCounters: t.counters()}
	s.EffectivePriority = e.effectivePriority(t)
	if t.jobs != nil {
		s.Queue = t.jobCounters(e.leaseClock())
		s.Overload = e.overloadState(t)
	}
	return s, nil
}

func (t *entry) counters() api.TopicCounters {
	return api.TopicCounters{HeadSeq: t.Head, EarliestSeq: t.Earliest(), Count: t.Count, Bytes: t.Bytes}
}

// jobCounters returns the counters of a queue. The topic's lock is held.
func (t *entry) jobCounters(now int64) api.QueueCounters {
	t.jobs.q.Expire(now)
	c := api.QueueCounters{InFlight: t.jobs.q.InFlight(), Delayed: t.jobs.q.Delayed(), Scheduled: t.jobs.q.Scheduled(), DeadLettered: t.DeadLettered}
	if busy := c.InFlight + c.Delayed; busy < t.Count {
		c.Ready = t.Count - busy
	}
	return c
}

// claimable is how many jobs a claim could get. The topic's lock is held.
func (t *entry) claimable(now int64) uint64 {
	if t.Config.Paused {
		return 0
	}
	return t.jobCounters(now).Ready
}

// Topics returns one page of the topic list in the order of the names' bytes:
// names with the prefix, behind the name after, that allowed accepts (nil: all).
func (e *Engine) Topics(prefix, after string, pageSize int, touch bool, allowed func(string) bool) api.TopicList {
	defer guard()
	var list api.TopicList
	names := e.reg.names()
	i := sort.SearchStrings(names, prefix)
	if after >= prefix {
		i = sort.Search(len(names), func(i int) bool { return names[i] > after })
	}
	for ; i < len(names) && strings.HasPrefix(names[i], prefix); i++ {
		if allowed != nil && !allowed(names[i]) {
			continue
		}
		if len(list.Topics) == pageSize {
			list.More = true
			break
		}
		t, err := e.look(names[i])
		if err != nil {
			continue
		}
		if touch {
			t.lastRead.Store(e.clock())
		}
		list.Topics = append(list.Topics, api.TopicEntry{Topic: t.Name, Durable: t.Config.Durability == api.Fsync,
			EffectivePriority: e.effectivePriority(t), TopicCounters: t.counters()})
		list.Last = t.Name
		t.mu.Unlock()
	}
	return list
}

// DeleteTopic removes a topic with everything it holds; an absent one is no error.
func (e *Engine) DeleteTopic(ctx context.Context, name string, ifEmpty bool) (api.DeleteTopicResult, error) {
	defer guard()
	changing := false     // the turn of all routers is held
	var stopped []*router // those of the topic, whose own turns are held, so that no copy comes after the end
	defer func() {
		for _, r := range stopped {
			e.letGo(r)
		}
		if changing {
			e.routes.change.Unlock()
		}
	}()
	for {
		var routers []*router
		var end ticket // its end, once that is in the log
		t, err := e.change(ctx, name, func(t *entry) (_ ticket, err error) {
			if ifEmpty && t.PlannedCount() > 0 {
				return ticket{}, api.Errorf(api.CodeTopicNotEmpty, "topic %q holds %d records; delete them first or leave out if_empty", name, t.Count).
					With("topic", name).With("count", t.Count)
			}
			if routers = t.routersOf(); len(routers) > 0 && !changing {
				return ticket{}, nil // their turn comes before the topic's lock
			}
			if end, _, err = e.append(t, dropParts(t, routers), nil, noFrames, wal.Synced, nil); err == nil {
				t.dropped, t.end = true, end
			}
			return end, err
		})
		switch {
		case err != nil && end.lsn > 0:
			e.unblock(t, end) // another call may have ended it by now: only this end is undone
			return api.DeleteTopicResult{}, err
		case api.IsCode(err, api.CodeTopicNotFound):
			return api.DeleteTopicResult{}, nil
		case err != nil:
			return api.DeleteTopicResult{}, err
		case end.lsn > 0:
			res := api.DeleteTopicResult{Deleted: true, RoutersRemoved: e.removeRouters(routers)}
			e.unregister(t)
			return res, nil
		}
		if err := e.routes.change.take(ctx); err != nil {
			return api.DeleteTopicResult{}, err
		}
		changing = true
		t = e.reg.get(name)
		if t == nil {
			continue
		}
		for _, r := range t.routersOf() {
			if err := r.turn.take(ctx); err != nil {
				return api.DeleteTopicResult{}, err
			}
			stopped = append(stopped, r)
			if r.source == t {
				if err := e.copyLast(ctx, r); err != nil {
					return api.DeleteTopicResult{}, err
				}
			}
		}
	}
}
