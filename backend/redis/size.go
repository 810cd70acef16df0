package redis

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"syscall"

	"github.com/redis/go-redis/v9"

	"github.com/weirmq/weir/backend"
)

// The server's settings that bound a message, and their values if the user may not read
// them.
const (
	configField    = "proto-max-bulk-len"
	configCommand  = "client-query-buffer-limit"
	defaultField   = 512 << 20
	defaultCommand = 1 << 30
	leastField     = 1 << 20 // the lowest possible value of configField
	// commandSlack is what a command and the server's buffer take besides the message.
	commandSlack = 64 << 10
)

func sizeOf(text string, fallback int64) int64 {
	if n, err := strconv.ParseInt(text, 10, 64); err == nil && n > 0 {
		return n
	}
	return fallback
}

// fit refuses a message that the server does not accept. The server would close the
// connection instead of answering, and the outcome would be unknown.
func (f *features) fit(m *backend.Message) error {
	largest, name, all := len(m.Data), fieldData, len(m.Data)
	for header, value := range m.Headers {
		if all += len(header) + len(value); len(value) > largest {
			largest, name = len(value), header
		}
	}
	switch {
	case int64(largest) > f.maxField:
		return tooLarge("field %q has %d bytes and the server takes %d (%s)", name, largest, f.maxField, configField)
	case int64(all)+commandSlack > f.maxCommand:
		return tooLarge("it has %d bytes and the server takes %d with the command (%s)", all, f.maxCommand, configCommand)
	}
	return nil
}

func tooLarge(format string, args ...any) error {
	return fmt.Errorf("redis: %w: "+format+"; send a reference to it instead, or raise that setting",
		append([]any{backend.ErrTooLarge}, args...)...)
}

// isTooLarge reports whether an answer says that a command was larger than the server
// accepts.
func isTooLarge(reply string) bool {
	return strings.Contains(reply, "invalid bulk length") || strings.Contains(reply, "too large to be stored") ||
		strings.Contains(reply, "string exceeds maximum allowed size")
}

// suspectSize adds the likely reason if a connection was reset during a large command:
// not every refusal arrives.
func suspectSize(cmd redis.Cmder, err error) error {
	if !errors.Is(err, backend.ErrOutcomeUnknown) || !wasReset(err) {
		return err
	}
	for _, arg := range cmd.Args() {
		size := 0
		switch arg := arg.(type) {
		case []byte:
			size = len(arg)
		case string:
			size = len(arg)
		}
		if size > leastField {
			return fmt.Errorf("%w; if it happens again, the server does not take %d bytes in one field (%s)", err, size, configField)
		}
	}
	return err
}

func wasReset(err error) bool {
	return errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET)
}

// lastWords is the failure of a write to a server that answered before it closed the
// connection. The client does not read the answer.
type lastWords struct {
	error
	said string
}

func (e *lastWords) Unwrap() error { return e.error }

// refusal returns what the server said before it closed the connection, if that is
// why a write failed.
func refusal(err error) string {
	var last *lastWords
	if errors.As(err, &last) {
		return last.said
	}
	return ""
}
