package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/weirmq/weir"
	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/internal/otlp"
)

// killDelay is how long the output of a killed CMD may stay open, held by a
// process that has left its group, before it is closed.
const killDelay = time.Second

// errCannotStart means that CMD never ran, which is not the message's fault.
var errCannotStart = errors.New("the command could not be started")

// errUnread means that CMD failed when nobody could read its output any more: most
// commands end then, which is not the message's fault.
var errUnread = errors.New("nobody reads the output any more")

// handler runs the command of weir work.
type handler struct {
	path   string
	args   []string // args[0] is the name as it was typed
	info   backend.Info
	stdout io.Writer
	stderr io.Writer
}

// run executes the command for one message and waits for it. The error is nil
// after exit code 0; when ctx ends, the whole process group is killed.
func (h *handler) run(ctx context.Context, d *weir.Delivery) error {
	input, err := inputFile(d.Data)
	if err != nil {
		return fmt.Errorf("%w: %w", errCannotStart, err)
	}
	defer input.Close()
	cmd := exec.CommandContext(ctx, h.path, h.args[1:]...)
	cmd.Args[0] = h.args[0]
	own, about := os.Environ(), append(h.environment(d), otlp.Environ(ctx)...)
	cmd.Env = slices.Concat(own, about)
	cmd.Stdin = input
	cmd.Stdout, cmd.Stderr = h.stdout, h.stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return killGroup(cmd.Process.Pid) }
	cmd.WaitDelay = killDelay
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	err = cmd.Start()
	if mine, its := size(own)+size(h.args), size(about); errors.Is(err, syscall.E2BIG) && its > mine {
		return fmt.Errorf("the headers are too large for the command's environment (%d bytes): %w", its, err)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", errCannotStart, err)
	}
	err = cmd.Wait()
	if ctx.Err() != nil && err != nil {
		return context.Cause(ctx)
	}
	if errors.Is(err, exec.ErrWaitDelay) && cmd.ProcessState.Success() {
		return nil // it succeeded and left a child behind that holds its output
	}
	if err != nil && (isUnread(h.stdout) || isUnread(h.stderr)) {
		return fmt.Errorf("%w, and the command failed (%w); start weir work with its output in a file or /dev/null", errUnread, err)
	}
	return err
}

func isUnread(out io.Writer) bool {
	f, ok := out.(*os.File)
	return ok && unread(f)
}

func size(texts []string) (bytes int) {
	for _, t := range texts {
		bytes += len(t)
	}
	return bytes
}

// inputFile returns an unlinked file that holds the payload, positioned at its
// start. A pipe would not do: if this process were killed while filling it, CMD
// would take a part of the message, or nothing, for all of it.
func inputFile(payload []byte) (*os.File, error) {
	f, err := os.CreateTemp("", "weir-payload-*")
	if err != nil {
		return nil, err
	}
	err = os.Remove(f.Name())
	if err == nil {
		_, err = f.Write(payload)
	}
	if err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

func killGroup(pid int) error {
	if err := syscall.Kill(-pid, syscall.SIGKILL); err != nil {
		return os.ErrProcessDone
	}
	return nil
}

// environment returns CMD's variables about its message. The names in the second
// half are older and kept for commands written for them.
func (h *handler) environment(d *weir.Delivery) []string {
	var env []string
	set := func(name, value string) {
		env = append(env, name+"="+strings.ReplaceAll(value, "\x00", "\uFFFD")) // a variable cannot contain NUL
	}
	set("WEIR_STREAM", h.info.Stream)
	set("WEIR_GROUP", h.info.Group)
	set("WEIR_ID", d.ID)
	set("WEIR_ATTEMPT", fmt.Sprint(d.Attempt))
	for _, name := range slices.Sorted(maps.Keys(d.Headers)) {
		set("WEIR_HEADER_"+envWord(name), d.Headers[name])
	}
	set("WEIR_TOPIC", h.info.Stream)
	set("WEIR_SEQ", d.ID)
	set("WEIR_DELIVERIES", fmt.Sprint(d.Attempt))
	if tag, ok := d.Headers[backend.HeaderTag]; ok {
		set("WEIR_TAG", tag)
	}
	if meta := ownHeaders(d.Headers); len(meta) > 0 {
		text, _ := json.Marshal(meta) // strings always have a JSON form
		set("WEIR_META", string(text))
	}
	return env
}

// ownHeaders returns the headers that the producer set.
func ownHeaders(all map[string]string) map[string]string {
	own := make(map[string]string, len(all))
	for name, value := range all {
		if !strings.HasPrefix(name, backend.HeaderPrefix) {
			own[name] = value
		}
	}
	return own
}

// envWord turns a header's name into part of a variable's: trace-id becomes TRACE_ID.
func envWord(name string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z':
			return r - 'a' + 'A'
		case r >= 'A' && r <= 'Z', r >= '0' && r <= '9':
			return r
		}
		return '_'
	}, name)
}
