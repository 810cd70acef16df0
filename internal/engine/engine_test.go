package engine

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/weirmq/weir/internal/api"
)

// open opens an engine whose segments are small, so its writers wait as those of openOn.
func open(t *testing.T, dir string, with ...func(*Options)) *Engine {
	t.Helper()
	opt := Options{Dir: dir, SegmentBytes: 1 << 20, IngestTimeout: time.Minute}
	for _, f := range with {
		f(&opt)
	}
	e, err := Open(context.Background(), opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	return e
}

func write(t *testing.T, e *Engine, topic string, data ...string) api.WriteResult {
	t.Helper()
	req := &api.WriteRequest{}
	for _, d := range data {
		req.Records = append(req.Records, api.Record{Data: []byte(d)})
	}
	res, err := e.Write(context.Background(), topic, req)
	if err != nil {
		t.Fatal(err)
	}
	return res
}

func read(t *testing.T, e *Engine, topic string, from uint64) ([]string, api.DiffResult) {
	t.Helper()
	var got []string
	res, err := e.Diff(context.Background(), topic, &api.DiffRequest{FromSeq: from, Limit: 1000, MaxBatchBytes: 8 << 20}, func(r *api.Record) {
		got = append(got, fmt.Sprintf("%d=%s", r.Seq, r.Data))
	})
	if err != nil {
		t.Fatal(err)
	}
	return got, res
}

func TestWriteIsReadBack(t *testing.T) {
	dir := t.TempDir()
	e := open(t, dir)
	write(t, e, "a", "1", "2")
	res := write(t, e, "a", `"x"`)
	if res.FirstSeq != 3 || res.HeadSeq != 3 || res.Created {
		t.Fatalf("%+v", res)
	}
	got, d := read(t, e, "a", 1)
	if fmt.Sprint(got) != `[2=2 3="x"]` || !d.CaughtUp() || d.Tombstone != nil {
		t.Fatal(got, d)
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	e = open(t, dir)
	got, _ = read(t, e, "a", 0)
	if fmt.Sprint(got) != `[1=1 2=2 3="x"]` {
		t.Fatal(got)
	}
}

func TestSealedSegmentsAreReadBack(t *testing.T) {
	dir := t.TempDir()
	e := open(t, dir)
	payload := fmt.Sprintf("%q", make([]byte, 200))
	for i := 0; i < 200; i++ {
		batch := make([]string, 50)
		for k := range batch {
			batch[k] = payload
		}
		write(t, e, "a", batch...)
	}
	deadline := time.Now().Add(30 * time.Second)
	for e.Metrics().WAL.DebtSegments > 0 {
		if time.Now().After(deadline) {
			t.Fatal("segments were not sealed")
		}
		time.Sleep(10 * time.Millisecond)
	}
	check := func() {
		t.Helper()
		var n uint64
		for n < 10000 {
			got, d := read(t, e, "a", n)
			if d.Tombstone != nil || len(got) == 0 {
				t.Fatal(len(got), d)
			}
			n = d.NextFromSeq
		}
	}
	check()
	if len(e.reg.get("a").Index.Runs()) == 0 {
		t.Fatal("nothing was sealed")
	}
	e.Close()
	e = open(t, dir)
	check()
	if s, _ := e.Topic("a", false); s.Count != 10000 {
		t.Fatalf("%+v", s)
	}
}

func TestQueueHandsOutEachJobOnce(t *testing.T) {
	e := open(t, t.TempDir())
	cfg := api.DefaultConfig()
	cfg.Type = api.TypeQueue
	if _, err := e.PutTopic(context.Background(), "q", cfg); err != nil {
		t.Fatal(err)
	}
	write(t, e, "q", "1", "2", "3", "4", "5")
	var jobs []uint64
	res, err := e.Claim(context.Background(), "q", &api.ClaimRequest{Node: "w", Max: 2}, func(j *api.Job) { jobs = append(jobs, j.Seq) })
	if err != nil || res.Count != 2 || res.Ready != 3 || fmt.Sprint(jobs) != "[1 2]" {
		t.Fatal(res, err, jobs)
	}
	ack, err := e.Ack(context.Background(), "q", &api.SettleRequest{Node: "w", Seqs: []uint64{1, 1, 3}})
	if err != nil || ack.Done != 1 || fmt.Sprint(ack.Skipped) != "[1 3]" || ack.InFlight != 1 {
		t.Fatal(ack, err)
	}
}

func TestBackupHoldsWhatWasAcknowledged(t *testing.T) {
	e := open(t, t.TempDir())
	for i := range 100 {
		write(t, e, "a", fmt.Sprint(i))
	}
	dir := t.TempDir() + "/b"
	if err := e.Backup(context.Background(), dir); err != nil {
		t.Fatal(err)
	}
	write(t, e, "a", "1000")
	r := open(t, dir)
	got, d := read(t, r, "a", 0)
	if len(got) != 100 || got[99] != "100=99" || d.Tombstone != nil {
		t.Fatal(len(got), d)
	}
	if res := write(t, r, "a", "7"); res.FirstSeq <= 100 {
		t.Fatal(res)
	}
}
