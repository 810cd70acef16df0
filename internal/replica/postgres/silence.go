package postgres

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// longestSilence is for how long the database may say nothing while it is waited for. Keepalives
// notice neither a proxy or a stopped process that holds a connection, nor, while something is sent
// again and again, a machine that is gone.
const longestSilence = 30 * time.Second

// errSilent says why a connection was closed.
var errSilent = errors.New("the database says nothing")

// patientDial returns a way to open connections whose reads are given up after limit.
func patientDial(dial pgconn.DialFunc, limit time.Duration) pgconn.DialFunc {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return &patientConn{Conn: conn, limit: limit}, nil
	}
}

// patientConn is closed when a Read waits for too long. It sets no deadline: pgx has its own.
type patientConn struct {
	net.Conn
	limit  time.Duration
	silent atomic.Bool
}

func (c *patientConn) Read(b []byte) (int, error) {
	late := time.AfterFunc(c.limit, func() {
		c.silent.Store(true)
		_ = c.Close()
	})
	n, err := c.Conn.Read(b)
	late.Stop()
	if err != nil && c.silent.Load() {
		err = errSilent
	}
	return n, err
}
