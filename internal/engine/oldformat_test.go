package engine

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/internal/op"
)

var writeFormat = flag.String("write-format", "", "write a data directory of the present format as testdata/format/`NAME`")

const formatDir = "../../testdata/format"

// expectation is what a server of a stored directory answers.
type expectation struct {
	SegmentBytes int64                  `json:"segment_bytes"`
	Now          int64                  `json:"now"` // Unix ms at which the answers hold
	Topics       map[string]topicAnswer `json:"topics"`
	Keys         []keyAnswer            `json:"keys"`
	Claims       map[string][]string    `json:"claims"`            // of a queue: what one claim of everything hands out now
	Later        map[string][]string    `json:"later"`             // the same a day later
	Watches      map[string]string      `json:"watches,omitempty"` // by wid, what a stream begins with
}

type topicAnswer struct {
	State string   `json:"state"`
	Diff  []string `json:"diff"`
}

// keyAnswer is an idempotency key whose batch is known.
type keyAnswer struct {
	Topic    string `json:"topic"`
	Key      string `json:"key"`
	FirstSeq uint64 `json:"first_seq"`
	LastSeq  uint64 `json:"last_seq"`
}

// Every data directory that a release could have left is opened, and answers
// as it did when it was written.
func TestEveryOlderFormatOpens(t *testing.T) {
	if *writeFormat != "" {
		writeDirectory(t, filepath.Join(formatDir, *writeFormat))
	}
	names, err := os.ReadDir(formatDir)
	if err != nil || len(names) == 0 {
		t.Fatal("no stored directory: ", err)
	}
	for _, n := range names {
		t.Run(n.Name(), func(t *testing.T) {
			b, err := os.ReadFile(filepath.Join(formatDir, n.Name(), "expect.json"))
			if err != nil {
				t.Fatal(err)
			}
			var want expectation
			if err := json.Unmarshal(b, &want); err != nil {
				t.Fatal(err)
			}
			got := want
			got.observe(t, filepath.Join(formatDir, n.Name(), "data"))
			if lines := differences(want, got); len(lines) > 0 {
				t.Error(strings.Join(lines, "\n"))
			}
		})
	}
}

