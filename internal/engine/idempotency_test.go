package engine

import (
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/tests/bubble"
	"github.com/weirmq/weir/tests/crashfs"
)

func keyed(e *Engine, topic, key string) (api.WriteResult, error) {
	return e.Write(bg, topic, &api.WriteRequest{Records: []api.Record{{Data: []byte("1")}}, HasIdempotencyKey: true, IdempotencyKey: []byte(key)})
}

// A key that comes again with other records is told so, before and after a restart, from
// the log and from what was sealed; the same records are not, in whatever form they come.
func TestAKeyThatComesAgainWithOtherRecordsIsToldSo(t *testing.T) {
	dir := t.TempDir()
	with := func(e *Engine, key, data, tag string) bool {
		t.Helper()
		res, err := e.Write(bg, "t", &api.WriteRequest{Records: []api.Record{{Data: []byte(data), Tag: []byte(tag), HasTag: true}}, HasIdempotencyKey: true, IdempotencyKey: []byte(key)})
		if err != nil || res.Deduped != (res.FirstSeq <= 2 && key != "") {
			t.Fatal(res, err)
		}
		return res.KeyReused
	}
	check := func(e *Engine, when string) {
		t.Helper()
		for _, key := range []string{"sealed", "logged"} {
			if with(e, key, "1", "a") {
				t.Errorf("%s: %s: the same records count as others", when, key)
			}
			if !with(e, key, "1", "b") || !with(e, key, "2", "a") {
				t.Errorf("%s: %s: other records count as the same", when, key)
			}
		}
	}
	e := open(t, dir)
	first := func(key string) {
		t.Helper()
		res, err := e.Write(bg, "t", &api.WriteRequest{Records: []api.Record{{Data: []byte("1"), Tag: []byte("a"), HasTag: true}}, HasIdempotencyKey: true, IdempotencyKey: []byte(key)})
		if err != nil || res.KeyReused || res.Deduped {
			t.Fatal(res, err)
		}
	}
	first("sealed")
	sealNow(t, e)
	first("logged")
	check(e, "at once")
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	check(open(t, dir), "after a restart")
}

// Without a window no write is a repeat, not even of one that is still on its way to the disk.
func TestWithoutAWindowNoWriteIsARepeat(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		e := openOn(t, newSlowDisk(time.Second), "a")
		put(t, e, "t", configOf(api.Fsync, func(c *api.Config) { c.IdempotencyWindowMS = 0 }))
		for range 2 {
			go func() {
				if res, err := keyed(e, "t", "k"); err != nil || res.Deduped {
					t.Errorf("%+v %v", res, err)
				}
			}()
		}
		synctest.Wait() // both are on their way
		time.Sleep(time.Minute)
		wantFull(t, e, "t", "[1=1 2=1]", "[]")
	})
}

// What is past its window is forgotten by itself, and its memory with it,
// though nobody writes with a key again.
func TestKeysPastTheirWindowAreForgottenThoughNobodyWrites(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		e := openOn(t, vfs.NewMem(), "a", func(o *Options) { o.SegmentBytes = 16 << 20 })
		put(t, e, "t", configOf(api.Disk, func(c *api.Config) { c.IdempotencyWindowMS = 1000 }))
		put(t, e, "long", configOf(api.Disk))
		const n = 20_000
		for i := range n {
			if _, err := keyed(e, "t", fmt.Sprint(i)); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := keyed(e, "long", "k"); err != nil {
			t.Fatal(err)
		}
		if k := e.Metrics().IdempotencyKeys; k != n+1 {
			t.Fatalf("%d keys", k)
		}
		with := heap()
		time.Sleep(3 * time.Second)
		synctest.Wait()
		if k := e.Metrics().IdempotencyKeys; k != 1 {
			t.Errorf("%d keys two seconds after their window", k)
		}
		if freed := with - heap(); freed < n*64 {
			t.Errorf("%d bytes came free", freed)
		}
		if res, err := keyed(e, "long", "k"); err != nil || !res.Deduped {
			t.Errorf("a key within its window: %+v %v", res, err)
		}
		if res, err := keyed(e, "t", "1"); err != nil || res.Deduped {
			t.Errorf("a key past its window: %+v %v", res, err)
		}
	})
}

