package engine

import (
	"context"
	"errors"
	"fmt"

	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/internal/wal"
)

// Contents counts what Verify has read.
type Contents struct {
	LSN     uint64 // last operation in the directory
	Topics  int
	Records uint64 // live ones
	Bytes   uint64 // their data plus meta
}

// Verify reads every live record of the data directory opt.Dir once, as a
// running engine would, and changes nothing in it. No process may have it open:
// Verify is for copies. It reads at most perSecond bytes of records per second;
// 0 is no limit. The error names the first record that cannot be read, or says
// why the directory would not start.
func Verify(ctx context.Context, opt Options, perSecond int64) (Contents, error) {
	defer guard()
	opt = opt.withDefaults()
	dir := &directory{fs: opt.FS, path: opt.Dir, boot: opt.BootID}
	if err := dir.readFormat(); err != nil {
		return Contents{}, err
	}
	e := newEngine(opt, dir)
	defer e.abandon()
	if err := e.openStore(true); err != nil {
		return Contents{}, err
	}
	r := replay{e: e}
	var was wal.Recovery
	var err error
	if e.log, was, err = wal.Look(e.logOptions(&r), e.store.Applied(), r.applier(ctx)); err != nil {
		return Contents{}, e.logError(err)
	}
	c := Contents{LSN: max(e.store.Applied(), was.Last)}
	pace := newRate(ctx, e.stop, perSecond)
	for _, t := range e.reg.all() {
		c.Topics++
		if err := e.readLive(t, &c, pace); err != nil {
			var unread *api.Error
			if errors.As(err, &unread) && unread.Err != nil {
				err = fmt.Errorf("%s: %w", unread.Message, unread.Err)
			}
			return c, err
		}
	}
	return c, nil
}

// readPiece is how many records are read between two looks at the clock.
const readPiece = 1000

// readLive reads the live records of a topic that nobody else uses.
func (e *Engine) readLive(t *entry, c *Contents, pace *rate) error {
	p := plans.Get().(*plan)
	defer plans.Put(p)
	for pos := t.Start; ; {
		if err := pace.wait(); err != nil {
			return err
		}
		p.piece(t, pos, t.Head, readPiece)
		if len(p.ranges) == 0 {
			return nil
		}
		err := p.read(e, t, func(r *api.Record) bool {
			pos = r.Seq
			c.Records++
			c.Bytes += uint64(r.Size())
			pace.total += int64(r.Size())
			return true
		})
		if errors.Is(err, errMoved) {
			err = unreadable(t, t.NextLive(pos), nil)
		}
		if err != nil {
			return err
		}
		if e.opt.Verified != nil {
			e.opt.Verified(*c)
		}
	}
}
