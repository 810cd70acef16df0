package engine

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/weirmq/weir/internal/api"
)

// BenchmarkClaimAck is a claim of 100 jobs of 256 B and their ack, by ten
// workers on one queue; an operation is one job.
func BenchmarkClaimAck(b *testing.B) {
	e, err := Open(context.Background(), Options{Dir: b.TempDir()})
	if err != nil {
		b.Fatal(err)
	}
	defer e.Close()
	cfg := api.DefaultConfig()
	cfg.Type = api.TypeQueue
	ctx := context.Background()
	if _, err := e.PutTopic(ctx, "q", cfg); err != nil {
		b.Fatal(err)
	}
	req := &api.WriteRequest{}
	for range 100 {
		req.Records = append(req.Records, api.Record{Data: fmt.Appendf(nil, "%q", make([]byte, 63))})
	}
	for range b.N/100 + 20 {
		if _, err := e.Write(ctx, "q", req); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportAllocs()
	b.ResetTimer()
	var left atomic.Int64
	left.Store(int64(b.N))
	var wg sync.WaitGroup
	for w := range 10 {
		wg.Go(func() {
			node := fmt.Sprint("w", w)
			settle := &api.SettleRequest{Node: node}
			for left.Add(-100) > -100 {
				settle.Seqs = settle.Seqs[:0]
				if _, err := e.Claim(ctx, "q", &api.ClaimRequest{Node: node, Max: 100}, func(j *api.Job) {
					settle.Seqs = append(settle.Seqs, j.Seq)
				}); err != nil {
					b.Error(err)
				}
				if _, err := e.Ack(ctx, "q", settle); err != nil {
					b.Error(err)
				}
			}
		})
	}
	wg.Wait()
}

// BenchmarkWrite is one record of 256 B by one writer, in a class that does not
// wait for the disk; keyed adds an idempotency key, capped a cap that takes one
// record for each that comes, queue makes the topic a queue.
func BenchmarkWrite(b *testing.B) {
	for _, c := range []struct {
		name    string
		keyed   bool
		prepare func(*api.Config)
	}{
		{"memory", false, func(*api.Config) {}},
		{"keyed", true, func(*api.Config) {}},
		{"capped", false, func(c *api.Config) { c.CapRecords = 1000 }},
		{"ephemeral", false, func(c *api.Config) { c.Durability, c.CapRecords = api.Ephemeral, 1000 }},
		{"queue", false, func(c *api.Config) { c.Type, c.CapRecords = api.TypeQueue, 1000 }},
	} {
		b.Run(c.name, func(b *testing.B) {
			e, err := Open(context.Background(), Options{Dir: b.TempDir()})
			if err != nil {
				b.Fatal(err)
			}
			defer e.Close()
			cfg := api.DefaultConfig()
			cfg.Durability = api.Memory
			c.prepare(&cfg)
			ctx := context.Background()
			if _, err := e.PutTopic(ctx, "t", cfg); err != nil {
				b.Fatal(err)
			}
			req := &api.WriteRequest{Records: []api.Record{{Data: fmt.Appendf(nil, "%q", make([]byte, 63))}}, HasIdempotencyKey: c.keyed}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				if c.keyed {
					req.IdempotencyKey = strconv.AppendInt(req.IdempotencyKey[:0], int64(i), 10)
				}
				if _, err := e.Write(ctx, "t", req); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
