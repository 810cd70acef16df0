package engine

import (
	"strings"

	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/internal/engine/queue"
	"github.com/weirmq/weir/internal/engine/topic"
	"github.com/weirmq/weir/internal/op"
	"github.com/weirmq/weir/internal/wal"
)

// register makes a topic and returns it with its lock held; if the name is
// taken it returns the topic that has it.
func (e *Engine) register(name string, cfg api.Config) (t *entry, created bool, err error) {
	t = &entry{}
	cfg.HasPaused = false
	name = strings.Clone(name) // it may be a piece of a request that must not live on
	t.State = op.State{ID: e.nextTopic.Add(1), Name: name, Config: cfg, CreatedTS: max(e.clock(), e.created)}
	t.Init()
	t.ensureQueue()
	e.enlist(t)
	t.mu.Lock()
	have, added := e.reg.add(name, t, e.opt.Limits.MaxTopics)
	if added {
		return t, true, nil
	}
	t.mu.Unlock()
	if have == nil {
		return nil, false, api.OverLimit("max_topics", e.opt.Limits.MaxTopics)
	}
	have.mu.Lock()
	return have, false, nil
}

// createParts encodes the beginning of a topic.
func createParts(dst []byte, t *entry) []byte {
	part := op.Part{Kind: op.KindCreate, Topic: t.ID, Name: t.Name, Config: t.Config, TS: t.CreatedTS}
	return part.Encode(dst)
}

// stageCreate makes the topic usable once what is logged at lsn is durable.
func (e *Engine) stageCreate(t *entry, lsn, gen uint64) {
	t.begin = logPlace{lsn, gen}
	t.Stage(topic.Staged{LSN: lsn, Gen: gen, Need: uint8(wal.Synced), Then: func() {
		t.created.Store(true)
		e.count(&t.Config, 1)
	}})
}

// logCreate logs the beginning of a topic that gets no records yet. The
// topic's lock is held.
func (e *Engine) logCreate(t *entry) (ticket, error) {
	head, _ := e.reserveHead(createParts(nil, t), t, t.PlannedHead())
	tk, _, err := e.append(t, head, nil, noFrames, wal.Synced, nil)
	if err != nil {
		return ticket{}, err
	}
	t.reserve.logged(tk.lsn, tk.gen)
	e.stageCreate(t, tk.lsn, tk.gen)
	return t.begin.synced(), nil
}

// ensureQueue makes the leases of a queue topic.
func (t *entry) ensureQueue() {
	if t.Config.Type == api.TypeQueue && t.jobs == nil {
		t.jobs = &leased{q: queue.New()}
	}
}

// TopicExists reports whether the topic exists now.
func (e *Engine) TopicExists(name string) bool {
	defer guard()
	for {
		t := e.reg.get(name)
		if t == nil {
			return false
		}
		t.mu.Lock()
		if e.ready(t) {
			t.mu.Unlock()
			return true
		}
	}
}
