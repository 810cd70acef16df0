package engine

import (
	"errors"
	"fmt"

	"github.com/weirmq/weir/internal/api"
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
	if errors.Is(err, wal.ErrClosed) {
		return api.Errorf(api.CodeShuttingDown, "the server is shutting down; connect again in a moment")
	}
	storage := map[string]any{"operation": "log", "error": "failed"}
	var w *wal.WriteError
	if errors.As(err, &w) {
		storage["operation"] = w.Op
		storage["error"] = fmt.Sprint(w.Err)
		if w.Errno != 0 {
			storage["errno"] = int(w.Errno)
			storage["error"] = w.Errno.Error()
		}
	}
	return &api.Error{Code: api.CodeInternal, Message: "the log could not be written; nothing of this call has taken effect", Err: err,
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
	return nil
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
