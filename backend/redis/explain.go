package redis

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirmq/weir/backend"
)

// settleErrors turns the commands' errors into those of package backend.
func (b *Backend) settleErrors(ctx context.Context, cmds []redis.Cmder) (first error) {
	unanswered := unansweredBy(cmds)
	for _, cmd := range cmds {
		err := cmd.Err()
		if err == nil || err == redis.Nil {
			continue
		}
		if code, _ := replyCode(err); code != "" && isForbidden(code, err.Error()) {
			err = forbidden(cmd, b.set.user, err.Error())
		} else if err = suspectSize(cmd, b.explainAs(ctx, err, unanswered)); code == "WRONGTYPE" {
			err = fmt.Errorf("%w (%s)", err, keysIn(cmd))
		}
		cmd.SetErr(err)
		if first == nil {
			first = err
		}
	}
	return first
}

// keysIn names the keys of a command. A script does not say which of them an error is about.
func keysIn(cmd redis.Cmder) string {
	args := cmd.Args()
	names := args[1:min(2, len(args))]
	switch cmd.Name() {
	case "eval", "evalsha":
		n, _ := args[2].(int)
		names = args[3 : 3+n]
	case "xread", "xreadgroup":
		names = args[len(args)-2 : len(args)-1]
	case "xinfo", "xgroup":
		names = args[2:3]
	}
	text := "key"
	if len(names) > 1 {
		text = "one of the keys"
	}
	for i, name := range names {
		if i > 0 {
			text += ","
		}
		text += fmt.Sprintf(" %q", name)
	}
	return text
}

// explain wraps an error of the client in the one of package backend that fits.
func (b *Backend) explain(ctx context.Context, err error) error {
	return b.explainAs(ctx, err, backend.ErrOutcomeUnknown)
}

// explainAs is explain with the error of package backend that a missing answer means.
func (b *Backend) explainAs(ctx context.Context, err, unanswered error) error {
	code, _ := replyCode(err)
	why := whyEnded(ctx)
	switch {
	case err == errEnded, b.closing.Err() != nil && (code != "" || neverSent(err)):
		return fmt.Errorf("redis: %w", backend.ErrClosed)
	case b.closing.Err() != nil:
		return fmt.Errorf("redis: %w: %w: %w", backend.ErrClosed, unanswered, err)
	case code != "":
		return explainReply(code, err)
	case refusal(err) != "":
		said := replyError(refusal(err))
		code, _ = replyCode(said)
		return explainReply(code, said)
	case ended(err) && why != nil:
		b.moved() // a node that is silent says to nobody that another one has taken over
		return fmt.Errorf("redis: not sent: %w", err)
	case neverSent(err) && why != nil:
		return fmt.Errorf("redis: %w: %w: %w", backend.ErrUnavailable, why, err)
	case neverSent(err):
		return fmt.Errorf("redis: %w: %w", backend.ErrUnavailable, err)
	}
	b.moved()
	if b.lent {
		b.stale.Store(true) // the next connection may lead elsewhere, unseen
	}
	if why != nil {
		return fmt.Errorf("redis: %w: %w: %w", unanswered, why, err)
	}
	return fmt.Errorf("redis: %w: %w", unanswered, err)
}

// readOnly are commands that change nothing, whatever became of them.
var readOnly = []string{
	"command", "config", "info", "memory", "ping", "time", "exists", "type", "get", "getrange", "hget", "hgetall", "hlen", "hmget",
	"xinfo", "xlen", "xpending", "xrange", "xrevrange", "xread", "zcard", "zcount", "zrange",
}

// unansweredBy is the error of package backend that a missing answer to commands means.
func unansweredBy(cmds []redis.Cmder) error {
	for _, cmd := range cmds {
		if !slices.Contains(readOnly, cmd.Name()) && !lagScript.is(cmd) {
			return backend.ErrOutcomeUnknown
		}
	}
	return backend.ErrUnavailable
}

// whyEnded is the error of a context that has ended, and its cause if that is another one; nil: it goes
// on. Connections have its deadline, too, and may be the first to notice.
func whyEnded(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if at, ok := ctx.Deadline(); err == nil && ok && !time.Now().Before(at) {
		return context.DeadlineExceeded
	}
	if errors.Is(cause, err) {
		return cause
	}
	return fmt.Errorf("%w: %w", cause, err)
}

