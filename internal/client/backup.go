package client

import (
	"context"
	"io"
	"net/http"
)

// Backup starts an online backup and returns it as a tar stream; the caller
// closes it. A stream that breaks off is noticed by the manifest inside.
func (c *Client) Backup(ctx context.Context) (io.ReadCloser, error) {
	resp, err := c.send(ctx, http.MethodPost, "/admin/backup", nil, nil)
	if err != nil {
		return nil, err
	}
	return resp.Body, nil
}
