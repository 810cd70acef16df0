package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/weirmq/weir/internal/replica"
)

const (
	baseLook  = time.Second // how often it is looked whether a base is due
	baseRetry = 5 * time.Second
	// objectGrace is for how long a file that no base names stays.
	objectGrace = 24 * time.Hour
)

// Prefixes of what bases consist of: tables and what names them, and the log.
const (
	tablePrefix = "kv/"
	logPrefix   = "wal/"
)

// gapBase is a base that goes on behind entries that are missing.
type gapBase struct {
	base   *replica.Base
	others []uint64 // positions of the bases that are there, ascending
	done   chan error
}

// baseLoop makes the first base of a term right away, and then one after so many
// bytes or so much time, or when what the log has left out needs one.
func (c *copier) baseLoop() {
	tick := time.NewTicker(baseLook)
	defer tick.Stop()
	due, from, at := true, int64(0), time.Now()
	looked := at
	for {
		if held := c.tail.Held(); due || held {
			from, at = c.shipped.Load(), time.Now()
			err := c.makeBase(c.baseIn, held)
			if c.baseIn.Err() != nil {
				return
			}
			if due = err != nil; due {
				c.e.opt.Logger.Warn("a base of the copy could not be made; trying again", "error", err)
				at = time.Now().Add(baseRetry)
			} else if err := c.tidy(c.baseIn); err != nil {
				c.e.opt.Logger.Warn("old bases of the copy could not be removed; trying again with the next one", "error", err)
			}
		}
		for wait := true; wait; {
			select {
			case <-c.baseIn.Done():
				return
			case <-tick.C:
			}
			if due || c.tail.Held() {
				wait = time.Now().Before(at)
				continue
			}
			if time.Since(looked) >= keptLook {
				if err := c.kept(c.baseIn); err != nil {
					c.e.opt.Logger.Warn("the copy lacks a part of its newest base: another is made", "error", err)
					c.baseAt.Store(0)
					due, wait = true, false
				}
				looked = time.Now()
				continue
			}
			n := c.shipped.Load() - from
			due = n >= c.r.BaseBytes || n > 0 && time.Since(at) >= c.r.BaseEvery
			wait = !due
		}
	}
}

// makeBase uploads what the copy does not have of a snapshot, and then writes the
// base down. A base holds nothing that the entries of the log have not, so it
// waits until they do; one that bridges a gap is written down by run, which then
// ends the gap with an entry that says so.
func (c *copier) makeBase(ctx context.Context, gap bool) error {
	b := &replica.Base{After: c.pos.Load(), Term: c.r.Term, Taken: c.e.opt.Now(), Gap: gap}
	s, err := c.e.Snapshot(ctx)
	if err != nil {
		return err
	}
	b.Format, b.LSN = FormatVersion, s.LSN
	b.Files, err = c.upload(ctx, s)
	if err = errors.Join(err, s.Close()); err != nil {
		c.dropLog(ctx, s)
		return err
	}
	c.named = b.LSN
	if gap {
		g := &gapBase{base: b, done: make(chan error, 1)}
		if g.others, err = c.otherBases(ctx); err != nil {
			return err
		}
		select {
		case c.ready <- g:
		case <-ctx.Done():
			return ctx.Err()
		}
		select {
		case err = <-g.done:
		case <-ctx.Done():
			return ctx.Err()
		}
	} else if err = c.waitFor(ctx, b.LSN); err == nil {
		err = c.writeBase(ctx, b)
	}
	if err == nil {
		c.newest = b
		c.baseAt.Store(b.Taken.UnixNano())
		c.e.opt.Logger.Info("the copy has a new base", "lsn", b.LSN, "after", b.After, "files", len(b.Files))
	}
	return err
}

// dropLog removes the log of a base that will not be: the next attempt has another, and a store that
// refuses one table would be sent all of it every few seconds, to stay for a day. That of a base that
// may be there stays. What cannot be removed now tidy removes.
func (c *copier) dropLog(ctx context.Context, s *Snapshot) {
	if s.LSN <= c.named {
		return
	}
	for i := range s.files {
		if name := s.files[i].name; !strings.HasPrefix(name, tablePrefix) {
			if err := c.r.Files.Delete(ctx, c.logObject(s.LSN, name)); err != nil {
				return
			}
		}
	}
}

// logObject is the name of a file of the log of a base up to lsn.
func (c *copier) logObject(lsn uint64, name string) string {
	return fmt.Sprintf("%s%020d-%d/%s", logPrefix, lsn, c.r.Term, path.Base(name))
}

