package engine

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/internal/engine/topic"
)

// The law of docs/OPERATIONS.md: a topic takes 1 KiB of memory, and 100 B more
// for each segment that holds records of it.
const (
	topicMemory = 1 << 10
	runMemory   = 100
)

// The topics are real, and looked at once they have been written and once that is sealed; the segments after
// that are known to the index alone, which does not ask for more.
func TestTheMemoryOfTopicsAndSegmentsIsWithinTheLaw(t *testing.T) {
	const topics, segments = 10_000, 200
	e, err := Open(bg, Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	warm(t, e)
	before := heap()
	const makers = 100 // one sync makes as many topics
	var made sync.WaitGroup
	for m := range makers {
		made.Go(func() {
			for i := m; i < topics; i += makers {
				name := fmt.Sprintf("topic-%05d", i)
				if _, err := e.PutTopic(bg, name, configOf(api.Memory)); err != nil {
					t.Error(err)
				}
				if _, err := tryWrite(e, name, "1"); err != nil {
					t.Error(err)
				}
			}
		})
	}
	made.Wait()
	written := heap()
	sealNow(t, e)
	sealed := heap()
	for n := uint32(2); n <= segments; n++ {
		run := topic.Run{Segment: n + 1000, First: uint64(n), Last: uint64(n), N: 1, Bytes: 1, Disk: 1}
		for _, t := range e.reg.all() {
			t.mu.Lock()
			t.Index.Seal(run.Segment, run)
			t.mu.Unlock()
		}
	}
	all := heap()
	t.Logf("%d B per topic that was just written, %d B with one segment, %.0f B per further segment: %.1f MiB for %d topics in %d segments",
		(written-before)/topics, (sealed-before)/topics, float64(all-sealed)/topics/(segments-1), float64(all-before)/(1<<20), topics, segments)
	if each := (written - before) / topics; each > topicMemory+runMemory {
		t.Errorf("a topic that was just written takes %d B; %d are promised", each, topicMemory+runMemory)
	}
	if each := (sealed - before) / topics; each > topicMemory+runMemory {
		t.Errorf("a topic takes %d B with one segment; %d are promised", each, topicMemory+runMemory)
	}
	if each := (all - before) / topics; each > topicMemory+segments*runMemory {
		t.Errorf("a topic takes %d B with %d segments; %d are promised", each, segments, topicMemory+segments*runMemory)
	}
}

// warm has the log make the buffers that it keeps once it has needed them; they are not the
// topics'.
func warm(t *testing.T, e *Engine) {
	t.Helper()
	put(t, e, "first", configOf(api.Memory))
	for range 400 {
		write(t, e, "first", `"`+strings.Repeat("x", 100<<10)+`"`)
	}
	sealNow(t, e)
}

// What caps and the time to live have read of a topic is no part of what it takes at rest.
func TestATopicAtRestHoldsNothingOfWhatItsCapsHaveRead(t *testing.T) {
	const topics, makers = 5000, 100
	e, err := Open(bg, Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	batch := make([]string, 100)
	for i := range batch {
		batch[i] = "1"
	}
	warm(t, e)
	before := heap()
	var made sync.WaitGroup
	for m := range makers {
		made.Go(func() {
			for i := m; i < topics; i += makers {
				name := fmt.Sprintf("topic-%05d", i)
				if _, err := e.PutTopic(bg, name, configOf(api.Memory, func(c *api.Config) { c.CapRecords = 150 })); err != nil {
					t.Error(err)
				}
				for range 2 {
					if _, err := tryWrite(e, name, batch...); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	made.Wait()
	sealNow(t, e)
	e.restFronts()
	e.restFronts() // a second later
	each := (heap() - before) / topics
	t.Logf("%d B per topic with one segment", each)
	if most := int64(topicMemory + 2*runMemory); each > most { // its writes may lie in two segments
		t.Errorf("a topic takes %d B; %d are promised", each, most)
	}
}
