package main

import (
	"errors"

	"github.com/weirmq/weir/internal/api"
)

// stubborn tells an error 500 that a repeat will not change from one that
// passes. A log that cannot be written heals once the disk is back, however long
// that takes; a server that cannot read, or does not say what it failed at, has
// some tries.
type stubborn struct{ failures int }

// stubbornTries is how often in a row such a 500 may come: some seconds.
const stubbornTries = 7

// last is told each failure and reports whether to give up.
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
