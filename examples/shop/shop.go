// Package shop takes orders over HTTP and ships them. It is there for its tests, which
// docs/guides/testing.md explains.
package shop

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/weirmq/weir"
)

// Order is what a message carries, as JSON.
type Order struct{ ID, Item string }

// What a Shipper may say.
var (
	ErrUnknownItem = errors.New("no such item") // no later try can help
	ErrOutOfStock  = errors.New("out of stock") // try again in a minute
)

// Take stores the orders that are posted to it.
func Take(p *weir.Producer) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<20))
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		err = p.Publish(r.Context(), weir.Message{Data: body, IdempotencyKey: r.Header.Get("Idempotency-Key")})
		status, again := weir.HTTPStatus(err)
		if again != "" {
			w.Header().Set("Retry-After", again)
		}
		w.WriteHeader(status)
	}
}

// Ship returns the handler that has ship send each order.
func Ship(ship func(context.Context, Order) error) weir.Handler {
	return weir.Handle(func(ctx context.Context, o Order, _ *weir.Delivery) error {
		switch err := ship(ctx, o); {
		case errors.Is(err, ErrUnknownItem):
			return weir.Poison(err)
		case errors.Is(err, ErrOutOfStock):
			return weir.RetryIn(time.Minute, err)
		default:
			return err
		}
	})
}
