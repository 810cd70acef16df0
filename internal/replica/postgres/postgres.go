// Package postgres keeps the shared log of a copy in a PostgreSQL database.
//
// An entry is a row, a leader's time is a number in a row. A leader's INSERT holds a lock on
// that row and adds nothing if the number is not its own, or if the entry in front is not
// there; Lead changes it. So positions have no holes, and what is there counts.
//
// An entry is stored when the database has confirmed its commit. PostgreSQL shows rows
// whose commit still waits for a synchronous standby if the wait was broken off; therefore an
// outcome that is unknown becomes known by a commit of our own, which comes behind it.
package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	defaultName    = "weir"
	connectTimeout = 5 * time.Second
	maxName        = 200
)

// Options of a Log.
type Options struct {
	// ReadOnly is for a copy that is only looked at: its tables must be there.
	ReadOnly bool
	// Trouble, if set, is told the errors after which something is tried again.
	Trouble func(error)

	silence time.Duration // longestSilence
}

// Log is a replica.Log in a database.
type Log struct {
	name     string
	opt      Options
	config   *pgx.ConnConfig
	pool     *pgxpool.Pool // for all but Append
	warnings []string

	mu      sync.Mutex
	leader  *leader // nil: this Log does not lead
	ahead   []entry // read and not asked for yet
	last    entry   // that Read returned last
	closing context.Context
	close   context.CancelFunc
}

// Open connects to the database of a URL, postgres://user:password@host/database, and creates
// the tables if they are not there. The key log= of the query names the copy, "weir" by
// default; all else, the usual environment of PostgreSQL too, is as pgx reads it. Of several
// hosts the one that takes writes is used. A database that does not answer is waited for until ctx
// ends, unless the log is only read.
func Open(ctx context.Context, u *url.URL, opt Options) (*Log, error) {
	l := &Log{name: defaultName, opt: opt}
	l.opt.silence = cmp.Or(opt.silence, longestSilence)
	if opt.Trouble == nil {
		l.opt.Trouble = func(error) {}
	}
	query := u.Query()
	if query.Has("log") {
		if l.name = query.Get("log"); l.name == "" || len(l.name) > maxName || strings.ContainsFunc(l.name, func(r rune) bool { return r < ' ' }) {
			return nil, fmt.Errorf("postgres: log: a name has 1 to %d bytes and no control characters", maxName)
		}
		query.Del("log")
	}
	bare := *u
	bare.RawQuery = query.Encode()
	config, err := pgxpool.ParseConfig(bare.String())
	if err != nil {
		return nil, fmt.Errorf("postgres: %w", withoutURL(err))
	}
	adjust(config.ConnConfig)
	config.MaxConns, config.MaxConnIdleTime = 4, time.Minute
	config.AfterConnect = prepareSession
	l.config = config.ConnConfig.Copy()
	config.ConnConfig.DialFunc = patientDial(config.ConnConfig.DialFunc, l.opt.silence) // a leader's connection may be idle
	if l.pool, err = pgxpool.NewWithConfig(ctx, config); err != nil {
		return nil, fmt.Errorf("postgres: %w", err)
	}
	l.closing, l.close = context.WithCancel(context.Background())
	begin := l.again // a server waits for a database that starts after it, or fails over
	if opt.ReadOnly {
		begin = func(ctx context.Context, f func(context.Context) error) error { return f(ctx) }
	}
	err = begin(ctx, l.begin)
	if err == nil {
		err = l.examine(ctx)
	}
	if err != nil {
		_ = l.Close()
		return nil, fmt.Errorf("postgres: %w", err)
	}
	return l, nil
}

// withoutURL is the reason in an error about a URL: with the URL there would be a password.
func withoutURL(err error) error {
	if parse := (*pgconn.ParseConfigError)(nil); errors.As(err, &parse) {
		if cause := errors.Unwrap(parse); cause != nil {
			return withoutURL(cause)
		}
		return errors.New("the URL cannot be read")
	}
	if parse := (*url.Error)(nil); errors.As(err, &parse) {
		return parse.Err
	}
	return err
}

func adjust(c *pgx.ConnConfig) {
	if c.ConnectTimeout == 0 || c.ConnectTimeout > time.Minute {
		c.ConnectTimeout = connectTimeout
	}
	if c.ValidateConnect == nil {
		c.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsReadWrite
	}
	// A peer that is gone is found out within half a minute, unless something is on its way to it.
	dialer := &net.Dialer{KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 5 * time.Second, Interval: 5 * time.Second, Count: 3}}
	c.DialFunc = dialer.DialContext
	if _, named := c.RuntimeParams["application_name"]; !named {
		c.RuntimeParams["application_name"] = "weir"
	}
	c.OnNotice = func(conn *pgconn.PgConn, n *pgconn.Notice) {
		if isWarning(n.SeverityUnlocalized, n.Severity) {
			conn.CustomData()["warning"] = n.Message
		}
	}
}

