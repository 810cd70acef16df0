package engine

import (
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/tests/bubble"
)

// The totals count what has happened since the start: they begin at zero again after a
// restart, and do not go back when a topic ends.
func TestTotalsCountFromTheStartAndOutliveTopics(t *testing.T) {
	fs := vfs.NewMem()
	e := openOn(t, fs, "a")
	put(t, e, "jobs", configOf(api.Disk, queueConfig, func(c *api.Config) {
		c.HasDeadLetter, c.DeadLetter, c.MaxDeliveries = true, "dead", 2
	}))
	want := func(what string, w Totals) {
		t.Helper()
		if got := e.Totals(); got != w {
			t.Errorf("%s: %+v, want %+v", what, got, w)
		}
	}
	write(t, e, "jobs", `1`, `2`, `3`)
	write(t, e, "log", `1`)
	claimJobs(t, e, "jobs", "w", 2)
	ack(t, e, "jobs", "w", 1)
	nack := func(seq uint64) {
		t.Helper()
		if r, err := e.Nack(bg, "jobs", &api.SettleRequest{Node: "w", Seqs: []uint64{seq}}); err != nil || r.Done != 1 {
			t.Fatal(r, err)
		}
	}
	nack(2)
	claimJobs(t, e, "jobs", "w", 1)
	nack(2)
	claimJobs(t, e, "jobs", "w", 1) // buries 2
	all := Totals{Appended: 5, Jobs: JobTotals{Claimed: 4, Nacked: 2, Acked: 1, Dead: 1}}
	want("after a dead letter", all)
	if _, err := e.DeleteTopic(bg, "jobs", false); err != nil {
		t.Fatal(err)
	}
	want("after the queue has ended", all)
	put(t, e, "jobs", configOf(api.Disk, queueConfig))
	write(t, e, "jobs", `1`)
	all.Appended++
	want("after the name is used again", all)
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	e = openOn(t, fs, "a")
	want("after a restart", Totals{})
	write(t, e, "jobs", `1`)
	want("after a write", Totals{Appended: 1})
}

// The busiest topics are queues, and among them those with most to do.
func TestTheBusiestTopicsComeFirst(t *testing.T) {
	e := openOn(t, vfs.NewMem(), "a")
	write(t, e, "log", `1`, `2`, `3`, `4`)
	for _, q := range []struct{ name, jobs string }{{"a", ""}, {"b", "12"}, {"c", "1"}} {
		put(t, e, q.name, configOf(api.Disk, queueConfig))
		for _, job := range q.jobs {
			write(t, e, q.name, string(job))
		}
	}
	for max, want := range map[int]string{1: "b", 2: "bc", 3: "bca"} {
		rows, more := e.Busiest(max, nil)
		got := ""
		for _, r := range rows {
			got += r.Topic
		}
		if got != want || !more {
			t.Errorf("the %d busiest are %q and there are more: %v", max, got, more)
		}
	}
	if rows, more := e.Busiest(2, func(name string) bool { return name == "log" }); len(rows) != 1 || more {
		t.Errorf("of one topic that may be seen: %v, %v", rows, more)
	}
}

// The age of a queue's oldest job that can be claimed is known wherever the job lies,
// and there is none while all jobs are with workers.
func TestTheOldestReadyJobIsKnown(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		e := openOn(t, vfs.NewMem(), "a")
		put(t, e, "jobs", configOf(api.Disk, queueConfig))
		begin := time.Now().UnixMilli()
		write(t, e, "jobs", `1`)
		time.Sleep(time.Minute)
		write(t, e, "jobs", `2`)
		oldest := func(mayRead bool, age time.Duration, wantRead bool) {
			t.Helper()
			want := int64(0)
			if age >= 0 {
				want = begin + age.Milliseconds()
			}
			if ts, read, err := e.OldestReady(bg, "jobs", mayRead); err != nil || ts != want || read != wantRead {
				t.Errorf("got %d, %v, %v; want %d", ts, read, err, want)
			}
		}
		oldest(false, 0, false)
		claimJobs(t, e, "jobs", "w", 1)
		oldest(false, time.Minute, false)
		sealNow(t, e)
		oldest(false, -1, false)
		oldest(true, time.Minute, true)
		oldest(false, time.Minute, false)
		claimJobs(t, e, "jobs", "w", 1)
		oldest(true, -1, false)
	})
}
