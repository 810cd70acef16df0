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
// stream that breaks off has no manifest, which is its last file.
func (c *Client) Backup(ctx context.Context, rate int64) (io.ReadCloser, error) {
	resp, err := c.send(ctx, http.MethodPost, fmt.Sprintf("/admin/backup?rate=%d", rate), nil, nil)
	if err != nil {
		return nil, err
	}
	return resp.Body, nil
}

// Bundle returns what a server tells about itself, as a compressed tar, with a CPU profile
// of the given length.
func (c *Client) Bundle(ctx context.Context, profile time.Duration) (io.ReadCloser, error) {
	resp, err := c.send(ctx, http.MethodPost, "/admin/bundle?profile="+profile.String(), nil, nil)
	if err != nil {
		return nil, err
	}
	return resp.Body, nil
}
