package engine

import (
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/weirmq/weir/internal/api"
)

// The configuration of a queue comes back from the log and from the store, changed and
// removed.
func TestAWaitSLOSurvivesARestart(t *testing.T) {
	fs := vfs.NewMem()
	e := openOn(t, fs, "a")
	slo := func(ms uint32) api.Config {
		return configOf(api.Disk, queueConfig, func(c *api.Config) { c.WaitSLOMS = ms })
	}
	for name, ms := range map[string]uint32{"set": 1000, "changed": 1, "removed": 1000, "plain": 0} {
		put(t, e, name, slo(ms))
	}
	check := func(when string, want map[string]uint32) {
		t.Helper()
		for name, ms := range want {
			if got := stateOf(t, e, name); got.Config.WaitSLOMS != ms || (got.Overload != nil) != (ms > 0) {
				t.Errorf("%s: wait_slo_ms of %s is %d", when, name, got.Config.WaitSLOMS)
			}
		}
	}
	again := func() {
		t.Helper()
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
		e = openOn(t, fs, "a")
	}
	again()
	check("from the log", map[string]uint32{"set": 1000, "changed": 1, "removed": 1000, "plain": 0})
	put(t, e, "changed", slo(86_400_000))
	put(t, e, "removed", slo(0))
	want := map[string]uint32{"set": 1000, "changed": 86_400_000, "removed": 0, "plain": 0}
	check("at once", want)
	sealNow(t, e)
	again()
	check("from the store", want)
}

// A job that is not due yet counts for the tier that its writer gave it: a critical one would be refused
// with the normal ones.
func TestADelayedWriteIsJudgedByItsPriority(t *testing.T) {
	e := open(t, t.TempDir())
	put(t, e, "q", configOf(api.Disk, queueConfig, func(c *api.Config) { c.WaitSLOMS = 1000 }))
	critical, back, plain := later("1", 1000), later("2", 1000), later("3", 1000)
	critical.Tier, back.Tier, back.FairKey = api.TierCritical, api.TierBackground, []byte("tenant")
	writeRecords(t, e, "q", critical, critical, back, plain, api.Record{Data: []byte("4")}, api.Record{Data: []byte("5"), Tier: api.TierCritical})
	tiers := stateOf(t, e, "q").Overload.Tiers
	for tier, want := range map[api.Tier]int64{api.TierCritical: 3, api.TierNormal: 2, api.TierBackground: 1} {
		if got := tiers[tier.Rank()].Offered; got != want {
			t.Errorf("%d messages count as %s, want %d", got, tier, want)
		}
	}
}

// What is due when all that waits now is done is not refused because of it, however much it
// is, and it takes no room from what comes now.
func TestAWriteForLaterIsNotRefusedForTheWait(t *testing.T) {
	onQueue(t, func(t *testing.T, e *Engine) {
		write := func(delay uint64, n int) error {
			records := make([]api.Record, n)
			for i := range records {
				records[i] = later("1", delay)
			}
			_, err := e.Write(bg, "q", &api.WriteRequest{Records: records})
			return err
		}
		for range 200 { // 500 jobs are done a second, and twice as many come
			for range 20 {
				_ = write(0, 1)
			}
			seqs := claimedSeqs(claimJobs(t, e, "q", "w", 10))
			time.Sleep(20 * time.Millisecond)
			ack(t, e, "q", "w", seqs...)
		}
		refused := 0
		for range 5 { // a batch passes as often as one of its jobs would: a few in a hundred do
			if err := write(1000, 5000); api.IsCode(err, api.CodeThrottled) {
				refused++
			}
		}
		if refused < 3 {
			t.Errorf("5,000 jobs for the next second are refused %d times of 5", refused)
		}
		before := stateOf(t, e, "q").Overload
		if err := write(86_400_000, 5000); err != nil {
			t.Errorf("5,000 jobs for tomorrow: %v", err)
		}
		if after := stateOf(t, e, "q").Overload; after.Wait != before.Wait || after.Refused != before.Refused || after.Tiers != before.Tiers {
			t.Errorf("5,000 jobs for tomorrow make %+v of %+v", after, before)
		}
	}, func(c *api.Config) { c.WaitSLOMS = 1000 })
}

// What a queue has learnt of its workers counts again after a pause, also if nobody wrote to
// it or looked at it meanwhile.
func TestAPauseTeachesNothingThoughNobodyWrites(t *testing.T) {
	onQueue(t, func(t *testing.T, e *Engine) {
		// step is 20 ms in which the workers do 10 jobs if there are so many.
		step := func(offered int) (refused int) {
			for range offered {
				if _, err := tryWrite(e, "q", "1"); api.IsCode(err, api.CodeThrottled) {
					refused++
				} else if err != nil {
					t.Fatal(err)
				}
			}
			seqs := claimedSeqs(claimJobs(t, e, "q", "w", 10))
			time.Sleep(20 * time.Millisecond)
			if len(seqs) > 0 {
				ack(t, e, "q", "w", seqs...)
			}
			return refused
		}
		step(4)
		for range 200 {
			step(22 - int(min(22, countersOf(t, e, "q").Ready)))
		}
		before := stateOf(t, e, "q").Overload.Drain
		if before < 400 || before > 600 {
			t.Fatalf("the workers do 500 a second, measured are %.0f", before)
		}
		for _, paused := range []bool{true, false} {
			if err := e.Pause("q", paused); err != nil {
				t.Fatal(err)
			}
			if paused {
				time.Sleep(time.Hour)
			}
		}
		if refused := step(8) + step(8) + step(8); refused > 0 {
			t.Errorf("%d of 24 writes are refused after the pause, with %+v", refused, *stateOf(t, e, "q").Overload)
		}
		if after := stateOf(t, e, "q").Overload.Drain; after < 0.9*before {
			t.Errorf("the workers did %.0f a second before the pause, and are held to do %.0f after it", before, after)
		}
	}, func(c *api.Config) { c.WaitSLOMS = 1000 })
}

func claimedSeqs(jobs []api.Job) (seqs []uint64) {
	for _, j := range jobs {
		seqs = append(seqs, j.Seq)
	}
	return seqs
}
