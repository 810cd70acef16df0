package engine

import (
	"errors"
	"fmt"

	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/internal/engine/topic"
	"github.com/weirmq/weir/internal/store"
	"github.com/weirmq/weir/internal/wal"
)

// storageError turns a failed write or sync of the log into the contract's
// answer, which names the operation and the system's error.
func storageError(err error) error {
	if err == nil {
		return nil
	}
	var known *api.Error
	if errors.As(err, &known) {
		return known
	}
	if errors.Is(err, wal.ErrUnshipped) {
		return errFenced()
	}
	if errors.Is(err, wal.ErrClosed) {
		return api.Errorf(api.CodeShuttingDown, "the server is shutting down; connect again in a moment")
	}
	storage := map[string]any{"operation": "log", "error": "failed"}
	effect := "nothing of this call has taken effect"
	var w *wal.WriteError
	if errors.As(err, &w) {
		if w.Open {
			effect = "this call has not taken effect, but may have after a restart, if that comes before the log can be written again"
		}
		storage["operation"] = w.Op
		storage["error"] = fmt.Sprint(w.Err)
		if w.Errno != 0 {
			storage["errno"] = int(w.Errno)
			storage["error"] = w.Errno.Error()
		}
	}
	return &api.Error{Code: api.CodeInternal, Message: "the log could not be written; " + effect, Err: err,
		Detail: map[string]any{"storage": storage}}
}

// storageOr is storageError, but leaves wal.ErrStale alone: the caller looks
// again and retries.
func storageOr(err error) error {
	if errors.Is(err, wal.ErrStale) {
		return wal.ErrStale
	}
	return storageError(err)
}

// usable is the error of a verb that is called once the engine is closed.
func (e *Engine) usable() error {
	if e.closed.Load() {
		return errShuttingDown()
	}
	if e.fenced.Load() {
		return errFenced()
	}
	return nil
}

// errFenced is the error of every verb once another server leads.
func errFenced() error {
	return api.Errorf(api.CodeNotReady, "another server leads now, and this one has stopped; connect to that one")
}

func errShuttingDown() error {
	return api.Errorf(api.CodeShuttingDown, "the server is shutting down; connect again in a moment")
}

// unreadable is the error of a record that is not where it should be; err may be nil.
func unreadable(t *entry, seq uint64, err error) error {
	if err == nil {
		err = fmt.Errorf("record %d of topic %q is not where the index says", seq, t.Name)
	}
	return &api.Error{Code: api.CodeInternal, Message: fmt.Sprintf("record %d of topic %q cannot be read", seq, t.Name), Err: err,
		Detail: map[string]any{"storage": map[string]any{"operation": "read", "error": err.Error()}}}
}

// damaged is the error of a read at a damaged place of the disk: no checksum
// matches there, however it is read. The topic's records from … to cannot be
// read any more.
type damaged struct {
	from, to uint64
	segment  uint32
	sealed   bool
	file     string
	size     float64 // about the data and meta of each record
	err      error
}

func (d *damaged) Error() string { return d.err.Error() }

// unreadableRun is the error of a read of a sealed run at seq.
func unreadableRun(t *entry, run topic.Run, seq uint64, err error) error {
	var d *store.Damage
	if !errors.As(err, &d) {
		return unreadable(t, seq, err)
	}
	return &damaged{from: seq, to: min(d.To, run.Last), segment: run.Segment, sealed: true, file: d.Table,
		size: float64(run.Bytes) / float64(max(run.N, 1)), err: err}
}

// unreadableRef is the error of a read of a batch in the log.
func unreadableRef(t *entry, ref topic.Ref, err error) error {
	var c *wal.CorruptError
	if !errors.As(err, &c) {
		return unreadable(t, ref.First, err)
	}
	return &damaged{from: ref.First, to: ref.Last(), segment: ref.Segment, file: c.File,
		size: float64(ref.Len) / float64(ref.N), err: err}
}
