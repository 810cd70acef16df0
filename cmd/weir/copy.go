package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirmq/weir/internal/engine"
	"github.com/weirmq/weir/internal/settings"
)

// copyOptions are the settings of the commands that copy and check.
type copyOptions struct {
	json output
	rate int64 // bytes per second; 0 is no limit
	keys keyOptions
}

func (o *copyOptions) load(cmd *cobra.Command, c settings.Command) error {
	err := load(cmd, c, settings.Fields{"json": &o.json, "rate": &o.rate})
	o.rate <<= 20 // the setting is in MiB
	return err
}

// backupOptions are those of backup.
type backupOptions struct {
	copyOptions
	every   time.Duration // 0: once
	keep    string
	metrics string
}

func (o *backupOptions) load(cmd *cobra.Command) error {
	err := load(cmd, settings.Backup, o.keys.fields(settings.Fields{
		"json": &o.json, "rate": &o.rate, "every": &o.every, "keep": &o.keep, "metrics": &o.metrics,
	}))
	o.rate <<= 20 // the setting is in MiB
	if err != nil || o.every > 0 {
		return err
	}
	for _, flag := range []string{"keep", "metrics"} {
		if cmd.Flags().Changed(flag) {
			return &usageError{fmt.Errorf("flag --%s is for backups that are made again and again; add --every", flag)}
		}
	}
	return nil
}

// copyResult is what a command has copied or checked.
type copyResult struct {
	what     string
	m        *manifest
	held     engine.Contents
	took     time.Duration
	progress *copyProgress // nil: shown to nobody
	bears    bool          // damaged files of a backup are restored, too
	damaged  []error       // which were

	Dir       string `json:"dir"`
	Files     int    `json:"files"`
	Bytes     int64  `json:"bytes"`
	LSN       uint64 `json:"lsn"`
	Topics    int    `json:"topics"`
	Records   uint64 `json:"records"`
	CreatedMS int64  `json:"created_ms"`
	ElapsedMS int64  `json:"elapsed_ms"`
}

// complete fills in what is printed.
func (r *copyResult) complete() *copyResult {
	r.Files, r.Bytes, r.LSN, r.CreatedMS = len(r.m.Files), r.m.bytes(), r.m.LSN, r.m.CreatedMS
	r.Topics, r.Records, r.ElapsedMS = r.held.Topics, r.held.Records, r.took.Milliseconds()
	return r
}

func (r *copyResult) String() string {
	return fmt.Sprintf("%s %s: %s, %s, in %s; %s in %s read",
		r.what, r.Dir, countOf(r.Files, "file"), countOf(r.Bytes, "byte"), r.took.Round(time.Millisecond), countOf(r.Records, "record"), countOf(r.Topics, "topic"))
}

// readRecords reads every live record of the copy in dir.
func readRecords(ctx context.Context, dir string, m *manifest, rate int64, p *copyProgress) (engine.Contents, error) {
	held, err := engine.Verify(ctx, p.verifying(dir), rate)
	switch {
	case err != nil && ctx.Err() != nil:
		return held, ctx.Err()
	case engine.OfMachine(err):
		return held, fmt.Errorf("the backup cannot be read by this process: %w", err)
	case err != nil:
		return held, fmt.Errorf("the backup is damaged: %w", err)
	case held.LSN != m.LSN:
		return held, fmt.Errorf("the backup is damaged: it ends at operation %d, its manifest says %d", held.LSN, m.LSN)
	}
	return held, nil
}