func explainReply(code string, err error) error {
	if code == "UNBLOCKED" && strings.Contains(err.Error(), "no longer exists") {
		code = "NOGROUP" // what 7.2 and later say when a stream is deleted during a blocking read
	}
	if _, bare := err.(redis.Error); bare {
		err = replyError(withoutPlace(err.Error()))
	}
	switch code {
	case "OOM":
		return &backend.FullError{Reason: backend.ReasonQueueFull, Err: fmt.Errorf("the server's memory (maxmemory) is full: %w", err)}
	case "NOGROUP":
		return fmt.Errorf("redis: %w: %w", backend.ErrGroupNotFound, err)
	case "TRYAGAIN":
		return fmt.Errorf("redis: %w: the stream's slot moves to another node, and this has to wait until all of it is there; if that lasts, the move has stopped halfway (redis-cli --cluster fix): %w", backend.ErrUnavailable, err)
	case "MOVED", "ASK", "CLUSTERDOWN", "LOADING", "READONLY", "MASTERDOWN", "UNBLOCKED",
		"NOREPLICAS", "BUSY", "MISCONF", "NOSCRIPT":
		return fmt.Errorf("redis: %w: %w", backend.ErrUnavailable, err)
	case "NOAUTH", "WRONGPASS":
		return fmt.Errorf("redis: %w: %w", backend.ErrForbidden, err)
	case "WRONGTYPE":
		return fmt.Errorf("redis: the name of the stream, or of a key beside it, is taken by something else; use another name for the stream: %w", err)
	case "CROSSSLOT":
		return fmt.Errorf("redis: a key is in another slot than the stream; give its name the stream's hash tag: %w", err)
	}
	if isTooLarge(err.Error()) {
		return tooLarge("the server says %q (%s)", err, configField)
	}
	if strings.HasPrefix(err.Error(), "ERR max number of clients") {
		return fmt.Errorf("redis: %w: %w", backend.ErrUnavailable, err)
	}
	return fmt.Errorf("redis: %w", err)
}

// replyError is the error a server answered to a raw command.
type replyError string

func (e replyError) Error() string { return string(e) }

// RedisError marks it as an error like the client's own.
func (replyError) RedisError() {}

// replyCode returns the first word of an error answered by the server and the rest, or
// nothing.
func replyCode(err error) (code, rest string) {
	var reply redis.Error
	if err == nil || err == redis.Nil || !errors.As(err, &reply) {
		return "", ""
	}
	code, rest, _ = strings.Cut(withinScript(reply.Error()), " ")
	return code, rest
}

// withinScript returns the error of the command that made a script fail. Before 7.0 it
// is wrapped: "ERR Error running script (call to f_…): @user_script:10: @user_script:
// 10: -OOM command not allowed …", or once: "@user_script:10: NOGROUP …". An error that
// a script itself caught begins with the location.
func withinScript(text string) string {
	const place = "@user_script:"
	if !strings.HasPrefix(text, "ERR Error running script") && !strings.HasPrefix(text, place) {
		return text
	}
	at := strings.LastIndex(text, place)
	if at < 0 {
		return text
	}
	_, inner, found := strings.Cut(text[at+len(place):], ": ") // after the line number
	if !found {
		return text
	}
	return strings.TrimPrefix(inner, "-")
}

// withoutPlace returns the error of a script's command without its location in the
// script: from 7.0 on " script: <digest>, on @user_script:10." follows it.
func withoutPlace(text string) string {
	text, _, _ = strings.Cut(withinScript(text), " script: ")
	return text
}

// notSent is a failure that happened before anything was written.
type notSent struct{ error }

func (e *notSent) Unwrap() error { return e.error }

// neverSent reports whether err happened before the command was written.
func neverSent(err error) bool {
	var (
		before *notSent
		op     *net.OpError
	)
	switch {
	case errors.As(err, &before), errors.Is(err, redis.ErrPoolTimeout), errors.Is(err, redis.ErrPoolExhausted),
		errors.Is(err, redis.ErrClosed): // of a node that has left the Cluster
		return true
	case errors.As(err, &op) && op.Op == "dial", strings.HasPrefix(err.Error(), "failed to initialize connection"):
		return true
	}
	return ended(err)
}

// ended reports whether the context ended before the command was written; later the
// client reports a timeout of the connection instead.
func ended(err error) bool {
	return (errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)) && !errors.Is(err, io.EOF)
}
