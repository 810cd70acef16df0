package restore

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/weirmq/weir/internal/replica"
	"github.com/weirmq/weir/internal/wal"
)

// Directory is the data directory of a server that keeps a copy. The server
// holds the directory's lock and has not read it yet.
type Directory struct {
	FS     vfs.FS // nil: the operating system's
	Path   string
	Node   string // who this server is, for people
	Copy   Copy
	Logger *slog.Logger
}

// Led is what a server begins with that leads now.
type Led struct {
	replica.Lead
	Since time.Time // when the lead was asked for
	LSN   uint64    // up to which the copy has the directory's log; 0: it does not go on from it
}

// note is the file REPLICA of a data directory.
type note struct {
	Term uint64 `json:"term"` // that was led last with this directory
	// Copy is the id of the copy of which the term is; empty in notes of older versions, and
	// of a log that has none.
	Copy string `json:"copy,omitempty"`
	// Led is under which name Term was led; empty in notes of older versions. A store that has lost
	// the term gives its number to another.
	Led string `json:"led,omitempty"`
	// Leading is who has asked for the term behind Term with the directory, if it was
	// killed before it knew what it has got.
	Leading string `json:"leading,omitempty"`
	// Aside is where what is in the directory is being moved, Restoring says
	// that what is in it is not complete.
	Aside     string `json:"aside,omitempty"`
	Restoring bool   `json:"restoring,omitempty"`
	Sum       string `json:"sum,omitempty"` // crc32c of the rest but Copy and Led in hex; empty in notes of older versions
}

const (
	noteName    = "REPLICA"
	mirrorNames = ".weir-replica-"
)

// held is what is in a data directory.
type held struct {
	used bool
	note *note  // nil: it has not led the copy last
	copy string // id of the copy
}

// ledLast reports whether nobody has led since the directory's server did.
func (h *held) ledLast(newest replica.Term) bool {
	return h.used && h.note != nil && (newest.Number < h.note.Term ||
		newest.Number == h.note.Term && (h.note.Led == "" || newest.Node == "" || newest.Node == h.note.Led) ||
		h.note.Leading != "" && newest.Node == h.note.Leading && newest.Number == h.note.Term+1)
}

// Lead takes the next term and makes the directory one to go on with: the one
// that is there if nobody has led since it did, else what the copy has.
func (d *Directory) Lead(ctx context.Context) (Led, error) {
	h, err := d.look(ctx)
	if err != nil {
		return Led{}, err
	}
	return d.take(ctx, h, nil)
}

// take leads. m is what there is of the copy; nil: nothing.
func (d *Directory) take(ctx context.Context, h *held, m *Mirror) (Led, error) {
	// Whoever takes the term ends the leader, and this server could not go on in its place.
	if err := d.Copy.readable(ctx); err != nil {
		return Led{}, err
	}
	before, err := d.Copy.Log.Newest(ctx)
	if err != nil {
		return Led{}, fmt.Errorf("the copy: %w", err)
	}
	node, err := d.intend(h, before)
	if err != nil {
		return Led{}, err
	}
	since := time.Now()
	lead, err := d.Copy.Log.Lead(ctx, node)
	if err != nil {
		return Led{}, fmt.Errorf("the copy: %w", err)
	}
	d.Copy.began = lead.End
	led := Led{Lead: lead, Since: since}
	goesOn, lsn, err := d.goesOn(ctx, h, before, lead)
	if m != nil && m.At >= lead.End && lead.Term > m.Term+1 { // who led since did without what m has
		m.Close()
		m = nil
	}
	if err == nil && !goesOn && m == nil {
		m, err = d.Copy.Begin(ctx, d.FS, d.mirror("a"), nil)
	}
	empty := errors.Is(err, ErrEmpty)
	switch {
	case empty: // what a leader without a base acknowledged is in its own directory alone
		goesOn = true
	case err != nil:
		return Led{}, err // whether another has led since is not known, so the note stays
	}
	if goesOn {
		if led.LSN = lsn; empty && h.used {
			if led.End, err = d.sayAlone(ctx, lead); err != nil {
				return Led{}, err
			}
		}
		return led, d.writeNote(note{Term: lead.Term, Copy: h.copy, Led: node})
	}
	defer func() { m.Close() }()
	if err := m.Follow(ctx, lead.End-1); err != nil { // the entry there is this leader's own
		return Led{}, err
	}
	if m, err = d.newerBase(ctx, m, lead); err != nil {
		return Led{}, err
	}
	if err := m.Finish(math.MaxUint64); err != nil {
		return Led{}, err
	}
	if led.LSN = m.LSN; m.At >= lead.End {
		led.LSN = 0
		d.Logger.Warn("the store has lost the end of the copy's log, which this server has read: it goes on with that and makes a new base", "lsn", m.LSN)
	}
	d.Logger.Info("the data directory is made from the copy", "term", lead.Term, "lsn", m.LSN, "base_lsn", m.Base.LSN)
	return led, d.replace(h, m, lead.Term, node)
}

