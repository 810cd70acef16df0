package wal

import "testing"

// Marked damage costs exactly the operations that Open then names as a gap.
func TestMarkedDamageIsSkippedAndNamed(t *testing.T) {
	o, files := small(t, true)
	for name, data := range files {
		number, ok := parseSegName(name)
		if !ok {
			continue
		}
		for at := segHeaderSize; at < len(data); at += 97 {
			data[at] ^= 4
			fs := restore(t, files)
			data[at] ^= 4
			lost := map[uint64]bool{}
			opt := Options{FS: fs, Dir: "wal", SegmentBytes: 2 << 10, Gap: func(from, to uint64, _ int64) {
				for lsn := from; lsn <= to; lsn++ {
					lost[lsn] = true
				}
			}}
			damage, err := Inspect(opt, 0, func() (func(Op) error, func(_, _ uint64, _ int64)) { return func(Op) error { return nil }, opt.Gap })
			if err != nil {
				t.Fatalf("segment %d, byte %d: inspect: %v", number, at, err)
			}
			clear(lost)
			if err := MarkLost(opt, damage); err != nil {
				t.Fatal(err)
			}
			for range 2 {
				clear(lost)
				l, st, _ := openLog(t, opt, 0)
				for lsn := range o.acked {
					if got := st.ops[lsn].data; (got == "") != lost[lsn] || got != "" && got != o.tried[lsn] {
						t.Fatalf("segment %d, byte %d: operation %d, lost %v", number, at, lsn, lost[lsn])
					}
				}
				for s, ok := l.OldestSealed(); ok; s, ok = l.OldestSealed() {
					if err := l.Scan(s.Number, func(Op) error { return nil }); err != nil {
						t.Fatalf("segment %d, byte %d: scan: %v", number, at, err)
					}
					l.mu.Lock()
					l.mu.segs[0].released = true // only for this look: the file stays
					l.mu.segs = l.mu.segs[1:]
					l.mu.Unlock()
				}
				if len(lost) > 2 {
					t.Fatalf("segment %d, byte %d: %d operations lost", number, at, len(lost))
				}
				mustClose(t, l)
			}
		}
	}
}
