package redis

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// How often, and after what waits, a command that the server refused is sent again (at
// once after a redirection).
var retryWaits = [...]time.Duration{
	5 * time.Millisecond, 20 * time.Millisecond, 50 * time.Millisecond, 100 * time.Millisecond, 200 * time.Millisecond,
}

// mostRedirections is how often commands follow the stream to where a node says that it is. A node that is
// new to the script takes two steps more, and a slot may move on meanwhile.
const mostRedirections = 12

// do sends commands in one round trip, in order, to the master of the stream's slot.
// What the server refused without doing anything is sent again a few times. Afterwards
// each command's error is one of package backend, and do returns the first. A missing
// value (redis.Nil) is not an error of do.
func (b *Backend) do(ctx context.Context, cmds ...redis.Cmder) error {
	if b.lent {
		return b.aside(ctx, cmds, b.try)
	}
	if ctx.Done() != nil {
		w := b.calls.watch(ctx, callTimeout)
		defer w.end()
		ctx = w
	}
	return b.try(ctx, cmds)
}

func (b *Backend) try(ctx context.Context, cmds []redis.Cmder) error {
	var v verdict
	began := time.Now()
	var unsent map[redis.Cmder]error // by commands that are tried again: why they were not sent
	said := confirmation{wait: waitOf(cmds)}
	for waits, redirections, rest := 0, 0, cmds; ; {
		b.once(ctx, rest, v)
		v = b.judge(ctx, rest, v)
		said.hear(rest)
		if rest = v.refused; len(rest) == 0 {
			break
		}
		if !v.wait {
			if redirections++; redirections > mostRedirections {
				break
			}
		} else {
			if waits == len(retryWaits) || time.Since(began) > callTimeout || !pause(ctx, retryWaits[waits]) {
				break
			}
			waits++
		}
		for _, cmd := range rest {
			if err := cmd.Err(); err != nil && neverSent(err) {
				if unsent == nil {
					unsent = map[redis.Cmder]error{}
				}
				unsent[cmd] = err
			}
		}
		rest = said.with(rest)
	}
	for cmd, why := range unsent {
		if err := cmd.Err(); ctx.Err() != nil && ended(err) { // that the time is over says less
			cmd.SetErr(why)
		}
	}
	said.settle()
	return b.settleErrors(ctx, cmds)
}

// once sends the commands to the master of the slot, or, of those that it referred to the node that is taking
// over the slot, all to that, according to what became of them before. What was refused for other reasons stays refused
// meanwhile: its keys have not gone, and the other node would take them for keys that do not exist.
func (b *Backend) once(ctx context.Context, cmds []redis.Cmder, before verdict) {
	if err := ctx.Err(); err != nil {
		setError(cmds, &notSent{err})
		return
	}
	if before.ask != "" && b.cluster != nil {
		if c := b.taker(ctx, before.ask); c != nil {
			b.send(ctx, c, asking(ctx, before.referred(cmds)))
			return
		}
	}
	c, err := b.master(ctx)
	if err != nil {
		setError(cmds, &notSent{err})
		return
	}
	if before.replica {
		if len(cmds) == 1 { // with another it goes over a connection for pipelines, and the next one is alone again
			b.send(ctx, c, []redis.Cmder{b.leaving(ctx)})
		}
		cmds = append([]redis.Cmder{b.leaving(ctx)}, cmds...)
	}
	b.send(ctx, c, cmds)
}

// leaving returns a write that changes nothing. A connection that leads to a replica may have been made
// when that was the primary, which now is elsewhere behind the same name. go-redis closes a connection
// whose first answer says so, but does not look into raw answers.
func (b *Backend) leaving(ctx context.Context) redis.Cmder {
	return redis.NewIntCmd(ctx, "HDEL", b.keys.about, "")
}

// send sends commands once.
func (b *Backend) send(ctx context.Context, c session, cmds []redis.Cmder) {
	if !b.lent {
		send(ctx, c, cmds)
		return
	}
	send(ctx, c, eachOnce(cmds))
	refusals(cmds)
}

// asking puts an ASKING in front of each command: without it a node rejects keys that
// are still being moved to it.
func asking(ctx context.Context, cmds []redis.Cmder) []redis.Cmder {
	both := make([]redis.Cmder, 0, 2*len(cmds))
	for _, cmd := range cmds {
		both = append(both, redis.NewCmd(ctx, "ASKING"), cmd)
	}
	return both
}

// session is a client or one of its connections.
type session interface {
	Process(ctx context.Context, cmd redis.Cmder) error
	Pipeline() redis.Pipeliner
}

