package engine

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/internal/op"
	"github.com/weirmq/weir/internal/wal"
	"github.com/weirmq/weir/tests/bubble"
)

func TestWallClockJumpsDoNotEndLeases(t *testing.T) {
	for _, jump := range []time.Duration{time.Hour, -time.Hour, 24 * time.Hour, -24 * time.Hour} {
		bubble.Run(t, func(t *testing.T) {
			w := &wall{}
			e := openOn(t, vfs.NewMem(), "a", w.set)
			defer e.Close()
			put(t, e, "q", configOf(api.Disk, queueConfig))
			write(t, e, "q", "1", "2")
			if got := seqsOf(claimJobs(t, e, "q", "w", 2)); got != "[1 2]" {
				t.Fatal(got)
			}
			w.jump(jump)
			if s := stateOf(t, e, "q"); s.Queue.InFlight != 2 || s.Queue.Ready != 0 {
				t.Fatalf("after a jump of %v: %+v", jump, s.Queue)
			}
			if got := claimJobs(t, e, "q", "v", 2); len(got) != 0 {
				t.Fatalf("after a jump of %v, jobs under a lease were handed out: %v", jump, seqsOf(got))
			}
			time.Sleep(30 * time.Second) // the lease has ended once now > deadline
			if got := claimJobs(t, e, "q", "v", 2); len(got) != 0 {
				t.Fatalf("at the deadline jobs were handed out: %v", seqsOf(got))
			}
			time.Sleep(time.Millisecond)
			if got := seqsOf(claimJobs(t, e, "q", "v", 2)); got != "[1 2]" {
				t.Fatalf("after a jump of %v and the lease's end: %v", jump, got)
			}
		})
	}
}

// Whatever the wall clock did before a restart, what was left of leases and delays then is left after it.
func TestAClockSteppedBeforeARestartNeitherEndsNorProlongsWhatRuns(t *testing.T) {
	const lot = 10 * 365 * 24 * time.Hour
	for name, c := range map[string]struct{ first, stored, last, blink time.Duration }{ // how far the clock is off before, when the jobs are stored and claimed, at the restart, and in between for a moment
		"ahead for a moment":      {blink: lot},
		"ahead once":              {first: lot},
		"ahead when stored":       {stored: lot},
		"ahead afterwards":        {last: lot},
		"behind until it is set":  {first: -lot, stored: -lot},
		"behind when stored":      {stored: -lot},
		"a little ahead":          {stored: 300 * time.Millisecond},
		"a little ahead at first": {first: 300 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			restarts(t, func(t *testing.T, next func(*Engine) *Engine, w *wall) {
				w.jump(c.first)
				e := next(nil)
				off := c.first
				step := func(to time.Duration) {
					time.Sleep(2 * time.Second)
					w.jump(to - off)
					off = to
					time.Sleep(2 * time.Second)
					write(t, e, "t", "1")
				}
				put(t, e, "t", configOf(api.Fsync))
				put(t, e, "q", configOf(api.Fsync, queueConfig, func(c *api.Config) { c.LeasesDurable, c.LeaseMS = true, 60_000 }))
				write(t, e, "t", "1")
				step(c.stored)
				writeRecords(t, e, "q", later("1", 60_000), api.Record{Data: []byte("2")}, api.Record{Data: []byte("3")})
				claimJobs(t, e, "q", "w", 2)
				if _, err := e.Nack(bg, "q", &api.SettleRequest{Node: "w", Seqs: []uint64{3}, DelayMS: 60_000}); err != nil {
					t.Fatal(err)
				}
				begin := time.Now()
				w.jump(c.blink)
				write(t, e, "t", "1")
				w.jump(-c.blink)
				step(c.last)
				for _, at := range []time.Duration{5, 30, 59} {
					e = next(e)
					time.Sleep(at*time.Second - time.Since(begin))
					if got := claimJobs(t, e, "q", "v", 3); len(got) > 0 {
						t.Fatalf("after %v s of 60 %s is handed out", int(at), seqsOf(got))
					}
				}
				time.Sleep(2 * time.Second)
				e = next(e)
				if got := seqsOf(claimJobs(t, e, "q", "v", 3)); got != "[1 2 3]" {
					t.Errorf("2 s after its time %s is handed out", got)
				}
				e.Close()
			})
		})
	}
}

// With a clock that is set back while the server is down, leases and delays end late by the time since
// the last write at most, also if time stamps that are ahead do not tell when that was.
func TestAClockSetBackWhileTheServerIsDownProlongsLittle(t *testing.T) {
	const lot, every = 365 * 24 * time.Hour, 2 * time.Minute
	for name, blink := range map[string]time.Duration{"time stamps right": 0, "time stamps ahead": lot} {
		t.Run(name, func(t *testing.T) {
			restarts(t, func(t *testing.T, next func(*Engine) *Engine, w *wall) {
				e := next(nil)
				put(t, e, "t", configOf(api.Fsync))
				put(t, e, "q", durableLeases(true))
				w.jump(blink)
				write(t, e, "t", "1")
				w.jump(-blink)
				writeRecords(t, e, "q", later("1", 2_400_000), api.Record{Data: []byte("2")})
				if _, err := e.Claim(bg, "q", &api.ClaimRequest{Node: "w", Max: 1, HasLease: true, LeaseMS: 2_400_000}, func(*api.Job) {}); err != nil {
					t.Fatal(err)
				}
				for range 30 * time.Minute / every {
					time.Sleep(every)
					write(t, e, "t", "1")
				}
				w.down(-24 * time.Hour)
				e = next(e)
				time.Sleep(9 * time.Minute)
				if got := claimJobs(t, e, "q", "v", 3); len(got) > 0 {
					t.Errorf("a minute before the time %s is handed out", seqsOf(got))
				}
				time.Sleep(time.Minute + every + 2*time.Minute)
				if got := seqsOf(claimJobs(t, e, "q", "v", 3)); got != "[1 2]" {
					t.Errorf("%v after the time %s is handed out", every+2*time.Minute, got)
				}
				e.Close()
			})
		})
	}
}

