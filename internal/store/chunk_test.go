package store

import (
	"bytes"
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/internal/op"
)

func TestChunkGivesBackWhatWasAdded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var b chunkBuilder
		var want []api.Record
		seq := rapid.Uint64Range(0, 1<<63).Draw(t, "first")
		for range rapid.IntRange(1, 20).Draw(t, "runs") {
			ts := rapid.Int64().Draw(t, "ts")
			first := seq
			var frames []byte
			n := rapid.Uint64Range(1, 9).Draw(t, "n")
			for range n {
				r := api.Record{Seq: seq, TS: ts, Data: fmt.Append(nil, seq)}
				if rapid.Bool().Draw(t, "tag") {
					r.HasTag, r.Tag = true, []byte("a")
				}
				frames = op.AppendFrame(frames, &r)
				want = append(want, r)
				seq++
			}
			b.add(first, n, ts, frames)
			seq += rapid.Uint64Range(0, 1000).Draw(t, "skip")
		}
		c, err := ParseChunk(bytes.Clone(b.finish()))
		if err != nil {
			t.Fatal(err)
		}
		last := len(want) - 1
		if c.First != want[0].Seq || c.Last != want[last].Seq || c.Count != uint64(len(want)) {
			t.Fatalf("chunk %d to %d, %d records", c.First, c.Last, c.Count)
		}
		for range rapid.IntRange(0, 3).Draw(t, "readers before") {
			var r api.Record
			it := c.Seek(rapid.Uint64Range(c.First, c.Last+1).Draw(t, "from"))
			for range rapid.IntRange(0, 30).Draw(t, "read") {
				it.Next(&r)
			}
			c.Leave(it)
		}
		from := rapid.Uint64Range(c.First, c.Last+1).Draw(t, "from")
		for len(want) > 0 && want[0].Seq < from {
			want = want[1:]
		}
		var r api.Record
		it := c.Seek(from)
		for _, w := range want {
			if !it.Next(&r) || r.Seq != w.Seq || r.TS != w.TS || !bytes.Equal(r.Data, w.Data) || r.HasTag != w.HasTag {
				t.Fatalf("record %+v, want %+v", r, w)
			}
		}
		if it.Next(&r) {
			t.Fatalf("record %d behind the end", r.Seq)
		}
	})
}

// FuzzChunk checks that no bytes make the parser panic, and that what it
// accepts keeps its word.
func FuzzChunk(f *testing.F) {
	var b chunkBuilder
	frames := op.AppendFrame(nil, &api.Record{Data: []byte("1")})
	b.add(5, 1, 10, frames)
	b.add(9, 2, 12, append(frames, frames...))
	f.Add(bytes.Clone(b.finish()))
	f.Add([]byte{1, 0, 0, 1, 0, 0, 1, 0, 3, 2, 0, '7'})
	f.Fuzz(func(t *testing.T, in []byte) {
		c, err := ParseChunk(in)
		if err != nil {
			return
		}
		var r api.Record
		var n, prev uint64
		for it := c.Seek(0); it.Next(&r); n++ {
			if n > 0 && r.Seq <= prev || r.Seq < c.First || r.Seq > c.Last || len(r.Data) == 0 {
				t.Fatalf("record %d behind %d in a chunk of %d to %d", r.Seq, prev, c.First, c.Last)
			}
			if n > uint64(len(in)) {
				t.Fatal("more records than bytes")
			}
			prev = r.Seq
		}
		if n != c.Count || prev != c.Last {
			t.Fatalf("%d records up to %d, header says %d up to %d", n, prev, c.Count, c.Last)
		}
		it := c.Seek(c.Last)
		if !it.Next(&r) || r.Seq != c.Last || it.Next(&r) {
			t.Fatal("seek does not find the last record")
		}
	})
}
