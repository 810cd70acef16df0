package engine

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/weirmq/weir/internal/api"
)

// Each round a record is written while readers begin to wait for it. So many
// others look at the topic that its lock goes from hand to hand: whoever gives
// it up, if only for a moment, comes behind the writer. A reader that sleeps
// through the write gets its record when its wait is over, far too late.
func TestALongPollNeverSleepsThroughAWrite(t *testing.T) {
	const readers, rounds, others = 16, 150, 32
	e := openOn(t, vfs.NewMem(), "b")
	put(t, e, "a", configOf(api.Memory))
	var stop atomic.Bool
	var crowd sync.WaitGroup
	defer crowd.Wait()
	defer stop.Store(true)
	for range others {
		crowd.Go(func() {
			for !stop.Load() {
				if _, err := e.Topic("a", false); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	const wait = 20 * time.Second
	for seq := range uint64(rounds) {
		var all sync.WaitGroup
		for range readers {
			all.Go(func() {
				begin := time.Now()
				got, err := e.Diff(bg, "a", &api.DiffRequest{FromSeq: seq, Limit: 1, MaxBatchBytes: 1 << 20, WaitMS: uint32(wait.Milliseconds())}, func(*api.Record) {})
				if err != nil || got.NextFromSeq != seq+1 {
					t.Errorf("a reader behind %d came to %d, error %v", seq, got.NextFromSeq, err)
				}
				if took := time.Since(begin); took >= wait {
					t.Errorf("a reader got record %d after %v", seq+1, took)
				}
			})
		}
		if _, err := tryWrite(e, "a", fmt.Sprint(seq)); err != nil {
			t.Fatal(err)
		}
		all.Wait()
		if t.Failed() {
			return
		}
	}
}
