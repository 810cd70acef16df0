package weir

import (
	"sync/atomic"
	"time"
)

// seldomEvery is the shortest time between two beginnings of the same trouble that are logged. Where some calls fail and
// others do not, as while a part of the servers is away, trouble begins and ends with each.
const seldomEvery = 10 * time.Second

// began is when the process began: what counts from it is not moved by a step of the clock.
var began = time.Now()

// seldom says what to log of a trouble that comes and goes: its beginning, not too often, and the end of what was logged.
// A trouble that began too soon after another is logged if it is still there when the time has passed.
type seldom struct {
	said atomic.Bool
	at   atomic.Int64 // when the last beginning was logged, ns since began; 0: never
}

// begins is called while there is trouble and reports whether to log it now.
func (s *seldom) begins() bool {
	if s.said.Load() {
		return false
	}
	now, last := int64(time.Since(began)), s.at.Load()
	return (last == 0 || now-last >= int64(seldomEvery)) && s.at.CompareAndSwap(last, now) && s.said.CompareAndSwap(false, true)
}

// ends is called while there is none and reports whether to log that now.
func (s *seldom) ends() bool { return s.said.Load() && s.said.CompareAndSwap(true, false) }
