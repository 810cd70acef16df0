package store

import (
	"errors"
	"strings"

	"github.com/cockroachdb/pebble/v2"
)

// IsDamage reports whether an error means that a file was changed by something
// other than the store.
func IsDamage(err error) bool {
	return pebble.IsCorruptionError(err) || errors.Is(err, errMalformed) || errors.Is(err, ErrChunk)
}

var errMalformed = errors.New("malformed entry")

// plain is an error of Pebble without the lines that are meant for its authors.
type plain struct{ error }

func (p plain) Error() string {
	return strings.ReplaceAll(p.error.Error(), "\n<corruption detail carrier>", "")
}

func (p plain) Unwrap() error { return p.error }
