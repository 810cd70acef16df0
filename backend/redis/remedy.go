package redis

import (
	"context"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirmq/weir/backend"
)

// remedy is what a finding is about and the command that helps with it: one of weir's
// or of Redis, the latter with $STREAM, $GROUP, $DEAD and $TRIMMED as placeholders.
type remedy struct {
	concern backend.Concern
	command string
}

const (
	startWorkers = "weir work URL -- CMD"
	whoRemoves   = "INFO commandstats"
)

var remedies = map[string]remedy{
	"stream_missing": {backend.OfStream, "--scan --pattern $STREAM*"},
	"wrong_type":     {backend.OfStream, "TYPE $STREAM"},
	"group_missing":  {backend.OfStream, "XINFO GROUPS $STREAM"},

	"dropped_unacked":   {backend.OfLoss, "HGETALL $TRIMMED"},
	"trimmed_unacked":   {backend.OfLoss, whoRemoves},
	"trimmed_unread":    {backend.OfLoss, whoRemoves},
	"begins_behind":     {backend.OfLoss, "XINFO GROUPS $STREAM"},
	"cut_by_others":     {backend.OfLoss, whoRemoves},
	"removed_by_others": {backend.OfLoss, whoRemoves},

	"lag_rising":     {backend.OfWorkers, startWorkers},
	"no_workers":     {backend.OfWorkers, startWorkers},
	"dead_consumers": {backend.OfWorkers, "XINFO CONSUMERS $STREAM $GROUP"},

	"pending_old":         {backend.OfPending, "XPENDING $STREAM $GROUP - + 10"},
	"age_over_objective":  {backend.OfPending, "weir sample --every 5s URL"},
	"stuck_pending":       {backend.OfPending, startWorkers},
	"given_back":          {backend.OfPending, startWorkers},
	"due_unmoved":         {backend.OfPending, startWorkers},
	"dead_consumers_hold": {backend.OfPending, "XINFO CONSUMERS $STREAM $GROUP"},
	"no_limit":            {backend.OfPending, "weir work --max-deliveries 3 URL -- CMD"},
	"no_dead_letter":      {backend.OfPending, startWorkers},

	"lag_unsupported": {backend.OfLag, "XPENDING $STREAM $GROUP"},
	"lag_unknown":     {backend.OfLag, "XINFO STREAM $STREAM FULL COUNT 1"},

	"maxlen_near":      {backend.OfStorage, "weir work --trim on URL -- CMD"},
	"stream_grows":     {backend.OfStorage, "weir work --trim on URL -- CMD"},
	"memory_full":      {backend.OfStorage, "INFO memory"},
	"dead_letters":     {backend.OfStorage, "weir dlq ls URL"},
	"dead_letter_type": {backend.OfStorage, "TYPE $DEAD"},

	"slow_round_trip": {backend.OfServer, "SLOWLOG GET 10"},
	"eviction":        {backend.OfServer, "CONFIG SET maxmemory-policy noeviction"},
	"key_eviction":    {backend.OfServer, "CONFIG SET maxmemory-policy noeviction"},
	"durability":      {backend.OfServer, "CONFIG GET append*"},
}

// Command is the command line that helps with a finding, without secrets.
func (b *Backend) Command(code string) string {
	help := remedies[code].command
	if help == "" || strings.HasPrefix(help, "weir ") {
		return help
	}
	names := strings.NewReplacer("$STREAM", b.keys.stream, "$GROUP", b.keys.group, "$DEAD", b.keys.dead, "$TRIMMED", b.keys.trimmed)
	words := b.set.cli()
	if b.cluster != nil {
		words = append(words, "-c")
	}
	for word := range strings.FieldsSeq(help) {
		words = append(words, quote(names.Replace(word)))
	}
	return strings.Join(words, " ")
}

// cli returns the beginning of a redis-cli command line. A password has to be given in
// REDISCLI_AUTH.
func (s settings) cli() []string {
	words := []string{"redis-cli"}
	if s.master == "" && len(s.addrs) > 0 {
		if host, port, err := net.SplitHostPort(s.addrs[0]); err == nil {
			words = append(words, "-h", quote(host), "-p", port)
		}
	}
	if s.db != 0 {
		words = append(words, "-n", strconv.Itoa(s.db))
	}
	if s.user != "" {
		words = append(words, "--user", quote(s.user))
	}
	if s.tls != nil {
		words = append(words, "--tls")
	}
	for _, file := range [][2]string{{"--cacert", s.files.ca}, {"--cert", s.files.cert}, {"--key", s.files.key}} {
		if file[1] != "" {
			words = append(words, file[0], quote(file[1]))
		}
	}
	return words
}

// quote returns s as a single shell word.
func quote(s string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("_-+.:/@,", r)
	}
	if s != "" && strings.IndexFunc(s, func(r rune) bool { return !plain(r) }) < 0 {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// Ping returns how long the server takes to answer a call that does nothing, once there
// is a connection to it.
func (b *Backend) Ping(ctx context.Context) (time.Duration, error) {
	began := time.Now()
	err := b.do(ctx, redis.NewIntCmd(ctx, "XLEN", b.keys.stream)) // anyone who may use the stream at all may do that
	if code, _ := replyCode(err); code != "" {
		err = nil // that is an answer too
	}
	return time.Since(began), err
}
