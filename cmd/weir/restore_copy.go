package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/weirmq/weir/internal/engine"
	"github.com/weirmq/weir/internal/replica"
	"github.com/weirmq/weir/internal/replica/restore"
	"github.com/weirmq/weir/internal/replica/stores"
)

// copyPlan is what is printed of a restore from the copy of a log.
type copyPlan struct {
	plan *restore.Plan
	held *engine.Contents // nil: nothing was read, or nothing was built
	took time.Duration

	Dir       string    `json:"dir,omitempty"`
	BaseLSN   uint64    `json:"base_lsn"`
	BaseTaken time.Time `json:"base_taken"`
	Groups    int       `json:"groups"`
	Bytes     int64     `json:"bytes"`
	LSN       uint64    `json:"lsn"`
	OldestLSN uint64    `json:"oldest_lsn"`
	Oldest    time.Time `json:"oldest"`
	NewestLSN uint64    `json:"newest_lsn"`
	Newest    time.Time `json:"newest"`
	Topics    int       `json:"topics,omitempty"`
	Records   uint64    `json:"records,omitempty"`
	LostEnd   bool      `json:"lost_end,omitempty"`
	ElapsedMS int64     `json:"elapsed_ms,omitempty"`
}

func (c *copyPlan) complete() *copyPlan {
	p := c.plan
	c.BaseLSN, c.BaseTaken = p.Base.LSN, p.Base.Taken.UTC()
	c.Groups, c.Bytes, c.LSN = p.Groups, p.Bytes, p.LSN
	c.OldestLSN, c.Oldest, c.NewestLSN, c.Newest = p.OldestLSN, p.Oldest.UTC(), p.NewestLSN, p.Newest.UTC()
	c.LostEnd, c.ElapsedMS = p.LostEnd, c.took.Milliseconds()
	if c.held != nil {
		c.Topics, c.Records = c.held.Topics, c.held.Records
	}
	return c
}

func (c *copyPlan) String() string {
	text := fmt.Sprintf("base of LSN %d (%s) and %s behind it: %s, up to LSN %d\nthe copy goes from LSN %d (%s) to LSN %d (%s)",
		c.BaseLSN, c.BaseTaken.Format(time.RFC3339), countOf(c.Groups, "group"), countOf(c.Bytes, "byte"), c.LSN,
		c.OldestLSN, c.Oldest.Format(time.RFC3339), c.NewestLSN, c.Newest.Format(time.RFC3339))
	if c.Dir == "" {
		return text + "\nnothing was restored: this was a dry run"
	}
	text += fmt.Sprintf("\nrestored into %s in %s", c.Dir, c.took.Round(time.Millisecond))
	if c.held != nil {
		text += fmt.Sprintf("; %s in %s read", countOf(c.Records, "record"), countOf(c.Topics, "topic"))
	}
	return text
}

// parsePoint reads --at: an LSN, or a time in RFC 3339.
func parsePoint(at string) (p restore.Point, err error) {
	if at == "" {
		return p, nil
	}
	if p.LSN, err = strconv.ParseUint(at, 10, 64); err == nil && p.LSN > 0 {
		return p, nil
	}
	if p.Time, err = time.Parse(time.RFC3339, at); err != nil || p.Time.IsZero() {
		return p, &usageError{fmt.Errorf("--at %q is neither an LSN nor a time such as 2026-01-31T23:59:00Z", at)}
	}
	return p, nil
}

// restoreCopy builds dir from the copy at a URL.
func restoreCopy(ctx context.Context, say *copyProgress, opt *restoreOptions) (_ *copyPlan, err error) {
	point, err := parsePoint(opt.at)
	if err != nil {
		return nil, err
	}
	if err := stores.Check(opt.from); err != nil {
		return nil, &usageError{err}
	}
	log, files, err := stores.Open(ctx, opt.from, stores.Options{ReadOnly: true, Trouble: tryingAgain(say)})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, log.Close(), files.Close()) }()
	if !opt.dryRun {
		if err := freshDir(opt.dataDir); err != nil {
			return nil, err
		}
	}
	start := time.Now()
	source := restore.Copy{Log: log, Files: files, Trouble: tryingAgain(say), Progress: say.copied, Format: engine.FormatVersion}
	done := &copyPlan{}
	if done.plan, err = source.Plan(ctx, point); errors.Is(err, restore.ErrNewer) {
		return nil, fmt.Errorf("%w, or give with --at a moment before the server was upgraded", err)
	} else if err != nil {
		return nil, err
	}
	if done.plan.LostEnd {
		fmt.Fprintln(say, "weir: the store has lost the end of the copy's log, which ends in front of the newest base: what was confirmed behind that is not in the copy")
	}
	if opt.dryRun {
		return done.complete(), nil
	}
	done.Dir = opt.dataDir
	err = build(opt.dataDir, "FORMAT", func(root *os.Root) error {
		if err := source.Build(ctx, done.plan, nil, root.Name()); err != nil || opt.noVerify {
			return withAdvice(err, opt.from)
		}
		held, err := engine.Verify(ctx, say.verifying(root.Name()), 0)
		if err == nil && held.LSN != done.plan.LSN {
			err = fmt.Errorf("it ends at operation %d, expected %d", held.LSN, done.plan.LSN)
		}
		if done.held = &held; engine.OfMachine(err) {
			return fmt.Errorf("what was restored cannot be read by this process: %w", err)
		}
		if err != nil && ctx.Err() == nil {
			return fmt.Errorf("the copy is damaged: %w; --at restores an earlier state, --no-verify what is readable", err)
		}
		return err
	})
	done.took = time.Since(start)
	if err != nil {
		return nil, err
	}
	return done.complete(), nil
}

// withAdvice adds to an error about a broken base what helps; one about the log says so itself.
func withAdvice(err error, url string) error {
	var log *restore.DamagedError
	if !replica.IsBroken(err) || errors.As(err, &log) {
		return err
	}
	return fmt.Errorf("%w. `weir replica verify '%s'` reads everything and names all that is broken, and --at restores a state whose base is whole. If the server of the copy still has its data directory, remove the broken object: the next base puts it there again", err, url)
}
