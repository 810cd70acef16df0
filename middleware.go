package weir

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
)

// Middleware wraps a handler in another one.
type Middleware func(Handler) Handler

// Chain wraps h in middleware. The first one is the outermost: it is called first and
// sees what the others return. For a nil h it returns nil, which NewPool refuses; it
// panics if a middleware is nil.
func Chain(h Handler, m ...Middleware) Handler {
	for i := len(m) - 1; i >= 0 && h != nil; i-- {
		if m[i] == nil {
			panic(fmt.Sprintf("weir: Chain: middleware %d of %d is nil", i+1, len(m)))
		}
		h = m[i](h)
	}
	return h
}

// Handle makes a Handler of a function that takes the payload as a T, decoded from JSON.
// A payload that is not one goes to the dead letters at once, with the reason poison and
// what is wrong with it. For a nil h it returns nil, which NewPool refuses.
func Handle[T any](h func(ctx context.Context, v T, d *Delivery) error) Handler {
	return HandleWith(json.Unmarshal, h)
}

// HandleWith is Handle with another encoding, given by its Unmarshal function.
func HandleWith[T any](unmarshal func(data []byte, v any) error, h func(ctx context.Context, v T, d *Delivery) error) Handler {
	if h == nil || unmarshal == nil {
		return nil
	}
	return func(ctx context.Context, d *Delivery) error {
		var v T
		if err := unmarshal(d.Data, &v); err != nil {
			return Poison(fmt.Errorf("the payload is no %s: %w", reflect.TypeFor[T](), err))
		}
		return h(ctx, v, d)
	}
}
