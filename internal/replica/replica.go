// Package replica keeps a copy of a server's log in a store that outlives its
// machine.
//
// A copy is two things. A Log holds the groups that the leader ships, in order;
// who appends to it is decided by the log itself, so no lock and no clock is
// needed for safety. Files holds bases: the data directory as it was at one
// place of the log. A base and the groups behind it are a data directory again.
//
// Rules that every Log keeps:
//
//  1. Whoever calls Lead gets a term above all before. Once Lead has returned,
//     nothing that an earlier leader appends counts any more, whatever it is
//     told; what it appended before, and Read returns, counts for ever.
//  2. An entry counts if its term is not below that of any entry in front of it
//     and everything its leader appended before it counts. Read skips the rest.
//  3. An Append without an error counts. After an unknown outcome the log asks
//     until it knows, or returns ErrFenced.
package replica

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"
)

var (
	// ErrFenced is returned to a leader that is one no more: another has led since.
	ErrFenced = errors.New("replica: another server leads")
	// ErrLost is wrapped by an ErrFenced of which is known that nobody else leads: the store
	// lacks what it had confirmed.
	ErrLost = errors.New("the store has lost what it had confirmed")
	// ErrTrimmed is returned by Read for a place whose next entry was removed.
	ErrTrimmed = errors.New("replica: the log was trimmed past this place")
	// ErrRefused is wrapped by errors of a store that trying again does not mend: no such
	// bucket, no right to write.
	ErrRefused = errors.New("replica: the store refuses it")
	// ErrNotFound is returned by Files for a name that is not there.
	ErrNotFound = errors.New("replica: no such file")
)

// Lost returns an ErrFenced that is an ErrLost: what says which part of the log is gone.
func Lost(what string) error { return lostError{what} }

type lostError struct{ what string }

func (e lostError) Error() string { return ErrLost.Error() + ": " + e.what }

func (e lostError) Unwrap() []error { return []error{ErrFenced, ErrLost} }

// Next is Log.Read for a place that something goes on from, as a base does. A leader trims only what
// is in front of every base that stays, so what is gone behind one is damage.
func Next(ctx context.Context, log Log, after uint64) (Entry, error) {
	e, err := log.Read(ctx, after)
	if errors.Is(err, ErrTrimmed) {
		err = fmt.Errorf("%w: what was behind position %d is gone, and the log goes on further behind: %w", ErrDamaged, after, err)
	}
	return e, err
}

// IsBroken reports whether err is about what a copy has, which is damaged or gone, and not about
// getting it.
func IsBroken(err error) bool { return errors.Is(err, ErrDamaged) || errors.Is(err, ErrNotFound) }

// Window is how many entries of a leader may be under way at once.
const Window = 4

// Term is one leader's time. Terms grow.
type Term struct {
	Number  uint64    `json:"term"`
	Node    string    `json:"node"` // who leads, for people
	Started time.Time `json:"started"`
}

// Entry is what Read returns. Data is one encoded Group; it is empty in the entry
// with which Lead begins a term.
type Entry struct {
	Pos  uint64 // grows, may have holes
	Term uint64
	Data []byte
}

// Log is the shared log of a copy. Its methods may be called concurrently, but
// Append by one goroutine. Every wait obeys its context.
type Log interface {
	// Newest returns the newest term; the zero Term if nobody has led yet.
	Newest(ctx context.Context) (Term, error)
	// Lead takes the next term. When it returns, all entries that count and are not
	// of the new term can be read, up to Lead.End, and no more will come.
	Lead(ctx context.Context, node string) (Lead, error)
	// Append adds an entry of the term that Lead gave, behind those appended
	// before. It returns as soon as the log has taken it on, and keeps no part of
	// data; at most Window entries are under way, further calls wait. If it returns
	// an error it has taken nothing on. Otherwise stored is called once, in the
	// order of the calls, when the entry counts, or with an error: ErrFenced,
	// or that of the context. Other errors are tried again inside. After an
	// error everything appended later gets one too, until Lead is called again;
	// what of it counts is what can be read once Lead has returned.
	Append(ctx context.Context, data []byte, stored func(pos uint64, err error)) error
	// Read returns the first entry that counts behind after, which is 0 or the position
	// of an entry that counts; io.EOF if there is none yet, ErrTrimmed if there was
	// one and it was removed.
	Read(ctx context.Context, after uint64) (Entry, error)
	// End returns the position of the last entry that counts, also if that was trimmed since; 0: there
	// was none. What ends in front of a place that Read knew has lost its end.
	End(ctx context.Context) (uint64, error)
	// Trim removes entries up to and including upTo. What it cannot remove yet
	// it leaves.
	Trim(ctx context.Context, upTo uint64) error
	io.Closer
}

// Lead is what a new leader begins with.
type Lead struct {
	Term uint64
	End  uint64 // position of the entry that began the term; entries of earlier terms are in front of it
}

// File is a file of a copy.
type File struct {
	Name    string // with forward slashes
	Size    int64
	Changed time.Time
}

// Files holds whole files by name; a file is there complete or not at all.
// Names are not used again for other content, except by Put with the same name,
// whose last caller wins.
type Files interface {
	Put(ctx context.Context, name string, size int64, content io.Reader) error
	// Get returns the content, or ErrNotFound. The caller closes it.
	Get(ctx context.Context, name string) (io.ReadCloser, error)
	// List returns the files whose name begins with prefix, ordered by name.
	List(ctx context.Context, prefix string) ([]File, error)
	Delete(ctx context.Context, name string) error // nil if it is not there
	io.Closer
}

// BootOfCopy is what a data directory says it was last open on if it was built from a
// copy whose log may have had more, or is a backup of a server whose copy may have less
// than it acknowledged: numbers of every class may have been handed out and lost.
const BootOfCopy = "copy"
