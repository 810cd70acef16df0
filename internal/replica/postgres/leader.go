package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/weirmq/weir/internal/replica"
)

// answerTimeout is how long the database may take for an entry before a new connection is
// made to ask about it.
const answerTimeout = 15 * time.Second

// leader appends the entries of one term, in order, over one connection.
type leader struct {
	log   *Log
	term  uint64
	asked int64         // by the call of Lead that took the term
	slots chan struct{} // holds a token of every entry under way
	over  chan struct{} // closed by stop
	ended chan struct{} // closed when run has returned
	wake  chan struct{} // there is something to send

	mu    sync.Mutex
	next  uint64 // position of the next entry
	queue []*pending
	sent  int // how many of queue are on their way on the present connection
	why   error
	conn  net.Conn // the present connection
}

// pending is an entry that is not stored yet.
type pending struct {
	pos    uint64
	insert []byte // the messages that append it
	stored func(pos uint64, err error)
	detach func() bool // from its context
}

func newLeader(log *Log, lead replica.Lead, asked int64) *leader {
	return &leader{
		log: log, term: lead.Term, asked: asked, next: lead.End + 1, slots: make(chan struct{}, replica.Window),
		over: make(chan struct{}), ended: make(chan struct{}), wake: make(chan struct{}, 1),
	}
}

func (l *leader) append(ctx context.Context, data []byte, stored func(pos uint64, err error)) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	select {
	case l.slots <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	case <-l.over:
		return l.reason()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.why != nil {
		return l.why
	}
	insert, err := encodeInsert(l.log.name, l.next, l.term, data)
	if err != nil {
		<-l.slots
		return err
	}
	p := &pending{pos: l.next, insert: insert, stored: stored}
	p.detach = context.AfterFunc(ctx, func() { l.stop(ctx.Err()) })
	l.next++
	l.queue = append(l.queue, p)
	select {
	case l.wake <- struct{}{}:
	default:
	}
	return nil
}

// stop ends the leader: what is not stored fails with err.
func (l *leader) stop(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.why != nil {
		return
	}
	l.why = err
	close(l.over)
	if l.conn != nil {
		_ = l.conn.Close()
	}
}

func (l *leader) reason() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.why
}

// run appends what is queued until the leader is stopped.
func (l *leader) run() {
	defer close(l.ended)
	ctx, cancel := context.WithCancel(l.log.closing)
	defer cancel()
	go func() {
		<-l.over
		cancel()
	}()
	for failures := 0; l.reason() == nil; {
		before := l.first()
		if err := l.connected(ctx); errors.Is(err, replica.ErrFenced) {
			l.stop(err)
		} else if err != nil && l.reason() == nil {
			l.log.opt.Trouble(wrap(err))
		}
		if l.first() > before {
			failures = 0
		}
		_ = pause(ctx, failures) // that the leader was stopped is seen above
		failures++
	}
	l.mu.Lock()
	failed, why := l.queue, l.why
	l.queue = nil
	l.mu.Unlock()
	for _, p := range failed {
		p.detach()
		p.stored(0, why)
	}
}

// first is the position of the first entry that is not stored yet.
func (l *leader) first() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.next - uint64(len(l.queue))
}

// connected appends over one connection until that fails.
func (l *leader) connected(ctx context.Context) error {
	conn, err := pgx.ConnectConfig(ctx, l.log.config)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx)) // if it is not taken over
	if err := l.prepare(ctx, conn); err != nil {
		return err
	}
	raw, err := conn.PgConn().Hijack()
	if err != nil {
		return err
	}
	defer raw.Conn.Close()
	l.mu.Lock()
	if l.conn, l.sent = raw.Conn, 0; l.why != nil {
		l.mu.Unlock()
		return nil
	}
	l.mu.Unlock()
	received := make(chan struct{})
	var failed error
	go func() {
		defer close(received)
		failed = l.receive(raw)
	}()
	err = l.send(raw.Conn, received)
	_ = raw.Conn.Close()
	<-received
	return cmp.Or(err, failed)
}

// prepare makes a connection one that entries may be sent over.
func (l *leader) prepare(ctx context.Context, conn *pgx.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, l.log.opt.silence)
	defer cancel()
	if err := prepareSession(ctx, conn); err != nil {
		return err
	}
	if err := l.ask(ctx, conn); err != nil {
		return err
	}
	return prepareInsert(ctx, conn)
}

