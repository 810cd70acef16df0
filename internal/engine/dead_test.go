package engine

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/weirmq/weir/internal/api"
)

// deadJobs makes q a queue with jobs that have been delivered as often as they may be.
func deadJobs(t *testing.T, e *Engine, data ...string) {
	t.Helper()
	put(t, e, "q", configOf(api.Disk, queueConfig, func(c *api.Config) { c.MaxDeliveries, c.HasDeadLetter, c.DeadLetter = 1, true, "dead" }))
	write(t, e, "q", data...)
	var held [][]uint64
	for n := 0; n < len(data); {
		var seqs []uint64
		for _, j := range claimJobs(t, e, "q", "w", 1000) {
			seqs = append(seqs, j.Seq)
		}
		held, n = append(held, seqs), n+len(seqs)
	}
	for _, seqs := range held {
		if _, err := e.Nack(bg, "q", &api.SettleRequest{Node: "w", Seqs: seqs}); err != nil {
			t.Fatal(err)
		}
	}
}

func reject(records, bytes uint64) func(*api.Config) {
	return func(c *api.Config) { c.CapRecords, c.CapBytes, c.Discard = records, bytes, api.DiscardReject }
}

// A dead-letter topic that has room for some of the dead jobs takes those, and the others
// once there is room again: none waits for there to be room for all.
func TestDeadLettersMoveAsFarAsThereIsRoom(t *testing.T) {
	e := openOn(t, vfs.NewMem(), "a")
	put(t, e, "dead", configOf(api.Disk, reject(2, 0)))
	deadJobs(t, e, "1", "2", "3", "4", "5")
	for _, want := range []string{"[1=1 2=2]", "[3=3 4=4]", "[5=5]"} {
		if jobs := claimJobs(t, e, "q", "w", 1); len(jobs) > 0 {
			t.Fatalf("a dead job is handed out: %s", seqsOf(jobs))
		}
		if got, _ := mustFull(t, e, "dead"); fmt.Sprint(got) != want {
			t.Fatalf("dead letters %v, want %s; the queue is %+v", got, want, stateOf(t, e, "q").Queue)
		}
		if _, err := e.DeleteRecords(bg, "dead", &api.DeleteRequest{BeforeSeq: 99, HasBefore: true}); err != nil {
			t.Fatal(err)
		}
	}
	if q := stateOf(t, e, "q"); q.Count != 0 || q.Queue.DeadLettered != 5 {
		t.Errorf("%+v %+v", q.TopicCounters, q.Queue)
	}
}

// A letter that its topic can never hold is in nobody's way.
func TestADeadLetterThatIsTooLargeHoldsUpNoOther(t *testing.T) {
	e := openOn(t, vfs.NewMem(), "a")
	put(t, e, "dead", configOf(api.Disk, reject(0, 1000)))
	large := `"` + strings.Repeat("x", 1000) + `"`
	deadJobs(t, e, large, "2", large, "4")
	claimJobs(t, e, "q", "w", 1)
	if got, _ := mustFull(t, e, "dead"); fmt.Sprint(got) != "[1=2 2=4]" {
		t.Errorf("dead letters %.50v, want jobs 2 and 4", got)
	}
	if q := stateOf(t, e, "q"); q.Count != 2 || q.Queue.Ready != 2 || q.Queue.DeadLettered != 2 {
		t.Errorf("%+v %+v", q.TopicCounters, q.Queue)
	}
}

// Many dead jobs move in pieces: all at once may be more than the memory has, or than the log
// takes, which then took none of them ever.
func TestManyDeadJobsMoveInPieces(t *testing.T) {
	e := openOn(t, vfs.NewMem(), "a", func(o *Options) { o.SegmentBytes = 64 << 20 })
	var data []string
	for i := range 2500 {
		data = append(data, fmt.Sprint(i))
	}
	for range 40 {
		data = append(data, `"`+strings.Repeat("x", 100<<10)+`"`)
	}
	deadJobs(t, e, data...)
	claimJobs(t, e, "q", "w", 1)
	got, _ := mustFull(t, e, "dead")
	if len(got) != len(data) {
		t.Fatalf("%d dead letters, want %d", len(got), len(data))
	}
	for i, r := range got {
		if want := fmt.Sprintf("%d=%s", i+1, data[i]); r != want {
			t.Fatalf("dead letter %.50s, want %.50s", r, want)
		}
	}
	d := e.reg.get("dead")
	for _, r := range d.Index.Refs(nil, 0, d.Head) {
		if r.N > forwardStep || r.Len > 2*forwardBytes {
			t.Errorf("one operation holds %d letters, %d bytes", r.N, r.Len)
		}
	}
}

