package engine

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirmq/weir/internal/replica"
	"github.com/weirmq/weir/internal/wal"
)

// Replica says where an engine keeps a copy of its data directory, and how. The
// zero value of a duration or a size means its default.
type Replica struct {
	Log   replica.Log // this engine leads it
	Files replica.Files
	Term  uint64 // from Lead, as End
	End   uint64
	Since time.Time // when Lead was asked: what is known of who leads is so old; zero: now
	// LSN is how far the copy has this directory's log: everything up to it, and
	// nothing that this directory has not. 0 if there is no copy to go on from.
	LSN uint64

	Sync      bool          // what has to be synced has to be in the copy, too
	Alive     time.Duration // an idle leader says so that often; 0: it does not
	Every     time.Duration // how often an asynchronous copy follows, default 1 s
	BaseEvery time.Duration // how often a base is made while something is written, default 15 min
	BaseBytes int64         // and after how many shipped bytes, default 256 MiB
	Keep      time.Duration // how long bases are kept, default 24 h
	LagMax    int64         // unshipped bytes that are kept for the copy, default 1 GiB

	// Fenced is told, once, that another server leads: this engine acknowledges
	// nothing any more, and its process should end.
	Fenced func(error)
}

func (r Replica) withDefaults() Replica {
	def := func(v *int64, d int64) {
		if *v <= 0 {
			*v = d
		}
	}
	def((*int64)(&r.Every), int64(time.Second))
	def((*int64)(&r.BaseEvery), int64(15*time.Minute))
	def(&r.BaseBytes, 256<<20)
	def((*int64)(&r.Keep), int64(24*time.Hour))
	def(&r.LagMax, 1<<30)
	if r.Since.IsZero() {
		r.Since = time.Now()
	}
	if r.Fenced == nil {
		r.Fenced = func(error) {}
	}
	return r
}

const (
	// Bytes of the log in one group: larger groups only pay, and cost memory, while the copy is
	// far behind.
	shipBytes   = 1 << 20
	shipMost    = 4 << 20
	farBehind   = 32 << 20
	shipsAtOnce = 4 // groups under way
	lagPeriod   = time.Second
	// A synchronous group waits for others while some are under way: this part of what the
	// last one took, times the square of how many are.
	gatherPart  = 64
	gatherLeast = 100 * time.Microsecond
	gatherMost  = 20 * time.Millisecond
	// endPatience is how long a stop waits for the copy.
	endPatience = 5 * time.Second
)

// copier ships the log to the copy and makes its bases. run alone appends.
type copier struct {
	e    *Engine
	r    Replica
	tail *wal.Tail

	ctx    context.Context // of the shipping; ends last
	cancel context.CancelFunc
	baseIn context.Context
	noBase context.CancelFunc
	ending chan struct{} // close asks run to ship what is left and to end
	loops  sync.WaitGroup
	bases  sync.WaitGroup

	free    chan []byte // buffers of groups; all are here if none is under way
	scratch []byte
	last    uint64                    // Last of the newest group; run's
	pos     atomic.Uint64             // of the newest entry that is stored
	said    time.Time                 // when the last group was appended; run's
	ready   chan *gapBase             // bases that run writes down
	signs   chan chan struct{}        // asks run for a sign of life, and is closed when that is stored
	bridged uint64                    // position behind which the last of them was to be; run's
	shipped atomic.Int64              // bytes stored since the start
	whole   atomic.Int64              // the copy was whole then, ns since the engine began
	stored  atomic.Pointer[time.Time] // when the log was given the newest stored entry
	fences  atomic.Int64
	append  waitSum
	took    atomic.Int64 // by the newest group, in ns
	baseAt  atomic.Int64 // when the newest base was taken, Unix ns; 0: there is none
	sums    map[string]string
	newest  *replica.Base // that this engine has made; baseLoop's, as sums and named
	named   uint64        // LSN up to which there may be a base of this term
}

// startCopier begins to copy an engine that has recovered.
func startCopier(e *Engine, r *Replica) *copier {
	c := &copier{e: e, r: r.withDefaults(), tail: e.log.Tail(), ending: make(chan struct{}), last: r.LSN,
		free: make(chan []byte, shipsAtOnce), ready: make(chan *gapBase), signs: make(chan chan struct{}), sums: map[string]string{}}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.baseIn, c.noBase = context.WithCancel(c.ctx)
	for range shipsAtOnce {
		c.free <- nil
	}
	c.pos.Store(r.End)
	c.whole.Store(int64(e.mono()))
	c.said = c.r.Since
	c.stored.Store(&c.r.Since)
	if r.LSN == 0 || c.tail.First() > r.LSN+1 {
		c.jump("the copy does not go on from here")
	}
	c.loops.Add(2)
	c.bases.Add(1)
	go func() { defer c.loops.Done(); c.run() }()
	go func() { defer c.loops.Done(); c.watchLag() }()
	go func() { defer c.bases.Done(); c.baseLoop() }()
	return c
}

