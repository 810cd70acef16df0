package slots

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/weirmq/weir/internal/replica"
)

const (
	// atOnce is how many entries are removed behind one trim object.
	atOnce = 500
	// removers is how many calls remove entries at the same time. Leaders have
	// replica.Window of theirs under way, and a trim must not be slower than that.
	removers = 4 * replica.Window
)

// Trim removes entries up to upTo, but none of the newest and none that is young. It
// says so in a trim object first.
func (l *Log) Trim(ctx context.Context, upTo uint64) error {
	ctx, cancel := l.until(ctx)
	defer cancel()
	for {
		if removed, err := l.trimSome(ctx, upTo); err != nil || removed < atOnce {
			return err
		}
	}
}

// trimSome removes atOnce entries, or all that may go.
func (l *Log) trimSome(ctx context.Context, upTo uint64) (removed int, err error) {
	gone, err := l.marker(ctx)
	if err != nil {
		return 0, err
	}
	if pos, err := l.old(ctx, gone.pos, upTo); err != nil {
		return 0, err
	} else if pos >= gone.next { // what lies in between does not count, and no place is behind it
		if gone, err = l.mark(ctx, gone, pos); err != nil {
			return 0, err
		}
	}
	files, err := l.list(ctx, slots, "", atOnce)
	if err != nil {
		return 0, err
	}
	for removed < len(files) && files[removed].Name <= slotName(gone.pos) {
		removed++
	}
	return removed, l.removeAll(ctx, files[:removed])
}

func (l *Log) removeAll(ctx context.Context, files []replica.File) error {
	var all sync.WaitGroup
	var failed [removers]error
	for i := range removers {
		all.Go(func() {
			for n := i; n < len(files) && failed[i] == nil; n += removers {
				failed[i] = l.remove(ctx, files[n].Name)
			}
		})
	}
	all.Wait()
	return errors.Join(failed[:]...)
}

// old returns the last position behind from that may be removed now, or 0.
func (l *Log) old(ctx context.Context, from, upTo uint64) (uint64, error) {
	files, err := l.files(ctx, slotName(from), atOnce+l.opt.Keep)
	if err != nil {
		return 0, err
	}
	pos, before := uint64(0), time.Now().Add(-l.opt.Grace)
	for _, f := range files[:max(0, len(files)-l.opt.Keep)] {
		p, err := number(slots, f.Name)
		if err != nil {
			return 0, err
		}
		if p > upTo || f.Changed.After(before) {
			break
		}
		pos = p
	}
	return pos, nil
}

// files returns up to most objects of the log behind a name.
func (l *Log) files(ctx context.Context, after string, most int) (all []replica.File, err error) {
	for len(all) < most {
		page, err := l.list(ctx, slots, after, min(1000, most-len(all)))
		if err != nil || len(page) == 0 {
			return all, err
		}
		all, after = append(all, page...), page[len(page)-1].Name
	}
	return all, nil
}

// mark creates the trim object for pos, or shortly before it, and removes the one
// of old.
func (l *Log) mark(ctx context.Context, old place, pos uint64) (place, error) {
	at, err := l.anchor(ctx, pos)
	if err != nil || at.pos <= old.pos {
		return old, err
	}
	if err := l.create(ctx, trimName(at), nil); err != nil {
		return old, err
	}
	if old != start {
		err = l.remove(ctx, trimName(old))
	}
	return at, err
}

func (l *Log) remove(ctx context.Context, name string) error {
	return l.again(ctx, 0, func(ctx context.Context) error { return l.objects.Delete(ctx, name) })
}
