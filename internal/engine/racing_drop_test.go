package engine

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/tests/crashfs"
)

// Whatever runs while topics end and are created again: the directory opens
// after a stop and after a kill, repair finds nothing in it, and every topic
// holds what it held.
func TestWhateverRacesWithTheEndOfATopicTheDirectoryOpens(t *testing.T) {
	for seed := range uint64(24) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) { raceWithDrops(t, seed) })
	}
}

func raceWithDrops(t *testing.T, seed uint64) {
	fs := crashfs.New()
	e := openOn(t, fs, "a", func(o *Options) { o.SegmentBytes = 16 << 10 })
	put(t, e, "keep", configOf(api.Fsync))
	var kept, ended atomic.Int64
	race(t, 6, func(i int) {
		u := &dropUser{t: t, e: e, ephemeral: seed%2 == 1, rnd: rand.New(rand.NewPCG(seed, uint64(i))), node: fmt.Sprint("w", i), kept: &kept, ended: &ended}
		for range 150 {
			u.step()
		}
	})
	if ended.Load() < 50 {
		t.Fatalf("only %d topics ended", ended.Load())
	}
	names := []string{"keep", "q", "dead", "copy", "cap"}
	before := map[string]*answer{}
	for _, name := range names {
		if e.TopicExists(name) {
			a, err := ask(e, name)
			if err != nil {
				t.Fatal(err)
			}
			before[name] = a
		}
	}
	if n := before["keep"].state.Count; n != uint64(kept.Load()) {
		t.Errorf("the topic that stays holds %d records, %d were acknowledged", n, kept.Load())
	}
	killed := fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rand.New(rand.NewPCG(seed, 99))})
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	for how, fs := range map[string]vfs.FS{"stopped": fs, "killed": killed} {
		var report strings.Builder
		if n, err := Repair(bg, Options{Dir: "/data", FS: fs, BootID: "a", SegmentBytes: 16 << 10}, false, &report); n != 0 || err != nil {
			t.Errorf("%s: repair finds %d places, %v: %s", how, n, err, report.String())
		}
		again, err := Open(bg, Options{Dir: "/data", FS: fs, BootID: "a", SegmentBytes: 16 << 10})
		if err != nil {
			t.Fatalf("%s: %v", how, err)
		}
		for _, name := range names {
			if again.TopicExists(name) != (before[name] != nil) {
				t.Errorf("%s: topic %s is there: %v", how, name, again.TopicExists(name))
			} else if before[name] != nil {
				a, err := ask(again, name)
				if err != nil {
					t.Fatal(how, err)
				}
				if seed%2 == 1 && name == "cap" {
					continue
				}
				if !maps.Equal(a.records, before[name].records) || a.state.HeadSeq < before[name].state.HeadSeq || a.state.Count != before[name].state.Count {
					t.Errorf("%s: topic %s holds %d of %d records", how, name, len(a.records), len(before[name].records))
				}
			}
		}
		again.Close()
	}
}

// dropUser is one of several that use the same few topics and end them.
type dropUser struct {
	t           *testing.T
	e           *Engine
	rnd         *rand.Rand
	node        string
	ephemeral   bool // one of the topics loses its records with the process at times
	kept, ended *atomic.Int64
}

func (u *dropUser) fine(what string, err error) {
	for _, code := range []api.Code{api.CodeTopicNotFound, api.CodeNotAQueue, api.CodeTopicExistsIncompatible} {
		if api.IsCode(err, code) {
			return
		}
	}
	if err != nil {
		u.t.Errorf("%s: %v", what, err)
	}
}

func (u *dropUser) step() {
	e, t := u.e, u.t
	data := fmt.Sprintf("%q", strings.Repeat("x", 20+u.rnd.IntN(200)))
	switch u.rnd.IntN(12) {
	case 0:
		if _, err := tryWrite(e, "keep", data); err != nil {
			t.Error(err)
		}
		u.kept.Add(1)
	case 1, 2:
		name := []string{"q", "dead", "copy", "cap"}[u.rnd.IntN(4)]
		res, err := e.DeleteTopic(bg, name, false)
		u.fine("drop of "+name, err)
		if res.Deleted {
			u.ended.Add(1)
		}
	case 3:
		_, err := e.PutTopic(bg, "q", configOf(api.Disk, queueConfig, func(c *api.Config) {
			c.LeasesDurable, c.HasDeadLetter, c.DeadLetter, c.MaxDeliveries = true, true, "dead", 1
			c.ClaimJitterMS = uint32(u.rnd.IntN(2))
		}))
		u.fine("put", err)
		_, err = e.PutRouter(bg, "r", api.RouterConfig{Source: "q", Dest: "copy", CreateDest: true})
		u.fine("router", err)
	case 4:
		cfg := configOf([]api.Durability{api.Disk, api.Fsync}[u.rnd.IntN(2)])
		if u.ephemeral && u.rnd.IntN(2) == 0 {
			cfg.Durability = api.Ephemeral
		}
		cfg.CapRecords = 5 + u.rnd.Uint64N(20)
		_, err := e.PutTopic(bg, "cap", cfg)
		u.fine("put", err)
	case 5, 6:
		_, err := tryWrite(e, "q", data, data, data)
		u.fine("write", err)
		_, err = tryWrite(e, "cap", data, data)
		u.fine("write", err)
	case 7, 8, 9:
		u.work()
	case 10:
		_, err := e.Diff(bg, "copy", &api.DiffRequest{Limit: 100, MaxBatchBytes: 1 << 20}, func(*api.Record) {})
		u.fine("read", err)
		_, err = e.DeleteRecords(bg, "cap", &api.DeleteRequest{HasBefore: true, BeforeSeq: 4})
		u.fine("delete", err)
	case 11:
		w, err := e.OpenWork(bg, "q", &api.ClaimRequest{Node: u.node, Max: 3})
		u.fine("work", err)
		if err == nil {
			_, err = w.Next(bg, func(*api.Job) {})
			u.fine("push", err)
			w.Close()
		}
	}
}

// work claims jobs and settles them in every way.
func (u *dropUser) work() {
	var seqs []uint64
	_, err := u.e.Claim(bg, "q", &api.ClaimRequest{Node: u.node, Max: 4}, func(j *api.Job) { seqs = append(seqs, j.Seq) })
	u.fine("claim", err)
	if len(seqs) == 0 {
		return
	}
	_, err = u.e.Extend(bg, "q", &api.SettleRequest{Node: u.node, Seqs: seqs, LeaseMS: 1000})
	u.fine("extend", err)
	_, err = u.e.Ack(bg, "q", &api.SettleRequest{Node: u.node, Seqs: seqs[:1]})
	u.fine("ack", err)
	_, err = u.e.Nack(bg, "q", &api.SettleRequest{Node: u.node, Seqs: seqs[1:]})
	u.fine("nack", err)
}
