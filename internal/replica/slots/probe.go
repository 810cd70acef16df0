package slots

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
)

// Probe finds out, once, whether the store keeps to Create, and creates FORMAT if
// there is none. The error about a store that does not wraps ErrNoConditionalPut.
func (l *Log) Probe(ctx context.Context) error {
	l.mu.Lock()
	probed := l.probed
	l.mu.Unlock()
	if probed {
		return nil
	}
	name := "probe/" + rand.Text()
	first := l.again(ctx, 0, func(ctx context.Context) error { return l.objects.Create(ctx, name, []byte("1")) })
	if first != nil && !errors.Is(first, ErrExists) { // it may be there from a lost answer
		return first
	}
	second := l.again(ctx, 0, func(ctx context.Context) error { return l.objects.Create(ctx, name, []byte("2")) })
	if err := l.remove(ctx, name); err != nil {
		return err
	}
	if second == nil {
		return fmt.Errorf("%w: the store has taken a second object under one name, although it was told to take none if there is one (If-None-Match: *): keep the copy in a store that knows conditional writes", ErrNoConditionalPut)
	}
	if !errors.Is(second, ErrExists) {
		return second
	}
	return l.readFormat(ctx)
}

// readFormat reads or creates FORMAT.
func (l *Log) readFormat(ctx context.Context) error {
	data, err := json.Marshal(Format{1, rand.Text()})
	if err != nil {
		return err
	}
	var taken *takenError
	if err := l.create(ctx, formatName, data); err != nil && !errors.As(err, &taken) {
		return err
	}
	if data, err = l.get(ctx, formatName); err != nil {
		return err
	}
	if _, err := decodeFormat(data); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.probed, l.format = true, data
	return nil
}
