package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"

	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/internal/store"
	"github.com/weirmq/weir/internal/wal"
)

// Repair checks a data directory that no server holds and writes what is
// damaged, with file and offset, to report. It returns the number of damaged
// places. With mark it also accepts the damage in the log: the next start goes
// on behind it and announces the lost numbers as tombstones with reason crash.
// Sealed records that cannot be read are announced alike, and what can be read
// of their segments is written anew. An error means that the directory could
// not be checked, or that not all damage can be marked. Once ctx ends Repair does, too, with
// that error; what it has marked stays marked, and it may be called again.
func Repair(ctx context.Context, opt Options, mark bool, report io.Writer) (damaged int, err error) {
	defer guard()
	opt = opt.withDefaults()
	if used, err := ownDirectory(opt.FS, opt.Dir); err != nil {
		return 0, err
	} else if !used {
		return 0, fmt.Errorf("%s is not a data directory of weir: it has no FORMAT, wal or kv", opt.Dir)
	}
	damaged, tables, err := repairLog(ctx, opt, mark, report)
	if err != nil || !mark || tables == 0 {
		return damaged, err
	}
	return damaged, markTables(ctx, opt, report)
}

// repairLog is Repair but for the tables, of which it counts the damaged ones.
func repairLog(ctx context.Context, opt Options, mark bool, report io.Writer) (damaged, tables int, err error) {
	d, err := lockDirectory(opt.FS, opt.Dir, opt.BootID)
	if err != nil {
		return 0, 0, err
	}
	defer d.release()
	if err := d.readFormat(); errors.Is(err, errFormat) {
		fmt.Fprintln(report, err)
		damaged++
	} else if err != nil {
		return 0, 0, err
	}
	if d.fresh {
		fmt.Fprintln(report, "no server has used this directory yet")
		return 0, 0, nil
	}
	if err := d.checkParts(); err != nil {
		return damaged, tables, err
	}
	if mark && damaged > 0 {
		// It is unknown which machine wrote last: what may be lost counts as
		// lost.
		if err := d.writeFormat(format{Format: FormatVersion, Boot: bootOfRepair}); err != nil {
			return damaged, tables, err
		}
		fmt.Fprintln(report, "FORMAT: written anew")
	}
	s, err := store.Open(store.Options{FS: opt.FS, Dir: opt.Dir, Logger: opt.Logger, ReadOnly: true})
	if err != nil {
		return damaged, tables, hopeless("the store cannot be opened", err)
	}
	defer s.Close()
	if tables, err = verifyStore(ctx, s, d, opt, report); err != nil {
		return damaged, tables, err
	}
	damaged += tables
	logOptions := wal.Options{FS: opt.FS, Dir: opt.FS.PathJoin(opt.Dir, "wal"), SegmentBytes: opt.SegmentBytes, SameBoot: d.sameBoot, Progress: shareOf(opt.Progress)}
	var loadErr error
	var last replay
	found, err := wal.Inspect(logOptions, s.Applied(), func() (func(wal.Op) error, func(from, to uint64, bytes int64)) {
		e := newEngine(opt, d) // on whose topics the start is tried
		e.store = s
		last = replay{e: e}
		loadErr = e.load()
		return last.applier(ctx), last.lost.gap
	})
	if err == nil && loadErr != nil {
		return damaged, tables, hopeless("the store cannot be read", loadErr)
	}
	for _, p := range found {
		fmt.Fprintf(report, "%s: offset %d: operations %d to %d are lost: %s\n", p.File, p.Offset, p.From, p.To, p.Reason)
	}
	for _, name := range last.lost.names() {
		fmt.Fprintf(report, "a topic was created there and has records behind: it comes back as %q, with the default configuration\n", name)
	}
	if damaged += len(found); err != nil {
		var bad *wal.CorruptError
		if errors.As(err, &bad) {
			if apart := apart(s, bad); apart != nil {
				return damaged, tables, fmt.Errorf("%w: %w", apart, err)
			}
		}
		return damaged, tables, hopeless("the log cannot be repaired", err)
	}
	if mark && len(found) > 0 {
		if err := wal.MarkLost(logOptions, found); err != nil {
			return damaged, tables, err
		}
		fmt.Fprintln(report, "log: marked; the next start goes on behind the damage, and the numbers of every topic jump over what may have been lost: readers get a tombstone. What the lost operations deleted or configured is as before them")
	}
	return damaged, tables, nil
}

