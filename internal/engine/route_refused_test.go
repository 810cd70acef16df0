package engine

import (
	"fmt"
	"log/slog"
	"strings"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/tests/capture"
)

// A router whose creation could not be synced, and was refused, has copied
// nothing, though its source was written and its destination read meanwhile.
func TestARefusedRouterHasCopiedNothing(t *testing.T) {
	fs := newFaults(vfs.NewMem())
	e := openOn(t, fs, "a")
	put(t, e, "in", configOf(api.Disk))
	put(t, e, "out", configOf(api.Disk))
	gate := make(chan struct{})
	fs.set(func(o errorfs.Op, _ int) error {
		if strings.Contains(o.Path, "/wal/") && (o.Kind == errorfs.OpFileSync || o.Kind == errorfs.OpFileSyncData || o.Kind == errorfs.OpFileSyncTo) {
			fs.mu.Unlock()
			<-gate
			fs.mu.Lock()
			return syscall.EIO
		}
		return nil
	})
	refused := make(chan error)
	go func() {
		_, err := e.PutRouter(bg, "r", api.RouterConfig{Source: "in", Dest: "out", CreateDest: true})
		refused <- err
	}()
	planned(t, e, "in", (*entry).hasRouters)
	write(t, e, "in", "1", "2")
	if records, _ := mustFull(t, e, "out"); len(records) > 0 {
		t.Errorf("%v are there before the router is", records)
	}
	close(gate)
	if err := <-refused; !api.IsCode(err, api.CodeInternal) {
		t.Fatalf("the router: %v", err)
	}
	fs.set(nil)
	writable(t, e, "in", "3")
	if records, _ := mustFull(t, e, "out"); len(records) > 0 {
		t.Errorf("a refused router has copied %v", records)
	}
	if _, err := e.PutRouter(bg, "r", api.RouterConfig{Source: "in", Dest: "out", CreateDest: true}); err != nil {
		t.Fatal(err)
	}
	write(t, e, "in", "4")
	if records, _ := mustFull(t, e, "out"); fmt.Sprint(records) != "[1=4]" {
		t.Errorf("%v", records)
	}
}

// A router that stands in front of a record that its destination can never hold
// is counted, and told once with what to do; room for it lets it go on.
func TestARouterThatCanNeverGoOnIsTold(t *testing.T) {
	var log routerLog
	e := openOn(t, vfs.NewMem(), "a", log.set)
	put(t, e, "in", configOf(api.Disk))
	put(t, e, "out", configOf(api.Disk, func(c *api.Config) { c.CapBytes, c.Discard = 10, api.DiscardReject }))
	if _, err := e.PutRouter(bg, "r", api.RouterConfig{Source: "in", Dest: "out"}); err != nil {
		t.Fatal(err)
	}
	write(t, e, "in", `"small"`, `"small"`)
	if records, _ := mustFull(t, e, "out"); len(records) != 1 {
		t.Fatalf("%v", records)
	}
	if n := e.Metrics().RoutersStopped; n != 0 {
		t.Errorf("%d routers are counted as stopped while the destination is only full", n)
	}
	write(t, e, "in", `"larger than ten bytes"`, `"small"`)
	for range 2 {
		if _, err := e.DeleteRecords(bg, "out", &api.DeleteRequest{HasBefore: true, BeforeSeq: 9}); err != nil {
			t.Fatal(err)
		}
		mustFull(t, e, "out")
	}
	for range 3 {
		mustFull(t, e, "out")
	}
	if n := e.Metrics().RoutersStopped; n != 1 {
		t.Errorf("%d routers are counted as stopped", n)
	}
	if n := log.count("can never hold"); n != 1 {
		t.Errorf("told %d times:\n%s", n, log.String())
	}
	put(t, e, "out", configOf(api.Disk, func(c *api.Config) { c.CapBytes, c.Discard = 1000, api.DiscardReject }))
	if records, _ := mustFull(t, e, "out"); len(records) != 2 {
		t.Errorf("%v", records)
	}
	if n := e.Metrics().RoutersStopped; n != 0 {
		t.Errorf("%d routers are counted as stopped after there is room", n)
	}
}

// Deleting the record that does not fit lets the router go on too, and is no
// longer counted though nothing is left to copy.
func TestAStoppedRouterGoesOnOverADeletedRecord(t *testing.T) {
	e := openOn(t, vfs.NewMem(), "a")
	put(t, e, "in", configOf(api.Disk))
	put(t, e, "out", configOf(api.Disk, func(c *api.Config) { c.CapBytes, c.Discard = 10, api.DiscardReject }))
	if _, err := e.PutRouter(bg, "r", api.RouterConfig{Source: "in", Dest: "out"}); err != nil {
		t.Fatal(err)
	}
	write(t, e, "in", `"larger than ten bytes"`)
	mustFull(t, e, "out")
	if n := e.Metrics().RoutersStopped; n != 1 {
		t.Fatalf("%d routers are counted as stopped", n)
	}
	if _, err := e.DeleteRecords(bg, "in", &api.DeleteRequest{HasBefore: true, BeforeSeq: 2}); err != nil {
		t.Fatal(err)
	}
	mustFull(t, e, "out")
	if n := e.Metrics().RoutersStopped; n != 0 {
		t.Errorf("%d routers are counted as stopped after the record was deleted", n)
	}
	write(t, e, "in", `"small"`)
	if records, _ := mustFull(t, e, "out"); len(records) != 1 {
		t.Errorf("%v", records)
	}
}

// routerLog is what an engine logs.
type routerLog struct{ capture.Buffer }

func (l *routerLog) set(o *Options) { o.Logger = slog.New(slog.NewTextHandler(l, nil)) }

func (l *routerLog) count(text string) int { return strings.Count(l.String(), text) }
