// Package latency counts durations in fixed space, for quantiles of what took how long.
package latency

import (
	"math/bits"
	"time"
)

// Each power of two of nanoseconds is split into subBuckets, so a quantile is
// at most 3 % above the true value. The table covers every duration.
const (
	subBits    = 5
	subBuckets = 1 << subBits
	buckets    = (64 - subBits + 1) * subBuckets
)

// Histogram counts durations in fixed space. The zero value is ready; it is not
// safe for concurrent use.
type Histogram struct {
	counts [buckets]int64
	total  int64
	most   time.Duration
}

// Add counts one duration.
func (l *Histogram) Add(d time.Duration) {
	l.counts[bucket(uint64(max(d, 0)))]++
	l.total++
	l.most = max(l.most, d)
}

// Count is how many durations were added.
func (l *Histogram) Count() int64 { return l.total }

// Max is the longest duration that was added, exactly; 0 if there was none.
func (l *Histogram) Max() time.Duration { return l.most }

// Merge adds what o has counted.
func (l *Histogram) Merge(o *Histogram) {
	for i, n := range o.counts {
		l.counts[i] += n
	}
	l.total += o.total
	l.most = max(l.most, o.most)
}

// Quantile returns the duration that the share q, between 0 and 1, did not
// exceed; 0 if nothing was counted.
func (l *Histogram) Quantile(q float64) time.Duration {
	rank := int64(q * float64(l.total))
	var seen int64
	for i, n := range l.counts {
		seen += n
		if n > 0 && seen > rank || seen == l.total && seen > 0 {
			return time.Duration(upper(i))
		}
	}
	return 0
}

func bucket(v uint64) int {
	if v < subBuckets {
		return int(v)
	}
	shift := bits.Len64(v) - subBits - 1
	return (shift+1)*subBuckets + int(v>>shift) - subBuckets
}

// upper is the largest value that falls into bucket i.
func upper(i int) uint64 {
	if i < subBuckets {
		return uint64(i)
	}
	shift := i/subBuckets - 1
	return uint64(i%subBuckets+subBuckets+1)<<shift - 1
}
