package kafka

import (
	"context"
	"errors"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/weirmq/weir/backend"
)

// poll takes records from the client as long as few of them wait for a claim, until the
// handle is closed.
func (c *classic) poll() {
	for c.awaitRoom() {
		fetches := c.client.PollRecords(c.b.closing, pollRecords)
		if fetches.IsClientClosed() || c.b.closing.Err() != nil {
			c.client.AllowRebalance()
			return
		}
		var failure error
		fetches.EachError(func(_ string, _ int32, err error) {
			var lost *kgo.ErrDataLoss // the client goes on behind what is left, and Retained says what was lost
			if !errors.Is(err, context.Canceled) && !errors.As(err, &lost) {
				failure = err
			}
		})
		c.shelve(fetches)
		// No partition was taken away since the poll began: what it gave is this member's.
		c.client.AllowRebalance()
		if failure != nil {
			c.failed(c.explainGroup(failure))
			c.b.topic.forget()
			if l, err := c.b.layout(c.b.closing); err == nil {
				c.renewed(l)
			}
			c.b.pause(c.b.closing, retryEvery)
		}
	}
}

// awaitRoom waits until another poll is wanted; false: the handle is closed.
func (c *classic) awaitRoom() bool {
	for since := time.Now(); ; {
		c.mu.Lock()
		full := c.fresh >= freshRecords || c.bytes >= freshBytes
		if full && time.Since(since) >= stuckAfter {
			full = !c.setAside()
		}
		c.mu.Unlock()
		if !full {
			return c.b.closing.Err() == nil
		}
		select {
		case <-c.room:
		case <-time.After(stuckAfter):
		case <-c.b.closing.Done():
			return false
		}
	}
}

// stuckAfter is how long the polls wait for room before partitions whose windows are full
// are set aside: the client forgets what it has of them.
const stuckAfter = 100 * time.Millisecond

// setAside pauses partitions that are ahead while others have nothing: their windows are
// full. It reports whether there is anything else to poll. The lock is held.
func (c *classic) setAside() bool {
	var full, empty []int32
	for p, w := range c.windows {
		switch {
		case w.out >= windowRecords && len(w.fresh) > 0:
			full = append(full, p)
		case len(w.fresh) == 0:
			empty = append(empty, p)
		}
	}
	if len(full) == 0 || len(empty) == 0 || c.bytes >= 2*freshBytes {
		return false
	}
	c.client.PauseFetchPartitions(map[string][]int32{c.b.set.topic: full})
	c.paused = true
	return true
}

// goOn resumes the partitions set aside. The lock is held.
func (c *classic) goOn() {
	if c.paused && c.fresh < freshRecords/2 {
		c.paused = false
		c.client.ResumeFetchPartitions(c.client.PauseFetchPartitions(nil))
	}
}

// shelve puts what was polled into the windows.
func (c *classic) shelve(fetches kgo.Fetches) {
	c.mu.Lock()
	defer c.mu.Unlock()
	news := false
	fetches.EachPartition(func(t kgo.FetchTopicPartition) {
		w := c.windows[t.Partition]
		if w == nil || w.closing {
			return
		}
		if len(t.Records) > 0 {
			if gap := w.removed(min(t.LogStartOffset, t.Records[0].Offset)); gap != nil {
				c.passed[w.partition] = c.passed[w.partition].and(gap)
			}
		}
		for _, r := range t.Records {
			if w.rewritten(r) {
				w = c.cut(w, r.Offset)
			}
			if r.Offset < w.next {
				continue // fetched again, as after a pause
			}
			news = true
			if r.Attrs.IsControl() {
				w.pass(r)
				continue
			}
			n := len(w.fresh)
			w.add(r)
			if len(w.fresh) > n {
				c.fresh++
				c.bytes += sizeOf(r)
			}
		}
	})
	if news {
		c.b.ledger.changed()
		kick(c.due)
	}
}

// forgetFresh takes a window's fresh records off the count. The lock is held.
func (c *classic) forgetFresh(w *window) {
	for _, h := range w.fresh {
		c.bytes -= sizeOf(h.record)
	}
	c.fresh -= len(w.fresh)
	w.fresh = nil
	c.goOn()
	kick(c.room)
}

// aheadMost bounds what is made ready before it is claimed: if the process dies, it counts
// as delivered.
const aheadMost = 2048

// expect says that a claim is about to come. Messages that may be delivered once or twice
// only are not made ready ahead.
func (c *classic) expect(req backend.ClaimRequest) {
	c.mu.Lock()
	c.most, c.deliveries = req.Max, req.MaxDeliveries
	c.exact = req.MaxDeliveries == 1 || req.MaxDeliveries == 2
	if c.ahead = max(c.ahead, c.most); c.exact {
		c.ahead = c.most
	}
	c.mu.Unlock()
	kick(c.due)
}

// fetch waits until something is ready for a claim.
func (c *classic) fetch(_ backend.ClaimRequest, wait time.Duration) error {
	c.mu.Lock()
	if c.fresh > 0 && !c.exact { // there is something, and it was not ready
		c.ahead = max(c.most, min(2*c.ahead, aheadMost))
	}
	c.mu.Unlock()
	timer := time.NewTimer(max(0, min(wait, idleWait)))
	defer timer.Stop()
	for {
		c.mu.Lock()
		failure, changed := c.failing(), c.changed
		c.mu.Unlock()
		if _, waiting := c.b.held.waiting(); waiting {
			return nil
		}
		if failure != nil {
			return failure
		}
		kick(c.due)
		select {
		case <-changed:
		case <-timer.C:
			return nil
		case <-c.b.closing.Done():
			return errClosed
		}
	}
}

// kick wakes the loop that waits for it.
func kick(loop chan struct{}) {
	select {
	case loop <- struct{}{}:
	default:
	}
}
