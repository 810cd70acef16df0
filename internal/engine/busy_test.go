package engine

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/tests/crashfs"
)

// busy is an engine whose clients write, ack, evict, delete and create topics
// again all the time. Each number of a topic has one possible content, so that
// every record of any copy can be judged.
type busy struct {
	t    *testing.T
	e    *Engine
	stop context.CancelFunc
	ctx  context.Context
	all  sync.WaitGroup

	written atomic.Uint64 // of each of the topics log and jobs
	rounds  atomic.Uint64 // of the slowest client: all kinds of operations went on
	mu      sync.Mutex
	acked   map[uint64]bool // of jobs, before the answer
	done    map[uint64]bool // of jobs, after the answer
}

const busyCap = 40

// load starts the clients; the test ends them with halt.
func load(t *testing.T, e *Engine) *busy {
	b := &busy{t: t, e: e, acked: map[uint64]bool{}, done: map[uint64]bool{}}
	b.ctx, b.stop = context.WithCancel(bg)
	put(t, e, "jobs", configOf(api.Disk, queueConfig))
	put(t, e, "log", configOf(api.Fsync))
	put(t, e, "capped", configOf(api.Disk, func(c *api.Config) { c.CapRecords = busyCap }))
	put(t, e, "pruned", configOf(api.Fsync))
	put(t, e, "copy", configOf(api.Fsync))
	putRouter(t, e, "r", "log", "copy")
	b.client(b.write)
	b.client(b.prune)
	b.client(b.again)
	b.client(func(i uint64) error { return b.work("a") })
	b.client(func(i uint64) error { return b.work("b") })
	return b
}

func (b *busy) client(round func(i uint64) error) {
	b.all.Go(func() {
		for i := uint64(0); b.ctx.Err() == nil; i++ {
			if err := round(i); err != nil {
				b.t.Errorf("a client of a busy engine: %v", err)
				return
			}
			b.rounds.Add(1)
		}
	})
}

func (b *busy) halt() {
	b.stop()
	b.all.Wait()
}

// content is what a number of a topic holds.
func content(topic string, seq uint64) string {
	return fmt.Sprintf("%q", strings.Repeat(fmt.Sprint(topic, seq, "."), 40))
}

func (b *busy) append(topic string, first uint64, n int, tag string) error {
	req := &api.WriteRequest{}
	for k := range n {
		r := api.Record{Data: []byte(content(topic, first+uint64(k)))}
		if tag != "" {
			r.Tag, r.HasTag = []byte(tag), true
		}
		req.Records = append(req.Records, r)
	}
	res, err := b.e.Write(bg, topic, req)
	if err == nil && res.FirstSeq != first {
		err = fmt.Errorf("the write to %s got number %d, want %d", topic, res.FirstSeq, first)
	}
	return err
}

func (b *busy) write(i uint64) error {
	for _, topic := range []string{"jobs", "log", "capped"} {
		if err := b.append(topic, i*5+1, 5, ""); err != nil {
			return err
		}
	}
	b.written.Store(i*5 + 5)
	return nil
}

func (b *busy) prune(i uint64) error {
	if err := b.append("pruned", i*6+1, 3, "x"); err != nil {
		return err
	}
	if err := b.append("pruned", i*6+4, 3, "y"); err != nil {
		return err
	}
	req := &api.DeleteRequest{HasBefore: true, BeforeSeq: i * 6}
	if i%3 != 0 {
		req = &api.DeleteRequest{Match: &api.Predicate{Value: "x"}}
	}
	_, err := b.e.DeleteRecords(bg, "pruned", req)
	return err
}

func (b *busy) again(i uint64) error {
	if err := b.append("again", 1, 4, ""); err != nil {
		return err
	}
	_, err := b.e.DeleteTopic(bg, "again", false)
	return err
}

func (b *busy) work(node string) error {
	var seqs []uint64
	_, err := b.e.Claim(bg, "jobs", &api.ClaimRequest{Node: node, Max: 4}, func(j *api.Job) { seqs = append(seqs, j.Seq) })
	if err != nil || len(seqs) == 0 {
		return err
	}
	b.mu.Lock()
	for _, s := range seqs {
		b.acked[s] = true
	}
	b.mu.Unlock()
	if _, err := b.e.Ack(bg, "jobs", &api.SettleRequest{Node: node, Seqs: seqs}); err != nil {
		return err
	}
	b.mu.Lock()
	for _, s := range seqs {
		b.done[s] = true
	}
	b.mu.Unlock()
	return nil
}

// more waits until every client has got on.
func (b *busy) more() {
	goal := b.written.Load() + 200
	for b.written.Load() < goal && !b.t.Failed() {
		if err := b.e.log.Sync(); err != nil {
			b.t.Fatal(err)
		}
	}
}

