package wal

import (
	"runtime"
	"testing"
)

// FuzzReplay opens a log whose first segment is arbitrary bytes: it must not
// panic, nor allocate much more than it was given.
func FuzzReplay(f *testing.F) {
	_, files := small(f, true)
	for name, data := range files {
		if _, ok := parseSegName(name); ok {
			f.Add(data)
		}
	}
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, data []byte) {
		fs := restore(t, map[string][]byte{segName(1): data})
		r := &recovery{opt: Options{FS: fs, Dir: "wal"}.WithDefaults()}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_ = r.readLog(func(Op) error { return nil })
		runtime.ReadMemStats(&after)
		r.close()
		if got, limit := after.TotalAlloc-before.TotalAlloc, uint64(16*len(data)+64<<10); got > limit {
			t.Errorf("%d bytes allocated for an input of %d", got, len(data))
		}
	})
}
