package redis

import (
	"bytes"
	"context"
	"sync"

	"github.com/redis/go-redis/v9"
)

// maxKept is the largest buffer of an answer that is kept for the next one.
const maxKept = 1 << 20

var replies = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// large is a raw command whose answer goes into a buffer that is used again. For a RawCmd
// go-redis grows a new one with each element, which takes four times the memory of a large
// answer.
type large struct {
	*redis.RawWriteToCmd
	reply *bytes.Buffer
}

// doLarge sends commands as do does, and read, whose answer may be large, as the last one.
// The answer is valid until free is called.
func (b *Backend) doLarge(ctx context.Context, read *redis.RawCmd, before ...redis.Cmder) (free func(), err error) {
	if b.lent { // the answer may come when nobody waits for it any more
		return func() {}, b.do(ctx, append(before, read)...)
	}
	reply := replies.Get().(*bytes.Buffer)
	cmd := &large{redis.NewRawWriteToCmd(ctx, reply, read.Args()...), reply}
	err = b.do(ctx, append(before, cmd)...)
	read.SetVal(reply.Bytes())
	read.SetErr(cmd.Err())
	return func() {
		if reply.Cap() <= maxKept {
			reply.Reset()
			replies.Put(reply)
		}
	}, err
}