// isWarning reports whether a notice is one. PostgreSQL reports as a warning beside a
// successful commit that it has not waited for its standby.
func isWarning(severity, localized string) bool {
	return severity == "WARNING" || severity == "" && localized == "WARNING"
}

// unwarned returns an error if the database has warned since the connection was opened.
func unwarned(conn *pgconn.PgConn) error {
	if text, warned := conn.CustomData()["warning"]; warned {
		return fmt.Errorf("the database warns: %s", text)
	}
	return nil
}

// prepareSession sets what the rules of the log rest on. Timeouts of statements are no danger
// to a commit that waits for its standby: they end with the statement.
func prepareSession(ctx context.Context, conn *pgx.Conn) error {
	_, err := conn.Exec(ctx, `SELECT set_config(name, value, false) FROM (VALUES
		('synchronous_commit', CASE WHEN current_setting('synchronous_commit') IN ('on', 'remote_apply') THEN current_setting('synchronous_commit') ELSE 'on' END),
		('default_transaction_isolation', 'read committed'), ('default_transaction_read_only', 'off'), ('enable_seqscan', 'off'),
		('statement_timeout', '60s'), ('lock_timeout', '10s'), ('idle_in_transaction_session_timeout', '30s'),
		('tcp_keepalives_idle', '5'), ('tcp_keepalives_interval', '5'), ('tcp_keepalives_count', '3')) AS s (name, value)`)
	return err
}

// begin creates the tables.
func (l *Log) begin(ctx context.Context) error {
	var there bool
	if err := l.pool.QueryRow(ctx, `SELECT to_regclass('weir_replica_terms') IS NOT NULL AND to_regclass('weir_replica_log') IS NOT NULL`).Scan(&there); err != nil {
		return err
	}
	if !there && l.opt.ReadOnly {
		return errors.New("there is no copy of weir: the database has no tables weir_replica_terms and weir_replica_log")
	}
	if !there {
		if err := pgx.BeginFunc(ctx, l.pool, createTables); err != nil {
			return fmt.Errorf("create the tables: %w", err)
		}
	}
	return nil
}

func createTables(tx pgx.Tx) error {
	ctx := context.Background() // of the transaction, which ends with the caller's
	for _, sql := range []string{
		`SELECT pg_advisory_xact_lock(hashtext('weir_replica_log'))`,
		`CREATE TABLE IF NOT EXISTS weir_replica_terms (log text PRIMARY KEY, term bigint NOT NULL, node text NOT NULL, started timestamptz NOT NULL, asked bigint NOT NULL DEFAULT 0)`,
		`CREATE TABLE IF NOT EXISTS weir_replica_log (log text, pos bigint, term bigint NOT NULL, data bytea NOT NULL, PRIMARY KEY (log, pos))`,
		`ALTER TABLE weir_replica_log ALTER COLUMN data SET STORAGE EXTERNAL`,
	} {
		if _, err := tx.Exec(ctx, sql); err != nil {
			return err
		}
	}
	return nil
}

// examine fails if the database may lose what it has confirmed when it crashes, and
// notes what else can be lost.
func (l *Log) examine(ctx context.Context) error {
	var fsync, fullPages, standbys string
	err := l.pool.QueryRow(ctx, `SELECT current_setting('fsync'), current_setting('full_page_writes'), current_setting('synchronous_standby_names')`).Scan(&fsync, &fullPages, &standbys)
	switch {
	case err != nil:
		return err
	case fsync != "on":
		return errors.New("the database runs with fsync=off and loses what it has confirmed when its machine stops; set fsync=on")
	}
	if fullPages != "on" {
		l.warnings = append(l.warnings, "PostgreSQL runs with full_page_writes=off: a page that was half written when its machine stopped may make the log unreadable; set it to on unless the file system never writes half a page")
	}
	if strings.TrimSpace(standbys) == "" {
		l.warnings = append(l.warnings, "PostgreSQL has no synchronous standby (synchronous_standby_names is empty): losing its disk loses the log, and a standby that takes over lacks what had not reached it; set synchronous_standby_names, unless the storage below is itself replicated synchronously")
	}
	if l.config.TLSConfig == nil && !local(l.config.Host) {
		l.warnings = append(l.warnings, "the connection to PostgreSQL is not encrypted; write sslmode=verify-full into the URL")
	}
	return nil
}

func local(host string) bool {
	ip := net.ParseIP(host)
	return strings.HasPrefix(host, "/") || host == "localhost" || ip != nil && ip.IsLoopback()
}

// Warnings says, for people, what the database may lose. It is as it was at Open.
func (l *Log) Warnings() []string { return l.warnings }

// Close ends all connections. What has not been stored fails.
func (l *Log) Close() error {
	l.close()
	l.mu.Lock()
	old := l.leader
	l.mu.Unlock()
	if old != nil {
		old.stop(errClosed)
		<-old.ended
	}
	l.pool.Close()
	return nil
}

var errClosed = errors.New("postgres: the log is closed")
