// Package pieces sends the messages of a WebSocket in pieces.
//
// In one piece, a message that takes a slow peer long could not be told from one that the peer
// does not take, and the answer to a ping would have to wait for its end: the library gives that
// five seconds, and closes the connection then.
package pieces

import (
	"context"
	"errors"
	"time"

	"github.com/coder/websocket"
)

// Size is how much of a message is sent at once.
const Size = 32 << 10

// ErrNotTaken says that the peer takes nothing.
var ErrNotTaken = errors.New("the other end takes nothing")

// Write sends a text message. It fails with ErrNotTaken once nothing of it was taken for so
// long as patience; the connection is of no use then, as after any error.
func Write(ctx context.Context, conn *websocket.Conn, msg []byte, patience time.Duration) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	late := time.AfterFunc(patience, func() { cancel(ErrNotTaken) })
	defer late.Stop()
	err := write(ctx, conn, msg, func() { late.Reset(patience) })
	if err != nil && errors.Is(context.Cause(ctx), ErrNotTaken) {
		return ErrNotTaken
	}
	return err
}

// write calls taken after each piece.
func write(ctx context.Context, conn *websocket.Conn, msg []byte, taken func()) error {
	if len(msg) <= Size {
		return conn.Write(ctx, websocket.MessageText, msg)
	}
	w, err := conn.Writer(ctx, websocket.MessageText)
	if err != nil {
		return err
	}
	for len(msg) > 0 {
		n := min(len(msg), Size)
		if _, err := w.Write(msg[:n]); err != nil {
			return err
		}
		msg = msg[n:]
		taken()
	}
	return w.Close()
}
