package redis

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/weirmq/weir/backend"
)

// role is what a server user is for, and the commands that takes.
type role struct{ name, commands string }

// Every role uses these commands, on a single server and in a Cluster.
const everyRole = "select hello info command|info config|get cluster|slots asking time eval evalsha"

// roles are those with an ACL line in docs/REDIS.md, the least privileged first.
var roles = []role{
	{"producer", everyRole + " wait get getrange set bitfield hset hdel hincrby hlen hmget hgetall pexpire pttl xadd xlen xrange xinfo|stream xinfo|groups" +
		" zadd zcard zcount zrange zrank"},
	{"worker", everyRole + " client|id client|unblock exists get set del hget hset hdel hexists hgetall hincrby xadd xlen xrange xrevrange xtrim" +
		" xread xreadgroup xack xclaim xautoclaim xpending xinfo|stream xinfo|groups xinfo|consumers xgroup|create xgroup|delconsumer zcard zcount zrange zrangebyscore zrem"},
	{"operator", everyRole + " type exists memory|usage get hget hset hdel hexists hmget hgetall hincrby xadd xdel xlen xrange xrevrange xread xtrim" +
		" xpending xinfo|stream xinfo|groups xinfo|consumers xgroup|create xgroup|delconsumer zcard zcount zrange"},
}

// needs returns the least privileged of the roles that need a command.
func needs(command string) string {
	for _, r := range roles {
		if slices.Contains(strings.Fields(r.commands), strings.ToLower(command)) {
			return r.name
		}
	}
	return ""
}

// What a server says when a user may not use a command or key, both outside and inside a
// script.
var (
	forbiddenTexts = []string{"has no permissions", "can't run this command", "can't access at least one of the keys", "can't access one of the keys"}
	forbiddenName  = regexp.MustCompile(`run the '([^']+)' command`)
	forbiddenAt    = regexp.MustCompile(`(?:script: |f_)([0-9a-f]{40})(?:.*)@user_script: ?(\d+)`)
	scriptCall     = regexp.MustCompile(`call\('([A-Z]+)'(?:, '([A-Z]+)')?`)
)

func isForbidden(code, text string) bool {
	return code == "NOPERM" || slices.ContainsFunc(forbiddenTexts, func(part string) bool { return strings.Contains(text, part) })
}

// forbidden says which command a user lacks and which role needs it. command is the one
// that was sent, which for a script is not the one refused.
func forbidden(cmd redis.Cmder, user, text string) error {
	if user == "" {
		user = "default"
	}
	if strings.Contains(text, "the keys") || strings.Contains(text, "access") {
		return fmt.Errorf("redis: %w: user %q may not use one of the stream's keys; its patterns have to be ~STREAM and ~{STREAM}:* (docs/REDIS.md)",
			backend.ErrForbidden, user)
	}
	command := refusedCommand(cmd, text)
	who := needs(command)
	if who == "" {
		return fmt.Errorf("redis: %w: user %q may not run %s", backend.ErrForbidden, user, strings.ToUpper(command))
	}
	return fmt.Errorf("redis: %w: user %q may not run %s; a weir-%s needs it, see ACL SETUSER weir-%s in docs/REDIS.md",
		backend.ErrForbidden, user, strings.ToUpper(strings.ReplaceAll(command, "|", " ")), who, who)
}

// refusedCommand finds the command that was refused, with its subcommand if it has one.
func refusedCommand(cmd redis.Cmder, text string) string {
	if at := forbiddenAt.FindStringSubmatch(text); at != nil {
		line, _ := strconv.Atoi(at[2])
		if lines := strings.Split(scripts[at[1]].source, "\n"); line > 0 && line <= len(lines) {
			if call := scriptCall.FindStringSubmatch(lines[line-1]); call != nil {
				return withSub(call[1], call[2])
			}
		}
	}
	if name := forbiddenName.FindStringSubmatch(text); name != nil && !strings.HasPrefix(cmd.Name(), "eval") {
		if strings.Contains(name[1], "|") {
			return name[1]
		}
	} else if name != nil {
		return name[1]
	}
	sub := ""
	if args := cmd.Args(); len(args) > 1 {
		sub, _ = args[1].(string)
	}
	return withSub(cmd.Name(), sub)
}

// withSub returns command|sub if permissions are granted in that form, otherwise the
// command.
func withSub(command, sub string) string {
	command = strings.ToLower(command)
	if both := command + "|" + strings.ToLower(sub); sub != "" && needs(both) != "" {
		return both
	}
	return command
}
