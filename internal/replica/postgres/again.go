package postgres

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

const (
	firstPause = 20 * time.Millisecond
	longPause  = 2 * time.Second
)

// again calls f until it succeeds, fails with an error that will stay, or ctx ends.
func (l *Log) again(ctx context.Context, f func(context.Context) error) error {
	for failures := 0; ; failures++ {
		err := f(ctx)
		if err == nil || !passing(err) {
			return err
		}
		if ctx.Err() == nil {
			l.opt.Trouble(wrap(err))
		}
		if pause(ctx, failures) != nil {
			return fmt.Errorf("%w; the last attempt: %w", ctx.Err(), err)
		}
		if l.closing.Err() != nil {
			return errClosed
		}
	}
}

// pause waits longer with each failure, by chance more or less.
func pause(ctx context.Context, failures int) error {
	wait := min(firstPause<<min(failures, 10), longPause)
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(wait/2 + rand.N(wait)):
		return nil
	}
}

// passing reports whether an error may be gone at the next attempt: it is about the
// connection, the database is starting, ending or short of something, or another
// transaction was in the way.
func passing(err error) bool {
	var answer *pgconn.PgError
	if !errors.As(err, &answer) {
		return !errors.Is(err, pgx.ErrNoRows)
	}
	for _, class := range []string{"08", "25006", "40", "53", "55P03", "57", "58"} {
		if strings.HasPrefix(answer.Code, class) {
			return true
		}
	}
	return false
}
