// Command orders takes orders over HTTP and works on them: ADDR and REDIS say where.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"github.com/weirmq/weir"
	"github.com/weirmq/weir/backend/redis"
)

type order struct{ ID, Item string }

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	logging.Disable() // weir logs when Redis is away
	client := goredis.NewClient(&goredis.Options{Addr: cmp.Or(os.Getenv("REDIS"), "localhost:6379")})
	s := weir.New(must(redis.New(client, redis.Options{Stream: "orders"})))
	p := must(weir.NewProducer(s, weir.ProducerConfig{}))
	http.HandleFunc("POST /orders", func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<20))
		if err != nil { // half an order is none
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		receipt, err := p.Send(r.Context(), weir.Message{Data: body, IdempotencyKey: r.Header.Get("Idempotency-Key"), MaxDeliveries: 2, Timeout: time.Minute})
		status, again := weir.HTTPStatus(err) // 429 or 503 and when to come back, if there is too much to do
		if again != "" {
			w.Header().Set("Retry-After", again)
		}
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(receipt)
	})
	server := &http.Server{Addr: cmp.Or(os.Getenv("ADDR"), "localhost:8080"), ReadHeaderTimeout: time.Second}
	go func() { log.Print(server.ListenAndServe()) }()
	pool := must(weir.NewPool(s, weir.Chain(weir.Handle(deliver), timed), weir.PoolConfig{Workers: 4})) // drains at the signal
	log.Print("stopped: ", errors.Join(pool.Run(ctx), server.Close(), p.Close(), s.Close(), client.Close()))
}

func deliver(_ context.Context, o order, d *weir.Delivery) error {
	log.Printf("delivered order %s: %s", o.ID, o.Item)
	return nil // an error would have it tried again; weir.Poison(err) goes to the dead letters
}

func timed(next weir.Handler) weir.Handler {
	return func(ctx context.Context, d *weir.Delivery) error {
		defer func(began time.Time) { log.Printf("%s took %s", d.ID, time.Since(began)) }(time.Now())
		return next(ctx, d)
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return v
}
