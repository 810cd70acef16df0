package redis

import (
	"context"
	_ "embed"

	"github.com/weirmq/weir/backend"
)

// trimStep bounds how many entries one call of the script looks at one by one,
// and so how long it keeps others waiting. Whole ranges cost little.
const trimStep = 100

//go:embed lua/trim.lua
var trimSource string

var trimScript = newScript(lessSource + trimSource)

var _ backend.Trimmer = (*Backend)(nil)

// Trim removes the oldest entries that every group of the stream, weir's or
// not, has acknowledged: up to the first one that is pending or not delivered in
// any of them. A stream without a group keeps all. What MaxLen removes beyond
// that is counted in the hash {stream}:trimmed, so that readers see the gap.
func (b *Backend) Trim(ctx context.Context, req backend.TrimRequest) (backend.Trimmed, error) {
	var all backend.Trimmed
	for {
		cmd := trimScript.cmd(ctx, []string{b.keys.stream, b.keys.trimmed}, max(0, req.MaxLen), trimStep)
		if err := b.do(ctx, cmd); err != nil {
			return all, err
		}
		var step [3]int // removed, dropped, whether there is more
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
		if step[2] == 0 {
			return all, nil
		}
	}
}