// newerBase returns m, or a mirror of the newest base if that has more: of a log that has lost its
// end. Without it the same numbers would be given to others, and the base would hide them.
func (d *Directory) newerBase(ctx context.Context, m *Mirror, lead replica.Lead) (*Mirror, error) {
	newer, err := d.Copy.newerThan(ctx, &m.Base)
	if err != nil || newer == "" {
		return m, err
	}
	b, err := d.Copy.readBase(ctx, newer)
	if err != nil || b.LSN <= m.LSN {
		return m, ctx.Err() // one that cannot be read or does not count hides nothing
	}
	m.Close()
	next, err := d.Copy.Begin(ctx, d.FS, d.mirror("c"), m)
	if err == nil {
		m = next
		err = m.Follow(ctx, lead.End-1)
	}
	return m, err
}

// sayAlone tells standbys that what there is the copy does not have, before the recovery
// that may take long. It returns the position behind which the log goes on.
func (d *Directory) sayAlone(ctx context.Context, lead replica.Lead) (pos uint64, err error) {
	g := replica.Group{Term: lead.Term, TimeMS: time.Now().UnixMilli(), Pieces: []replica.Piece{replica.Alone}}
	done := make(chan error, 1)
	err = d.Copy.Log.Append(ctx, g.Encode(nil), func(at uint64, err error) {
		pos = at
		done <- err
	})
	if err == nil {
		err = <-done
	}
	if err != nil {
		return 0, fmt.Errorf("the copy: %w", err)
	}
	return pos, nil
}

// intend says under which name to take the next term. If the directory is that of the
// newest one, it notes the name first: a start that is killed, or fails, before it has noted
// its term is not taken for another server by the next one.
func (d *Directory) intend(h *held, before replica.Term) (string, error) {
	if !h.used || h.note == nil {
		return d.Node, nil
	}
	if !h.ledLast(before) {
		return d.Node, nil
	}
	if before.Number >= h.note.Term {
		h.note.Term, h.note.Led = before.Number, before.Node
	}
	h.note.Leading = d.Node + " " + rand.Text()[:8]
	return h.note.Leading, d.writeNote(*h.note)
}

// goesOn reports whether the server goes on with its own directory, and up to
// which LSN the copy has it. It returns ErrEmpty if the copy has no base.
func (d *Directory) goesOn(ctx context.Context, h *held, before replica.Term, lead replica.Lead) (bool, uint64, error) {
	alone := h.used && (h.note == nil || h.ledLast(before))
	var plan *Plan
	var err error
	if alone { // otherwise the log, which may be long, is only read to be mirrored
		plan, err = d.Copy.Plan(ctx, Point{})
	}
	switch {
	case !h.used, errors.Is(err, ErrEmpty):
		return false, 0, err
	case h.note == nil:
		return false, 0, d.neverLed()
	}
	if plan != nil {
		for _, term := range plan.terms {
			alone = alone && (term <= h.note.Term || term >= lead.Term)
		}
	}
	if !alone {
		d.Logger.Warn("another server has led since this one", "own_term", h.note.Term, "newest_term", before.Number, "led_by", before.Node)
		return false, 0, nil
	}
	// Without a plan only the terms say that nobody has led in between.
	if errors.Is(err, replica.ErrDamaged) && (plan != nil || lead.Term == before.Number+1) {
		d.Logger.Warn("the copy is damaged; this server goes on with its own directory and makes a new base", "error", err)
		return true, 0, nil
	}
	if err != nil {
		return false, 0, err
	}
	_, last, err := wal.Ends(wal.Options{FS: d.FS, Dir: d.path("wal")})
	if err != nil {
		return false, 0, fmt.Errorf("%w; the copy has everything up to LSN %d: move %s away to begin from it", err, plan.NewestLSN, d.Path)
	}
	if last < plan.NewestLSN {
		d.Logger.Warn("the copy is ahead of the data directory", "lsn", last, "copy_lsn", plan.NewestLSN)
		return false, 0, nil
	}
	if plan.Base.After >= lead.End {
		d.Logger.Warn("the store has lost the end of the copy's log, and the newest base goes on behind it: this server goes on with its own directory and makes a new base", "base", replica.BaseName(plan.Base.After))
		return true, 0, nil
	}
	return true, plan.NewestLSN, nil
}

