package kafka

import (
	"math"
	"math/rand/v2"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// spread chooses the partitions of records. A key has its own, as with Kafka's other producers. What has none goes to
// any, and what follows goes along as long as it fits into the same batch, as with the client's own partitioner.
//
// That one stays with a partition until its batch is full. Where nothing can be stored, as with too few in-sync
// replicas, or until another leads it, the batch does not go: one such partition would take all that is published, and
// keep it. So nothing more goes along after some time, and nothing new goes there before all that waits has gone.
type spread struct{}

// stayMost is how long records go along. A batch that goes at all goes sooner, unless there is much to send.
const stayMost = 50 * time.Millisecond

func (spread) ForTopic(topic string) kgo.TopicPartitioner {
	return &spreadTopic{keyed: kgo.StickyKeyPartitioner(nil).ForTopic(topic), on: -1, last: -1, stuck: map[int]bool{}}
}

// spreadTopic is spread for a topic. The client uses it from one goroutine at a time.
type spreadTopic struct {
	keyed kgo.TopicPartitioner
	on    int // -1: choose anew
	last  int
	since time.Time
	of    int          // so many partitions
	stuck map[int]bool // those whose batches have not gone in time
}

var (
	_ kgo.TopicBackupPartitioner     = (*spreadTopic)(nil)
	_ kgo.TopicPartitionerOnNewBatch = (*spreadTopic)(nil)
)

func (t *spreadTopic) RequiresConsistency(r *kgo.Record) bool { return t.keyed.RequiresConsistency(r) }

// OnNewBatch is called when the record does not fit into the batch of the partition that was chosen.
func (t *spreadTopic) OnNewBatch() { t.last, t.on = t.on, -1 }

// Partition chooses that of a record with a key.
func (t *spreadTopic) Partition(r *kgo.Record, n int) int { return t.keyed.Partition(r, n) }

func (t *spreadTopic) PartitionByBackup(r *kgo.Record, n int, waiting kgo.TopicBackupIter) int {
	if t.RequiresConsistency(r) {
		return t.Partition(r, n)
	}
	if n != t.of { // the numbers may be others
		t.of, t.on, t.last = n, -1, -1
		clear(t.stuck)
	}
	now := time.Now()
	if t.on >= 0 && now.Sub(t.since) > stayMost {
		t.stuck[t.on] = true
		t.on = -1
	}
	if t.on < 0 {
		t.on, t.since = t.choose(n, waiting), now
	}
	return t.on
}

// choose returns any partition that is not stuck, or if all are the one with the fewest records.
func (t *spreadTopic) choose(n int, waiting kgo.TopicBackupIter) int {
	if len(t.stuck) == 0 {
		p := rand.IntN(n)
		if p == t.last {
			p = (p + 1) % n
		}
		return p
	}
	chosen, emptiest, fewest, others := -1, 0, int64(math.MaxInt64), 0
	for waiting.Rem() > 0 {
		p, records := waiting.Next()
		if records == 0 {
			delete(t.stuck, p)
		}
		if records < fewest {
			emptiest, fewest = p, records
		}
		if !t.stuck[p] {
			if others++; rand.IntN(others) == 0 {
				chosen = p
			}
		}
	}
	if chosen < 0 {
		return emptiest
	}
	return chosen
}