// A key holds for its window, whatever the wall clock does meanwhile, and over a kill too, whether the
// key, and what tells of the step, are in the log then or in the store.
func TestASteppedClockNeitherForgetsAKeyNorKeepsIt(t *testing.T) {
	for _, step := range []time.Duration{time.Hour, -time.Hour} {
		for _, c := range []struct{ seal, sealLate, kill bool }{{}, {kill: true}, {seal: true, kill: true}, {sealLate: true, kill: true}, {seal: true, sealLate: true, kill: true}} {
			t.Run(fmt.Sprintf("%v %+v", step, c), func(t *testing.T) {
				bubble.Run(t, func(t *testing.T) {
					w, fs := &wall{}, crashfs.New()
					e := openOn(t, fs, "a", w.set)
					put(t, e, "t", configOf(api.Fsync, func(c *api.Config) { c.IdempotencyWindowMS = 60_000 }))
					time.Sleep(2 * time.Second)
					known := func(want bool) {
						t.Helper()
						if res, err := keyed(e, "t", "k"); err != nil || res.Deduped != want {
							t.Errorf("the key is known: %v, want %v; %v", res.Deduped, want, err)
						}
					}
					known(false)
					if c.seal {
						sealNow(t, e)
					}
					w.jump(step)
					time.Sleep(30 * time.Second)
					write(t, e, "t", "1") // the log has the step
					if c.sealLate {
						sealNow(t, e)
					}
					known(true)
					if c.kill {
						fs = fs.CrashClone(vfs.CrashCloneCfg{})
						e.Close()
						e = openOn(t, fs, "a", w.set)
					}
					time.Sleep(29 * time.Second)
					known(true)
					time.Sleep(2 * time.Second)
					known(false)
					e.Close()
				})
			})
		}
	}
}

// Nor does one that is in a table before the log has told of the step.
func TestAKeyThatIsSealedRightBehindAStepIsKnown(t *testing.T) {
	for _, step := range []time.Duration{time.Hour, -time.Hour} {
		for _, before := range []bool{true, false} {
			t.Run(fmt.Sprintf("%v, before it %v", step, before), func(t *testing.T) {
				bubble.Run(t, func(t *testing.T) {
					w, fs := &wall{}, crashfs.New()
					e := openOn(t, fs, "a", w.set)
					put(t, e, "t", configOf(api.Fsync, func(c *api.Config) { c.IdempotencyWindowMS = 60_000 }))
					time.Sleep(2500 * time.Millisecond) // between two looks at the clocks
					if before {
						write(t, e, "t", "1")
						if _, err := keyed(e, "t", "k"); err != nil {
							t.Fatal(err)
						}
					}
					w.jump(step)
					if !before {
						if _, err := keyed(e, "t", "k"); err != nil {
							t.Fatal(err)
						}
					}
					sealNow(t, e)
					fs = fs.CrashClone(vfs.CrashCloneCfg{})
					e.Close()
					e = openOn(t, fs, "a", w.set)
					defer e.Close()
					time.Sleep(55 * time.Second)
					if res, err := keyed(e, "t", "k"); err != nil || !res.Deduped {
						t.Errorf("the key is known: %v, %v", res.Deduped, err)
					}
					time.Sleep(10 * time.Second)
					if res, err := keyed(e, "t", "k"); err != nil || res.Deduped {
						t.Errorf("past its window it is known: %v, %v", res.Deduped, err)
					}
				})
			})
		}
	}
}

