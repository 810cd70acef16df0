package engine

import (
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/tests/bubble"
	"github.com/weirmq/weir/tests/stall"
)

func oneWorker(o *Options) { o.Workers = 1 }

// watched opens a stream that has caught up with the topic.
func watched(t testing.TB, e *Engine, topic string) *Stream {
	t.Helper()
	s := openStream(t, e, newSession(t, e, api.WatchTopic{Topic: topic, Tail: true}), "")
	expect(t, s, topic+" caught-up")
	return s
}

func TestABurstOfWritesIsOneVisit(t *testing.T) {
	e := openOn(t, vfs.NewMem(), "b", oneWorker)
	put(t, e, "plug", configOf(api.Memory))
	put(t, e, "a", configOf(api.Memory))
	stopped, released := make(chan struct{}), make(chan struct{})
	var visits atomic.Int32
	e.hooks.begin = func(topic string) {
		if topic == "plug" {
			close(stopped)
			<-released
		} else {
			visits.Add(1)
		}
	}
	watched(t, e, "plug")
	s := watched(t, e, "a")
	tryWrite(e, "plug", "1")
	<-stopped
	for i := range 1000 {
		tryWrite(e, "a", fmt.Sprint(i))
	}
	close(released)
	follow(t, s, 1000)
	expect(t, s, "a caught-up")
	if n := visits.Load(); n != 1 {
		t.Fatalf("%d visits", n)
	}
}

func TestAWriteBehindTheHeadOfAVisitGetsAnotherVisit(t *testing.T) {
	e := openOn(t, vfs.NewMem(), "b", oneWorker)
	put(t, e, "a", configOf(api.Memory))
	var heads atomic.Int32
	second := make(chan struct{})
	e.hooks.headRead = func(topic string) {
		switch heads.Add(1) {
		case 1:
			tryWrite(e, "a", "2")
		case 2:
			close(second)
		}
	}
	s := watched(t, e, "a")
	tryWrite(e, "a", "1")
	follow(t, s, 2) // the first visit may have brought both
	select {
	case <-second:
	case <-time.After(20 * time.Second):
		t.Fatal("the second write came without a visit of its own")
	}
}

func TestPressureWidensTheCoalescingWindowAndLosesNothing(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		for _, c := range []struct{ pressure, window float64 }{{0.19, 0}, {0.3, 2.5}, {0.6, 10}, {1, 20}} {
			e := openOn(t, vfs.NewMem(), "b")
			put(t, e, "a", configOf(api.Memory))
			e.governor.Pin(c.pressure)
			time.Sleep(2 * governorPeriod)
			if got := e.Metrics().Push.CoalesceMS; got < c.window-0.01 || got > c.window+0.01 {
				t.Fatalf("pressure %v: window %v ms instead of %v", c.pressure, got, c.window)
			}
			s := watched(t, e, "a")
			for i := range 100 {
				tryWrite(e, "a", fmt.Sprint(i))
				time.Sleep(time.Millisecond)
			}
			frames := 0
			for next := uint64(1); next <= 100; {
				for _, v := range events(t, s, 1) {
					for i, r := range v.data.Records {
						if r.Seq != next {
							t.Fatalf("record %d instead of %d", r.Seq, next)
						}
						if next++; i == 0 {
							frames++
						}
					}
				}
			}
			// 100 ms of writes: one frame per window, and the first at once.
			most := 100
			if c.window > 0 {
				most = int(100/c.window) + 2
			}
			if frames > most || c.window == 0 && frames < most {
				t.Errorf("pressure %v: 100 records in %d frames, window %v ms", c.pressure, frames, c.window)
			}
			s.Close()
			e.Close()
		}
	})
}

