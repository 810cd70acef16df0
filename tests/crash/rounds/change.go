package rounds

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/weirmq/weir/tests/oracle"
)

// rewired is a router made and deleted under load.
type rewired struct {
	router  string
	dropped bool // acknowledged
}

// tuner changes the configurations of topics under load.
func (a *actor) tuner(ctx context.Context, targets []*target) {
	for ctx.Err() == nil && a.pause(ctx, 15*time.Millisecond) {
		t := targets[a.rnd.IntN(len(targets))]
		e, err := a.client.Put(ctx, t.name, changed(a.rnd, t.cfg))
		if !a.record(e, err) || e.Outcome != oracle.OK {
			return
		}
	}
}

// changed draws a configuration for a topic; its type stays.
func changed(rnd *rand.Rand, cfg oracle.Config) oracle.Config {
	pick := func(list ...uint64) uint64 { return list[rnd.IntN(len(list))] }
	cfg.Class = []string{oracle.Memory, oracle.Disk, oracle.Disk, oracle.Fsync}[rnd.IntN(4)]
	cfg.CapRecords = pick(0, 0, 1, 20, 150)
	cfg.CapBytes = pick(0, 0, 400, 6000, 20000)
	cfg.TTLMS = pick(0, 0, 0, 150, 1000)
	cfg.Reject = rnd.IntN(4) == 0
	if cfg.Queue {
		cfg.LeaseMS = int(pick(100, 200, 1000))
		cfg.LeasesDurable = rnd.IntN(2) == 0
		cfg.MaxDeliveries = int(pick(0, 1, 2, 3))
		if rnd.IntN(3) == 0 {
			cfg.DeadLetter = ""
		}
	}
	return cfg
}

// reborner deletes topics that others write and claim, and makes them again. A
// key that it used before has to be forgotten then.
func (a *actor) reborner(ctx context.Context, targets []*target) {
	for ctx.Err() == nil && a.pause(ctx, 40*time.Millisecond) {
		t := targets[a.rnd.IntN(len(targets))]
		id := oracle.BatchID{Writer: a.id, N: batches.Add(1)}
		again := func() (oracle.Event, error) {
			return a.client.Write(ctx, t.name, id, 2, fmt.Sprintf("k%d.%d", id.Writer, id.N))
		}
		if !a.record(again()) {
			return
		}
		e, err := a.client.Drop(ctx, t.name)
		if !a.record(e, err) || e.Outcome != oracle.OK {
			return
		}
		if a.rnd.IntN(2) == 0 && !a.pause(ctx, 8*time.Millisecond) {
			return
		}
		e, err = a.client.Put(ctx, t.name, t.cfg)
		if !a.record(e, err) || e.Outcome != oracle.OK || !a.record(again()) {
			return
		}
	}
}

// lookAgain finds out which of the topics that were deleted and made under load
// are there, and returns those that are not.
func (l *Loop) lookAgain(ctx context.Context) (absent []*target, err error) {
	for _, t := range l.targets {
		if !t.reborn {
			continue
		}
		e, err := l.client.State(ctx, t.name)
		if err != nil {
			return nil, err
		}
		e.Quiet = true
		l.add(e)
		if e.Outcome == oracle.Fail {
			absent = append(absent, t)
		}
	}
	return absent, nil
}
