package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/weirmq/weir/internal/client"
)

// killDelay is how long the output of a killed CMD may stay open, held by a
// process that left its group, before it is closed.
const killDelay = time.Second

var (
	errLeaseLost      = errors.New("the lease was lost")
	errHandlerTimeout = errors.New("the handler timeout ran out")
	errDrainTimeout   = errors.New("the drain timeout ran out")
	// errCannotStart says that CMD never ran: not the message's fault.
	errCannotStart = errors.New("the command could not be started")
)

// handler runs the command of weir work.
type handler struct {
	path    string
	args    []string // args[0] is the name as it was typed
	topic   string
	timeout time.Duration // 0 = none
	stdout  io.Writer
	stderr  io.Writer
}

// run executes the command for one message and waits for it. The error is nil
// on exit code 0; the end of ctx kills the whole process group.
func (h *handler) run(ctx context.Context, job *client.Job) error {
	text, err := payload(job.Data)
	if err != nil {
		return err
	}
	input, err := inputFile(text)
	if err != nil {
		return fmt.Errorf("%w: %w", errCannotStart, err)
	}
	defer input.Close()
	if h.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, h.timeout, errHandlerTimeout)
		defer cancel()
	}
	cmd := exec.CommandContext(ctx, h.path, h.args[1:]...)
	cmd.Args[0] = h.args[0]
	cmd.Env = append(os.Environ(), h.environment(job)...)
	cmd.Stdin = input
	cmd.Stdout, cmd.Stderr = h.stdout, h.stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return killGroup(cmd.Process.Pid) }
	cmd.WaitDelay = killDelay
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("%w: %w", errCannotStart, err)
	}
	err = cmd.Wait()
	if ctx.Err() != nil && err != nil {
		return context.Cause(ctx)
	}
	if errors.Is(err, exec.ErrWaitDelay) && cmd.ProcessState.Success() {
		return nil // it ended well and left a child behind that holds its output
	}
	return err
}

// inputFile is a file without a name that holds the payload, to be read from its
// start. A pipe would not do: if this process is killed while it fills one, CMD
// takes the part that is there, or nothing at all, for the whole message.
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

// payload is what stands on the command's standard input.
func payload(data json.RawMessage) ([]byte, error) {
	if len(data) == 0 || data[0] != '"' {
		return data, nil
	}
	var s string
	if err := json.Unmarshal(data, &s); err != nil {
		return nil, fmt.Errorf("the payload cannot be read: %w", err)
	}
	return []byte(s), nil
}

func (h *handler) environment(job *client.Job) []string {
	env := []string{
		"WEIR_TOPIC=" + h.topic,
		fmt.Sprintf("WEIR_SEQ=%d", job.Seq),
		fmt.Sprintf("WEIR_DELIVERIES=%d", job.Deliveries),
	}
	if job.Tag != nil {
		// An environment cannot hold a NUL.
		env = append(env, "WEIR_TAG="+strings.ReplaceAll(*job.Tag, "\x00", "\uFFFD"))
	}
	if len(job.Meta) > 0 {
		env = append(env, "WEIR_META="+string(job.Meta))
	}
	return env
}