// before is what had been answered when a copy was begun.
type before struct {
	written uint64
	done    map[uint64]bool
}

func (b *busy) note() before {
	b.mu.Lock()
	defer b.mu.Unlock()
	return before{b.written.Load(), maps.Clone(b.done)}
}

// judge reads every record of a copy that was begun at x, and uses every verb.
func (b *busy) judge(name string, c *Engine, x before) {
	b.t.Helper()
	got := map[string][]uint64{}
	for _, topic := range []string{"log", "copy", "jobs", "capped", "pruned", "again"} {
		records, _, _, err := full(c, topic, 0)
		if err != nil && !(topic == "again" && strings.Contains(err.Error(), "not exist")) {
			b.t.Fatalf("%s: reading %s: %v", name, topic, err)
		}
		for _, r := range records {
			var seq uint64
			var data string
			if _, err := fmt.Sscanf(strings.Replace(r, "=", " ", 1), "%d %s", &seq, &data); err != nil {
				b.t.Fatal(err)
			}
			of := topic
			if topic == "copy" {
				of = "log"
			}
			if data != content(of, seq) {
				b.t.Fatalf("%s: number %d of %s holds %s", name, seq, topic, data)
			}
			got[topic] = append(got[topic], seq)
		}
	}
	for _, topic := range []string{"log", "copy"} {
		if n := uint64(len(got[topic])); n < x.written || n > 0 && got[topic][n-1] != n {
			b.t.Fatalf("%s: %s has %d records, %d were acknowledged before the copy", name, topic, n, x.written)
		}
	}
	if n := len(got["capped"]); n > busyCap || x.written > 0 && (n < busyCap || got["capped"][n-1] < x.written) {
		b.t.Fatalf("%s: capped has %v", name, got["capped"])
	}
	b.judgeJobs(name, got["jobs"], x)
	b.use(name, c)
}

func (b *busy) judgeJobs(name string, live []uint64, x before) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, seq := range live {
		if x.done[seq] {
			b.t.Fatalf("%s: job %d was acked before the copy and is back", name, seq)
		}
	}
	for seq := uint64(1); seq <= x.written; seq++ {
		if !b.acked[seq] && !slices.Contains(live, seq) {
			b.t.Fatalf("%s: job %d was written before the copy, nobody acked it, and it is not there", name, seq)
		}
	}
}

// use makes every call that changes something, moves all to the store, and
// closes the copy.
func (b *busy) use(name string, c *Engine) {
	b.t.Helper()
	for round := range 2 {
		for _, topic := range []string{"log", "jobs", "capped", "pruned", "again", "copy"} {
			if _, err := tryWrite(c, topic, `"new"`); err != nil {
				b.t.Fatalf("%s: writing to %s: %v", name, topic, err)
			}
		}
		for {
			jobs := claimJobs(b.t, c, "jobs", "w", 1000)
			if len(jobs) == 0 {
				break
			}
			var seqs []uint64
			for _, j := range jobs {
				seqs = append(seqs, j.Seq)
			}
			ack(b.t, c, "jobs", "w", seqs...)
		}
		for _, topic := range []string{"capped", "pruned", "log"} {
			if _, err := c.DeleteRecords(bg, topic, &api.DeleteRequest{HasBefore: true, BeforeSeq: uint64(10 + round)}); err != nil {
				b.t.Fatalf("%s: deleting in %s: %v", name, topic, err)
			}
		}
		if _, err := c.DeleteTopic(bg, "again", false); err != nil {
			b.t.Fatalf("%s: %v", name, err)
		}
		sealNow(b.t, c)
		if err := c.shrinkStore(new(draining)); err != nil {
			b.t.Fatalf("%s: giving space back: %v", name, err)
		}
	}
	if err := c.Close(); err != nil {
		b.t.Fatalf("%s: %v", name, err)
	}
}

func TestADirectoryRestoredFromABackupWithoutALogGoesOn(t *testing.T) {
	fs := vfs.NewMem()
	e := openOn(t, fs, "1")
	put(t, e, "a", configOf(api.Fsync))
	for range 3 {
		write(t, e, "a", content("a", 1))
		sealNow(t, e)
	}
	if err := e.Backup(bg, "/backup"); err != nil {
		t.Fatal(err)
	}
	if err := fs.RemoveAll("/backup/wal"); err != nil { // as backups were once
		t.Fatal(err)
	}
	c := openOn(t, fs, "2", func(o *Options) { o.Dir = "/backup" })
	for range 3 {
		write(t, c, "a", content("a", 2))
		sealNow(t, c)
	}
	if got, gaps := mustFull(t, c, "a"); len(got) != 6 || len(gaps) != 0 {
		t.Fatal(got, gaps)
	}
}

