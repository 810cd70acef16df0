package postgres

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weirmq/weir/internal/replica"
)

const (
	aheadEntries = 256
	aheadBytes   = 4 << 20
	trimAtOnce   = 100
)

// entry is a row of the log.
type entry struct {
	pos, term uint64
	data      []byte
}

// Newest implements replica.Log.
func (l *Log) Newest(ctx context.Context) (replica.Term, error) {
	var t replica.Term
	err := l.again(ctx, func(ctx context.Context) error {
		return l.pool.QueryRow(ctx, `SELECT term, node, started FROM weir_replica_terms WHERE log = $1`, l.name).Scan(&t.Number, &t.Node, &t.Started)
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return replica.Term{}, nil
	}
	return t, wrap(err)
}

// Lead implements replica.Log. After an unknown outcome it has the same term, if nobody has
// taken one since: to the server a second one would look like another's.
func (l *Log) Lead(ctx context.Context, node string) (lead replica.Lead, err error) {
	c := call{rand.Int64N(1 << 62), time.Now()}
	err = l.again(ctx, func(ctx context.Context) error {
		lead, err = l.tryLead(ctx, node, c)
		return err
	})
	if err != nil {
		return replica.Lead{}, wrap(err)
	}
	l.follow(newLeader(l, lead, c.number))
	return lead, nil
}

// call identifies a call of Lead in the row of the term that it has taken. The number alone
// does not: servers of older versions leave it there.
type call struct {
	number  int64
	started time.Time
}

func (l *Log) tryLead(ctx context.Context, node string, c call) (lead replica.Lead, err error) {
	conn, err := l.pool.Acquire(ctx)
	if err != nil {
		return lead, err
	}
	defer conn.Release()
	err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		lead, err = l.takeTerm(ctx, tx, node, c)
		return err
	})
	if err == nil {
		err = unwarned(conn.Conn().PgConn())
	}
	if err != nil {
		_ = conn.Conn().Close(ctx) // so that a warning of this time is not seen again
	}
	return lead, err
}

// takeTerm changes the row that every INSERT of a leader locks, so when it has it, the last
// one of these is over and further ones add nothing. The row says which call took the term.
func (l *Log) takeTerm(ctx context.Context, tx pgx.Tx, node string, c call) (lead replica.Lead, err error) {
	if err := tx.QueryRow(ctx, `INSERT INTO weir_replica_terms AS t (log, term, node, started, asked) VALUES ($1, 1, $2, $3, $4)
		ON CONFLICT (log) DO UPDATE SET term = CASE WHEN t.asked = excluded.asked AND t.started = excluded.started THEN t.term ELSE t.term + 1 END,
		node = excluded.node, started = excluded.started, asked = excluded.asked RETURNING term`,
		l.name, node, c.started, c.number).Scan(&lead.Term); err != nil {
		return lead, err
	}
	var last uint64
	err = tx.QueryRow(ctx, `SELECT pos, term FROM weir_replica_log WHERE log = $1 ORDER BY pos DESC LIMIT 1`, l.name).Scan(&lead.End, &last)
	if err == nil && last == lead.Term || err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return lead, err
	}
	lead.End++
	_, err = tx.Exec(ctx, `INSERT INTO weir_replica_log (log, pos, term, data) VALUES ($1, $2, $3, '')`, l.name, lead.End, lead.Term)
	return lead, err
}

// follow replaces the leader, whose term has ended.
func (l *Log) follow(next *leader) {
	l.mu.Lock()
	old := l.leader
	l.leader, l.ahead = next, nil
	l.mu.Unlock()
	if old != nil {
		old.stop(replica.ErrFenced)
		<-old.ended
	}
	go next.run()
}

// Append implements replica.Log.
func (l *Log) Append(ctx context.Context, data []byte, stored func(pos uint64, err error)) error {
	l.mu.Lock()
	leader := l.leader
	l.mu.Unlock()
	if leader == nil {
		return errors.New("postgres: Append without Lead")
	}
	return leader.append(ctx, data, stored)
}

