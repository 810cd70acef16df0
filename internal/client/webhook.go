package client

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"

	"github.com/weirmq/weir/internal/api"
)

// Webhook is what a webhook is and does; the server keeps its secret and the values of its
// headers to itself.
type Webhook struct {
	Webhook     string   `json:"webhook"`
	Topic       string   `json:"topic"`
	URL         string   `json:"url"`
	Concurrency int      `json:"concurrency"`
	Rate        int      `json:"rate"` // deliveries a second; 0: no limit
	TimeoutMS   int      `json:"timeout_ms"`
	Headers     []string `json:"headers"` // names
	State       string   `json:"state"`
	InFlight    int      `json:"in_flight"`
	Deliveries  uint64   `json:"deliveries"`
	Failures    uint64   `json:"failures"`
	LastStatus  int      `json:"last_status"`
	LastError   string   `json:"last_error"`
	LastTS      int64    `json:"last_ts"` // Unix ms
}

// Webhooks reads a page of the list of webhooks, as Topics does.
func (c *Client) Webhooks(ctx context.Context, prefix, cursor string) (webhooks []Webhook, next string, err error) {
	var out struct {
		Webhooks []Webhook `json:"webhooks"`
		Next     string    `json:"next_cursor"`
	}
	err = c.get(ctx, "/v0/webhooks?"+listQuery(cursor, "prefix", prefix), &out)
	return out.Webhooks, out.Next, err
}

func webhookPath(webhook string) string { return "/v0/webhooks/" + url.PathEscape(webhook) }

// Webhook reads the state of a webhook.
func (c *Client) Webhook(ctx context.Context, webhook string) (w Webhook, err error) {
	err = c.get(ctx, webhookPath(webhook), &w)
	return w, err
}

// PutWebhook creates or replaces a webhook with these fields. secret is the one that the
// server has made, empty if it has made none.
func (c *Client) PutWebhook(ctx context.Context, webhook string, fields map[string]any) (secret string, err error) {
	var out struct {
		Secret string `json:"secret"`
	}
	err = c.call(ctx, callTimeout, http.MethodPut, webhookPath(webhook)+"?strict=true", encode(fields), &out)
	return out.Secret, err
}

// DeleteWebhook deletes a webhook and reports whether there was one.
func (c *Client) DeleteWebhook(ctx context.Context, webhook string) (deleted bool, err error) {
	var out struct {
		Deleted bool `json:"deleted"`
	}
	err = c.call(ctx, callTimeout, http.MethodDelete, webhookPath(webhook), nil, &out)
	return out.Deleted, err
}

// ParseWebhookURL reads http://[:key@]host:port/webhook.
func ParseWebhookURL(raw string) (t Target, webhook string, err error) {
	t, path, err := parseURL(raw)
	if err != nil {
		return Target{}, "", err
	}
	webhook = strings.TrimPrefix(path, "/")
	if webhook == "" {
		return Target{}, "", errors.New("the URL names no webhook; expected http://[:key@]host:port/webhook")
	}
	if err := api.CheckWebhookName(webhook); err != nil {
		return Target{}, "", errors.New(api.Sentence(err))
	}
	return t, webhook, nil
}
