package engine

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/weirmq/weir/internal/api"
)

// halfTagged writes n records in batches, every second one with the tag "drop".
func halfTagged(t testing.TB, e *Engine, topic string, n int) {
	t.Helper()
	for at := 0; at < n; at += 100 {
		req := &api.WriteRequest{}
		for i := at; i < min(n, at+100); i++ {
			r := api.Record{Data: fmt.Append(nil, i)}
			if i%2 == 0 {
				r.HasTag, r.Tag = true, []byte("drop")
			}
			req.Records = append(req.Records, r)
		}
		if _, err := e.Write(bg, topic, req); err != nil {
			t.Fatal(err)
		}
	}
}

var byTag = &api.DeleteRequest{Match: &api.Predicate{Value: "drop"}}

// A delete that finds many takes them in several operations and answers for all
// of them, wherever the records lie.
func TestADeleteOfManyRecordsIsSplit(t *testing.T) {
	for _, class := range []api.Durability{api.Disk, api.Ephemeral} {
		for _, kind := range []func(*api.Config){func(*api.Config) {}, queueConfig} {
			cfg := configOf(class, kind)
			t.Run(fmt.Sprint(class, cfg.Type), func(t *testing.T) {
				fs := vfs.NewMem()
				e := openOn(t, fs, "a", func(o *Options) { o.deleteBatch = 10 })
				put(t, e, "t", cfg)
				halfTagged(t, e, "t", 9000)
				sealNow(t, e)
				halfTagged(t, e, "t", 1000)
				before := e.log.Metrics().Frames
				res, err := e.DeleteRecords(bg, "t", byTag)
				if err != nil || res.Deleted != 5000 || res.Count != 5000 {
					t.Fatalf("%+v %v", res, err)
				}
				if n := e.log.Metrics().Frames - before; class == api.Disk && n < 2 {
					t.Errorf("%d operations", n)
				}
				check := func() {
					t.Helper()
					a, err := ask(e, "t")
					if err != nil {
						t.Fatal(err)
					}
					if len(a.records) != 5000 || a.state.Count != 5000 || a.state.Bytes != a.bytes || a.records[1] != "" || a.records[2] != "1" || a.records[9002] != "1" {
						t.Fatalf("%d records of %d bytes are left, counted %d of %d", len(a.records), a.bytes, a.state.Count, a.state.Bytes)
					}
				}
				check()
				if again, err := e.DeleteRecords(bg, "t", byTag); err != nil || again.Deleted != 0 || again.Count != 5000 {
					t.Fatalf("%+v %v", again, err)
				}
				if class != api.Ephemeral {
					if err := e.Close(); err != nil {
						t.Fatal(err)
					}
					e = openOn(t, fs, "a")
					check()
				}
			})
		}
	}
}

// While a delete reads, the topic and all others are used as ever.
func TestADeleteThatReadsHoldsNobodyUp(t *testing.T) {
	var armed atomic.Bool
	reading, release := make(chan struct{}), make(chan struct{})
	fs := errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(o errorfs.Op) error {
		if o.Kind == errorfs.OpFileReadAt && strings.Contains(o.Path, "/kv/") && armed.Swap(false) {
			close(reading)
			<-release
		}
		return nil
	}))
	e := openOn(t, fs, "a")
	put(t, e, "t", configOf(api.Disk))
	put(t, e, "u", configOf(api.Disk))
	halfTagged(t, e, "t", 5000)
	sealNow(t, e)
	armed.Store(true)
	done := make(chan api.DeleteResult)
	go func() {
		res, err := e.DeleteRecords(bg, "t", byTag)
		if err != nil {
			t.Error(err)
		}
		done <- res
	}()
	<-reading
	within(t, "a call beside a delete", func() {
		if list := e.Topics("", "", 10, false, nil); len(list.Topics) != 2 {
			t.Errorf("%+v", list)
		}
		for _, topic := range []string{"t", "u"} {
			if _, err := tryWrite(e, topic, "1"); err != nil {
				t.Error(err)
			}
		}
		req := &api.WriteRequest{Records: []api.Record{{Data: []byte("1"), HasTag: true, Tag: []byte("drop")}}}
		if _, err := e.Write(bg, "t", req); err != nil {
			t.Error(err)
		}
	})
	close(release)
	if res := <-done; res.Deleted != 2500 || res.Count != 2502 {
		t.Errorf("%+v: what came after the call is not its business", res)
	}
}

// What is deleted is said, also if the log fails in between.
func TestADeleteThatFailsHalfwaySaysHowManyAreGone(t *testing.T) {
	fs := newFaults(vfs.NewMem())
	e := openOn(t, fs, "a", func(o *Options) { o.deleteBatch = 10 })
	put(t, e, "t", configOf(api.Fsync))
	halfTagged(t, e, "t", 20_000)
	writes := 0
	fs.set(func(o errorfs.Op, _ int) error {
		if strings.Contains(o.Path, "/wal/") && o.Kind == errorfs.OpFileWriteAt {
			if writes++; writes > 2 {
				return syscall.EIO
			}
		}
		return nil
	})
	_, err := e.DeleteRecords(bg, "t", byTag)
	var known *api.Error
	if !api.IsCode(err, api.CodeInternal) {
		t.Fatal(err)
	}
	known = err.(*api.Error)
	gone, _ := known.Detail["deleted"].(uint64)
	if s := stateOf(t, e, "t"); gone == 0 || gone == 10_000 || s.Count != 20_000-gone {
		t.Fatalf("%d records are left, and the answer is %v %v", s.Count, err, known.Detail)
	}
	fs.set(nil)
	writable(t, e, "t", "1")
	res, err := e.DeleteRecords(bg, "t", byTag)
	if err != nil || res.Deleted != 10_000-gone || res.Count != 10_001 {
		t.Fatalf("%+v %v", res, err)
	}
}

// A delete whose caller is gone ends between two of its operations.
func TestADeleteEndsWithItsCaller(t *testing.T) {
	e := openOn(t, vfs.NewMem(), "a", func(o *Options) { o.deleteBatch = 1 })
	put(t, e, "t", configOf(api.Memory))
	data := make([]string, 2*deletePiece)
	for i := range data {
		data[i] = "1"
	}
	write(t, e, "t", data...)
	ctx, cancel := context.WithCancel(bg)
	cancel()
	_, err := e.DeleteRecords(ctx, "t", &api.DeleteRequest{HasBefore: true, BeforeSeq: 2*deletePiece - 1})
	if n := stateOf(t, e, "t").Count; err != context.Canceled || n != deletePiece {
		t.Errorf("%d of %d records are left, %v", n, len(data), err)
	}
}
