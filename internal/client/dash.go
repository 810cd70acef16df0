package client

import (
	"context"
	"io"
	"net/http"
	"time"
)

// maxEventBytes bounds one event of the dashboard: a thousand streams with all numbers.
const maxEventBytes = 16 << 20

// Dashboard decodes what a path of the dashboard, /ui/…, answers into out.
func (c *Client) Dashboard(ctx context.Context, path string, out any) error {
	return c.get(ctx, path, out)
}

// DashboardEvents asks a path of the dashboard for a stream of events, with a POST of body
// unless it is nil, and calls event with the data of each, which is valid until event
// returns. It ends with the stream, with nil; with ctx; if event fails; or when nothing has
// come for silence.
func (c *Client) DashboardEvents(ctx context.Context, path string, body []byte, silence time.Duration, event func(data []byte) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	timer := time.AfterFunc(silence, func() { cancel(errSilent) })
	defer timer.Stop()
	method := http.MethodGet
	if body != nil {
		method = http.MethodPost
	}
	resp, err := c.send(ctx, method, path, http.Header{"Accept": {"text/event-stream"}}, body)
	if err != nil {
		return orSilent(ctx, err)
	}
	defer resp.Body.Close()
	for frames := newFrameReader(&impatientReader{resp.Body, timer, silence}, maxEventBytes); ; {
		f, err := frames.next()
		switch {
		case err == io.EOF:
			return nil
		case err != nil:
			return orSilent(ctx, &Unreachable{Err: err})
		}
		if err := event(f.data); err != nil {
			return err
		}
	}
}