// run ships every period, at once if somebody waits for it, and what is left
// when the engine closes.
func (c *copier) run() {
	tick := time.NewTicker(c.r.Every)
	defer tick.Stop()
	var alive <-chan time.Time
	if c.r.Alive > 0 { // a sign must not wait for an Every that is longer
		look := time.NewTicker(max(c.r.Alive/4, time.Millisecond))
		defer look.Stop()
		alive = look.C
	}
	c.live() // it may have taken long to begin
	for {
		select {
		case <-c.ctx.Done():
			return
		case <-c.ending:
			_ = c.e.log.Sync()
			c.ship()
			c.drain()
			c.sayEnd()
			c.cancel()
			return
		case b := <-c.ready:
			b.done <- c.bridge(b)
		case done := <-c.signs:
			c.sign()
			c.drain()
			close(done)
			continue
		case <-alive:
			c.live()
			continue
		case <-tick.C:
		case <-c.e.log.Hurried():
			c.gather()
		}
		c.ship()
		c.live()
	}
}

// gather waits for others to come along: whoever has been told that the copy has a write
// writes again, and the first to do so would take a group alone. The fewer groups may still
// be begun the longer it waits, since with all of them under way what comes then waits for
// as long as the store takes.
func (c *copier) gather() {
	under := shipsAtOnce - len(c.free)
	wait := min(gatherMost, time.Duration(c.took.Load())*time.Duration(under*under)/gatherPart)
	if !c.r.Sync || wait < gatherLeast {
		return
	}
	select {
	case <-time.After(wait):
	case <-c.ending:
	case <-c.ctx.Done():
	}
}

// ship hands all that is synced to the copy's log. In an asynchronous copy
// everything written is synced first, so that a lost machine takes no more with
// it than was written since.
func (c *copier) ship() {
	begun := time.Now()
	if !c.r.Sync {
		_ = c.e.log.Sync() // if it fails, what is synced is shipped all the same
	}
	for more := true; more; {
		buf, ok := c.buffer()
		if !ok {
			return
		}
		most := shipBytes
		if c.tail.Lag() > farBehind {
			most = shipMost
		}
		g, n, err := c.group(most)
		if err != nil {
			c.free <- buf
			c.jump("the log could not be read: " + err.Error())
			return
		}
		if more = len(g.Pieces) > 0; !more {
			c.free <- buf
			if len(c.free) == shipsAtOnce && !c.tail.Held() {
				c.whole.Store(int64(begun.Sub(c.e.startAt)))
			}
			return
		}
		more = n == most
		c.store(g, n, buf, begun, !more)
	}
}

// group reads the next group, of at most so many bytes of the log.
func (c *copier) group(most int) (g replica.Group, n int, err error) {
	if len(c.scratch) < most {
		c.scratch = make([]byte, most)
	}
	g = replica.Group{Term: c.r.Term, Last: c.last, TimeMS: c.e.opt.Now().UnixMilli()}
	for n < most {
		p, ok, err := c.tail.Next(c.scratch[n:most])
		if err != nil {
			return g, n, err
		}
		if !ok {
			break
		}
		n += len(p.Bytes)
		g.Pieces = append(g.Pieces, replica.Piece{Segment: p.Segment, Offset: p.Offset, Bytes: p.Bytes})
		g.Last = max(g.Last, p.Last)
	}
	return g, n, nil
}

// buffer waits until another group may be under way.
func (c *copier) buffer() ([]byte, bool) {
	select {
	case buf := <-c.free:
		return buf, true
	case <-c.ctx.Done():
		return nil, false
	}
}

// store appends a group with n bytes of the log. whole says that it ends with all
// that was synced at begun.
func (c *copier) store(g replica.Group, n int, buf []byte, begun time.Time, whole bool) {
	asked := time.Now()
	c.last, c.said = g.Last, asked
	buf = g.Encode(buf[:0])
	err := c.r.Log.Append(c.ctx, buf, func(pos uint64, err error) {
		if err != nil {
			c.failed(err)
			return
		}
		took := int64(time.Since(asked))
		c.append.ns.Add(took)
		c.append.n.Add(1)
		c.took.Store(took)
		c.pos.Store(pos)
		c.shipped.Add(int64(n))
		c.stored.Store(&asked) // begun is long ago while there is much to ship
		if whole {
			c.whole.Store(int64(begun.Sub(c.e.startAt)))
		}
		c.tail.Stored(g.Last, int64(n))
		c.free <- buf
	})
	if err != nil {
		c.failed(err)
	}
}

