package backendtest

import (
	"errors"
	"time"

	"github.com/weirmq/weir/backend"
)

func (s *suite) removeCases() []testCase {
	_, removes := s.offered.(backend.Remover)
	return only(removes, testCase{"a removed stream is gone with what it held", removed})
}

func removed(f *fixture) {
	b := f.open()
	f.publish(b, numbered(0, 3)...)
	f.ack(b, f.claim(b, "a", 1)...)
	f.claim(b, "a", 1) // and it stays so
	for range 2 {      // the second time there is nothing to remove
		if err := b.(backend.Remover).Remove(f.ctx()); err != nil {
			f.Fatalf("remove: %v", err)
		}
	}
	f.nothingLeft(b)
	b.Close()
	if err := b.(backend.Remover).Remove(f.ctx()); !errors.Is(err, backend.ErrClosed) {
		f.Errorf("remove on a closed handle: %v", err)
	}
}

// nothingLeft waits until the readings say that nothing is left.
func (f *fixture) nothingLeft(b backend.Backend) {
	f.Helper()
	var stats backend.Stats
	var err error
	for begin := time.Now(); time.Since(begin) < patience; time.Sleep(10 * time.Millisecond) {
		stats, err = b.Stats(f.ctx())
		gone := errors.Is(err, backend.ErrStreamNotFound) || errors.Is(err, backend.ErrGroupNotFound)
		if gone || err == nil && stats.XLen == 0 && stats.Pending == 0 && value(stats.Lag) == 0 {
			return
		}
	}
	f.Errorf("after it was removed the stream reads %+v, %v", stats, err)
}
