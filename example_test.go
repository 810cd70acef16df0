package weir_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/weirmq/weir"
	"github.com/weirmq/weir/open"
)

// silent keeps the lines about dead letters and refusals out of the examples.
var silent = slog.New(slog.DiscardHandler)

// Publish behind a guard. The same lines work on redis://, http:// and file:
// URLs; mem:// lives and dies with the process.
func ExampleProducer_Publish() {
	ctx := context.Background()
	s, err := open.URL(ctx, "mem://publish")
	if err != nil {
		panic(err)
	}
	defer s.Close()

	p, err := weir.NewProducer(s, weir.ProducerConfig{})
	if err != nil {
		panic(err)
	}
	defer p.Close()
	err = p.Publish(ctx, weir.Message{
		Data:           []byte(`{"id":7}`),
		Priority:       weir.High,
		IdempotencyKey: "order-7", // a second Publish stores nothing more
	})
	fmt.Println("published:", err == nil)
	// Output: published: true
}

// A publish that is refused for load says so in one type of error: the message
// is not stored, and trying again is of use after RetryAfter.
func ExampleQueueFullError() {
	ctx := context.Background()
	s, err := open.URL(ctx, "mem://refused")
	if err != nil {
		panic(err)
	}
	defer s.Close()

	p, err := weir.NewProducer(s, weir.ProducerConfig{LoadSheddingMaxRequests: 2, ShedWindow: time.Minute, Logger: silent})
	if err != nil {
		panic(err)
	}
	defer p.Close()
	for i := range 3 {
		err := p.Publish(ctx, weir.Message{Data: fmt.Appendf(nil, "job %d", i)})
		var full *weir.QueueFullError
		switch {
		case errors.As(err, &full):
			fmt.Printf("job %d refused: %s, try again later: %t\n", i, full.Reason, full.RetryAfter > 0)
		case errors.Is(err, weir.ErrOutcomeUnknown):
			fmt.Println("stored or not: publish it again with an IdempotencyKey")
		case err != nil:
			fmt.Println("not stored:", err)
		}
	}
	// Output: job 2 refused: load_shedding, try again later: true
}

// A pool runs the handler for each message, takes over what crashed workers
// left, and ends with its context: it reads nothing more and lets the handlers
// under way finish.
func ExamplePool() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	s, err := open.URL(ctx, "mem://pool")
	if err != nil {
		panic(err)
	}
	defer s.Close()
	p, err := weir.NewProducer(s, weir.ProducerConfig{ShedWait: true})
	if err != nil {
		panic(err)
	}
	defer p.Close()
	for i := range 3 {
		if err := p.Publish(ctx, weir.Message{Data: fmt.Appendf(nil, "mail %d", i)}); err != nil {
			panic(err)
		}
	}

	done := 0
	pool, err := weir.NewPool(s, func(ctx context.Context, d *weir.Delivery) error {
		fmt.Printf("%s, delivery %d\n", d.Data, d.Attempt)
		if done++; done == 3 {
			stop()
		}
		return nil // an error would give the message back, to be tried again later
	}, weir.PoolConfig{Workers: 1})
	if err != nil {
		panic(err)
	}
	fmt.Println("ended:", pool.Run(ctx))
	// Output:
	// mail 0, delivery 1
	// mail 1, delivery 1
	// mail 2, delivery 1
	// ended: <nil>
}

// The first signal drains the pool, the second ends its handlers at once.
func ExamplePool_gracefulStop() {
	ctx, drain := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer drain()
	s, err := open.URL(ctx, "mem://stop")
	if err != nil {
		panic(err)
	}
	defer s.Close()
	pool, err := weir.NewPool(s, func(ctx context.Context, d *weir.Delivery) error {
		select {
		case <-time.After(time.Second): // the work
			return nil
		case <-ctx.Done(): // drained for too long, or the second signal
			return context.Cause(ctx)
		}
	}, weir.PoolConfig{DrainTimeout: 20 * time.Second})
	if err != nil {
		panic(err)
	}
	second := make(chan os.Signal, 1)
	go func() {
		<-ctx.Done()
		signal.Notify(second, os.Interrupt, syscall.SIGTERM)
		if _, ok := <-second; ok {
			pool.Cancel()
		}
	}()
	drain() // here instead of a real signal
	fmt.Println("drained:", pool.Run(ctx))
	signal.Stop(second)
	close(second)
	// Output: drained: <nil>
}

