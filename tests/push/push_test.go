package push

import (
	"testing"
	"time"

	"github.com/weirmq/weir/tests/push/runs"
	"github.com/weirmq/weir/tests/weirtest"
)

func start(t *testing.T, env ...string) runs.Target {
	t.Helper()
	s := weirtest.Start(t, weirtest.Options{Env: env})
	return runs.Target{Addr: s.Addr, PID: s.PID()}
}

// The stalled reader costs the live ones nothing but time that is printed, the
// server a bounded queue, and itself not one record.
func TestSlowReaderOfAnUncappedTopicGetsEverythingOnceItReads(t *testing.T) {
	slowReader(t, 0)
}

func TestSlowReaderOfACappedTopicGetsOneTombstoneAndTheRest(t *testing.T) {
	slowReader(t, 1000)
}

func slowReader(t *testing.T, limit uint64) {
	err := runs.SlowReader(t.Context(), start(t), runs.SlowOptions{
		Live: 9, Records: 20_000, Pad: 1000, Cap: limit, Out: t.Output(),
	})
	if err != nil {
		t.Error(err)
	}
}

// A short saturation: everything acknowledged is there, gaps are announced, and
// the pressure goes when the load does.
func TestSaturatedServerKeepsItsPromises(t *testing.T) {
	saturate(t, start(t), runs.SaturateOptions{Length: 6 * time.Second, Routers: 4})
}

// With the pressure pinned above the third rung, topics of negative priority
// are pushed by the ten-second rule alone, and lose nothing.
func TestPausedTopicsArePushedWithinTenSeconds(t *testing.T) {
	saturate(t, start(t, "WEIR_TEST_PRESSURE=0.9"), runs.SaturateOptions{
		Length: 2 * time.Second, Bulk: 1, BulkBatch: 10, LowRate: 1000, Routers: 4, Pinned: true,
	})
}

func saturate(t *testing.T, target runs.Target, o runs.SaturateOptions) {
	o.Out = t.Output()
	if err := runs.Saturate(t.Context(), target, o); err != nil {
		t.Error(err)
	}
}

// Ten times the writers that the queue has slots for: the governor sees them
// before it refuses any, and its ladder does not swing.
func TestTheLadderClimbsOnceBeforeAWriteIsRefused(t *testing.T) {
	err := runs.Overload(t.Context(), start(t, "WEIR_INGEST_QUEUE=32"), runs.OverloadOptions{
		Writers: 320, Length: 3 * time.Second, Calm: 2 * time.Second, Out: t.Output(),
	})
	if err != nil {
		t.Error(err)
	}
}
