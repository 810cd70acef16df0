package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/weirmq/weir/internal/replica"
)

// Kept looks, for a leader that appends nothing, whether the database still has what it had confirmed. It
// returns an ErrFenced if not, and replica.ErrDamaged if only what goes on behind from is gone.
func (l *Log) Kept(ctx context.Context, from uint64) error {
	l.mu.Lock()
	leader := l.leader
	l.mu.Unlock()
	if leader == nil {
		return nil
	}
	var found error
	err := l.again(ctx, func(ctx context.Context) error {
		err := leader.kept(ctx, from)
		if found = nil; errors.Is(err, replica.ErrFenced) || errors.Is(err, replica.ErrDamaged) {
			found, err = err, nil
		}
		return err
	})
	if errors.Is(found, replica.ErrFenced) {
		leader.stop(found)
	}
	return cmp.Or(wrap(err), found)
}

func (l *leader) kept(ctx context.Context, from uint64) error {
	if why := l.reason(); why != nil {
		return why
	}
	last := l.first() - 1
	var term uint64
	var asked int64
	var there bool
	var behind uint64
	err := l.log.pool.QueryRow(ctx, `SELECT term, asked,
		EXISTS (SELECT FROM weir_replica_log AS e WHERE e.log = $1 AND e.pos = $2 AND e.term = $3),
		(SELECT count(*) FROM weir_replica_log AS e WHERE e.log = $1 AND e.pos > $4 AND e.pos <= $2)
		FROM weir_replica_terms WHERE log = $1`, l.log.name, last, l.term, from).Scan(&term, &asked, &there, &behind)
	if err := l.still(err, term, asked); err != nil {
		return err
	}
	switch {
	case !there && l.first()-1 == last: // else it may have been trimmed meanwhile
		return replica.Lost(fmt.Sprintf("position %d is not there any more", last))
	case from > 0 && from < last && behind < last-from: // of what is behind a base nothing is trimmed
		return fmt.Errorf("%w: of %d entries behind position %d only %d are there", replica.ErrDamaged, last-from, from, behind)
	}
	return nil
}

// still returns an error if the row that says who leads, or that it could not be read, says that l does
// not, or that the database has lost that it does.
func (l *leader) still(err error, term uint64, asked int64) error {
	var answer *pgconn.PgError
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return replica.Lost(fmt.Sprintf("term %d is not there any more", l.term))
	case errors.As(err, &answer) && answer.Code == undefinedTable:
		return replica.Lost(answer.Message)
	case err != nil:
		return err
	case term < l.term:
		return replica.Lost(fmt.Sprintf("term %d is not there any more, the newest one is %d", l.term, term))
	case term > l.term:
		return replica.ErrFenced
	case asked != l.asked:
		return fmt.Errorf("%w: the database had lost term %d, which another one has now", replica.ErrFenced, term)
	}
	return nil
}

// undefinedTable is the code of an error about a table that does not exist.
const undefinedTable = "42P01"
