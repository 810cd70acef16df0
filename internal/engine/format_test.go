package engine

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A bit that flips in FORMAT must not make a directory look unused.
func TestDamagedFormatIsRefusedAndNothingIsRemoved(t *testing.T) {
	dir := t.TempDir()
	e := open(t, dir)
	write(t, e, "a", "1")
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(dir, "FORMAT")
	sound, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	for at := 0; at < len(sound)-1; at += sweepShare {
		bad := []byte(string(sound))
		bad[at] ^= 1
		if err := os.WriteFile(name, bad, 0o600); err != nil {
			t.Fatal(err)
		}
		e, err := Open(context.Background(), Options{Dir: dir, SegmentBytes: 1 << 20})
		if err == nil {
			// Only another boot id is not told from damage; it is the careful side.
			if got, _ := read(t, e, "a", 0); len(got) != 1 {
				t.Fatalf("bit of byte %d (%q): the record is gone", at, sound[at])
			}
			e.Close()
		} else if !strings.Contains(err.Error(), "format") && !strings.Contains(err.Error(), "FORMAT") {
			t.Fatalf("byte %d: %v", at, err)
		}
		if err := os.WriteFile(name, sound, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if got, _ := read(t, open(t, dir), "a", 0); len(got) != 1 {
		t.Fatal(got)
	}
}
