package main

import (
	"errors"

	"github.com/weirmq/weir/internal/api"
)

// stubborn distinguishes a permanent error 500 from a temporary one. A log that cannot
// be written recovers once the disk is back, however long that takes; a server that
// cannot read, or does not say what failed, gets a few tries.
type stubborn struct{ failures int }

// stubbornTries is how many such errors in a row are retried: a few seconds.
const stubbornTries = 7

// last counts a failure and reports whether to give up.
func (s *stubborn) last(err error) bool {
	if !isStubborn(err) {
		s.failures = 0
		return false
	}
	s.failures++
	return s.failures >= stubbornTries
}

func isStubborn(err error) bool {
	e, ok := errors.AsType[*api.Error](err)
	if !ok || e.Code != api.CodeInternal {
		return false
	}
	storage, ok := e.Detail["storage"].(map[string]any)
	return !ok || storage["operation"] == "read"
}