// ask finds out which entries on their way are stored. Whatever an older connection still
// does, it holds the row that is written here, or is behind. The commit waits for the
// standby as those of the entries did, and comes behind them.
func (l *leader) ask(ctx context.Context, conn *pgx.Conn) error {
	first := l.first()
	var term, have uint64
	var asked int64
	err := pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		if err := tx.QueryRow(ctx, `UPDATE weir_replica_terms SET asked = asked WHERE log = $1 RETURNING term, asked`, l.log.name).Scan(&term, &asked); err != nil {
			return err
		}
		if term == l.term && asked != l.asked {
			return nil // what is there may be another's
		}
		return tx.QueryRow(ctx, `SELECT coalesce(max(pos), 0) FROM weir_replica_log WHERE log = $1 AND pos BETWEEN $2 AND $3 AND term = $4`,
			l.log.name, first-1, first+replica.Window, l.term).Scan(&have)
	})
	if err == nil {
		err = unwarned(conn.PgConn())
	}
	if err == nil {
		l.done(have)
	}
	if err = l.still(err, term, asked); err == nil && have < first-1 {
		err = replica.Lost(fmt.Sprintf("position %d is not there any more", first-1))
	}
	return err
}

// done calls back for the entries up to pos, which are stored.
func (l *leader) done(pos uint64) {
	for {
		l.mu.Lock()
		if len(l.queue) == 0 || l.queue[0].pos > pos || l.why != nil {
			l.mu.Unlock()
			return
		}
		p := l.queue[0]
		l.queue[0] = nil
		l.queue = l.queue[1:]
		l.sent = max(0, l.sent-1)
		l.mu.Unlock()
		p.detach()
		<-l.slots
		p.stored(p.pos, nil)
	}
}

const insertName = "weir_append"

// prepareInsert prepares what appends one entry if the term is still the leader's and the
// entry in front is there. The lock on the term makes Lead wait for the end of the INSERT.
func prepareInsert(ctx context.Context, conn *pgx.Conn) error {
	_, err := conn.PgConn().Prepare(ctx, insertName, `INSERT INTO weir_replica_log (log, pos, term, data)
		SELECT $1::text, $2::bigint, $3::bigint, $4::bytea FROM weir_replica_terms AS t WHERE t.log = $1 AND t.term = $3
		AND EXISTS (SELECT FROM weir_replica_log AS front WHERE front.log = $1 AND front.pos = $2 - 1)
		FOR SHARE OF t ON CONFLICT DO NOTHING`, nil)
	return err
}

// send writes the entries of the queue, each as a transaction, without waiting for answers.
func (l *leader) send(conn net.Conn, received <-chan struct{}) error {
	for {
		p := l.unsent()
		if p == nil {
			select {
			case <-l.wake:
			case <-received:
				return nil
			}
			continue
		}
		_ = conn.SetDeadline(time.Now().Add(answerTimeout)) // it is closed if this fails
		if _, err := conn.Write(p.insert); err != nil {
			return err
		}
	}
}

// unsent returns the first entry that has not been sent, which is sent now.
func (l *leader) unsent() *pending {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.sent >= len(l.queue) {
		return nil
	}
	l.sent++
	return l.queue[l.sent-1]
}

func encodeInsert(log string, pos, term uint64, data []byte) (messages []byte, err error) {
	if data == nil {
		data = []byte{} // nil is NULL
	}
	bind := pgproto3.Bind{
		PreparedStatement: insertName, ParameterFormatCodes: []int16{0, 0, 0, 1},
		Parameters: [][]byte{[]byte(log), fmt.Append(nil, pos), fmt.Append(nil, term), data},
	}
	messages = make([]byte, 0, len(data)+len(log)+128)
	for _, m := range []pgproto3.FrontendMessage{&bind, &pgproto3.Execute{}, &pgproto3.Sync{}} {
		if messages, err = m.Encode(messages); err != nil {
			return nil, err
		}
	}
	return messages, nil
}

var errUnknown = errors.New("postgres: the entry was not added, it is to be found out why")

// receive reads the answers. An entry is stored if exactly one row was added and the commit
// was confirmed without a warning; after anything else the connection ends, and another
// one asks.
func (l *leader) receive(raw *pgconn.HijackedConn) error {
	added := false
	for {
		message, err := raw.Frontend.Receive()
		if err != nil {
			return err
		}
		switch m := message.(type) {
		case *pgproto3.CommandComplete:
			added = string(m.CommandTag) == "INSERT 0 1"
		case *pgproto3.NoticeResponse:
			if isWarning(m.SeverityUnlocalized, m.Severity) {
				return fmt.Errorf("postgres: the database warns: %s", m.Message)
			}
		case *pgproto3.ErrorResponse:
			return pgconn.ErrorResponseToPgError(m)
		case *pgproto3.ReadyForQuery:
			if !added {
				return errUnknown
			}
			added = false
			l.extend(raw.Conn)
			l.done(l.first())
		}
	}
}

// extend gives the answers to what is on its way beyond the present one their time.
func (l *leader) extend(conn net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	deadline := time.Time{}
	if l.sent > 1 {
		deadline = time.Now().Add(answerTimeout)
	}
	_ = conn.SetReadDeadline(deadline) // it is closed if this fails
}