// waitFor waits until the copy's log has everything up to lsn.
func (c *copier) waitFor(ctx context.Context, lsn uint64) error {
	for c.e.log.Shipped() < lsn {
		c.e.log.Hurry()
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(c.r.Every / 4):
		}
		if c.tail.Held() {
			return errors.New("entries are missing in front of it by now")
		}
	}
	return nil
}

func (c *copier) writeBase(ctx context.Context, b *replica.Base) error {
	text, err := json.MarshalIndent(b, "", " ")
	if err != nil {
		return err
	}
	return c.r.Files.Put(ctx, replica.BaseName(b.After), int64(len(text)), bytes.NewReader(text))
}

// bridge writes a base down that covers what the log has left out, and the entry
// right behind its place that makes it count; then the log goes on.
func (c *copier) bridge(g *gapBase) error {
	c.drain()
	// The store may still carry out what failed at c.bridged, and a log that has lost its end goes
	// on in front of a base that is older.
	behind, ahead := c.bridged, uint64(0)
	if n := len(g.others); n > 0 {
		ahead = g.others[n-1]
	}
	far := ahead > c.pos.Load()+farAhead
	if !far {
		behind = max(behind, ahead)
	}
	// Whoever appends still leads, so all of the others were there before anybody could have replaced it.
	for first := true; (first && far || c.pos.Load() <= behind) && c.ctx.Err() == nil; first = false {
		c.sign()
		c.drain()
	}
	g.base.After = c.pos.Load()
	c.bridged = g.base.After
	ctx, cancel := context.WithTimeout(c.ctx, baseRetry) // the leader has to go on saying that it lives
	defer cancel()
	if err := c.writeBase(ctx, g.base); err != nil {
		return err
	}
	if far {
		if err := c.dropAhead(ctx, g); err != nil {
			return err
		}
	}
	if !c.tail.Resume(g.base.LSN) {
		return errors.Join(errors.New("more is missing by now"), c.r.Files.Delete(ctx, replica.BaseName(g.base.After)))
	}
	buf, ok := c.buffer()
	if !ok {
		return c.ctx.Err()
	}
	begun := time.Now()
	c.store(replica.Group{Term: c.r.Term, Last: max(c.last, g.base.LSN), TimeMS: g.base.Taken.UnixMilli()}, 0, buf, begun, false)
	c.drain() // until then the base may never count, and nothing may be removed for it
	return c.ctx.Err()
}

// farAhead is how many signs of life are appended to go on behind a base of a log that has lost its end. Of one
// that has lost more, as an emptied one, that would take hours, in which nothing is shipped.
const farAhead = 1000

// dropAhead removes the bases that would hide g: nothing of the log that they go on from is there.
func (c *copier) dropAhead(ctx context.Context, g *gapBase) error {
	if c.ctx.Err() != nil {
		return c.ctx.Err()
	}
	c.e.opt.Logger.Warn("the store has lost the log of bases of the copy, which are removed: they go on far behind its end", "newest", g.others[len(g.others)-1], "end", g.base.After)
	for _, after := range slices.Backward(g.others) {
		if after <= g.base.After {
			break
		}
		if err := c.r.Files.Delete(ctx, replica.BaseName(after)); err != nil {
			return err
		}
	}
	return nil
}

// otherBases are the positions of the bases that are there.
func (c *copier) otherBases(ctx context.Context) (all []uint64, err error) {
	list, err := c.r.Files.List(ctx, replica.BasePrefix)
	for _, f := range list {
		all = append(all, replica.BaseAfter(f.Name))
	}
	slices.Sort(all)
	return all, err
}

// upload puts the files of a snapshot into the copy that are not there yet.
func (c *copier) upload(ctx context.Context, s *Snapshot) ([]replica.BaseFile, error) {
	have := map[string]int64{} // sizes
	there, err := c.r.Files.List(ctx, tablePrefix)
	if err != nil {
		return nil, err
	}
	for _, f := range there {
		have[f.Name] = f.Size
	}
	perSecond := int64(BackupRate)
	if c.r.Sync && c.tail.Held() {
		perSecond = 0 // writes wait for it
	}
	r := &pacedReader{rate: newRate(ctx, c.baseIn, perSecond)}
	var files []replica.BaseFile
	sums := map[string]string{}
	for i := range s.files {
		f := &s.files[i]
		b, err := c.uploadFile(ctx, s, f, r, have, sums)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.name, err)
		}
		files = append(files, b)
	}
	c.sums = sums
	return files, nil
}

