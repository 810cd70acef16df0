package slots

import (
	"context"
	"time"

	"github.com/weirmq/weir/internal/replica"
)

// atOnce is how many entries a Trim removes at most.
const atOnce = 500

// Trim removes entries up to upTo, but none of the newest and none that is young. It
// says so in a trim object first.
func (l *Log) Trim(ctx context.Context, upTo uint64) error {
	ctx, cancel := l.until(ctx)
	defer cancel()
	gone, err := l.marker(ctx)
	if err != nil {
		return err
	}
	if pos, err := l.old(ctx, gone.pos, upTo); err != nil {
		return err
	} else if pos > gone.pos {
		if gone, err = l.mark(ctx, gone, pos); err != nil {
			return err
		}
	}
	files, err := l.list(ctx, slots, "", atOnce)
	if err != nil {
		return err
	}
	for _, f := range files {
		if f.Name > slotName(gone.pos) {
			break
		}
		if err := l.remove(ctx, f.Name); err != nil {
			return err
		}
	}
	return nil
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
