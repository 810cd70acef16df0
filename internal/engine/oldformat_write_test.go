package engine

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weirmq/weir/internal/api"
)

// writeDirectory stores a directory of the present format, with some of
// everything that has a place in it, and what a server of it answers.
func writeDirectory(t *testing.T, dir string) {
	t.Helper()
	data := filepath.Join(dir, "data")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatalf("a stored directory is never written again: %v", err)
	}
	x := expectation{SegmentBytes: 64 << 10, Claims: map[string][]string{"jobs": nil, "jobs-durable": nil, "jobs-tiers": nil, "jobs-later": nil}}
	w := &wall{}
	e := open(t, data, w.set, func(o *Options) { o.SegmentBytes, o.BootID = x.SegmentBytes, "writer" })
	createAll(t, e)
	write(t, e, "log-fsync", "1", "2")
	x.Watches = map[string]string{newSession(t, e, api.WatchTopic{Topic: "log-fsync"}, api.WatchTopic{Topic: "trimmed"}): "", newSession(t, e, api.WatchTopic{Topic: "log-disk"}): ""}
	x.writePart(t, e, "sealed")
	w.jump(time.Second) // the records of topic timed are over
	sealNow(t, e)
	for wid := range x.Watches { // both have come further than the store knows
		streamOnce(t, e, wid)
	}
	x.Watches[newSession(t, e, api.WatchTopic{Topic: "log-fsync", FromSeq: 3})] = ""
	x.writePart(t, e, "unsealed")
	w.jump(time.Second)
	x.Now = e.clock()
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	// Files that only say who is running, or hold room, are not part of the format.
	err := filepath.WalkDir(data, func(path string, d fs.DirEntry, err error) error {
		if err == nil && (d.Name() == "LOCK" || d.Name() == "PID" || d.Name() == "BALLAST") {
			return os.Remove(path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	x.observe(t, data)
	b, err := json.MarshalIndent(x, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "expect.json"), append(b, '\n'), 0o644); err != nil {
		t.Fatal(err)
	}
}

func createAll(t *testing.T, e *Engine) {
	t.Helper()
	for d := api.Ephemeral; d <= api.Fsync; d++ {
		put(t, e, "log-"+d.String(), configOf(d))
	}
	put(t, e, "capped", configOf(api.Disk, func(c *api.Config) { c.CapRecords = 6 }))
	put(t, e, "capped-bytes", configOf(api.Disk, func(c *api.Config) { c.CapBytes = 600 }))
	put(t, e, "timed", configOf(api.Disk, func(c *api.Config) { c.TTLMS = 1 }))
	put(t, e, "trimmed", configOf(api.Fsync, func(c *api.Config) { c.Priority, c.HasPriority = -3, true }))
	put(t, e, "dead", configOf(api.Disk))
	for name, c := range map[string]api.RouterConfig{
		"plain":  {Source: "log-disk", Dest: "routed", PreserveNode: true, PreserveTag: true, CreateDest: true},
		"tagged": {Source: "trimmed", Dest: "routed-tagged", PreserveTag: true, CreateDest: true, Guarantee: api.ExactlyOnce, Filter: &api.Predicate{Value: "keep"}},
		"chain":  {Source: "routed", Dest: "routed-on", PreserveNode: true, CreateDest: true},
	} {
		if _, err := e.PutRouter(bg, name, c); err != nil {
			t.Fatal(err)
		}
	}
	mortal := func(c *api.Config) {
		c.MaxDeliveries, c.HasDeadLetter, c.DeadLetter, c.LeaseMS = 1, true, "dead", 3_600_000
	}
	put(t, e, "jobs", configOf(api.Fsync, queueConfig, mortal))
	put(t, e, "jobs-later", configOf(api.Fsync, queueConfig))
	put(t, e, "jobs-tiers", configOf(api.Fsync, queueConfig, func(c *api.Config) { c.LeasesDurable, c.LeaseMS = true, 3_600_000 }))
	put(t, e, "jobs-in-time", configOf(api.Disk, queueConfig, func(c *api.Config) { c.WaitSLOMS = 86_400_000 }))
	put(t, e, "jobs-durable", configOf(api.Fsync, queueConfig, func(c *api.Config) { c.LeasesDurable, c.LeaseMS = true, 3_600_000 }))
}

// writePart makes one round of all calls that leave something behind.
func (x *expectation) writePart(t *testing.T, e *Engine, part string) {
	t.Helper()
	batch := func(n int) (data []string) {
		for i := range n {
			data = append(data, fmt.Sprintf(`{"part":%q,"i":%d,"text":%q}`, part, i, strings.Repeat("поток ", i%5)))
		}
		return data
	}
	for d := api.Ephemeral; d <= api.Fsync; d++ {
		write(t, e, "log-"+d.String(), batch(12)...)
		write(t, e, "log-"+d.String(), batch(1)...)
	}
	for _, topic := range []string{"capped", "capped-bytes", "timed"} {
		write(t, e, topic, batch(9)...)
	}
	x.writeKeyed(t, e, part)
	x.writeTagged(t, e, part)

	for _, queue := range []string{"jobs", "jobs-durable"} {
		write(t, e, queue, batch(8)...)
		jobs := claimJobs(t, e, queue, "worker", 4)
		ack(t, e, queue, "worker", jobs[0].Seq, jobs[2].Seq)
		if _, err := e.Nack(bg, queue, &api.SettleRequest{Node: "worker", Seqs: []uint64{jobs[1].Seq}}); err != nil {
			t.Fatal(err)
		}
	}
	// The clock of leases is the real one: these are due long before anybody looks, or long after.
	for _, ms := range []uint64{1, api.MaxDelayMS} {
		writeRecords(t, e, "jobs-later", later("1", ms))
	}
	writeFlows(t, e, "jobs-tiers", "", ":a", ":a", "bulk", "critical:a", "high", "background:b")
	claimJobs(t, e, "jobs-tiers", "worker", 2)
	claimJobs(t, e, "jobs", "worker", 1) // takes the job that was given back to the dead letters

	for _, again := range []int{1, 2} {
		write(t, e, "again-"+part, batch(again)...)
		if again == 1 {
			if _, err := e.DeleteTopic(bg, "again-"+part, false); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func (x *expectation) writeKeyed(t *testing.T, e *Engine, part string) {
	t.Helper()
	k := keyAnswer{Topic: "log-fsync", Key: "key of the " + part + " part"}
	req := &api.WriteRequest{IdempotencyKey: []byte(k.Key), HasIdempotencyKey: true,
		Records: []api.Record{{Data: []byte(`"keyed"`), Meta: []byte(`{"m":1}`)}, {Data: []byte("null"), Node: []byte("node-1"), HasNode: true}}}
	if _, err := e.Write(bg, k.Topic, req); err != nil {
		t.Fatal(err)
	}
	x.Keys = append(x.Keys, k)
}

func (x *expectation) writeTagged(t *testing.T, e *Engine, part string) {
	t.Helper()
	req := &api.WriteRequest{}
	for _, tag := range []string{"keep", "drop.1", "keep", "drop.2", ""} {
		req.Records = append(req.Records, api.Record{Data: []byte(`"` + part + `"`), Tag: []byte(tag), HasTag: true})
	}
	res, err := e.Write(bg, "trimmed", req)
	if err != nil {
		t.Fatal(err)
	}
	for _, del := range []*api.DeleteRequest{
		{Match: &api.Predicate{Glob: true, Value: "drop."}},
		{HasBefore: true, BeforeSeq: res.FirstSeq + 1},
	} {
		if _, err := e.DeleteRecords(bg, "trimmed", del); err != nil {
			t.Fatal(err)
		}
	}
}
