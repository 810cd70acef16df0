package library

import (
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirmq/weir"
	"github.com/weirmq/weir/tests/redistest"
)

// open16 makes producers on streams that were opened one by one.
func open16(t *testing.T, url string, c weir.ProducerConfig) (all []*weir.Producer) {
	t.Helper()
	c.Logger = quiet()
	for range 16 {
		p, err := weir.NewProducer(openStream(t, url), c)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = p.Close() })
		all = append(all, p)
	}
	return all
}

// offer publishes n messages with each producer at once.
func offer(t *testing.T, producers []*weir.Producer, n int) (stored, refused int64) {
	var yes, no atomic.Int64
	var all sync.WaitGroup
	for _, p := range producers {
		all.Go(func() {
			for range n {
				err := p.Publish(t.Context(), weir.Message{Data: []byte("order")})
				var full *weir.QueueFullError
				switch {
				case err == nil:
					yes.Add(1)
				case errors.As(err, &full) && full.Reason == weir.LoadShedding && full.RetryAfter > 0:
					no.Add(1)
				default:
					t.Errorf("publish: %v", err)
				}
			}
		})
	}
	all.Wait()
	return yes.Load(), no.Load()
}

func TestOneWindowForAllThatAProcessOpens(t *testing.T) {
	server := redistest.Start(t, redistest.Options{})
	producers := open16(t, server.URL()+"?stream=jobs", weir.ProducerConfig{Guard: weir.GuardStatic, ShedWindow: time.Minute})
	if stored, refused := offer(t, producers, 100); stored != 1000 || refused != 600 {
		t.Errorf("%d stored, %d refused, want 1000 and 600", stored, refused)
	}
	other := open16(t, server.URL()+"?stream=others", weir.ProducerConfig{Guard: weir.GuardStatic, ShedWindow: time.Minute})
	if stored, _ := offer(t, other[:1], 100); stored != 100 {
		t.Errorf("%d of 100 stored in another stream", stored)
	}
}

func TestOneWindowForAllProcesses(t *testing.T) {
	server := redistest.Start(t, redistest.Options{})
	_, port, _ := strings.Cut(server.Addr(), ":")
	// By another address each, they do not know that they are in one process.
	var producers []*weir.Producer
	for _, host := range []string{"127.0.0.1", "localhost", "[::ffff:127.0.0.1]"} {
		url := "redis://" + host + ":" + port + "/0?stream=jobs"
		producers = append(producers, open16(t, url, weir.ProducerConfig{Guard: weir.GuardStatic, ShedWindow: time.Minute, ShedScope: weir.ShedStream})[:1]...)
	}
	if stored, refused := offer(t, producers, 1000); stored != 1000 || refused != 2000 {
		t.Errorf("%d stored, %d refused, want 1000 and 2000", stored, refused)
	}
	if n := server.Client().XLen(t.Context(), "jobs").Val(); n != 1000 {
		t.Errorf("%d entries", n)
	}
}
