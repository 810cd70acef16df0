package redis

import (
	"context"
	"crypto/sha1" // the server's name for a script; not used for security
	_ "embed"
	"encoding/hex"

	"github.com/redis/go-redis/v9"
)

//go:embed lua/made.lua
var madeSource string

//go:embed lua/append.lua
var appendSource string

//go:embed lua/keep.lua
var keepSource string

//go:embed lua/later.lua
var laterSource string

//go:embed lua/move.lua
var moveSource string

//go:embed lua/place.lua
var placeSource string

//go:embed lua/take.lua
var takeSource string

//go:embed lua/settle.lua
var settleSource string

//go:embed lua/dead.lua
var deadSource string

//go:embed lua/leave.lua
var leaveSource string

//go:embed lua/signal.lua
var signalSource string

// lessSource is a function that several scripts begin with.
//
//go:embed lua/less.lua
var lessSource string

//go:embed lua/lag.lua
var lagSource string

//go:embed lua/room.lua
var roomSource string

//go:embed lua/window.lua
var windowSource string

//go:embed lua/shards.lua
var shardsSource string

//go:embed lua/draw.lua
var drawSource string

//go:embed lua/group.lua
var groupSource string

// script is a Lua script that the server runs as one step.
type script struct{ source, digest string }

// scripts are all of them, by digest.
var scripts = map[string]script{}

var (
	appendScript = newScript(madeSource + appendSource)
	placeScript  = newScript(madeSource + keepSource + placeSource)
	laterScript  = newScript(keepSource + laterSource)
	moveScript   = newScript(madeSource + moveSource)
	takeScript   = newScript(takeSource)
	settleScript = newScript(settleSource)
	deadScript   = newScript(deadSource)
	leaveScript  = newScript(leaveSource)
	signalScript = newScript(signalSource)
	lagScript    = newScript(lessSource + lagSource)
	roomScript   = newScript(lessSource + "local function waits()\n" + lagSource + "\nend\n" + roomSource)
	windowScript = newScript(windowSource)
	shardsScript = newScript(shardsSource)
	drawScript   = newScript(drawSource)
	groupScript  = newScript(lessSource + groupSource)
)

func newScript(source string) script {
	sum := sha1.Sum([]byte(source))
	s := script{source, hex.EncodeToString(sum[:])}
	scripts[s.digest] = s
	return s
}

// cmd returns the command that runs the script. Its reply is raw: see replyReader.
func (s script) cmd(ctx context.Context, keys []string, args ...any) *redis.RawCmd {
	all := make([]any, 0, 3+len(keys)+len(args))
	all = append(all, "EVALSHA", s.digest, len(keys))
	for _, key := range keys {
		all = append(all, key)
	}
	return redis.NewRawCmd(ctx, append(all, args...)...)
}

// is reports whether a command runs the script.
func (s script) is(cmd redis.Cmder) bool {
	args := cmd.Args()
	return len(args) > 1 && (args[1] == s.digest || args[1] == s.source)
}

// loadScript makes a command carry its script, which the server did not know.
func loadScript(cmd redis.Cmder) {
	args := cmd.Args()
	if s, ok := scripts[args[1].(string)]; ok {
		args[0], args[1] = "EVAL", s.source
	}
}