// Nor does a stop that was clean forget how late it was, though nothing had happened for long.
func TestAClockSetBackAfterAStopProlongsLittle(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		w, fs := &wall{}, vfs.NewMem()
		e := openOn(t, fs, "a", w.set)
		put(t, e, "q", configOf(api.Fsync, queueConfig))
		writeRecords(t, e, "q", later("1", 2_400_000))
		time.Sleep(30 * time.Minute)
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
		w.jump(-24 * time.Hour)
		e = openOn(t, fs, "a", w.set)
		time.Sleep(9 * time.Minute)
		if got := claimJobs(t, e, "q", "v", 1); len(got) > 0 {
			t.Error("a delayed record comes early")
		}
		time.Sleep(2 * time.Minute)
		if got := claimJobs(t, e, "q", "v", 1); len(got) != 1 {
			t.Error("a minute after its time a delayed record is not there")
		}
		e.Close()
	})
}

// A segment of the log whose note of a step is damaged moves to the store, and the step is known.
func TestADamagedSegmentForgetsNoStepOfTheClock(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		s := newScene(t, "wal")
		put(t, s.e, "q", configOf(api.Fsync, queueConfig))
		s.e.sealing.Lock()
		s.wall.jump(time.Hour)
		time.Sleep(2 * time.Second)
		if err := s.e.log.Rotate(); err != nil {
			t.Fatal(err)
		}
		segment, _ := s.e.log.OldestSealed()
		var at int64
		if err := s.e.log.Scan(segment.Number, func(o wal.Op) error {
			if kindsOf(o)[0] == op.KindClock {
				at = int64(o.Pos.Offset)
			}
			return nil
		}); err != nil || at == 0 {
			t.Fatal("the step is not in the log: ", err)
		}
		file := fmt.Sprintf("/data/wal/%010d.wal", segment.Number)
		s.flipAt(file, at, imageOf(t, s.fs, "/data/wal")[file][at])
		s.e.sealing.Unlock()
		if err := s.e.seal(segment); err != nil {
			t.Fatal(err)
		}
		writeRecords(t, s.e, "q", later("1", 60_000))
		s.reopen()
		if got := claimJobs(t, s.e, "q", "w", 1); len(got) > 0 {
			t.Error("a delayed record comes a minute early")
		}
		time.Sleep(time.Minute)
		if got := claimJobs(t, s.e, "q", "w", 1); len(got) != 1 {
			t.Error("a delayed record is not there at its time")
		}
		s.e.Close()
	})
}

// Nor do lives that were too short for a note, each with a minute in which the server was down.
func TestAClockSetBackAfterShortLivesProlongsLittle(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		w, fs := &wall{}, vfs.NewMem()
		e := openOn(t, fs, "a", w.set)
		put(t, e, "q", configOf(api.Fsync, queueConfig))
		writeRecords(t, e, "q", later("1", 900_000))
		for life := range 11 {
			time.Sleep(10 * time.Second)
			if err := e.Close(); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Minute)
			if life == 10 {
				w.jump(-24 * time.Hour)
			}
			e = openOn(t, fs, "a", w.set)
		}
		time.Sleep(15*time.Minute - 11*70*time.Second + 2*time.Minute + 10*time.Second)
		if got := claimJobs(t, e, "q", "v", 1); len(got) != 1 {
			t.Error("two minutes after its time a delayed record is not there")
		}
		e.Close()
	})
}

func TestAClockSetBackOverARestartRepeatsNoLeaseID(t *testing.T) {
	fs := vfs.NewMem()
	seen := map[uint64]bool{}
	start := time.Now()
	for range 3 {
		e := openOn(t, fs, "a", func(o *Options) { o.Now = func() time.Time { return start } })
		put(t, e, "q", configOf(api.Fsync, queueConfig, func(c *api.Config) { c.LeasesDurable = true }))
		write(t, e, "q", "1")
		for _, j := range claimJobs(t, e, "q", "w", 1) {
			if seen[j.LeaseID] {
				t.Fatalf("lease id %x was given out twice", j.LeaseID)
			}
			seen[j.LeaseID] = true
			ack(t, e, "q", "w", j.Seq)
		}
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if len(seen) != 3 {
		t.Fatalf("%d jobs were claimed, want 3", len(seen))
	}
}

// A machine that stands still between one clock and another, as one does that has too much
// to do, does not make a holder believe that its lease is much shorter than it is.
func TestTheEndOfALeaseIsToldRightThoughTheMachineStandsStill(t *testing.T) {
	const lease, still = 60_000, 100
	bubble.Run(t, func(t *testing.T) {
		var stalls atomic.Int64
		e := openOn(t, vfs.NewMem(), "a", func(o *Options) {
			o.Now = func() time.Time {
				now := time.Now()
				if stalls.Add(-1) >= 0 {
					time.Sleep(still * time.Millisecond)
				}
				return now
			}
		})
		for n := range int64(3) {
			now, begin := e.leaseClock(), time.Now().UnixMilli()
			stalls.Store(n)
			told := e.wallOf(now+lease, now)
			stalls.Store(0)
			if early := begin + lease - told; early > still/2 {
				t.Errorf("after %d stops a holder is told that its lease ends %d ms before it does", n, early)
			}
			if late := told - (time.Now().UnixMilli() + lease - (e.leaseClock() - now)); late > 1 {
				t.Errorf("after %d stops a holder is told that its lease ends %d ms after it does", n, late)
			}
		}
		e.Close()
	})
}
