package engine

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/weirmq/weir/internal/api"
)

func TestDamageStopsTheStartAndRepairMarksTheGap(t *testing.T) {
	dir := t.TempDir()
	e := open(t, dir)
	cfg := api.DefaultConfig()
	cfg.Durability = api.Fsync
	if _, err := e.PutTopic(context.Background(), "a", cfg); err != nil {
		t.Fatal(err)
	}
	for _, d := range []string{`"first"`, `"second"`, `"third"`} {
		write(t, e, "a", d)
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(dir, "wal", "*.wal"))
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	b, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	at := bytes.Index(b, []byte("second"))
	b[at] ^= 1
	if err := os.WriteFile(files[0], b, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = Open(context.Background(), Options{Dir: dir, SegmentBytes: 1 << 20})
	if err == nil || !strings.Contains(err.Error(), files[0]) || !strings.Contains(err.Error(), "weir repair") {
		t.Fatalf("a start over damage: %v", err)
	}
	var report strings.Builder
	n, err := Repair(bg, Options{Dir: dir, SegmentBytes: 1 << 20}, false, &report)
	if n != 1 || err != nil || !strings.Contains(report.String(), files[0]) {
		t.Fatal(n, err, report.String())
	}
	if n, err = Repair(bg, Options{Dir: dir, SegmentBytes: 1 << 20}, true, &report); n != 1 || err != nil {
		t.Fatal(n, err, report.String())
	}
	e = open(t, dir)
	got, d := read(t, e, "a", 0)
	if len(got) != 1 || got[0] != `1="first"` || d.NextFromSeq != 1 {
		t.Fatal(got, d)
	}
	got, d = read(t, e, "a", 1)
	if d.Tombstone == nil || d.Tombstone.GapFrom != 2 || d.Tombstone.GapTo != 2 || d.Tombstone.Reason != api.ReasonCrash || len(got) != 1 || got[0] != `3="third"` {
		t.Fatal(got, d, d.Tombstone)
	}
}

// Who has lost FORMAT does not know which machine wrote last: what another one may have lost is
// announced, also if the repair is made on the same one.
func TestARepairOfFormatAnnouncesWhatMayBeLost(t *testing.T) {
	fs := vfs.NewMem()
	e := openOn(t, fs, "a")
	put(t, e, "t", configOf(api.Disk))
	write(t, e, "t", "1", "2")
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	if err := replaceFile(fs, "/data", "FORMAT", []byte("{")); err != nil {
		t.Fatal(err)
	}
	var report strings.Builder
	if n, err := Repair(bg, optionsOn(fs, "a"), true, &report); n != 1 || err != nil || !strings.Contains(report.String(), "FORMAT: written anew") {
		t.Fatalf("%d, %v: %s", n, err, report.String())
	}
	wantFull(t, openOn(t, fs, "a"), "t", "[1=1 2=2]", "[3-1024 crash]")
}