// uploadFile puts one file there unless it is. A table is summed once: its name
// is not used again for other content while the process lives.
func (c *copier) uploadFile(ctx context.Context, s *Snapshot, f *snapshotFile, r *pacedReader, have map[string]int64, sums map[string]string) (replica.BaseFile, error) {
	b := replica.BaseFile{Name: f.name, Size: f.size}
	table := strings.HasPrefix(f.name, "kv/")
	key := fmt.Sprintf("%s-%d", f.name, f.size)
	if b.SHA256 = c.sums[key]; b.SHA256 == "" || !strings.HasSuffix(f.name, ".sst") {
		sum, err := f.copy(r, func(content io.Reader) error { _, err := io.Copy(io.Discard, content); return err })
		if err != nil {
			return b, err
		}
		b.SHA256 = sum
	}
	sums[key] = b.SHA256
	if b.Object = fmt.Sprintf("%s%s-%d-%s", tablePrefix, path.Base(f.name), f.size, b.SHA256[:16]); !table {
		b.Object = c.logObject(s.LSN, f.name)
	}
	if size, there := have[b.Object]; there && size == f.size { // else it was cut off since
		return b, nil
	}
	_, err := f.copy(r, func(content io.Reader) error { return c.r.Files.Put(ctx, b.Object, f.size, content) })
	return b, err
}

// tidy removes bases that nobody needs for going back by Keep, the entries of
// the log in front of the oldest that stays, and files that no base names.
//
// What may go is decided by the time at which it begins: a leader that slept since and
// was replaced removes nothing that its successor needs.
func (c *copier) tidy(ctx context.Context) error {
	list, err := c.r.Files.List(ctx, replica.BasePrefix)
	if err != nil {
		return err
	}
	newest := replica.BaseName(c.newest.After)
	at := slices.IndexFunc(list, func(f replica.File) bool { return f.Name == newest })
	if at < 0 {
		return fmt.Errorf("the store lists its bases without %s, which it has just stored: nothing is removed", newest)
	}
	// By the store's own clock: by one of this machine that is ahead, all but the newest base would be old, and so
	// would be what another server is storing.
	now := list[at].Changed
	var all []replica.Base
	for _, f := range list {
		b, err := c.readBase(ctx, f.Name)
		switch {
		case errors.Is(err, replica.ErrDamaged): // it goes with those around it, and stands for none of them
			c.e.opt.Logger.Warn("a base of the copy is damaged", "error", err)
			b = replica.Base{Gap: true}
		case err != nil:
			return err
		}
		all = append(all, b)
	}
	first := c.oldestKept(all, list, now.Add(-c.r.Keep))
	for i := range first {
		if err := c.r.Files.Delete(ctx, list[i].Name); err != nil {
			return err
		}
	}
	if first > 0 {
		if err := c.r.Log.Trim(ctx, all[first].After); err != nil {
			return err
		}
	}
	named := map[string]bool{}
	for _, b := range all[min(first, len(all)):] {
		if len(b.Files) == 0 { // damaged, also if only the answer was: nobody knows what it names
			return nil
		}
		for _, f := range b.Files {
			named[f.Object] = true
		}
	}
	return c.tidyFiles(ctx, named, now.Add(-objectGrace))
}

// oldestKept is the index of the oldest base that stays: the newest of those that
// are older than Keep, so that every moment since can be gone back to. A base over
// a gap does not stand for what came before it unless it counts, so another stays.
// The list says when each was stored.
func (c *copier) oldestKept(all []replica.Base, list []replica.File, limit time.Time) int {
	first := 0
	for i, b := range all {
		if list[i].Changed.Before(limit) && (!b.Gap || b.Term == c.r.Term) {
			first = i
		}
	}
	return first
}

func (c *copier) readBase(ctx context.Context, name string) (b replica.Base, err error) {
	from, err := c.r.Files.Get(ctx, name)
	if err != nil {
		return b, err
	}
	defer func() { err = errors.Join(err, from.Close()) }()
	text, err := io.ReadAll(from)
	if err != nil {
		return b, fmt.Errorf("%s: %w", name, err)
	}
	return replica.DecodeBase(name, text)
}

// tidyFiles removes the old files that no base names.
func (c *copier) tidyFiles(ctx context.Context, named map[string]bool, limit time.Time) error {
	for _, prefix := range []string{tablePrefix, logPrefix} {
		files, err := c.r.Files.List(ctx, prefix)
		if err != nil {
			return err
		}
		for _, f := range files {
			if named[f.Name] || f.Changed.After(limit) {
				continue
			}
			if err := c.r.Files.Delete(ctx, f.Name); err != nil {
				return err
			}
		}
	}
	return nil
}