func send(ctx context.Context, c session, cmds []redis.Cmder) {
	for _, cmd := range cmds {
		cmd.SetErr(nil)
		if l, ok := cmd.(*large); ok {
			l.reply.Reset()
		}
	}
	if len(cmds) == 1 {
		_ = c.Process(ctx, cmds[0])
	} else {
		pipe := c.Pipeline()
		for _, cmd := range cmds {
			_ = pipe.Process(ctx, cmd)
		}
		// If a connection cannot be set up (a wrong password), the commands have no
		// error of their own.
		if _, err := pipe.Exec(ctx); err != nil && !slices.ContainsFunc(cmds, func(c redis.Cmder) bool { return c.Err() != nil }) {
			setError(cmds, err)
		}
	}
	refusals(cmds)
}

// refusals gives raw commands the errors that servers answered them.
func refusals(cmds []redis.Cmder) {
	for _, cmd := range cmds {
		var reply []byte
		switch cmd := cmd.(type) {
		case *redis.RawCmd:
			reply = cmd.Val()
		case *large:
			reply = cmd.reply.Bytes()
		}
		if len(reply) > 0 && reply[0] == '-' && cmd.Err() == nil {
			cmd.SetErr(replyError(strings.TrimRight(string(reply[1:]), "\r\n")))
		}
	}
}

// master returns the node that holds the stream.
func (b *Backend) master(ctx context.Context) (*redis.Client, error) {
	if b.cluster == nil {
		return b.client.(*redis.Client), nil
	}
	if c := b.node.Load(); c != nil {
		return c, nil
	}
	c, err := b.cluster.MasterForKey(ctx, b.keys.stream)
	if err == nil {
		b.node.Store(c)
	}
	return c, err
}

// moved forgets where the stream is.
func (b *Backend) moved() {
	b.calls.sentinels.doubt()
	if b.cluster != nil {
		b.node.Store(nil)
		b.takers.forget()
		b.cluster.ReloadState(b.closing)
	}
}

// movedTo remembers where the stream is, if the node is already known.
func (b *Backend) movedTo(ctx context.Context, addr string) bool {
	b.moved()
	if b.cluster == nil {
		return false
	}
	c := b.nodeAt(ctx, addr)
	b.node.Store(c)
	return c != nil
}

// nodeAt returns the client of a Cluster's master, nil if it is not yet known.
func (b *Backend) nodeAt(ctx context.Context, addr string) (target *redis.Client) {
	var mu sync.Mutex
	_ = b.cluster.ForEachMaster(ctx, func(_ context.Context, c *redis.Client) error {
		mu.Lock()
		defer mu.Unlock()
		if c.Options().Addr == addr {
			target = c
		}
		return nil
	})
	return target
}

// verdict says what to do about commands that have been sent.
type verdict struct {
	refused []redis.Cmder // had no effect, and may work if sent again
	wait    bool          // not at once
	replica bool          // the server takes no writes
	ask     string        // the node that is taking over the slot
	asked   []redis.Cmder // the refused ones that were referred to it
}

// referred returns the commands that go to the node that is taking over the slot.
func (v *verdict) referred(cmds []redis.Cmder) []redis.Cmder {
	return slices.DeleteFunc(slices.Clone(cmds), func(c redis.Cmder) bool { return !slices.Contains(v.asked, c) && !isWait(c) })
}

func (b *Backend) judge(ctx context.Context, cmds []redis.Cmder, before verdict) verdict {
	v := verdict{}
	for _, cmd := range cmds {
		err := cmd.Err()
		if err == nil {
			continue
		}
		code, rest := replyCode(err)
		switch code {
		case "MOVED":
			v.wait = !b.movedTo(ctx, addrOf(rest)) || v.wait
		case "ASK":
			v.ask, v.asked = addrOf(rest), append(v.asked, cmd)
		case "NOSCRIPT":
			loadScript(cmd)
			if slices.Contains(before.asked, cmd) { // the other node said so
				v.ask, v.asked = before.ask, append(v.asked, cmd)
			}
		case "TRYAGAIN":
			if !insists(cmd) {
				continue
			}
			v.wait = true
		case "LOADING":
			v.wait = true
		case "CLUSTERDOWN", "READONLY", "MASTERDOWN", "UNBLOCKED":
			v.wait, v.replica = true, v.replica || code == "READONLY"
			b.moved()
		default:
			if b.closing.Err() != nil || !neverSent(err) || ended(err) {
				continue
			}
			v.wait = true
			b.moved()
		}
		if !isWait(cmd) { // it means nothing without what it waits for
			v.refused = append(v.refused, cmd)
		}
	}
	return v
}

// addrOf returns the node that a redirection names.
func addrOf(rest string) string { return rest[strings.LastIndexByte(rest, ' ')+1:] }

func setError(cmds []redis.Cmder, err error) {
	for _, cmd := range cmds {
		cmd.SetErr(err)
	}
}

// pause waits for d and returns false if ctx ended first.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