// A letter that dies again says where it died last, once: two queues that are each other's dead
// letters would make it longer each time.
func TestADeadLetterThatDiesAgainSaysWhereOnce(t *testing.T) {
	e := openOn(t, vfs.NewMem(), "a")
	for q, dead := range map[string]string{"ping": "pong", "pong": "ping"} {
		put(t, e, q, configOf(api.Disk, queueConfig, func(c *api.Config) { c.MaxDeliveries, c.HasDeadLetter, c.DeadLetter = 1, true, dead }))
	}
	meta := `{"a":[1,{"$dead_letter_from":"mine"}],"b":"x"`
	if _, err := e.Write(bg, "ping", &api.WriteRequest{Records: []api.Record{{Data: []byte("1"), Meta: []byte(meta + "}")}}}); err != nil {
		t.Fatal(err)
	}
	for i, q := range []string{"ping", "pong", "ping", "pong"} {
		job := claimJobs(t, e, q, "w", 1)[0]
		if _, err := e.Nack(bg, q, &api.SettleRequest{Node: "w", Seqs: []uint64{job.Seq}}); err != nil {
			t.Fatal(err)
		}
		claimJobs(t, e, q, "w", 1)
		dead := map[string]string{"ping": "pong", "pong": "ping"}[q]
		letter := claimJobs(t, e, dead, "look", 1)[0]
		if _, err := e.Nack(bg, dead, &api.SettleRequest{Node: "look", Seqs: []uint64{letter.Seq}, NotStarted: true}); err != nil {
			t.Fatal(err)
		}
		want := fmt.Sprintf(`%s,"$dead_letter_from":"%s","$dead_letter_deliveries":"1","$dead_letter_src_seq":"%d"}`, meta, q, job.Seq)
		if string(letter.Meta) != want {
			t.Fatalf("after %d deaths the meta is %s, want %s", i+1, letter.Meta, want)
		}
	}
}

// Two queues that are each other's dead letters bury in each other at once. Whoever moves a
// letter takes both locks in one order, whichever way it goes: while the first is taken the
// second stays free.
func TestQueuesThatBuryInEachOtherDoNotWaitForEachOther(t *testing.T) {
	e := openOn(t, vfs.NewMem(), "a")
	put(t, e, "ping", configOf(api.Disk, queueConfig))
	put(t, e, "pong", configOf(api.Disk, queueConfig))
	first, second := e.reg.get("ping"), e.reg.get("pong")
	for _, pair := range [][2]*entry{{first, second}, {second, first}} {
		first.mu.Lock()
		var both sync.WaitGroup
		both.Go(func() {
			lockBoth(pair[0], pair[1])
			unlockBoth(pair[0], pair[1])
		})
		for range 10_000 {
			runtime.Gosched()
			if !second.mu.TryLock() {
				t.Errorf("from %s to %s: the later lock is taken first", pair[0].Name, pair[1].Name)
				break
			}
			second.mu.Unlock()
		}
		first.mu.Unlock()
		both.Wait()
	}
}

// A claim is answered soon also where very many jobs are dead, and brings what lies behind them.
func TestAClaimMovesSomeOfVeryManyDeadLetters(t *testing.T) {
	e := openOn(t, vfs.NewMem(), "a")
	put(t, e, "dead", configOf(api.Disk))
	deadJobs(t, e, slices.Repeat([]string{"dead"}, 2*mostDead+1)...)
	write(t, e, "q", "alive")
	if jobs := claimJobs(t, e, "q", "w", 2); len(jobs) != 1 || string(jobs[0].Data) != "alive" {
		t.Fatalf("the job behind the dead ones: %s", seqsOf(jobs))
	}
	for _, want := range []uint64{mostDead, 2 * mostDead, 2*mostDead + 1} {
		if n := e.Count("dead"); n != want {
			t.Fatalf("%d letters, want %d", n, want)
		}
		claimJobs(t, e, "q", "w", 1)
	}
}
