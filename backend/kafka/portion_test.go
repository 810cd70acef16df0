package kafka

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// TestWhatALinkCarriesIsAskedFor: neither more than comes while what was acquired is locked, nor much less than
// that.
func TestWhatALinkCarriesIsAskedFor(t *testing.T) {
	t.Parallel()
	const lock = 30 * time.Second
	for _, link := range []struct {
		rate, size int // bytes a second, and of a message; two come at least
		worst      time.Duration
		least      int // messages at once, once the link is known
	}{
		{50_000, 900_000, 36 * time.Second, 1},
		{100_000, 900_000, 18 * time.Second, 1},
		{100_000, 1000, lock / 3, 100},
		{1 << 20, 100_000, lock / 3, 10},
		{1 << 30, 900_000, time.Second, 30},
		{1 << 30, 100, time.Second, 10_000},
	} {
		p := portion{}
		fetch := func() (records int) {
			records = p.limit(min(10_000, max(2, int(p.bytes())/link.size)))
			took := time.Duration(records*link.size) * time.Second / time.Duration(link.rate)
			if took > link.worst {
				t.Errorf("at %d bytes a second, the answer with %d messages of %d takes %s", link.rate, records, link.size, took)
			}
			p.came(records, records*link.size, took, lock)
			if p.slow != (took > lock/8) {
				t.Errorf("an answer that took %s is slow: %v", took, p.slow)
			}
			return records
		}
		settles := func() {
			for range 20 {
				fetch()
			}
			if n := fetch(); n < link.least {
				t.Errorf("at %d bytes a second, %d messages of %d are asked for at once", link.rate, n, link.size)
			}
			link.worst = min(link.worst, max(lock/3, time.Duration(link.size)*time.Second/time.Duration(link.rate)))
		}
		settles()
		p.missed(false, lock, time.Time{})
		if p.bytes() > leastPortion || p.limit(10) != 1 || !p.slow {
			t.Errorf("without an answer, %d messages or %d bytes are asked for; slow: %v", p.limit(10), p.bytes(), p.slow)
		}
		settles()
		before := p.bytes()
		p.came(1, 100, time.Second, lock) // there was little
		if p.bytes() != before {
			t.Errorf("after a small answer, %d bytes are asked for, before %d", p.bytes(), before)
		}
	}
}

// TestALinkThatBringsNothingInTimeIsLeftAlone: what it is asked for counts as delivered, and is dropped in the end.
func TestALinkThatBringsNothingInTimeIsLeftAlone(t *testing.T) {
	t.Parallel()
	const lock = 30 * time.Second
	p, now := portion{}, time.Now()
	tries := func(within time.Duration) (n int) {
		for end := now.Add(within); now.Before(end); now = now.Add(lock) {
			if p.resting(lock, now) == nil {
				n++
				p.missed(true, lock, now)
			}
		}
		return n
	}
	if n := tries(5 * lock); n < lateMost {
		t.Errorf("%d tries at first", n)
	}
	if n := tries(time.Hour); n > 10 || n < 6 {
		t.Errorf("%d tries in an hour", n)
	}
	now = now.Add(restMost)
	if err := p.resting(lock, now); err != nil {
		t.Errorf("in the end: %v", err)
	}
	p.came(1, 100, time.Second, lock)
	for range 2 * lateMost {
		p.missed(true, lock, now)
		p.missed(false, lock, now) // a broker that is silent
	}
	if err := p.resting(lock, now); err != nil {
		t.Errorf("a broker that was silent is left alone: %v", err)
	}
}

// TestALockBeginsWithTheFetch, not when its answer has come.
func TestALockBeginsWithTheFetch(t *testing.T) {
	t.Parallel()
	for _, before := range []string{"nothing is held", "something is held"} {
		t.Run(before, func(t *testing.T) {
			t.Parallel()
			s := newShelf(&Backend{})
			now := time.Now()
			if before == "something is held" {
				s.add(nil, &kgo.Record{Offset: 1}, 1, time.Hour, now)
			}
			s.add(nil, &kgo.Record{Offset: 2}, 1, time.Hour, now.Add(-s.lock*3/4))
			if !s.late() {
				t.Error("locks that may have ended are not late")
			}
			if _, renew, _ := s.due(now); len(renew) != len(s.all) {
				t.Errorf("%d of %d locks are renewed", len(renew), len(s.all))
			}
		})
	}
}