func TestAPausedTopicIsCompleteForReadersAndPushedOnRelease(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		e := openOn(t, vfs.NewMem(), "b")
		put(t, e, "low", configOf(api.Memory, func(c *api.Config) { c.HasPriority, c.Priority = true, -1 }))
		e.governor.Pin(0.85)
		time.Sleep(2 * governorPeriod)
		s := watched(t, e, "low")
		begin := time.Now()
		tryWrite(e, "low", "1")
		if got, _ := read(t, e, "low", 0); len(got) != 1 {
			t.Fatalf("a diff sees %d records", len(got))
		}
		got := events(t, s, 1)
		if got[0].kind != "error" {
			t.Fatalf("first came %v", got)
		}
		got = events(t, s, 1)
		if waited := time.Since(begin); got[0].kind != "record" || waited < 10*time.Second || waited > 10*time.Second+100*time.Millisecond {
			t.Fatalf("%v after %v", got, waited)
		}
		expect(t, s, "low caught-up")
		tryWrite(e, "low", "2")
		time.Sleep(time.Second)
		begin = time.Now()
		e.governor.Pin(0.5)
		follow(t, s, 2)
		if waited := time.Since(begin); waited > 150*time.Millisecond {
			t.Fatalf("pushed %v after release", waited)
		}
		s.Close()
		e.Close()
	})
}

func TestAFullServerRefusesAtOnceUnlessAskedToBePatient(t *testing.T) {
	e := openOn(t, vfs.NewMem(), "b", func(o *Options) { o.IngestSlots = 1 })
	put(t, e, "a", configOf(api.Memory))
	e.governor.Pin(1)
	if err := e.log.Reserve(bg, time.Second); err != nil {
		t.Fatal(err)
	}
	begin, stalled := time.Now(), stall.Watch()
	_, err := tryWrite(e, "a", "1")
	var known *api.Error
	if !asAPI(err, &known) || known.Code != api.CodeThrottled {
		t.Fatalf("%v", err)
	}
	if after := known.RetryAfter; after < 100*time.Millisecond || after > 5*time.Second {
		t.Fatalf("to be tried again after %v", after)
	}
	if waited := time.Since(begin); waited > e.opt.IngestTimeout/2+stalled() {
		t.Fatalf("refused only after %v", waited)
	}
	told := map[time.Duration]bool{} // those refused together must not come back together
	for range 20 {
		if _, err := tryWrite(e, "a", "1"); asAPI(err, &known) {
			told[known.RetryAfter] = true
		}
	}
	if len(told) < 2 {
		t.Errorf("20 writers are to try again after %v", told)
	}
	if st, _ := e.Topic("a", false); st.HeadSeq != 0 {
		t.Fatalf("head %d", st.HeadSeq)
	}
	done := make(chan error)
	go func() {
		_, err := e.Write(bg, "a", &api.WriteRequest{Records: []api.Record{{Data: []byte("1")}}, DisableBackpressure: true})
		done <- err
	}()
	e.log.Unreserve()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

func asAPI(err error, to **api.Error) bool {
	e, ok := err.(*api.Error)
	*to = e
	return ok
}

func TestPressureAloneRefusesNothing(t *testing.T) {
	e := openOn(t, vfs.NewMem(), "b")
	put(t, e, "a", configOf(api.Disk))
	e.governor.Pin(1)
	for range 10 {
		if _, err := tryWrite(e, "a", "1"); err != nil {
			t.Fatal(err)
		}
	}
}

func TestAStrongWatchSeesOnlyWhatIsSynced(t *testing.T) {
	e := openOn(t, vfs.NewMem(), "b")
	put(t, e, "a", configOf(api.Memory))
	req := &api.WatchRequest{Topics: []api.WatchTopic{{Topic: "a"}}, WatchOptions: watchOptions()}
	req.Strong = true
	res, err := e.OpenSession(req, Owner{})
	if err != nil {
		t.Fatal(err)
	}
	s := openStream(t, e, res.WID, "")
	expect(t, s, "a caught-up")
	syncs := e.Metrics().WAL.Fsyncs
	tryWrite(e, "a", "1")
	expect(t, s, "a 1-1", "a caught-up")
	if e.Metrics().WAL.Fsyncs == syncs {
		t.Fatal("pushed without a sync")
	}
}

// reader checks that what a stream sends covers every number once: records,
// gaps that were announced, and numbers a delete took.
type tiler struct {
	next    uint64
	deleted func(uint64) bool
}

func (r *tiler) see(v event) error {
	if v.kind == "tombstone" {
		if v.data.GapFrom > r.next || v.data.GapTo < v.data.GapFrom {
			return fmt.Errorf("gap %d-%d at %d", v.data.GapFrom, v.data.GapTo, r.next)
		}
		r.next = max(r.next, v.data.GapTo+1)
	}
	for _, rec := range v.data.Records {
		for r.next < rec.Seq && r.deleted(r.next) {
			r.next++
		}
		if rec.Seq != r.next {
			return fmt.Errorf("record %d instead of %d", rec.Seq, r.next)
		}
		r.next++
	}
	return nil
}

func TestWhateverHappensAReaderSeesEveryNumberOnceOrAsAGap(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 4))
		e := openOn(t, vfs.NewMem(), "b")
		cap := []uint64{0, 50, 400}[rng.IntN(3)]
		put(t, e, "a", configOf([]api.Durability{api.Memory, api.Ephemeral, api.Disk, api.Fsync}[rng.IntN(4)], func(c *api.Config) { c.CapRecords = cap }))
		gone := map[uint64]bool{}
		type client struct {
			*Stream
			wid string
			tiler
		}
		readers := make([]*client, 4)
		var head uint64
		for i := range readers {
			wid := newSession(t, e, api.WatchTopic{Topic: "a"})
			readers[i] = &client{Stream: openStream(t, e, wid, ""), wid: wid, tiler: tiler{1, func(n uint64) bool { return gone[n] }}}
		}
		drain := func(c *client, most int) {
			for range most {
				b, err := c.Next(bg, nil)
				if err != nil {
					t.Fatal(err)
				}
				if len(b) == 0 {
					return
				}
				c.Sent()
				for _, v := range parseEvents(t, b) {
					if err := c.see(v); err != nil {
						t.Fatalf("seed %d: %v", seed, err)
					}
				}
			}
		}
		for range 300 {
			switch rng.IntN(6) {
			case 0, 1, 2:
				res, err := tryWrite(e, "a", make1(1+rng.IntN(40))...)
				if err != nil {
					t.Fatal(err)
				}
				head = res.HeadSeq
			case 3, 4:
				drain(readers[rng.IntN(3)], 1+rng.IntN(5)) // the fourth is stalled
			case 5:
				c := readers[rng.IntN(3)]
				c.Close()
				s, err := e.OpenStream(c.wid, "")
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(s.Close)
				c.Stream = s
			}
		}
		for i, c := range readers {
			for c.next <= head {
				drain(c, 1000)
				if c.next <= head {
					<-c.Ready()
				}
			}
			if c.next != head+1 {
				t.Fatalf("seed %d: reader %d ended at %d of %d", seed, i, c.next, head)
			}
		}
		e.Close()
	}
}

