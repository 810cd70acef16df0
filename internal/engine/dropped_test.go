package engine

import (
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/internal/op"
	"github.com/weirmq/weir/internal/wal"
)

// A claim buries one job and leases another, and its queue ends between the two
// locks that it takes: the directory opens, and the claim is told.
func TestAQueueThatEndsWhileAClaimBuriesLeavesADirectoryThatOpens(t *testing.T) {
	for _, jitter := range []uint32{0, 1} {
		t.Run(fmt.Sprint("claim_jitter_ms ", jitter), func(t *testing.T) {
			fs := vfs.NewMem()
			var e *Engine
			var armed atomic.Bool
			e = openOn(t, fs, "a", func(o *Options) {
				o.Now = func() time.Time {
					if armed.Load() && free(e, "q") && armed.Swap(false) {
						if _, err := e.DeleteTopic(bg, "q", false); err != nil {
							t.Error(err)
						}
					}
					return time.Now()
				}
			})
			put(t, e, "q", configOf(api.Disk, queueConfig, func(c *api.Config) {
				c.LeasesDurable, c.HasDeadLetter, c.DeadLetter, c.MaxDeliveries, c.ClaimJitterMS = true, true, "dead", 1, jitter
			}))
			write(t, e, "q", "1", "2", "3")
			claimJobs(t, e, "q", "n", 1)
			if _, err := e.Nack(bg, "q", &api.SettleRequest{Node: "n", Seqs: []uint64{1}}); err != nil {
				t.Fatal(err)
			}
			// The clock is read while the dead-letter topic is made: that is after
			// the claim has let go of the queue, and before it takes it again.
			armed.Store(true)
			_, err := e.Claim(bg, "q", &api.ClaimRequest{Node: "n", Max: 3}, func(j *api.Job) { t.Errorf("job %d of a queue that has ended", j.Seq) })
			if armed.Load() {
				t.Fatal("the queue did not end during the claim")
			}
			if !api.IsCode(err, api.CodeTopicNotFound) {
				t.Errorf("the claim answers %v", err)
			}
			if err := e.Close(); err != nil {
				t.Fatal(err)
			}
			e = openOn(t, fs, "a")
			if e.TopicExists("q") {
				t.Error("the queue is back")
			}
		})
	}
}

// free reports whether nobody holds the topic's lock.
func free(e *Engine, topic string) bool {
	t := e.reg.get(topic)
	if t == nil || !t.mu.TryLock() {
		return false
	}
	t.mu.Unlock()
	return true
}

// What earlier versions logged behind the end of a topic does not stop a start;
// records of a topic that never was do, and repair says so, too.
func TestAPartBehindTheEndOfItsTopicStopsNoStart(t *testing.T) {
	fs := vfs.NewMem()
	e := openOn(t, fs, "a")
	put(t, e, "q", configOf(api.Fsync, queueConfig))
	put(t, e, "stays", configOf(api.Fsync))
	write(t, e, "stays", "1")
	id := e.reg.get("q").ID
	if _, err := e.DeleteTopic(bg, "q", false); err != nil {
		t.Fatal(err)
	}
	logPart := func(p op.Part) {
		if _, _, err := e.log.AppendUnslotted(e.log.Gen(), p.Encode(nil), nil, noFrames, wal.Synced); err != nil {
			t.Fatal(err)
		}
	}
	logPart(op.Part{Kind: op.KindLease, Topic: id, Node: "n", Leases: []op.Lease{{Seq: 1, ID: 1, Deadline: 1, Deliveries: 1}}})
	logPart(op.Part{Kind: op.KindDelete, Topic: id, Ranges: []op.Range{{From: 1, To: 1}}, N: 1})
	reopened := func() {
		t.Helper()
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
		if n, err := Repair(bg, Options{Dir: "/data", FS: fs, BootID: "a"}, false, io.Discard); n != 0 || err != nil {
			t.Errorf("repair finds %d places, %v", n, err)
		}
		e = openOn(t, fs, "a")
		sameRecords(t, e, "stays", []string{"1"})
	}
	reopened()
	sealNow(t, e) // the parts are in the store's past now, and another one comes
	logPart(op.Part{Kind: op.KindRelease, Topic: id, Leases: []op.Lease{{Seq: 1, ID: 1}}})
	reopened()

	frames := op.AppendFrame(nil, &api.Record{Data: []byte("1")})
	part := op.Part{Kind: op.KindAppend, Topic: 1000, First: 1, N: 1, Bytes: 1, TS: 1}
	if _, _, err := e.log.AppendUnslotted(e.log.Gen(), part.Encode(nil), frames, wal.Checksum(frames), wal.Synced); err != nil {
		t.Fatal(err)
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	if e, err := Open(bg, Options{Dir: "/data", FS: fs, BootID: "a"}); err == nil {
		e.Close()
		t.Error("records of a topic that never was are left out in silence")
	}
	if _, err := Repair(bg, Options{Dir: "/data", FS: fs, BootID: "a"}, false, io.Discard); err == nil || !strings.Contains(err.Error(), "topic 1000") {
		t.Errorf("repair says %v of a directory that does not start", err)
	}
}