// look finds out what is in the directory, after what a killed start left is
// tidied up. It refuses a directory that the copy is not of.
func (d *Directory) look(ctx context.Context) (*held, error) {
	if d.FS == nil {
		d.FS = vfs.Default
	}
	h := &held{}
	if err := d.removeMirrors(); err != nil {
		return nil, err
	}
	n, err := d.readNote()
	if err != nil {
		return nil, err
	}
	if h.copy, err = d.Copy.id(ctx); err != nil {
		return nil, fmt.Errorf("the copy: %w", err)
	}
	if n != nil && n.Aside != "" {
		if err := d.setAside(n); err != nil {
			return nil, err
		}
	}
	if n != nil && n.Restoring {
		for _, name := range []string{"FORMAT", "wal", "kv"} {
			if err := d.FS.RemoveAll(d.path(name)); err != nil {
				return nil, err
			}
		}
		return h, nil
	}
	if n != nil && (n.Copy == "" || h.copy == "" || n.Copy == h.copy) {
		h.note = n
	}
	if h.used, err = d.used(); err != nil || !h.used {
		return h, err
	}
	names, err := d.Copy.baseNames(ctx)
	if err == nil && len(names) == 0 && n != nil && h.note == nil {
		d.Logger.Warn("the data directory has led another copy, and here is none: this server begins a new one. If one should be here, stop the server, and mount it or correct --replica")
	}
	if err != nil || len(names) == 0 {
		return h, err
	}
	if h.note == nil {
		return nil, d.neverLed()
	}
	return h, d.sameLog(ctx, names)
}

// neverLed is the error about a directory that a server has used without this copy.
func (d *Directory) neverLed() error {
	return fmt.Errorf("data directory %s has not led this copy, or another one since, and the copy holds another state: name an empty data directory to go on from the copy, or an empty place for the copy to go on from the directory", d.Path)
}

// used reports whether a server has used the directory. What is damaged has been used: the
// engine says what is wrong with it.
func (d *Directory) used() (bool, error) {
	b, err := readFile(d.FS, d.path("FORMAT"))
	if errors.Is(err, os.ErrNotExist) {
		return d.holdsParts()
	}
	var format struct {
		Boot *string `json:"boot"`
	}
	if err == nil && (json.Unmarshal(b, &format) != nil || format.Boot == nil) {
		return true, nil
	}
	return err == nil && *format.Boot != "", err
}

// holdsParts reports whether there is a log or a store: a first start makes FORMAT before them.
func (d *Directory) holdsParts() (bool, error) {
	for _, name := range []string{"wal", "kv"} {
		if _, err := d.FS.Stat(d.path(name)); !errors.Is(err, os.ErrNotExist) {
			return err == nil, err
		}
	}
	return false, nil
}

// sameLog refuses a copy of another directory's log.
func (d *Directory) sameLog(ctx context.Context, names []string) error {
	own, _, err := wal.Ends(wal.Options{FS: d.FS, Dir: d.path("wal")})
	if err != nil {
		return nil // told when the log is read
	}
	for _, name := range slices.Backward(names) {
		b, err := d.Copy.readBase(ctx, name)
		if err != nil {
			continue
		}
		if log, err := d.Copy.logOf(ctx, b); err == nil && log != own {
			return fmt.Errorf("data directory %s and the copy are of different servers: name an empty data directory to go on from the copy, or an empty place for the copy to go on from the directory", d.Path)
		} else if err == nil {
			return nil
		}
	}
	return nil
}

// id tells the copy from others; empty if its log does not know.
func (c Copy) id(ctx context.Context) (string, error) {
	if log, ok := c.Log.(interface {
		ID(context.Context) (string, error)
	}); ok {
		return log.ID(ctx)
	}
	return "", nil
}

// logOf returns the number of the log in a base.
func (c Copy) logOf(ctx context.Context, b *replica.Base) (uint64, error) {
	for _, f := range b.Files {
		if !strings.HasSuffix(f.Name, segmentSuffix) {
			continue
		}
		var head [wal.HeaderSize]byte
		err := c.get(ctx, f.Object, func(in io.Reader) error { _, err := io.ReadFull(in, head[:]); return err })
		if err != nil {
			return 0, err
		}
		if h, ok := wal.ReadHeader(head[:]); ok {
			return h.Log, nil
		}
	}
	return 0, errors.New("the base holds no log")
}
