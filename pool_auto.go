package weir

import (
	"context"
	"math"
	"time"
)

// AutoWorkers climbs the hill of throughput over concurrency: it tries half as many
// workers more, and a third fewer, and stays where more would bring too little. The idea
// is that of the thread pool of .NET (Hellerstein, Morrison, Eilebrecht, "Optimizing
// Concurrency Levels in the .NET ThreadPool", 2008; HillClimbing in its runtime) and of
// Heiss and Wagner, "Adaptive Load Control in Transaction Processing Systems" (VLDB
// 1991). Unlike limits on latency (Gradient2 of Netflix's concurrency-limits) it needs no
// idea of how long a handler takes when it is alone.
const (
	// autoTick is how often the pool looks whether a window is over.
	autoTick = 100 * time.Millisecond
	// A window is autoMessages long, or autoWindow if that is shorter, but never less
	// than autoRound messages for each worker, nor than autoLeast: what was under way at
	// its ends then makes at most a tenth. .NET takes windows of about seven.
	autoMessages = 300
	autoWindow   = 3 * time.Second
	autoRound    = 10
	autoLeast    = 30
	// autoWorth is the share of a worker's own work that one more has to bring: with n
	// times the workers, the throughput has to be n^autoWorth of what it was. .NET's bias
	// of 0.15 is of the same kind; it has finer means against noise.
	autoWorth = 0.3
	// autoProportion is above what fewer workers explain: the throughput falls by itself.
	autoProportion = 2
	// autoBusy is the share of their time that the workers have to be busy: below it
	// they wait for messages, not messages for them.
	autoBusy = 0.9
	// autoRest is the most windows between two trials; it doubles with each that fails.
	autoRest = 16
	// autoWorse and autoBetter are changes of the throughput, with the same workers, after
	// which the next trial does not wait.
	autoWorse, autoBetter = 0.7, 1.4
)

// climber decides about the number of workers. It has no clock.
type climber struct {
	most  int
	level int     // workers now
	base  int     // where it is at home; a trial is at another level
	rate  float64 // messages per second at base; 0: not known
	last  float64 // in the last window there
	down  bool    // the next trial is one with fewer workers
	rest  int     // windows until then
	pause int     // the rest after the next trial that fails
}

func newClimber(level, most int) climber {
	return climber{most: most, level: level, base: level, pause: 1}
}

// window learns how many messages per second were done at this level, and whether others
// waited for a worker all the time. It sets the next level.
func (c *climber) window(rate float64, backlog bool) {
	switch {
	case !backlog:
		c.level = min(c.level, c.base)
		c.base, c.rate, c.last = c.level, 0, 0
	case c.level != c.base:
		c.tried(rate)
	default:
		c.rested(rate)
	}
}

// tried ends a trial.
func (c *climber) tried(rate float64) {
	// How much the throughput grows with the workers: 1 is proportionally, 0 not at all.
	gain := math.Log(rate/c.rate) / math.Log(float64(c.level)/float64(c.base))
	more := c.level > c.base
	if more == (gain >= autoWorth) || !more && gain > autoProportion {
		c.base, c.rate, c.last = c.level, rate, rate
		c.pause, c.down = 1, !more
		c.step()
		return
	}
	c.level = c.base
	c.rest, c.pause = c.pause, min(2*c.pause, autoRest)
	c.down = more
}

// rested ends a window without a trial. More workers are never tried after a window in
// which less was done than in the one before.
func (c *climber) rested(rate float64) {
	fell := c.last == 0 || rate < c.last
	c.last = rate
	switch {
	case c.rate == 0:
		c.rate = rate
	case rate < autoWorse*c.rate:
		c.rate, c.rest, c.pause, c.down = rate, 0, 1, true
	case rate > autoBetter*c.rate:
		c.rate, c.rest, c.pause, c.down = rate, 0, 1, false
	default:
		c.rate = (c.rate + rate) / 2
	}
	if c.rest--; c.rest < 0 && (c.down || !fell) {
		c.step()
	}
}

// step begins a trial. Where there is no further it rests, and then goes the other way.
func (c *climber) step() {
	if c.down && c.base == 1 || !c.down && c.base >= c.most {
		c.level, c.down = c.base, !c.down
		c.rest, c.pause = c.pause, min(2*c.pause, autoRest)
		return
	}
	if c.down {
		c.level = c.base - max(1, c.base/3)
	} else {
		c.level = min(c.base+max(1, c.base/2), c.most)
	}
}

// workload counts what the workers do, since a window began.
type workload struct {
	on      bool
	began   time.Time
	settles int           // messages to be done before it begins: they may be of the level before
	done    int           // messages
	busy    time.Duration // of all workers together
	at      time.Time     // up to here
}

// note adds the time since the last change during which running workers were busy.
func (w *workload) note(now time.Time, running int) {
	if w.on {
		w.busy += time.Duration(running) * now.Sub(w.at)
		w.at = now
	}
}

func (w *workload) finished(running int) {
	if !w.on {
		return
	}
	now := time.Now()
	w.note(now, running)
	if w.done++; w.settles > 0 {
		if w.settles--; w.settles == 0 {
			w.begin(now, 0)
		}
	}
}

func (w *workload) begin(now time.Time, settles int) {
	*w = workload{on: true, began: now, at: now, settles: settles}
}

// over reports whether the window may end.
func (w *workload) over(now time.Time, level int) bool {
	least := max(autoLeast, autoRound*level)
	return w.settles == 0 && w.done >= least && (w.done >= autoMessages || now.Sub(w.began) >= autoWindow)
}

// autoLoop sets the number of workers.
func (p *Pool) autoLoop(ctx context.Context) {
	c := newClimber(p.cfg.firstWorkers(), p.cfg.MaxWorkers)
	tick := time.NewTicker(autoTick)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			before := c.level
			rate := p.adjust(&c, time.Now())
			if c.level != before {
				p.log.Debug("weir: the number of workers changes", "stream", p.name.Stream, "consumer", p.cfg.Consumer,
					"from", before, "to", c.level, "messages_per_second", rate)
			}
		case <-ctx.Done():
			return
		}
	}
}

// adjust looks whether a window is over, and returns what was done per second in it.
func (p *Pool) adjust(c *climber, now time.Time) (rate float64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	w := &p.mu.work
	if !w.on {
		w.begin(now, 0)
	}
	w.note(now, p.mu.running)
	if !w.over(now, c.level) {
		return 0
	}
	took := now.Sub(w.began).Seconds()
	full := w.busy.Seconds() >= autoBusy*float64(c.level)*took
	before := c.level
	rate = float64(w.done) / took
	c.window(rate, full && (p.mu.waiting.len() > 0 || p.mu.busy))
	settles := 0
	if c.level != before {
		settles = c.level
	}
	w.begin(now, settles)
	p.setWorkers(c.level)
	return rate
}

// setWorkers changes how many workers there may be. One too many ends between two
// messages. The lock is held.
func (p *Pool) setWorkers(n int) {
	if n == p.mu.workers {
		return
	}
	p.mu.workers = n
	p.mu.hasWork.Broadcast() // who is idle may be one too many
	p.wake()
	p.roomMade()
	kick(p.beat)
}
