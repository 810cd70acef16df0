package redis

import (
	"context"
	_ "embed"

	"github.com/weirmq/weir/backend"
)

// trimStep bounds how many entries one call of the script examines one by one, and so
// how long it keeps others waiting. Whole ranges cost little.
const trimStep = 100

// trimChunk is about how many entries of a whole range one call removes.
const trimChunk = 20_000

//go:embed lua/trim.lua
var trimSource string

var trimScript = newScript(lessSource + trimSource)

var _ backend.Trimmer = (*Backend)(nil)

// Trim removes the oldest entries that every group of the stream, weir's or not, has
// acknowledged: up to the first one that is pending or undelivered in any of them. A
// stream without a group keeps everything. What MaxLen removes beyond that is counted
// in the hash {stream}:trimmed, so that readers see the gap. trim=on and trim=off in
// the URL override OwnOnly.
func (b *Backend) Trim(ctx context.Context, req backend.TrimRequest) (backend.Trimmed, error) {
	var all backend.Trimmed
	ownOnly := 0
	if req.OwnOnly {
		switch b.set.trim {
		case trimOff:
			return all, nil
		case trimAuto:
			ownOnly = 1
		}
	}
	minid := b.current(ctx).minid
	for {
		cmd := trimScript.cmd(ctx, []string{b.keys.stream, b.keys.trimmed, b.keys.about},
			max(0, req.MaxLen), trimStep, trimChunk, ownOnly, req.KeepFor.Milliseconds(), minid)
		if err := b.do(ctx, cmd); err != nil {
			return all, err
		}
		var step [4]int // removed, dropped, whether there is more, who made the stream
		r := replyReader{cmd.Val()}
		if _, err := r.array(); err != nil {
			return all, err
		}
		for i := range step {
			n, err := r.int()
			if err != nil {
				return all, err
			}
			step[i] = n
		}
		all.Removed += int64(step[0])
		all.Dropped += int64(step[1])
		all.Owner = backend.Owner(step[3])
		b.own.Store(all.Owner == backend.OwnerWeir)
		if step[2] == 0 {
			return all, nil
		}
	}
}
