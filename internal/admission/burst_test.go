package admission

import (
	"container/heap"
	"math/rand/v2"
	"testing"
)

// Callers that come again at once until they are refused, 16 of one key and 4 of another,
// who need next to no time for an offer: none of them takes the whole queue before the
// others have come, so that for both keys something is done all the time.
func TestCallersThatComeAtOnceAgainTakeTurns(t *testing.T) {
	const workers, service, seconds = 4, 0.01, 30
	for seed := range uint64(4) {
		rnd := rand.New(rand.NewPCG(seed, 3))
		w := &world{rnd: rnd, c: New(2e9)}
		bins := [2]int{Bin(2, "one", 1), Bin(2, "two", 1)}
		var waiting [2]int
		working, finished, next := 0, 0, 0
		var done [seconds + 1][2]int
		var start func()
		start = func() {
			for ; working < workers && waiting[0]+waiting[1] > 0; next = 1 - next {
				key := next
				if waiting[key] == 0 {
					key = 1 - key
				}
				waiting[key]--
				working++
				w.after(service, func() {
					working--
					finished++
					done[int(w.now)][key]++
					start()
				})
			}
		}
		var offer func(key int)
		offer = func(key int) {
			pass := w.c.Offer(w.clock(), bins[key], false)
			if !w.reading && w.c.Due(w.clock()) {
				w.reading = true
				r := Reading{At: w.clock(), Admitted: w.c.Admitted(), Known: true, Waiting: int64(waiting[0] + waiting[1]), Working: int64(working), Finished: int64(finished), Limit: 400}
				w.after(0.006, func() { w.reading = false; w.c.Update(r, w.clock()) })
			}
			again := 1e-6 * rnd.Float64()
			if pass && waiting[0]+waiting[1]+working < 400 {
				waiting[key]++
				start()
			} else {
				again = w.c.RetryAfter(w.clock(), bins[key]).Seconds() * (1 + rnd.Float64()/2)
			}
			w.after(again, func() { offer(key) })
		}
		for i := range 20 {
			w.after(0, func() { offer(i % 5 / 4) })
		}
		for w.now < seconds {
			e := heap.Pop(&w.events).(event)
			w.now = e.at
			e.do()
		}
		all := 0
		for second := 4; second < seconds; second++ { // by then the load is known
			n := done[second]
			all += n[0] + n[1]
			if min(n[0], n[1]) < 100 {
				t.Errorf("seed %d, second %d: of the key with 16 callers %d were done, of the one with 4 %d", seed, second, n[0], n[1])
			}
		}
		if capacity := (seconds - 4) * workers / service; float64(all) < 0.97*capacity {
			t.Errorf("seed %d: %d were done, the workers could do %.0f", seed, all, capacity)
		}
	}
}