// Time stamps that are ahead stand still. Keys leave memory and disk all the same, or the bound on
// them would refuse writes for as long.
func TestKeysAreForgottenThoughTimeStampsAreAhead(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		w, fs := &wall{}, vfs.NewMem()
		e := openOn(t, fs, "a", w.set)
		put(t, e, "t", configOf(api.Fsync, func(c *api.Config) { c.IdempotencyWindowMS = 10_000 }))
		w.jump(365 * 24 * time.Hour)
		write(t, e, "t", "1")
		w.jump(-365 * 24 * time.Hour)
		for i := range 100 {
			if _, err := keyed(e, "t", fmt.Sprint(i)); err != nil {
				t.Fatal(err)
			}
		}
		sealNow(t, e)
		var d draining
		for range 2 {
			if err := e.shrinkStore(&d); err != nil {
				t.Fatal(err)
			}
			time.Sleep(12 * time.Second)
		}
		if n := e.Metrics().IdempotencyKeys; n != 0 {
			t.Errorf("%d keys are there after their window", n)
		}
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
		e = openOn(t, fs, "a", w.set)
		if n := e.Metrics().IdempotencyKeys; n != 0 {
			t.Errorf("%d keys come back with a restart", n)
		}
		e.Close()
	})
}

// heap returns the bytes in use after all garbage is gone.
func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// The bound holds against racing writers; a repeat passes, and what ends gives
// its keys back: time, the topic, a write that fails.
func TestTheServerKeepsAsManyKeysAsItMay(t *testing.T) {
	limits := api.DefaultLimits()
	limits.MaxIdempotencyKeys = 100
	fs := vfs.NewMem()
	bounded := func(o *Options) { o.Limits = limits }
	e := openOn(t, fs, "a", bounded)
	put(t, e, "a", configOf(api.Disk))
	put(t, e, "b", configOf(api.Disk, func(c *api.Config) { c.CapRecords, c.Discard = 1, api.DiscardReject }))
	var stored atomic.Int64
	race(t, 8, func(i int) {
		for k := range 40 {
			res, err := keyed(e, "a", fmt.Sprint(i, " ", k))
			var known *api.Error
			switch {
			case err == nil && !res.Deduped:
				stored.Add(1)
			case api.IsCode(err, api.CodeThrottled):
				known = err.(*api.Error)
				if known.Detail["limit"] != "max_idempotency_keys" || known.Detail["max"] != int64(100) {
					t.Errorf("%v %v", err, known.Detail)
				}
			default:
				t.Errorf("%+v %v", res, err)
			}
		}
	})
	if n := e.Metrics().IdempotencyKeys; stored.Load() != 100 || n != 100 {
		t.Fatalf("%d keyed writes were stored, %d keys are counted", stored.Load(), n)
	}
	if _, err := tryWrite(e, "a", "1"); err != nil {
		t.Errorf("a write without a key: %v", err)
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	e = openOn(t, fs, "a", bounded)
	if n := e.Metrics().IdempotencyKeys; n != 100 {
		t.Errorf("%d keys after a restart", n)
	}
	repeats := 0
	for i := range 8 {
		for k := range 40 {
			if res, err := keyed(e, "a", fmt.Sprint(i, " ", k)); err == nil && res.Deduped {
				repeats++
			}
		}
	}
	if repeats != 100 {
		t.Errorf("%d of 100 repeats pass", repeats)
	}
	if _, err := e.DeleteTopic(bg, "a", false); err != nil {
		t.Fatal(err)
	}
	if n := e.Metrics().IdempotencyKeys; n != 0 {
		t.Errorf("%d keys are left of a topic that has ended", n)
	}
	for i := range 200 { // one fits, the others are refused and keep nothing
		if _, err := keyed(e, "b", fmt.Sprint(i)); (err != nil) != (i > 0) {
			t.Fatal(i, err)
		}
	}
	if n := e.Metrics().IdempotencyKeys; n != 1 {
		t.Errorf("%d keys after writes that were refused", n)
	}
}