// verifyStore reads all of the store. A torn end of its list of tables is
// damage only if the last server closed the directory. What this process cannot read is an error.
func verifyStore(ctx context.Context, s *store.Store, d *directory, opt Options, report io.Writer) (bad int, err error) {
	if m := s.Manifest(); m != nil && (!m.Torn || d.clean) {
		bad++
		fmt.Fprintf(report, "%v; it cannot be marked, restore a backup, or that file\n", m)
	}
	ended := s.Verify(ctx, func(table string, wrong error) {
		if wrong == nil || err != nil {
			return
		}
		if OfMachine(wrong) {
			err = hopeless("the store cannot be read", wrong)
			return
		}
		bad++
		if table == "" {
			table = "kv"
		}
		fmt.Fprintf(report, "%s: %v; without --mark the server meets it when it reads there\n", table, wrong)
	}, opt.Checked)
	return bad, cmp.Or(err, ended)
}

// markTables announces the sealed records that cannot be read as lost, the way
// a server does that meets them, and writes their segments anew without them.
func markTables(ctx context.Context, opt Options, report io.Writer) error {
	opt.Logger = slog.New(slog.NewTextHandler(report, &slog.HandlerOptions{Level: slog.LevelError}))
	e, err := Open(ctx, opt)
	if err != nil {
		return hopeless("the tables cannot be marked", err)
	}
	err = errors.Join(e.salvage(ctx), e.Close())
	if err != nil {
		return hopeless("the tables cannot be marked", err)
	}
	s, err := store.Open(store.Options{FS: opt.FS, Dir: opt.Dir, Logger: opt.Logger, ReadOnly: true})
	if err != nil {
		return hopeless("the store cannot be opened", err)
	}
	defer s.Close()
	left := 0
	ended := s.Verify(ctx, func(table string, wrong error) {
		switch {
		case wrong == nil:
		case OfMachine(wrong):
			err = hopeless("the marked tables cannot be read", wrong)
		default:
			left++
			fmt.Fprintf(report, "%s: %v; it cannot be marked, restore a backup\n", table, wrong)
		}
	}, opt.Checked)
	if err = cmp.Or(err, ended); err != nil {
		return err
	}
	if left > 0 {
		return fmt.Errorf("damaged tables that cannot be marked: %d; restore a backup", left)
	}
	fmt.Fprintln(report, "tables: marked; what could be read of them is written anew")
	return nil
}

// salvage reads every live record, so that what is damaged is announced, and
// takes the damaged places out of the store.
func (e *Engine) salvage(ctx context.Context) error {
	var read Contents
	for _, t := range e.reg.all() {
		for from := uint64(0); ; {
			res, err := e.Diff(ctx, t.Name, &api.DiffRequest{FromSeq: from, Limit: 1000, MaxBatchBytes: 8 << 20}, func(*api.Record) { read.Records++ })
			if err = cmp.Or(err, ctx.Err()); err != nil {
				return err
			}
			if e.opt.Verified != nil {
				e.opt.Verified(read)
			}
			if res.CaughtUp() {
				break
			}
			from = res.NextFromSeq
		}
	}
	if err := e.log.Sync(); err != nil {
		return err
	}
	e.sealing.Lock()
	defer e.sealing.Unlock()
	bad, err := e.store.Damaged(ctx)
	for _, segment := range bad {
		runs, err := e.store.Salvage(ctx, segment, view{e})
		if err != nil {
			return err
		}
		e.swapRuns(segment, runsByTopic(runs))
	}
	return err
}