// observe fills in the answers of a copy of the directory. What is not an
// answer (sizes, time, names of keys and queues) must be there.
func (x *expectation) observe(t *testing.T, dir string) {
	t.Helper()
	work := filepath.Join(t.TempDir(), "data")
	if err := os.CopyFS(work, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	w := &wall{}
	at := time.UnixMilli(x.Now)
	set := func(o *Options) {
		o.SegmentBytes, o.BootID = x.SegmentBytes, "later"
		o.Now = func() time.Time { return at.Add(time.Duration(w.offset.Load())) }
	}
	e := open(t, work, set)
	x.Topics = map[string]topicAnswer{}
	for _, n := range e.Topics("", "", 1000, false, nil).Topics {
		x.Topics[n.Topic] = answerOf(t, e, n.Topic)
	}
	keys := slices.Clone(x.Keys)
	for i, k := range keys {
		res, err := e.Write(bg, k.Topic, &api.WriteRequest{
			IdempotencyKey: []byte(k.Key), HasIdempotencyKey: true, Records: []api.Record{{Data: []byte("1")}}})
		if err != nil || !res.Deduped {
			t.Errorf("the key %s of topic %s is not known any more: %+v %v", k.Key, k.Topic, res, err)
		}
		keys[i].FirstSeq, keys[i].LastSeq = res.FirstSeq, res.LastSeq
	}
	x.Keys = keys
	watches := map[string]string{}
	for wid := range x.Watches {
		watches[wid] = string(streamOnce(t, e, wid))
	}
	x.Watches = watches
	x.Claims = claimEverything(t, e, x.Claims)
	w.jump(24 * time.Hour)
	x.Later = claimEverything(t, e, x.Claims)
	before := stateOf(t, e, "log-fsync").HeadSeq
	if res := write(t, e, "log-fsync", "1"); res.FirstSeq != before+1 {
		t.Errorf("the first new record gets number %d, want %d", res.FirstSeq, before+1)
	}
	if err := e.Close(); err != nil {
		t.Error(err)
	}
}

func claimEverything(t *testing.T, e *Engine, queues map[string][]string) map[string][]string {
	t.Helper()
	all := map[string][]string{}
	for queue := range queues {
		all[queue] = []string{}
		for _, j := range claimJobs(t, e, queue, "observer", 1000) {
			all[queue] = append(all[queue], fmt.Sprintf("%d delivery %d %s%s", j.Seq, j.Deliveries, j.Data, flowText(&j.Record)))
		}
	}
	return all
}

// streamOnce reads what a stream of the session begins with.
func streamOnce(t *testing.T, e *Engine, wid string) []byte {
	t.Helper()
	s, err := e.OpenStream(wid, "")
	if err != nil {
		t.Error(err)
		return nil
	}
	defer s.Close()
	b, err := s.Next(bg, nil)
	if err != nil {
		t.Error(err)
	}
	s.Sent()
	return b
}

func answerOf(t *testing.T, e *Engine, topic string) (a topicAnswer) {
	t.Helper()
	s := stateOf(t, e, topic)
	a.State = fmt.Sprintf("%s %s head %d earliest %d count %d bytes %d last_write %d ready %d in_flight %d dead_lettered %d config %s",
		s.Config.Type, s.Config.Durability, s.HeadSeq, s.EarliestSeq, s.Count, s.Bytes, s.LastWriteTS,
		s.Queue.Ready, s.Queue.InFlight, s.Queue.DeadLettered, api.AppendConfig(nil, &s.Config))
	for from := uint64(0); ; {
		res, err := e.Diff(bg, topic, &api.DiffRequest{FromSeq: from, Limit: 7, MaxBatchBytes: 8 << 20, IncludeTags: true, IncludeMeta: true}, func(r *api.Record) {
			a.Diff = append(a.Diff, fmt.Sprintf("%d ts %d node %v %q tag %v %q meta %s data %s%s", r.Seq, r.TS, r.HasNode, r.Node, r.HasTag, r.Tag, r.Meta, r.Data, flowText(r)))
		})
		if err != nil {
			t.Fatalf("read of topic %s at %d: %v", topic, from, err)
		}
		if g := res.Tombstone; g != nil {
			a.Diff = append(a.Diff, fmt.Sprintf("gap %d to %d %s missed %d", g.GapFrom, g.GapTo, g.Reason, g.MissedEstimate))
		}
		if res.CaughtUp() || res.NextFromSeq <= from {
			return a
		}
		from = res.NextFromSeq
	}
}

// differences lists what differs, one line each.
func differences(want, got expectation) (lines []string) {
	cmp := func(what string, w, g any) {
		if a, b := fmt.Sprint(w), fmt.Sprint(g); a != b {
			lines = append(lines, fmt.Sprintf("%s is\n\t%.2000s\nwant\n\t%.2000s", what, b, a))
		}
	}
	for name, w := range want.Topics {
		g, ok := got.Topics[name]
		if !ok {
			lines = append(lines, "topic "+name+" is missing")
			continue
		}
		cmp("the state of "+name, w.State, g.State)
		cmp("the content of "+name, w.Diff, g.Diff)
	}
	cmp("the number of topics", len(want.Topics), len(got.Topics))
	cmp("the answer to known keys", want.Keys, got.Keys)
	for wid := range want.Watches {
		cmp("what watch session "+wid+" begins with", want.Watches[wid], got.Watches[wid])
	}
	cmp("what a claim hands out", want.Claims, got.Claims)
	cmp("what a claim a day later hands out", want.Later, got.Later)
	return lines
}

// flowText is the tier and the fair key of a record that has them.
func flowText(r *api.Record) string {
	if f := op.FlowOf(r); !f.Plain() {
		return fmt.Sprintf(" tier %s key %q", f.Tier, f.Key)
	}
	return ""
}