// live says that the leader lives if it has said nothing for long.
func (c *copier) live() {
	if c.r.Alive > 0 && time.Since(c.said) >= c.r.Alive {
		c.sign()
	}
}

// sign appends a sign of life.
func (c *copier) sign() {
	if buf, ok := c.buffer(); ok {
		g := replica.Group{Term: c.r.Term, Last: c.last, TimeMS: c.e.opt.Now().UnixMilli()}
		if c.r.LSN == 0 && c.baseAt.Load() == 0 && c.e.log.Synced() > 0 {
			g.Pieces = []replica.Piece{replica.Alone}
		}
		c.store(g, 0, buf, time.Now(), false)
	}
}

// sayEnd tells a standby that this leader has stopped, if the copy has all there is.
func (c *copier) sayEnd() {
	if c.tail.Held() || c.tail.Lag() > 0 || c.last < c.e.log.Synced() {
		return
	}
	if buf, ok := c.buffer(); ok {
		c.store(replica.Group{Term: c.r.Term, Last: c.last, TimeMS: c.e.opt.Now().UnixMilli(), Pieces: []replica.Piece{replica.End}}, 0, buf, time.Now(), false)
		c.drain()
	}
}

// Unproved returns for how long the copy has not confirmed that this engine leads; 0
// without one. The monotonic clock stands still while a machine sleeps, and the other
// one can be set.
func (e *Engine) Unproved() time.Duration {
	if e.copier == nil {
		return 0
	}
	at, now := *e.copier.stored.Load(), time.Now()
	return max(now.Sub(at), now.Round(0).Sub(at.Round(0)))
}

// drain waits until nothing is under way.
func (c *copier) drain() {
	var all [][]byte
	for range shipsAtOnce {
		buf, ok := c.buffer()
		if !ok {
			return
		}
		all = append(all, buf)
	}
	for _, buf := range all {
		c.free <- buf
	}
}

// failed ends the copying. An error that is not the stop's own means that
// another server leads, or that the store has lost the copy.
func (c *copier) failed(err error) {
	if c.ctx.Err() != nil && !errors.Is(err, replica.ErrFenced) {
		return
	}
	if c.fences.Add(1) > 1 {
		return
	}
	c.e.fenced.Store(true)
	c.e.log.StopShipping()
	c.cancel()
	why := "another server leads"
	if errors.Is(err, replica.ErrLost) {
		why = "the copy is broken"
	}
	c.e.opt.Logger.Error(why+": this server acknowledges nothing any more", "term", c.r.Term, "error", err)
	c.r.Fenced(err)
}

// jump gives up what is not shipped yet. Until a base covers it, nothing is.
func (c *copier) jump(why string) {
	lsn := c.tail.Jump()
	c.e.opt.Logger.Warn("the copy needs a new base before it goes on", "why", why, "lsn", lsn)
}

// watchLag bounds what the log keeps for the copy while its store is slow or away: to a number of bytes, and
// to what the disk has room for.
func (c *copier) watchLag() {
	tick := time.NewTicker(lagPeriod)
	defer tick.Stop()
	for {
		select {
		case <-c.ctx.Done():
			return
		case <-tick.C:
		}
		switch lag := c.tail.Lag(); {
		case lag > c.r.LagMax:
			c.jump("it is too far behind")
		case !c.r.Sync && lag > c.e.space.segment && c.e.space.refuses():
			// No acknowledgement waits for an asynchronous copy, and so no write may be refused for it.
			c.jump("what it lacks has filled the disk")
		}
	}
}

// endBases stops the making of bases.
func (c *copier) endBases() {
	c.noBase()
	c.bases.Wait()
}

// close ships what is left, unless the store is away for longer than a stop waits.
func (c *copier) close() {
	late := time.AfterFunc(endPatience, c.cancel)
	defer late.Stop()
	close(c.ending)
	c.loops.Wait()
}

func (c *copier) metrics() ReplicaMetrics {
	done := c.append.now()
	m := ReplicaMetrics{On: true, Fenced: min(1, c.fences.Load()), Term: c.r.Term, LagBytes: c.tail.Lag(),
		Appends: done.n, Storing: done.sum, BaseAge: -1}
	if m.LagBytes > 0 || c.tail.Held() || c.e.log.Metrics().UnsyncedBytes > 0 {
		m.Lag = max(0, c.e.mono()-time.Duration(c.whole.Load()))
	}
	if at := c.baseAt.Load(); at > 0 {
		m.BaseAge = max(0, c.e.opt.Now().Sub(time.Unix(0, at)))
	}
	return m
}
