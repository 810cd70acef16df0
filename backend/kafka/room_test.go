package kafka_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/weirmq/weir"
	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/backend/kafka"
	"github.com/weirmq/weir/tests/kafkatest"
)

// asks takes room as a producer's guard does.
func asks(t *testing.T, b *kafka.Backend, req backend.RoomRequest) backend.Room {
	t.Helper()
	if req.Lifetime == 0 {
		req.Lifetime = time.Minute
	}
	_, room, err := b.Share(t.Context(), req)
	if err != nil || room.Err != nil {
		t.Fatalf("%+v: %v, %v", req, err, room.Err)
	}
	return room
}

func TestRoomIsGivenOutOnceWhoeverAsks(t *testing.T) {
	t.Parallel()
	broker := kafkatest.Start(t, kafkatest.Options{})
	for _, kind := range []string{"share", "classic"} {
		t.Run(kind, func(t *testing.T) { dividesRoom(t, broker.URL()+"/"+kind+"?partitions=1&group_type="+kind) })
	}
	t.Run("many at once", func(t *testing.T) { limits(t, broker.URL()+"/many?partitions=2") })
}

func dividesRoom(t *testing.T, url string) {
	a, b, c := open(t, url), open(t, url), open(t, url)
	for _, h := range []*kafka.Backend{a, b, c} {
		defer h.Close()
	}
	want := func(what string, got backend.Room, given, taken int64) {
		t.Helper()
		if got.Given != given || got.Taken != taken {
			t.Errorf("%s: given %d, %d taken by others; want %d and %d", what, got.Given, got.Taken, given, taken)
		}
	}
	all := backend.RoomRequest{Limit: 100, Pause: -1, Need: 1, Want: 1000}
	want("the first leaves half", asks(t, a, all), 50, 0)
	want("the second takes half of its part", asks(t, b, all), 25, 50)
	want("a third", asks(t, c, all), 16, 75)
	if _, err := a.Append(t.Context(), make([]backend.Message, 50)); err != nil {
		t.Fatal(err)
	}
	want("what was given counts though it may be stored already", asks(t, c, all), 0, 75)
	want("who reads again gives up what is left", asks(t, a, all), 8, 25)
	kept := all
	kept.Kept = 8
	want("what is kept counts for oneself", asks(t, a, kept), 8, 25)
	much := all
	much.Need = 50
	want("less than is needed is of no use", asks(t, b, much), 0, 16)
	short := all
	short.Lifetime = time.Millisecond
	want("the rest of it", asks(t, b, short), 8, 16)
	await(t, "the room of one that is silent", func() bool { return asks(t, c, all).Taken == 16 })
}

// patient lets a reading take longer than a second, after which a guard lets everything
// pass: the first one at a new broker does, and any on a busy machine may.
type patient struct{ *kafka.Backend }

func (p patient) Share(ctx context.Context, req backend.RoomRequest) (backend.Signal, backend.Room, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	return p.Backend.Share(ctx, req)
}

// limits lets eight producers fill a topic whose group does nothing: together they get near
// the limit, and stay below it for as long as they go on trying.
func limits(t *testing.T, url string) {
	const limit = 300
	var all sync.WaitGroup
	least := atomic.Int64{}
	least.Store(limit)
	topic := open(t, url)
	defer topic.Close()
	// What a publish that has timed out may have stored counts, too.
	stored := func() int64 {
		s, err := topic.Stats(t.Context())
		if err != nil {
			t.Error(err)
		}
		return s.XLen
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	for range 8 {
		b := open(t, url)
		defer b.Close()
		p, err := weir.NewProducer(weir.New(patient{b}), weir.ProducerConfig{Guard: weir.GuardStatic, MaxDepth: limit, BackpressureThreshold: 1, LagWarn: -1, LagPause: -1})
		if err != nil {
			t.Fatal(err)
		}
		all.Go(func() {
			mine := int64(0)
			for ctx.Err() == nil {
				err := p.TryPublish(ctx, weir.Message{Data: []byte("x")})
				switch {
				case err == nil:
					mine++
				case errors.Is(err, context.DeadlineExceeded):
				default:
					time.Sleep(5 * time.Millisecond)
				}
			}
			for {
				if have := least.Load(); mine >= have || least.CompareAndSwap(have, mine) {
					return
				}
			}
		})
	}
	await(t, "the topic is nearly full", func() bool { return stored() >= limit*3/4 })
	time.Sleep(time.Second) // for those who would go over the limit
	stop()
	all.Wait()
	n := stored()
	if n > limit {
		t.Errorf("%d messages of 8 producers below a limit of %d", n, limit)
	}
	t.Logf("%d of %d, at least %d of each producer", n, limit, least.Load())
}

// Of a group that begins at the end the lag is unknown until it has begun. What the topic keeps
// is no depth then either: a producer was refused for ever, since what would begin the group is its message.
func TestWhatATopicKeepsTakesNoRoomWhereTheLagIsUnknown(t *testing.T) {
	t.Parallel()
	broker := kafkatest.Start(t, kafkatest.Options{})
	client := broker.Client(kgo.RecordPartitioner(kgo.ManualPartitioner()))
	for name, c := range map[string]struct {
		make  func(*scene)
		depth int64
	}{
		"nobody has begun": {func(s *scene) {
			s.create(1)
			s.put(0, 20, time.Hour)
			s.reset("latest")
			s.idle()
		}, 0},
		"others have work left": {func(s *scene) {
			s.create(1)
			s.put(0, 21, time.Hour)
			s.work(1)
			s.gone() // or it would begin in the new partition
			s.reset("latest")
			s.add(2)
		}, 20},
	} {
		t.Run(name, func(t *testing.T) {
			s := &scene{T: t, broker: broker, topic: strings.ReplaceAll(name, " ", "-"), client: client, admin: kadm.NewClient(client)}
			c.make(s)
			b := open(t, s.url(s.group()))
			defer b.Close()
			await(t, "the lag is unknown", func() bool {
				is, err := b.Stats(t.Context())
				return err == nil && is.Lag == nil && is.Pending == int64(len(s.held))
			})
			p, err := weir.NewProducer(weir.New(patient{b}), weir.ProducerConfig{
				Guard: weir.GuardStatic, MaxDepth: 10, BackpressureThreshold: 1, BackpressureRetries: -1, LagWarn: -1, LagPause: -1,
			})
			if err != nil {
				t.Fatal(err)
			}
			defer p.Close()
			err = p.Publish(t.Context(), weir.Message{Data: []byte("x")})
			full := (*weir.QueueFullError)(nil)
			if errors.As(err, &full) != (c.depth > 0) || full == nil && err != nil || full != nil && full.Depth != c.depth {
				t.Errorf("with a depth of %d of 10: %v", c.depth, err)
			}
		})
	}
}