// What fails too often is moved aside with the reason, and comes back when the
// handler is fixed.
func ExampleStream_DeadLetters() {
	ctx, stop := context.WithTimeout(context.Background(), 10*time.Second)
	defer stop()
	s, err := open.URL(ctx, "mem://letters")
	if err != nil {
		panic(err)
	}
	defer s.Close()
	p, err := weir.NewProducer(s, weir.ProducerConfig{})
	if err != nil {
		panic(err)
	}
	defer p.Close()
	if err := p.Publish(ctx, weir.Message{Data: []byte("invoice 12")}); err != nil {
		panic(err)
	}

	work := func(h weir.Handler) {
		pool, err := weir.NewPool(s, h, weir.PoolConfig{Workers: 1, UntilEmpty: 50 * time.Millisecond, Logger: silent})
		if err != nil {
			panic(err)
		}
		if err := pool.Run(ctx); err != nil {
			panic(err)
		}
	}
	work(func(context.Context, *weir.Delivery) error {
		return weir.Poison(errors.New("no such customer")) // no try can help: do not wait for the third
	})
	letters, err := s.DeadLetters("")
	if err != nil {
		panic(err)
	}
	for l, err := range letters.List(ctx, weir.LetterFilter{}) {
		if err != nil {
			panic(err)
		}
		fmt.Printf("%s: %s after %d, %s\n", l.Data, l.Reason, l.Attempts, l.Error)
	}

	res, err := letters.Redrive(ctx, weir.RedriveConfig{Delay: -1})
	fmt.Println("redriven:", res.Sent, err)
	work(func(_ context.Context, d *weir.Delivery) error {
		fmt.Printf("done: %s\n", d.Data)
		return nil
	})
	// Output:
	// invoice 12: poison after 1, no such customer
	// redriven: 1 <nil>
	// done: invoice 12
}

// One reading of how loaded a stream is for its workers.
func ExampleStream_Pressure() {
	ctx := context.Background()
	s, err := open.URL(ctx, "mem://pressure")
	if err != nil {
		panic(err)
	}
	defer s.Close()
	p, err := weir.NewProducer(s, weir.ProducerConfig{})
	if err != nil {
		panic(err)
	}
	defer p.Close()
	if err := p.PublishBatch(ctx, []weir.Message{{Data: []byte("a")}, {Data: []byte("b")}}); err != nil {
		panic(err)
	}
	r, err := s.Pressure(ctx)
	if err != nil {
		panic(err)
	}
	line, err := json.Marshal(r)
	if err != nil {
		panic(err)
	}
	var fields struct {
		Pending, Lag int64
		LagValid     bool `json:"lag_valid"`
	}
	if err := json.Unmarshal(line, &fields); err != nil {
		panic(err)
	}
	fmt.Printf("%d pending, %d waiting (known: %t)\n", fields.Pending, fields.Lag, fields.LagValid)
	// Output: 0 pending, 2 waiting (known: true)
}

// A handler is tested in memory: publish, let a pool work until the queue is
// empty, look at what it did.
func Example_testYourHandler() {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	s, err := open.URL(ctx, "mem://test")
	if err != nil {
		panic(err)
	}
	defer s.Close()
	p, err := weir.NewProducer(s, weir.ProducerConfig{})
	if err != nil {
		panic(err)
	}
	defer p.Close()
	if err := p.Publish(ctx, weir.Message{Data: []byte("x")}); err != nil {
		panic(err)
	}

	handler := func(_ context.Context, d *weir.Delivery) error {
		if d.Attempt == 1 {
			return weir.RetryIn(10*time.Millisecond, errors.New("not yet"))
		}
		fmt.Printf("%s done in delivery %d\n", d.Data, d.Attempt)
		return nil
	}
	pool, err := weir.NewPool(s, handler, weir.PoolConfig{UntilEmpty: 50 * time.Millisecond, Logger: silent})
	if err != nil {
		panic(err)
	}
	fmt.Println("empty:", pool.Run(ctx))
	// Output:
	// x done in delivery 2
	// empty: <nil>
}

// A queue with room for one message is full after the first: so a test sees what the
// program does about a refusal.
func Example_testYourProducer() {
	ctx := context.Background()
	s, err := open.URL(ctx, "mem://full")
	if err != nil {
		panic(err)
	}
	defer s.Close()
	p, err := weir.NewProducer(s, weir.ProducerConfig{MaxDepth: 1, Logger: silent})
	if err != nil {
		panic(err)
	}
	defer p.Close()

	for range 2 {
		err := p.Publish(ctx, weir.Message{Data: []byte("x")})
		var full *weir.QueueFullError
		if errors.As(err, &full) {
			fmt.Println("refused:", full.Reason)
		}
		status, again := weir.HTTPStatus(err)
		fmt.Println("answer:", status, "says when to come again:", again != "")
	}
	// Output:
	// answer: 200 says when to come again: false
	// refused: queue_full
	// answer: 503 says when to come again: true
}
