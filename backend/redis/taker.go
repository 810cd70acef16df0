package redis

import (
	"context"
	"errors"
	"sync"

	"github.com/redis/go-redis/v9"
)

// While a slot moves from one node of a Cluster to another, its keys go one by one. What is asked for keys
// that have gone is referred to the other node (ASK). A script of several keys of which not all are at one
// node, or some nowhere, is refused (TRYAGAIN) until the slot has moved: nobody knows whether what is not
// here is there. That is for moments, or until somebody mends a move that has stopped halfway.

// takers are nodes that are taking over the slot.
type takers struct {
	mu   sync.Mutex
	last *redis.Client            // guarded by mu; the one that was referred to last
	made map[string]*redis.Client // guarded by mu; by address, nodes that the Cluster's client does not know
	over bool                     // guarded by mu; Close was called
}

func (t *takers) forget() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.last = nil
}

// find returns the client of a node, if there is one.
func (t *takers) find(addr string) *redis.Client {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.last != nil && t.last.Options().Addr == addr {
		return t.last
	}
	return nil
}

func (t *takers) remember(c *redis.Client) *redis.Client {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.last = c
	return c
}

// connect returns the client of a node that the Cluster's client does not know, made like that of another.
func (t *takers) connect(addr string, like *redis.Client, newClient func(*redis.Options) *redis.Client) *redis.Client {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.over {
		return nil
	}
	c := t.made[addr]
	if c == nil {
		opt := *like.Options()
		opt.Addr, opt.NodeAddress = addr, addr
		if opt.MaxRetries == 0 { // none, which is -1 in what a client is made of
			opt.MaxRetries = -1
		}
		if opt.ReadTimeout == 0 {
			opt.ReadTimeout = -1
		}
		if opt.WriteTimeout == 0 {
			opt.WriteTimeout = -1
		}
		if t.made == nil {
			t.made = map[string]*redis.Client{}
		}
		c = newClient(&opt)
		t.made[addr] = c
	}
	t.last = c
	return c
}

// close closes the clients that were made.
func (t *takers) close() (err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.over, t.last = true, nil
	for _, c := range t.made {
		err = errors.Join(err, c.Close())
	}
	t.made = nil
	return err
}

// taker returns the client of the node that is taking over the slot; nil if there is none. A node that has
// no slot yet is in nobody's list of them, and so not known to the Cluster's client.
func (b *Backend) taker(ctx context.Context, addr string) *redis.Client {
	if c := b.takers.find(addr); c != nil {
		return c
	}
	if c := b.nodeAt(ctx, addr); c != nil {
		return b.takers.remember(c)
	}
	like, err := b.master(ctx)
	if err != nil {
		return nil
	}
	return b.takers.connect(addr, like, b.cluster.Options().NewClient)
}

// slotMoves reports whether a command was refused because its keys are moving.
func slotMoves(err error) bool {
	code, _ := replyCode(err)
	return code == "TRYAGAIN"
}

// insists reports whether a command is sent again when its keys are moving. What has another way, or is done
// by a later claim as well, is not: that would hold up who waits for it.
func insists(cmd redis.Cmder) bool {
	if settleScript.is(cmd) {
		args := cmd.Args()
		return args[2] != 2 || args[6] == "nack"
	}
	return !moveScript.is(cmd) && !lagScript.is(cmd)
}
