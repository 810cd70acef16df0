package rounds

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"

	"github.com/weirmq/weir/tests/oracle"
)

// target is one topic under load.
type target struct {
	name    string
	role    string
	cfg     oracle.Config
	deletes bool          // records may be deleted by number and tag
	reborn  bool          // it is deleted and made again under load
	head    atomic.Uint64 // highest number seen
}

// routed says whether the topic is the source or the destination of routers.
func (t *target) routed() bool {
	return strings.HasPrefix(t.role, "src-") || strings.HasPrefix(t.role, "rt")
}

// role describes a topic that the load always keeps one of.
type role struct {
	name    string
	cfg     oracle.Config
	deletes bool
}

func roles() []role {
	rs := []role{
		{"log-fsync", oracle.Config{Class: oracle.Fsync}, true},
		{"log-disk", oracle.Config{Class: oracle.Disk}, true},
		{"log-memory", oracle.Config{Class: oracle.Memory}, true},
		{"log-ephemeral", oracle.Config{Class: oracle.Ephemeral}, false},
		{"hot-fsync", oracle.Config{Class: oracle.Fsync}, false},
		{"hot-disk", oracle.Config{Class: oracle.Disk}, false},
		{"cap-fsync", oracle.Config{Class: oracle.Fsync, CapRecords: 150}, false},
		{"cap-disk", oracle.Config{Class: oracle.Disk, CapRecords: 77}, false},
		{"capdel-disk", oracle.Config{Class: oracle.Disk, CapRecords: 60}, true},
		{"q-fsync", oracle.Config{Queue: true, Class: oracle.Fsync, MaxDeliveries: 3, DeadLetter: "*", LeaseMS: 200}, false},
		{"q-disk", oracle.Config{Queue: true, Class: oracle.Disk, MaxDeliveries: 2, DeadLetter: "*", LeaseMS: 150}, false},
		{"q-durable", oracle.Config{Queue: true, Class: oracle.Disk, LeasesDurable: true, LeaseMS: 400}, false},
		{"q-memory", oracle.Config{Queue: true, Class: oracle.Memory, LeaseMS: 200}, false},
		{"q-reject", oracle.Config{Queue: true, Class: oracle.Fsync, CapRecords: 100, Reject: true, LeaseMS: 300}, false},
		{"q-reject-disk", oracle.Config{Queue: true, Class: oracle.Disk, CapRecords: 60, Reject: true, LeaseMS: 200}, true},
	}
	tuned := oracle.Config{Queue: true, Class: oracle.Disk, MaxDeliveries: 3, DeadLetter: "*", LeaseMS: 200}
	again := oracle.Config{Queue: true, Class: oracle.Disk, MaxDeliveries: 2, DeadLetter: "*", LeaseMS: 120, LeasesDurable: true}
	rs = append(rs,
		role{"tuned-log", oracle.Config{Class: oracle.Fsync}, false},
		role{"tuned-deleted", oracle.Config{Class: oracle.Disk}, true},
		role{"tuned-queue", tuned, false},
		role{"again-log", oracle.Config{Class: oracle.Fsync}, true},
		role{"again-queue", again, false})
	for _, c := range []oracle.Config{{Class: oracle.Fsync}, {Class: oracle.Disk}, {Class: oracle.Memory}, {Class: oracle.Disk, LeasesDurable: true}} {
		c.Queue, c.LeaseMS = true, 200
		rs = append(rs, role{fmt.Sprintf("later-%s-%v", c.Class, c.LeasesDurable), c, false})
	}
	classes := []string{oracle.Disk, oracle.Fsync, oracle.Disk, oracle.Memory}
	for i := range manyTopics {
		class := classes[i%len(classes)]
		rs = append(rs, role{fmt.Sprintf("many%d-%s", i, class), oracle.Config{Class: class}, i%3 == 0})
	}
	return rs
}

// manyTopics is how many topics one writer spreads over.
const manyTopics = 12

// newTarget makes the next topic of a role, with a name never used before.
func (l *Loop) newTarget(r role) *target {
	l.names++
	t := &target{name: fmt.Sprintf("%s.%d", r.name, l.names), role: r.name, cfg: r.cfg, deletes: r.deletes, reborn: strings.HasPrefix(r.name, "again-")}
	if t.cfg.DeadLetter != "" {
		t.cfg.DeadLetter = t.name + ".dlq"
	}
	return t
}

func (t *target) saw(head uint64) {
	for {
		have := t.head.Load()
		if head <= have || t.head.CompareAndSwap(have, head) {
			return
		}
	}
}

// delays are how long the records of a batch wait, in ms: some not at all, most until after the
// kill, and the same when it is sent again. Nil for topics of other roles.
func (t *target) delays(id oracle.BatchID, size int) []int64 {
	if !strings.HasPrefix(t.role, "later-") {
		return nil
	}
	rnd := rand.New(rand.NewPCG(uint64(id.Writer), id.N))
	all := make([]int64, size)
	for i := range all {
		switch n := rnd.IntN(10); {
		case n < 4:
			all[i] = rnd.Int64N(100)
		case n < 9:
			all[i] = rnd.Int64N(1500)
		}
	}
	return all
}

// batchSize is 1 half of the time, 10 mostly, and seldom up to 200.
func batchSize(rnd *rand.Rand) int {
	switch n := rnd.IntN(40); {
	case n < 16:
		return 1
	case n < 38:
		return 10
	}
	return 1 + rnd.IntN(200)
}
