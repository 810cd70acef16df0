package main

import (
	"os"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestMain(m *testing.M) {
	if text := os.Getenv(workerEnv); text != "" {
		exit(workerMain(text))
	}
	os.Exit(m.Run())
}

func TestNothingIsLostWhileWorkersAndRedisAreKilled(t *testing.T) {
	o := options{
		duration: 10 * time.Second, processes: 5, workers: 20, rate: 200, limit: 3, reclaimAfter: 3 * time.Second,
		killEvery: 500 * time.Millisecond, redisEvery: 2500 * time.Millisecond, seed: uint64(time.Now().UnixNano()),
	}
	sum, err := run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Log(sum)
	for _, v := range sum.violations {
		t.Error(v)
	}
	if err := sum.reached(o); err != nil {
		t.Error(err)
	}
}

// A run has to find what is planted.
func TestPlantedFaultsAreFound(t *testing.T) {
	faults := map[string]string{
		faultAckFirst:     "is lost: neither handled nor dead",
		faultDropAck:      "ran again without a reason",
		faultCountTwice:   "was nobody's",
		faultRunTwice:     "was begun 2 times",
		faultBuryEarly:    "is dead after 2 deliveries, the limit is 3",
		faultDoneAndDead:  "is both done and dead",
		faultPublishTwice: "was stored 2 times",
		faultUnsaid:       "and its publish said that it is not",
	}
	var all sync.WaitGroup // rather than parallel tests, of which only two would run at once here
	for fault, want := range faults {
		all.Go(func() {
			var sum *summary
			for seed := range uint64(5) { // a machine that stands still kills nobody, and excuses much
				var err error
				if sum, err = run(t.Context(), options{
					duration: 3 * time.Second, processes: 2, workers: 10, rate: 80, limit: 3, reclaimAfter: 2 * time.Second,
					killEvery: 400 * time.Millisecond, redisEvery: 2 * time.Second, seed: 7 + seed, fault: fault,
				}); err != nil {
					t.Errorf("%s: %v", fault, err)
					return
				}
				for _, v := range sum.violations {
					if strings.Contains(v, want) {
						t.Logf("%s: %s", fault, v)
						return
					}
				}
			}
			t.Errorf("%s: no violation says that a message %s:\n%s\n%s", fault, want, sum, strings.Join(sum.violations, "\n"))
		})
	}
	all.Wait()
}
