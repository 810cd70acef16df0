package redis_test

import (
	"net"
	"net/url"
	"testing"
	"time"

	"github.com/weirmq/weir/backend/redis"
	"github.com/weirmq/weir/tests/redistest"
	"github.com/weirmq/weir/tests/stall"
)

// durable lets a URL ask for fsync, and so for a replica to have each append.
var durable = []string{"--appendonly", "yes", "--appendfsync", "always"}

// TestSentinelFailover cuts the replica off, lets producers go on for half a
// second, and kills the primary. Without durability=fsync what was acknowledged
// meanwhile is lost; with it nothing is, for nothing was acknowledged.
func TestSentinelFailover(t *testing.T) {
	t.Parallel()
	for _, durably := range []bool{false, true} {
		t.Run(nameOf(durably), func(t *testing.T) {
			t.Parallel()
			s := redistest.StartSentinel(t, redistest.Options{Args: durable})
			link := redistest.NewProxy(t, s.Primary.Addr())
			host, port, err := net.SplitHostPort(link.Addr())
			if err != nil {
				t.Fatal(err)
			}
			replica := s.Replica.Client()
			if err := replica.Do(t.Context(), "REPLICAOF", host, port).Err(); err != nil {
				t.Fatal(err)
			}
			primary := s.Primary.Client()
			wait(t, "the replica is back behind the proxy", func() bool {
				n, err := primary.Wait(t.Context(), 1, 100*time.Millisecond).Result()
				return err == nil && n == 1
			})
			r := startRig(t, s.URL()+"&stream=jobs"+queryOf(durably))
			r.until(50)
			link.Set(redistest.Blackhole)
			cutOff := time.Now()
			hold(500 * time.Millisecond)
			if !durably {
				wait(t, "something is stored that the replica does not have", func() bool { return r.storedSince(cutOff) > 0 })
			}
			begin := time.Now()
			s.Primary.Kill()
			next := s.AwaitFailover(s.Primary)
			agreed := time.Since(begin)
			r.until(50)
			report(t, r, begin)
			t.Logf("the sentinels agreed after %v", agreed.Round(time.Millisecond))
			r.finish(next.Client(), verdict{loses: !durably})
			reportLoss(t, r)
			if !durably && r.lost == 0 {
				t.Error("nothing was lost: the replica was not cut off, and this shows nothing")
			}
		})
	}
}

// TestSentinelFailoverTakesASentinelAlong freezes the primary together with the Sentinel on its
// machine, which is the one that the programs ask.
func TestSentinelFailoverTakesASentinelAlong(t *testing.T) {
	t.Parallel()
	s := redistest.StartSentinel(t, redistest.Options{Args: durable})
	r := startRig(t, "redis://"+s.Sentinels[0].Addr()+"/0?master="+redistest.MasterName+"&stream=jobs") // which knows of the others
	r.until(50)
	begin, stalled := time.Now(), stall.Watch()
	s.Primary.Pause()
	s.Sentinels[0].Pause()
	r.until(50)
	if stored, _ := r.pauses(begin); stored > 15*time.Second && stalled() < time.Second { // else Sentinels may have rested
		t.Errorf("publishing went on after %v only", stored)
	}
	report(t, r, begin)
	r.finish(s.Replica.Client(), verdict{loses: true})
}

// TestSilentSentinelsKeepNobodyFromOpening: one that answers is enough.
func TestSilentSentinelsKeepNobodyFromOpening(t *testing.T) {
	t.Parallel()
	s := redistest.StartSentinel(t, redistest.Options{Steady: true})
	s.Sentinels[0].Pause()
	s.Sentinels[1].Pause()
	u, err := url.Parse(s.URL() + "&stream=jobs")
	if err != nil {
		t.Fatal(err)
	}
	began, stalled := time.Now(), stall.Watch()
	b, err := redis.Open(t.Context(), u)
	if took := time.Since(began); err != nil || took > 10*time.Second+stalled() {
		t.Fatalf("after %v: %v", took, err)
	}
	publish(t, b, 1)
	if err := b.Close(); err != nil {
		t.Error(err)
	}
}

// TestClusterLosesAMaster kills the master of the stream's slot under load.
func TestClusterLosesAMaster(t *testing.T) {
	t.Parallel()
	loseAMaster(t, (*redistest.Server).Kill)
}

// TestClusterLosesTouchWithAMaster freezes the master of the stream's slot, as a machine that loses
// its power or its network: nobody hears that connections to it are of no use. It stays frozen.
func TestClusterLosesTouchWithAMaster(t *testing.T) {
	t.Parallel()
	loseAMaster(t, (*redistest.Server).Pause)
}

func loseAMaster(t *testing.T, lose func(*redistest.Server)) {
	for _, durably := range []bool{false, true} {
		t.Run(nameOf(durably), func(t *testing.T) {
			t.Parallel()
			c := redistest.StartCluster(t, 3, redistest.Options{Args: durable})
			r := startRig(t, c.URL()+"?stream=jobs"+queryOf(durably))
			r.until(50)
			owner := c.Owner("jobs", nil)
			begin := time.Now()
			lose(owner)
			r.until(50)
			report(t, r, begin)
			next := c.Owner("jobs", owner)
			if next == owner {
				t.Fatal("the master that was lost still has the slot")
			}
			r.finish(next.Client(), verdict{loses: !durably})
			reportLoss(t, r)
		})
	}
}

// TestSilentNodesKeepNobodyFromOpening: any node can be the first that is asked where the stream is.
func TestSilentNodesKeepNobodyFromOpening(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 3, redistest.Options{})
	c.Replicas[0].Pause()
	c.Replicas[1].Pause()
	for range 15 {
		if err := openOn(t, c.URL()+"?stream=jobs").Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestSlotMovesUnderAPool gives the stream's slot to another master
// while producers and a pool work on it. Nothing may be lost or stored twice.
func TestSlotMovesUnderAPool(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 0, redistest.Options{})
	r := startRig(t, c.URL()+"?stream=jobs")
	r.until(100)
	begin := time.Now()
	first := c.Owner("jobs", nil)
	next := c.MoveSlot("jobs")
	took := time.Since(begin)
	r.until(100)
	if next == first {
		t.Fatal("the slot has not moved")
	}
	report(t, r, begin)
	t.Logf("the move took %v", took.Round(time.Millisecond))
	r.finish(next.Client(), verdict{})
}

func nameOf(durably bool) string {
	if durably {
		return "durability=fsync"
	}
	return "no durability asked for"
}

func queryOf(durably bool) string {
	if durably {
		return "&durability=fsync"
	}
	return ""
}

func report(t *testing.T, r *rig, begin time.Time) {
	t.Helper()
	stored, handled := r.pauses(begin)
	t.Logf("publishing went on after %v, handling after %v", stored.Round(time.Millisecond), handled.Round(time.Millisecond))
}

func reportLoss(t *testing.T, r *rig) {
	t.Helper()
	t.Logf("%d of %d acknowledged messages were lost, %d of them before they were handled", r.lost, len(r.stored), r.undone)
}
