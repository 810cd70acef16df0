package client

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"time"
)

// Backup starts an online backup and returns it as a tar stream that comes no
// faster than rate bytes per second, 0 for no limit; the caller closes it. A
// stream that breaks off has no manifest, which is its last file. A server that sends
// nothing for silence ends it, or the call, with an error that is Unreachable.
func (c *Client) Backup(ctx context.Context, rate int64, silence time.Duration) (io.ReadCloser, error) {
	return c.ask(ctx, fmt.Sprintf("/admin/backup?rate=%d", rate), silence)
}

// Bundle returns what a server tells about itself, as a compressed tar, with a CPU profile
// of the given length. For silence on top of that length it is as with Backup.
func (c *Client) Bundle(ctx context.Context, profile, silence time.Duration) (io.ReadCloser, error) {
	return c.ask(ctx, "/admin/bundle?profile="+profile.String(), profile+silence)
}

// ask makes a call whose answer is long, and ends with silence.
func (c *Client) ask(ctx context.Context, path string, silence time.Duration) (io.ReadCloser, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	timer := time.AfterFunc(silence, func() { cancel(errSilent) })
	resp, err := c.send(ctx, http.MethodPost, path, nil, nil)
	timer.Stop()
	if err != nil {
		err = orSilent(ctx, err)
		cancel(nil)
		return nil, err
	}
	return &silentBody{ctx, cancel, resp.Body, impatientReader{resp.Body, timer, silence}}, nil
}

// silentBody is a body whose server may fall silent.
type silentBody struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
	body   io.Closer
	impatientReader
}

func (b *silentBody) Read(p []byte) (int, error) {
	n, err := b.impatientReader.Read(p)
	if err != nil {
		err = orSilent(b.ctx, err)
	}
	return n, err
}

func (b *silentBody) Close() error {
	b.timer.Stop()
	b.cancel(nil)
	return b.body.Close()
}
