package store

import (
	"bytes"
	"context"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/internal/op"
)

// appends makes operations that append records of 256 bytes, batch at a time,
// to topics in turn, size bytes in all.
func appends(topics, batch, size int) (lsn uint64, ops []Op, records int) {
	heads := make([]uint64, topics)
	add := func(b []byte) {
		lsn++
		ops = append(ops, Op{LSN: lsn, Payload: b})
	}
	for i := range topics {
		add((&op.Part{Kind: op.KindCreate, Topic: uint64(i + 1), Name: fmt.Sprintf("bench-%06d", i), Config: api.DefaultConfig()}).Encode(nil))
	}
	r := api.Record{Data: bytes.Repeat([]byte("7"), 256)}
	var frames []byte
	for range batch {
		frames = op.AppendFrame(frames, &r)
	}
	for i := 0; size > 0; i++ {
		t := i % topics
		p := op.Part{Kind: op.KindAppend, Topic: uint64(t + 1), First: heads[t] + 1, N: uint64(batch), Bytes: uint64(256 * batch), TS: int64(i)}
		heads[t] += uint64(batch)
		add(append(p.Encode(nil), frames...))
		size -= len(frames)
		records += batch
	}
	return lsn, ops, records
}

func cpu() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func BenchmarkSeal(b *testing.B) {
	for _, c := range []struct{ topics, batch int }{{16, 100}, {1, 1}, {10000, 10}} {
		b.Run(fmt.Sprintf("topics=%d/batch=%d", c.topics, c.batch), func(b *testing.B) {
			lsn, ops, records := appends(c.topics, c.batch, 64<<20)
			scan := func(fn func(Op) error) error {
				for _, o := range ops {
					if err := fn(o); err != nil {
						return err
					}
				}
				return nil
			}
			b.SetBytes(64 << 20)
			b.ReportAllocs()
			var used time.Duration
			for b.Loop() {
				b.StopTimer()
				s, err := Open(Options{Dir: b.TempDir()})
				if err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
				before := cpu()
				if _, _, err := s.Seal(context.Background(), 1, lsn, scan, nil, nil); err != nil {
					b.Fatal(err)
				}
				used += cpu() - before
				b.StopTimer()
				s.Close()
				b.StartTimer()
			}
			b.ReportMetric(used.Seconds()/float64(b.N)/float64(records)*1e6, "cpu-s/Mrec")
			b.ReportMetric(64/(used.Seconds()/float64(b.N)), "MiB/cpu-s")
		})
	}
}

func BenchmarkLoad100kTopics(b *testing.B) {
	dir := b.TempDir()
	s, err := Open(Options{Dir: dir})
	if err != nil {
		b.Fatal(err)
	}
	lsn, ops, _ := appends(100_000, 1, 100_000*260)
	if _, _, err := s.Seal(context.Background(), 1, lsn, func(fn func(Op) error) error {
		for _, o := range ops {
			if err := fn(o); err != nil {
				return err
			}
		}
		return nil
	}, nil, nil); err != nil {
		b.Fatal(err)
	}
	if err := s.Close(); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		s, err := Open(Options{Dir: dir})
		if err != nil {
			b.Fatal(err)
		}
		n := 0
		err = s.Load(func(*op.State) error { n++; return nil }, func(Run) error { n++; return nil },
			func(Key) error { return nil }, func(Lease) error { return nil })
		if err != nil || n < 200_000 {
			b.Fatal(n, err)
		}
		if err := s.Close(); err != nil {
			b.Fatal(err)
		}
	}
}