// Read implements replica.Log. Reads that follow each other are answered from what one
// question has brought.
func (l *Log) Read(ctx context.Context, after uint64) (replica.Entry, error) {
	if e, ok := l.known(after); ok {
		return e, nil
	}
	var got []entry
	err := l.again(ctx, func(ctx context.Context) (err error) {
		got, err = l.fetch(ctx, after)
		return err
	})
	if err != nil {
		return replica.Entry{}, wrap(err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(got) > 0 && got[0].pos <= after {
		if l.last.pos == after && l.last.replacedBy(got[0]) {
			return replica.Entry{}, fmt.Errorf("%w: the database has lost entries up to position %d, which it had confirmed, and another server leads", replica.ErrTrimmed, after)
		}
		got = got[1:]
	}
	switch {
	case len(got) == 0:
		return replica.Entry{}, io.EOF
	case got[0].pos != after+1:
		return replica.Entry{}, replica.ErrTrimmed
	}
	l.ahead = got
	return l.nextAhead(), nil
}

// replacedBy reports whether the entry in front of those that were fetched, which has the sum of
// its data instead, says that another server has written where e was. Its term may have e's number,
// if the database has lost that, too.
func (e entry) replacedBy(front entry) bool {
	sum := sha256.Sum256(e.data)
	return front.term > e.term || front.pos == e.pos && !bytes.Equal(front.data, sum[:])
}

// fetch reads the entries behind after, the first one and others that are not too large, and in
// front of them the one at after, or the last of a log that ends before, with the sum of its data.
func (l *Log) fetch(ctx context.Context, after uint64) ([]entry, error) {
	rows, err := l.pool.Query(ctx, `SELECT pos, term, data FROM (
			SELECT pos, term, data, sum(octet_length(data)) OVER (ORDER BY pos) - octet_length(data) AS before
			FROM (SELECT pos, term, CASE WHEN pos > $2 THEN data ELSE sha256(data) END AS data FROM weir_replica_log
				WHERE log = $1 AND pos >= least($2, (SELECT max(pos) FROM weir_replica_log WHERE log = $1)) ORDER BY pos LIMIT $3) AS next
		) AS summed WHERE before < $4 ORDER BY pos`, l.name, after, aheadEntries, aheadBytes)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (e entry, err error) {
		err = row.Scan(&e.pos, &e.term, &e.data)
		return e, err
	})
}

// known returns the entry behind after if it is the next of those read ahead.
func (l *Log) known(after uint64) (replica.Entry, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.ahead) == 0 || l.ahead[0].pos != after+1 {
		return replica.Entry{}, false
	}
	return l.nextAhead(), true
}

// nextAhead takes the first of the entries read ahead. The lock is held.
func (l *Log) nextAhead() replica.Entry {
	e := l.ahead[0]
	l.ahead = slices.Delete(l.ahead, 0, 1)
	l.last = e
	return replica.Entry{Pos: e.pos, Term: e.term, Data: e.data}
}

// End implements replica.Log.
func (l *Log) End(ctx context.Context) (pos uint64, err error) {
	err = l.again(ctx, func(ctx context.Context) error {
		return l.pool.QueryRow(ctx, `SELECT coalesce(max(pos), 0) FROM weir_replica_log WHERE log = $1`, l.name).Scan(&pos)
	})
	return pos, wrap(err)
}

// Trim implements replica.Log. The last entry stays: the next one comes behind it.
func (l *Log) Trim(ctx context.Context, upTo uint64) error {
	l.mu.Lock()
	l.ahead = nil
	l.mu.Unlock()
	for {
		var removed int64
		err := l.again(ctx, func(ctx context.Context) error {
			tag, err := l.pool.Exec(ctx, `DELETE FROM weir_replica_log WHERE log = $1 AND pos IN (
				SELECT pos FROM weir_replica_log WHERE log = $1 AND pos <= $2 AND pos < (SELECT max(pos) FROM weir_replica_log WHERE log = $1)
				ORDER BY pos LIMIT $3)`, l.name, upTo, trimAtOnce)
			removed = tag.RowsAffected()
			return err
		})
		if err != nil || removed < trimAtOnce {
			return wrap(err)
		}
	}
}

func wrap(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("postgres: %w", err)
}
