package rounds

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/weirmq/weir/tests/oracle"
)

// Restore opens a server on what a backup holds. Its end is called when
// everything has been asked.
type Restore func(ctx context.Context) (base string, end func(), err error)

// Backup takes a backup of the server at base and returns how to open it.
type Backup func(ctx context.Context, base string) (Restore, error)

// backupTimeout is the longest time a backup of a few megabytes may take.
const backupTimeout = 30 * time.Second

// CommandBackup takes backups with the weir command into scratch.
func CommandBackup(binary, scratch string) Backup {
	run := func(ctx context.Context, args ...string) error {
		ctx, cancel := context.WithTimeout(ctx, backupTimeout)
		defer cancel()
		out, err := exec.CommandContext(ctx, binary, args...).CombinedOutput()
		if err != nil {
			return fmt.Errorf("weir %v: %w\n%s", args, err, out)
		}
		return nil
	}
	return func(ctx context.Context, base string) (Restore, error) {
		dir, data := filepath.Join(scratch, "backup"), filepath.Join(scratch, "restored")
		if err := errors.Join(os.RemoveAll(dir), os.RemoveAll(data)); err != nil {
			return nil, err
		}
		if err := run(ctx, "backup", base, dir); err != nil {
			if _, there := os.Stat(dir); there == nil {
				err = fmt.Errorf("%w\na backup that failed has left %s", err, dir)
			}
			return nil, err
		}
		return func(ctx context.Context) (string, func(), error) {
			if err := run(ctx, "restore", dir, "--data-dir", data); err != nil {
				return "", nil, err
			}
			p := &Process{Binary: binary, Dir: data}
			base, err := p.Start(ctx)
			return base, p.Kill, err
		}, nil
	}
}

// saver takes a backup in the middle of the load.
func (a *actor) saver(ctx context.Context, take Backup) {
	defer close(a.saved)
	if !a.pause(ctx, 40*time.Millisecond) {
		return
	}
	a.backup = oracle.Event{Kind: oracle.Backup, Outcome: oracle.OK, Invoke: time.Now().UnixNano()}
	a.restore, a.failed = take(context.WithoutCancel(ctx), a.client.base)
	a.backup.Return = time.Now().UnixNano()
}

// judgeBackup restores the backup of a round, if it was answered, and hands
// what it says to the checker. killed is when the server was.
func (l *Loop) judgeBackup(ctx context.Context, a *actor, killed int64) error {
	switch {
	case a.failed != nil && a.backup.Return < killed:
		return fmt.Errorf("a backup: %w", a.failed)
	case a.restore == nil:
		l.sum.CutBackups++
		return nil
	}
	base, end, err := a.restore(ctx)
	if err != nil {
		return fmt.Errorf("a backup cannot be restored: %w", err)
	}
	defer end()
	c := NewClient(base)
	defer c.Close()
	e := a.backup
	if e.Copy, err = c.readCopy(ctx); err != nil {
		return fmt.Errorf("a restored backup: %w", err)
	}
	l.add(e)
	if err := c.tryVerbs(ctx, e.Copy); err != nil {
		return fmt.Errorf("a restored backup: %w", err)
	}
	return nil
}

// readCopy reads everything a server holds.
func (c *Client) readCopy(ctx context.Context) (events []oracle.Event, err error) {
	out := map[string][]byte{}
	for cursor := ""; ; {
		page, err := c.raw(ctx, out, http.MethodGet, "/v0/topics?page_size=1000&cursor="+url.QueryEscape(cursor), nil)
		if err != nil {
			return nil, err
		}
		topics, _ := page["topics"].([]any)
		for _, t := range topics {
			entry, _ := t.(map[string]any)
			name, _ := entry["topic"].(string)
			list, err := c.readTopic(ctx, name)
			if err != nil {
				return nil, err
			}
			events = append(events, list...)
		}
		if cursor, _ = page["next_cursor"].(string); cursor == "" {
			return events, nil
		}
	}
}

// verbWriter writes what no other writer does.
const verbWriter = 1 << 30

// tryVerbs does everything to every topic of a restored server that it has to
// be able to do: claim and settle, write, delete, and another configuration.
func (c *Client) tryVerbs(ctx context.Context, copied []oracle.Event) error {
	live := map[string]map[uint64]bool{}
	for i := range copied {
		e := &copied[i]
		if live[e.Topic] == nil {
			live[e.Topic] = map[uint64]bool{}
		}
		for k := range e.Recs {
			live[e.Topic][e.Recs[k].Seq] = true
		}
		if e.Kind != oracle.State {
			continue
		}
		if err := c.tryTopic(ctx, e, live[e.Topic]); err != nil {
			return fmt.Errorf("topic %s (%+v): %w", e.Topic, e.Config, err)
		}
	}
	return nil
}

func (c *Client) tryTopic(ctx context.Context, state *oracle.Event, live map[uint64]bool) error {
	fine := func(e oracle.Event, err error) error {
		if err == nil && e.Outcome == oracle.Unknown {
			err = fmt.Errorf("%s: %s", e.Kind, e.Note)
		}
		return err
	}
	name := state.Topic
	if state.Config != nil && state.Config.Queue {
		e, err := c.Claim(ctx, name, "restored", 1000, time.Minute)
		if err := fine(e, err); err != nil {
			return err
		}
		for _, j := range e.Jobs {
			if !live[j.Seq] && j.Seq <= state.Head {
				return fmt.Errorf("job %d is handed out, and is not there for readers", j.Seq)
			}
		}
		if err := fine(c.Settle(ctx, oracle.Ack, name, "restored", e.Jobs, 0, 0)); err != nil {
			return err
		}
	}
	e, err := c.Write(ctx, name, oracle.BatchID{Writer: verbWriter, N: batches.Add(1)}, 3, "")
	if err := fine(e, err); err != nil {
		return err
	}
	if e.Outcome == oracle.OK && e.First <= state.Head {
		return fmt.Errorf("a write gets number %d, head was %d", e.First, state.Head)
	}
	if err := fine(c.DeleteRecords(ctx, name, state.Head/2, "t1")); err != nil {
		return err
	}
	cfg := oracle.Config{Class: oracle.Disk, CapRecords: 3}
	if state.Config != nil {
		cfg.Queue = state.Config.Queue
	}
	return fine(c.Put(ctx, name, cfg))
}
