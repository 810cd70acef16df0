package replica

import (
	"testing"
	"time"

	"github.com/weirmq/weir/tests/crash/rounds"
)

// TestLostMachineLosesNothing judges a server whose copy is synchronous as one whose power
// was cut: no acknowledged fsync write may be missing.
func TestLostMachineLosesNothing(t *testing.T) {
	onEachStore(t, func(t *testing.T, b *bucket, n int) {
		m := newMachine(t, b, "WEIR_REPLICA_SYNC=true", "WEIR_REPLICA_BASE=2s")
		begin := time.Now()
		sum, err := rounds.Run(t.Context(), rounds.Options{
			Host: m, Rounds: n, Latest: begin.Add(time.Duration(n) * 20 * time.Second), AtLeast: 1,
			Seed: uint64(begin.UnixNano()), Power: true, DiskFlush: time.Second, HistoryDir: t.ArtifactDir(),
		})
		t.Log(sum)
		if b != nil {
			t.Logf("%d of %d lives had faults of the store, %d in all", m.stormy, m.lives, b.faults.Load())
		}
		if err != nil {
			t.Fatalf("%v\nstandard error of the last server:\n%s", err, m.Stderr())
		}
		for _, v := range sum.Violations {
			t.Error(v)
		}
	})
}
