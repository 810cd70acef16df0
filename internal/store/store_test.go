package store

import (
	"math/rand/v2"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"pgregory.net/rapid"
)

func TestSealedSegmentsReadBackAsTheModelSays(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(rt, "seed"), 1))
		m := newModel(r.IntN)
		opt := Options{FS: vfs.NewMem(), Dir: "/data"}
		s := openStore(t, opt)
		defer func() { s.Close() }()
		for segment := range uint32(rapid.IntRange(1, 6).Draw(rt, "segments")) {
			for range rapid.IntRange(0, 120).Draw(rt, "operations") {
				m.step()
			}
			if err := m.seal(s, segment, nil); err != nil {
				rt.Fatal(err)
			}
			if err := m.check(s); err != nil {
				rt.Fatalf("after segment %d: %v", segment, err)
			}
			if rapid.Bool().Draw(rt, "reopen") {
				if err := s.Close(); err != nil {
					rt.Fatal(err)
				}
				s = openStore(t, opt)
				if s.Applied() != m.lsn {
					rt.Fatalf("applied %d, want %d", s.Applied(), m.lsn)
				}
				if err := m.check(s); err != nil {
					rt.Fatalf("reopened after segment %d: %v", segment, err)
				}
			}
		}
	})
}
