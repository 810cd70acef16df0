package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirmq/weir"
	"github.com/weirmq/weir/open"
	"github.com/weirmq/weir/tests/redistest"
)

// Where a run can be.
const (
	onRedis    = "redis"
	onEmbedded = "embedded"
)

// place is a stream to be flooded, and what waits beside it.
type place struct {
	stream *weir.Stream
	redis  *redis.Client // nil: there is none

	behind *weir.Stream   // another group of the stream, or another queue
	into   *weir.Producer // stores there; nil: what is stored in the stream is there too
	due    chan struct{}  // one for each message that was stored
	mover  *weir.Pool
	stop   context.CancelFunc
	ended  sync.WaitGroup
	moved  atomic.Int64 // messages of behind that were handled
	added  atomic.Int64 // that were stored
	failed atomic.Int64 // that could not be stored
}

func newPlace(ctx context.Context, s *redistest.Scope, o options) (*place, error) {
	p := &place{due: make(chan struct{}, 1<<20)}
	var flood, behind string
	switch o.on {
	case onRedis:
		server := redistest.Start(s, redistest.Options{})
		p.redis = server.Client()
		flood, behind = server.URL()+"?stream=flood", server.URL()+"?stream=flood&group=behind"
	case onEmbedded:
		dir := "file://" + s.TempDir()
		flood, behind = dir+"?topic=flood", dir+"?topic=behind"
	default:
		return nil, fmt.Errorf("-on %q is unknown; use %s or %s", o.on, onRedis, onEmbedded)
	}
	var err error
	if p.behind, err = open.URL(ctx, behind); err != nil {
		return nil, err
	}
	if p.stream, err = open.URL(ctx, flood); err != nil {
		return nil, err
	}
	p.mover, err = weir.NewPool(p.behind, p.move, weir.PoolConfig{Workers: 4, Logger: slog.New(slog.DiscardHandler), HandlerTimeout: -1, DrainTimeout: time.Second})
	if err == nil {
		p.into, err = weir.NewProducer(p.behind, weir.ProducerConfig{Guard: weir.GuardOff, Logger: slog.New(slog.DiscardHandler)})
	}
	return p, err
}

// fill stores what waits, and on Redis lets the flooded group begin behind it.
func (p *place) fill(ctx context.Context, n int) error {
	const batch = 1000
	data := make([]byte, 100)
	for i := 0; i < n; i += batch {
		messages := make([]weir.Message, min(batch, n-i))
		for k := range messages {
			messages[k].Data = data
		}
		if err := p.into.PublishBatch(ctx, messages); err != nil {
			return err
		}
	}
	p.added.Store(int64(n))
	if p.redis != nil {
		for group, from := range map[string]string{"behind": "0", "weir": "$"} {
			if err := p.redis.XGroupCreate(ctx, "flood", group, from).Err(); err != nil && !strings.HasPrefix(err.Error(), "BUSYGROUP") {
				return err
			}
		}
		p.into = nil
	}
	life, stop := context.WithCancel(context.Background())
	p.stop = stop
	p.ended.Go(func() { _ = p.mover.Run(life) }) // what it leaves shows in the count
	return nil
}

// stored tells that a message was stored in the flooded stream: one more is due.
func (p *place) stored(ctx context.Context) {
	if p.into != nil {
		if err := p.into.Publish(ctx, weir.Message{Data: make([]byte, 100)}); err != nil {
			p.failed.Add(1)
			return
		}
	}
	p.added.Add(1)
	p.due <- struct{}{}
}

// move handles the oldest message once one more has been stored.
func (p *place) move(ctx context.Context, _ *weir.Delivery) error {
	select {
	case <-p.due:
		p.moved.Add(1)
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// rest is how many messages still wait, and how many should.
func (p *place) rest(ctx context.Context) (left, want int64, err error) {
	p.stop()
	p.ended.Wait()
	reading, err := p.behind.Pressure(ctx)
	if err != nil {
		return 0, 0, err
	}
	left, known := reading.Backlog()
	if !known {
		return 0, 0, fmt.Errorf("how many messages wait in %s is not known", reading.Stream)
	}
	return left, p.added.Load() - p.moved.Load(), nil
}

func (p *place) close() {
	if p.stop != nil {
		p.stop()
		p.ended.Wait()
	}
	_ = p.stream.Close() // all that counts has been counted
	_ = p.behind.Close()
}

// number is what a message of the flood carries.
func number(i int) []byte { return binary.BigEndian.AppendUint64(nil, uint64(i)) }