func make1(n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = "1"
	}
	return all
}

func TestPressureWidensTheCommitWindowOfTheLog(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		for _, c := range []struct{ pressure, window float64 }{{0.4, 0.5}, {0.7, 5.25}, {1, 10}} {
			e := openOn(t, vfs.NewMem(), "b")
			e.governor.Pin(c.pressure)
			time.Sleep(2 * governorPeriod)
			want := time.Duration(c.window * float64(time.Millisecond))
			if got := e.log.Window(); (got - want).Abs() > 10*time.Microsecond {
				t.Errorf("pressure %v: window %v instead of %v", c.pressure, got, want)
			}
			e.Close()
		}
	})
}

func TestUnderDeferralStreamsKeepTheirBandAndRouterWorkGoesOneLower(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		e := openOn(t, vfs.NewMem(), "b", oneWorker)
		put(t, e, "in", configOf(api.Memory, func(c *api.Config) { c.HasPriority, c.Priority = true, 600 }))
		if _, err := e.PutRouter(bg, "r", api.RouterConfig{Source: "in", Dest: "out", CreateDest: true}); err != nil {
			t.Fatal(err)
		}
		e.governor.Pin(0.85)
		time.Sleep(2 * governorPeriod)
		in := watched(t, e, "in")
		before := e.Metrics().Push.Visits
		tryWrite(e, "in", "1")
		if got, _ := read(t, e, "out", 0); len(got) != 1 {
			t.Fatalf("a diff of the destination sees %d records", len(got))
		}
		follow(t, in, 1)
		synctest.Wait()
		after := e.Metrics().Push.Visits
		if after[3]-before[3] != 1 || after[2]-before[2] != 1 {
			t.Fatalf("visits by band %v, before %v", after, before)
		}
		in.Close()
		e.Close()
	})
}
