package main

import (
	"errors"

	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/internal/client"
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
	var detail map[string]any
	var e *client.Error
	var own *api.Error
	switch {
	case errors.As(err, &e) && e.Code == api.CodeInternal:
		detail = e.Detail
	case errors.As(err, &own) && own.Code == api.CodeInternal:
		detail = own.Detail
	default:
		return false
	}
	storage, ok := detail["storage"].(map[string]any)
	return !ok || storage["operation"] == "read"
}
