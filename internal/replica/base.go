package replica

import (
	"encoding/json"
	"fmt"
	"time"
)

// Base is a data directory as it was at one place of the log. It is written
// last, as JSON under BaseName, when all its files are there.
type Base struct {
	Format int       `json:"format"` // of the data directory
	LSN    uint64    `json:"lsn"`    // last operation in it
	After  uint64    `json:"after"`  // position in the Log: the entries behind it go on from here
	Term   uint64    `json:"term"`
	Taken  time.Time `json:"taken"`
	// Gap says that entries are missing in front of what goes on behind it. Such a
	// base counts only if the entry right behind After is of its term and has no
	// pieces, and LSN as its Last: its leader appended that when the base was there.
	Gap   bool       `json:"gap,omitempty"`
	Files []BaseFile `json:"files"`
}

// DecodeBase decodes a base; name is that of its object. An error that wraps ErrDamaged
// says that the text is none.
func DecodeBase(name string, text []byte) (b Base, err error) {
	if err := json.Unmarshal(text, &b); err != nil {
		return b, fmt.Errorf("%w: %s is not the list of a base: %w", ErrDamaged, name, err)
	}
	if BaseName(b.After) != name {
		return b, fmt.Errorf("%w: %s holds the base of position %d", ErrDamaged, name, b.After)
	}
	return b, nil
}

// BaseFile is a file of a base.
type BaseFile struct {
	Name   string `json:"name"`   // in the data directory, with forward slashes
	Object string `json:"object"` // in Files
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"` // hex
}

// BasePrefix begins the names of all bases in Files. They order as the bases do.
const BasePrefix = "base/"

// BaseName is the name of a base in Files, by the position that it goes on behind.
func BaseName(after uint64) string { return fmt.Sprintf("%s%020d.json", BasePrefix, after) }

// BaseAfter is the position in the name of a base; 0 if the name is not that of one.
func BaseAfter(name string) (after uint64) {
	if _, err := fmt.Sscanf(name, BasePrefix+"%d.json", &after); err != nil || BaseName(after) != name {
		return 0
	}
	return after
}
