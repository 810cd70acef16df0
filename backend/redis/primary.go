package redis

import (
	"context"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// roleEvery is how often those that only read ask which server answers them.
	roleEvery = time.Second
	// roleRarely is the same for a replica where no primary is behind its address.
	roleRarely = 10 * time.Second
)

// primacy is what those that only read know of the server that answers them. It may have been the primary
// when their connection was made and be a replica now, which answers them for ever with what was true then;
// and a client may have connected to another server, unseen. Writes are told.
type primacy struct {
	mu      sync.Mutex
	next    time.Time // when to ask again
	history string    // of the data (master_replid), as the server called it last
}

// roleCmd returns the command that asks what the server is, to be sent with those that read; nil: it has been
// asked lately.
func (b *Backend) roleCmd(ctx context.Context) *redis.StringCmd {
	p := &b.primacy
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if now.Before(p.next) {
		return nil
	}
	p.next = now.Add(roleEvery)
	return redis.NewStringCmd(ctx, "INFO", "replication")
}

// misled takes the answer of roleCmd and reports whether what was read with it is to be read again: from
// another server, because it came from a replica and there is a primary now; or because it came from another
// one than before, about whose lag nothing is known yet.
func (b *Backend) misled(ctx context.Context, role *redis.StringCmd) bool {
	if role == nil {
		return false
	}
	if role.Err() != nil {
		if refusal := unlessRefused(role.Err()); refusal == nil {
			b.primacy.rest(askAgain) // the user may not ask
		}
		return false
	}
	another := b.primacy.another(infoField(role.Val(), "master_replid"))
	if another {
		b.count.doubt()
	}
	if infoField(role.Val(), "role") != "slave" || b.cluster != nil { // in a Cluster replicas redirect
		return another
	}
	if b.leaveReplica(ctx) {
		return true
	}
	b.primacy.rest(roleRarely)
	return another
}

// leaveReplica closes connections to a replica and reports whether there is a primary behind its address now. go-redis
// has some for pipelines only.
func (b *Backend) leaveReplica(ctx context.Context) bool {
	return b.do(ctx, b.leaving(ctx)) == nil && b.do(ctx, b.leaving(ctx), b.leaving(ctx)) == nil
}

// another reports whether the server has another history than that of before.
func (p *primacy) another(history string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	before := p.history
	p.history = history
	return before != "" && history != before
}

func (p *primacy) rest(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.next = time.Now().Add(d)
}

// with adds a command to others, if there is one.
func with(role *redis.StringCmd, cmds ...redis.Cmder) []redis.Cmder {
	if role != nil {
		cmds = append(cmds, role)
	}
	return cmds
}
