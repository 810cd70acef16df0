package engine

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/weirmq/weir/internal/api"
)

// holdSyncs lets every sync of the log wait until the result is called.
func (f *faults) holdSyncs() (release func()) {
	gate := make(chan struct{})
	f.set(func(o errorfs.Op, _ int) error {
		if strings.Contains(o.Path, "/wal/") && (o.Kind == errorfs.OpFileSync || o.Kind == errorfs.OpFileSyncData || o.Kind == errorfs.OpFileSyncTo) {
			f.mu.Unlock()
			<-gate
			f.mu.Lock()
		}
		return nil
	})
	return func() { f.set(nil); close(gate) }
}

// planned waits until the topic has given out numbers up to head.
func planned(t *testing.T, e *Engine, topic string, done func(*entry) bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		x := e.reg.get(topic)
		x.mu.Lock()
		ok := done(x)
		x.mu.Unlock()
		if ok {
			return
		}
		if time.Now().After(end) {
			t.Fatal("what was called is not under way after 20 s")
		}
	}
}

// A cap comes while large batches are in flight, and more of them behind it: it
// holds from the moment the call has answered, and a restart agrees.
func TestACapThatComesWhileBatchesAreInFlight(t *testing.T) {
	for name, lower := range map[string]func(*api.Config){
		"cap_bytes":           func(c *api.Config) { c.CapBytes = 20_000 },
		"cap_bytes below one": func(c *api.Config) { c.CapBytes = 1 },
		"cap_records":         func(c *api.Config) { c.CapRecords = 7 },
		"reject":              func(c *api.Config) { c.CapRecords, c.Discard = 250, api.DiscardReject },
		"ephemeral":           func(c *api.Config) { c.CapBytes, c.Durability = 20_000, api.Ephemeral },
	} {
		t.Run(name, func(t *testing.T) {
			fs := newFaults(vfs.NewMem())
			e := openOn(t, fs, "a")
			put(t, e, "t", configOf(api.Fsync))
			write(t, e, "t", "0")
			release := fs.holdSyncs()
			batch := make([]string, 100)
			for i := range batch {
				batch[i] = fmt.Sprintf("%q", strings.Repeat("x", 500+i))
			}
			cfg := configOf(api.Fsync, lower)
			var wg sync.WaitGroup
			writeOne := func() {
				if _, err := tryWrite(e, "t", batch...); err != nil && !api.IsCode(err, api.CodeTopicFull) {
					t.Error(err)
				}
			}
			for i := range 2 {
				wg.Go(writeOne)
				planned(t, e, "t", func(x *entry) bool { return x.PlannedHead() == uint64(101+100*i) })
			}
			wg.Go(func() {
				if _, err := e.PutTopic(bg, "t", cfg); err != nil {
					t.Error(err)
				}
			})
			planned(t, e, "t", func(x *entry) bool { lsn, _, _ := x.Pending(); return lsn > 4 })
			wg.Go(writeOne)
			if cfg.Discard != api.DiscardReject {
				planned(t, e, "t", func(x *entry) bool { return x.PlannedHead() == 301 })
			}
			release()
			within(t, "a write beside a change of configuration", wg.Wait)
			a, err := ask(e, "t")
			if err != nil {
				t.Fatal(err)
			}
			s := a.state
			if cfg.CapBytes > 0 && s.Bytes > cfg.CapBytes || cfg.CapRecords > 0 && s.Count > cfg.CapRecords {
				t.Errorf("above its cap: %d records of %d bytes", s.Count, s.Bytes)
			}
			if s.Count != uint64(len(a.records)) || s.Bytes != a.bytes {
				t.Errorf("counts %d records of %d bytes, a reader finds %d of %d", s.Count, s.Bytes, len(a.records), a.bytes)
			}
			if err := e.Close(); err != nil {
				t.Fatal(err)
			}
			again, err := ask(openOn(t, fs, "a"), "t")
			if err != nil {
				t.Fatal(err)
			}
			if r := again.state; r.HeadSeq != s.HeadSeq || cfg.Durability == api.Fsync && (r.Count != s.Count || r.Bytes != s.Bytes || len(again.records) != len(a.records)) {
				t.Errorf("after a restart %d records of %d bytes up to %d, before %d of %d up to %d", r.Count, r.Bytes, r.HeadSeq, s.Count, s.Bytes, s.HeadSeq)
			}
		})
	}
}

// Configurations change under writers, readers and deletes: the counters stay
// exact, caps hold, no head goes back, and a restart finds the same.
func TestConfigurationsChangeUnderWrites(t *testing.T) {
	for seed := range uint64(8) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) { raceWithConfigs(t, seed) })
	}
}

func raceWithConfigs(t *testing.T, seed uint64) {
	fs := vfs.NewMem()
	e := openOn(t, fs, "a", func(o *Options) { o.SegmentBytes = 256 << 10 })
	put(t, e, "t", configOf(api.Disk))
	race(t, 6, func(i int) {
		rnd := rand.New(rand.NewPCG(seed, uint64(i)))
		for range 80 {
			var err error
			switch {
			case i < 3:
				batch := make([]string, 1+rnd.IntN(60))
				for k := range batch {
					batch[k] = fmt.Sprintf("%q", strings.Repeat("x", rnd.IntN(300)))
				}
				_, err = tryWrite(e, "t", batch...)
			case i < 5:
				cfg := configOf([]api.Durability{api.Disk, api.Fsync, api.Memory, api.Ephemeral}[rnd.IntN(4)])
				cfg.CapBytes, cfg.CapRecords = rnd.Uint64N(2)*rnd.Uint64N(30_000), rnd.Uint64N(2)*rnd.Uint64N(100)
				if rnd.IntN(3) == 0 {
					cfg.Discard = api.DiscardReject
				}
				_, err = e.PutTopic(bg, "t", cfg)
			default:
				_, err = e.DeleteRecords(bg, "t", &api.DeleteRequest{HasBefore: true, BeforeSeq: stateOf(t, e, "t").EarliestSeq + rnd.Uint64N(5)})
			}
			if err != nil && !api.IsCode(err, api.CodeTopicFull) && !api.IsCode(err, api.CodeRecordTooLarge) {
				t.Error(err)
			}
		}
	})
	put(t, e, "t", configOf(api.Disk, func(c *api.Config) { c.CapBytes = 15_000 }))
	a, err := ask(e, "t")
	if err != nil {
		t.Fatal(err)
	}
	if s := a.state; s.Bytes > 15_000 || s.Count != uint64(len(a.records)) || s.Bytes != a.bytes {
		t.Errorf("counts %d records of %d bytes, a reader finds %d of %d", s.Count, s.Bytes, len(a.records), a.bytes)
	}
	inMemory := e.reg.get("t").Index.InMemory()
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	e = openOn(t, fs, "a", func(o *Options) { o.SegmentBytes = 256 << 10 })
	again, err := ask(e, "t")
	if err != nil {
		t.Fatal(err)
	}
	if s := again.state; s.HeadSeq < a.state.HeadSeq || s.Count != uint64(len(again.records)) || s.Bytes != again.bytes || !inMemory && len(again.records) != len(a.records) {
		t.Errorf("after a restart it counts %d of %d bytes up to %d and holds %d of %d, before %d up to %d",
			s.Count, s.Bytes, s.HeadSeq, len(again.records), again.bytes, len(a.records), a.state.HeadSeq)
	}
}
