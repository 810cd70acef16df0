package wal

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// fill appends operations of 10 KB, each with a content of its own, and returns them by place.
func fill(t *testing.T, l *Log, n int, class Class) map[Pos]string {
	t.Helper()
	all := map[Pos]string{}
	for i := range n {
		body := fmt.Sprintf("%010d", i) + string(bytes.Repeat([]byte{byte('a' + i%26)}, 10<<10))
		_, pos := add(t, l, "", body, class)
		all[pos] = body
	}
	return all
}

// What a reader was lent stays as it is until it gives that back, though the log has long
// gone on and needs memory.
func TestLentMemoryIsNotUsedAgain(t *testing.T) {
	l, _, _ := openLog(t, Options{FS: vfs.NewMem(), HotBytes: 2 * chunkBytes}, 0)
	defer mustClose(t, l)
	fill(t, l, 5, Synced) // the first chunk is small
	_, pos := add(t, l, "", "lent for long", Synced)
	var buf []byte
	b, loan, err := l.Lend(pos, &buf)
	if err != nil || buf != nil {
		t.Fatalf("what was just written is not in memory any more: %v", err)
	}
	fill(t, l, 200, Synced)
	if string(b) != "lent for long" {
		t.Errorf("the reader now sees %.20q", b)
	}
	loan.Return()
}

// What is not synced is needed until it is, however much that is: if the sync fails, it is
// written again from memory.
func TestWhatIsNotSyncedStaysInMemory(t *testing.T) {
	fs := newFaultFS(vfs.NewMem(), nil)
	opt := Options{FS: fs, HotBytes: 2 * chunkBytes, FlushEvery: time.Hour}
	l, _, _ := openLog(t, opt, 0)
	all := fill(t, l, 300, Written)
	fs.failSync()
	if err := l.Sync(); err == nil {
		t.Fatal("the sync did not fail")
	}
	if err := resumed(l); err != nil {
		t.Fatal(err)
	}
	for pos, body := range all {
		if got, err := l.Read(pos, nil); err != nil || string(got) != body {
			t.Fatalf("at %v: %.20q, %v", pos, got, err)
		}
	}
	mustClose(t, l)
	l, st, _ := openLog(t, opt, 0)
	defer mustClose(t, l)
	for _, op := range st.ops {
		found := false
		for _, body := range all {
			found = found || op.data == body
		}
		if !found {
			t.Fatalf("%.20q came back", op.data)
		}
	}
	if len(st.ops) != len(all) {
		t.Errorf("%d of %d operations came back", len(st.ops), len(all))
	}
}