func TestABackupOfABusyEngineIsItsStateAtOneMoment(t *testing.T) {
	fs := vfs.NewMem()
	e := openOn(t, fs, "1")
	b := load(t, e)
	defer b.halt()
	for n := range busyBackups {
		b.more()
		x := b.note()
		dir := fmt.Sprint("/backup", n)
		if err := e.Backup(bg, dir); err != nil {
			t.Fatal(err)
		}
		verify(t, fs, dir)
		b.judge(dir, openOn(t, fs, "2", func(o *Options) { o.Dir = dir }), x)
	}
}

// verify reads a copy and wants it to be what its manifest says, and unchanged.
func verify(t *testing.T, fs vfs.FS, dir string) {
	t.Helper()
	before := tree(t, fs, dir, "")
	c, err := Verify(bg, Options{FS: fs, Dir: dir}, 0)
	if err != nil {
		t.Fatal(err)
	}
	var m Manifest
	if err := json.Unmarshal([]byte(before[ManifestName]), &m); err != nil {
		t.Fatal(err)
	}
	if c.LSN != m.LSN || c.Records == 0 {
		t.Fatalf("%s: %+v, its manifest says LSN %d", dir, c, m.LSN)
	}
	for _, f := range m.Files {
		if sum := sha256.Sum256([]byte(before[f.Name])); hex.EncodeToString(sum[:]) != f.SHA256 || f.Size != int64(len(before[f.Name])) {
			t.Fatalf("%s/%s is not what the manifest says", dir, f.Name)
		}
	}
	if len(m.Files)+1 != len(before) || !maps.Equal(before, tree(t, fs, dir, "")) {
		t.Fatalf("%s: verifying changed it, or it has files that its manifest does not name", dir)
	}
}

// tree reads all files below a directory.
func tree(t *testing.T, fs vfs.FS, dir, below string) map[string]string {
	t.Helper()
	files := map[string]string{}
	names, err := fs.List(fs.PathJoin(dir, below))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		rel := path.Join(below, name)
		info, err := fs.Stat(fs.PathJoin(dir, rel))
		if err != nil {
			t.Fatal(err)
		}
		if info.IsDir() {
			maps.Copy(files, tree(t, fs, dir, rel))
			continue
		}
		b, err := readFile(fs, fs.PathJoin(dir, rel))
		if err != nil {
			t.Fatal(err)
		}
		files[rel] = string(b)
	}
	return files
}

func TestABackupOfABusyEngineOutlivesAPowerCut(t *testing.T) {
	fs := crashfs.New()
	for life := range 3 {
		e := openOn(t, fs, fmt.Sprint(life))
		b := load(t, e)
		b.more()
		x := b.note()
		if err := e.Backup(bg, fmt.Sprint("/backup", life)); err != nil {
			t.Fatal(err)
		}
		cut := fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 50 * life, RNG: rand.New(rand.NewPCG(1, uint64(life)))})
		b.halt()
		b.judge("the backup", openOn(t, cut, "x", func(o *Options) { o.Dir = fmt.Sprint("/backup", life) }), x)
		b.judge("the directory", openOn(t, cut, "x"), before{}) // of class disk, anything may be lost
		fs = crashfs.New()
	}
}

func TestABackupRightAfterAStartHoldsEverything(t *testing.T) {
	for _, how := range []string{"fresh", "in the log", "in the store"} {
		fs := vfs.NewMem()
		e := openOn(t, fs, "1")
		put(t, e, "a", configOf(api.Fsync))
		if how != "fresh" {
			write(t, e, "a", `"x"`)
		}
		if how == "in the store" {
			sealNow(t, e)
		}
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
		// The log that Pebble is told not to use is not synced.
		for name := range tree(t, fs, "/data/kv", "") {
			if strings.HasSuffix(name, ".log") {
				if err := fs.Remove("/data/kv/" + name); err != nil {
					t.Fatal(err)
				}
			}
		}
		e = openOn(t, fs, "1")
		if err := e.Backup(bg, "/backup"); err != nil {
			t.Fatal(err)
		}
		c, err := Verify(bg, Options{FS: fs, Dir: "/backup"}, 0)
		if err != nil || c.Topics != 1 || how != "fresh" && c.Records != 1 {
			t.Fatalf("%s: %+v, %v", how, c, err)
		}
		b := openOn(t, fs, "2", func(o *Options) { o.Dir = "/backup" })
		write(t, b, "a", `"y"`)
		sealNow(t, b)
		if got, gaps := mustFull(t, b, "a"); len(gaps) != 0 || got[len(got)-1] != fmt.Sprintf(`%d="y"`, len(got)) {
			t.Fatal(how, got, gaps)
		}
	}
}
