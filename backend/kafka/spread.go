package kafka

import (
	"math"
	"math/rand/v2"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// spread chooses the partitions of records. A key has its own, as with Kafka's other producers. What has none goes to
// the partition in which the fewest wait, and what follows goes along as long as it fits into the same batch.
//
// The client's own partitioner stays with a partition until its batch is full. Where nothing can be stored, as with too
// few in-sync replicas, or until another leads it, the batch does not go: one such partition would take all that is
// published, and keep it.
type spread struct{}

// stayMost is how long records go along. A batch that goes at all goes sooner, unless there is much to send.
const stayMost = 50 * time.Millisecond

func (spread) ForTopic(topic string) kgo.TopicPartitioner {
	return &spreadTopic{keyed: kgo.StickyKeyPartitioner(nil).ForTopic(topic), on: -1}
}

// spreadTopic is spread for a topic. The client uses it from one goroutine at a time.
type spreadTopic struct {
	keyed kgo.TopicPartitioner
	on    int // -1: choose anew
	since time.Time
}

var (
	_ kgo.TopicBackupPartitioner     = (*spreadTopic)(nil)
	_ kgo.TopicPartitionerOnNewBatch = (*spreadTopic)(nil)
)

func (t *spreadTopic) RequiresConsistency(r *kgo.Record) bool { return t.keyed.RequiresConsistency(r) }

// OnNewBatch is called when the record does not fit into the batch of the partition that was chosen.
func (t *spreadTopic) OnNewBatch() { t.on = -1 }

// Partition chooses that of a record with a key.
func (t *spreadTopic) Partition(r *kgo.Record, n int) int { return t.keyed.Partition(r, n) }

func (t *spreadTopic) PartitionByBackup(r *kgo.Record, n int, waiting kgo.TopicBackupIter) int {
	if t.RequiresConsistency(r) {
		return t.Partition(r, n)
	}
	if now := time.Now(); t.on < 0 || t.on >= n || now.Sub(t.since) > stayMost {
		t.on, t.since = emptiest(waiting), now
	}
	return t.on
}

// emptiest returns the partition with the fewest records, any of them if there are several.
func emptiest(waiting kgo.TopicBackupIter) (partition int) {
	fewest, like := int64(math.MaxInt64), 0
	for waiting.Rem() > 0 {
		p, records := waiting.Next()
		if records < fewest {
			fewest, like = records, 0
		}
		if records == fewest {
			if like++; rand.IntN(like) == 0 {
				partition = p
			}
		}
	}
	return partition
}
