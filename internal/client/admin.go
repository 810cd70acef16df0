package client

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/weirmq/weir/internal/api"
)

// listPage is how many names a list is asked for at once.
const listPage = 1000

// TopicEntry is a line of the list of topics.
type TopicEntry struct {
	Topic       string `json:"topic"`
	Count       uint64 `json:"count"`
	Bytes       uint64 `json:"bytes"`
	EarliestSeq uint64 `json:"earliest_seq"`
	HeadSeq     uint64 `json:"head_seq"`
	Durable     bool   `json:"durable"`
}

// Topics reads a page of the list of topics behind a cursor, which is empty at first. next is
// the cursor of the page that follows, empty if there is none.
func (c *Client) Topics(ctx context.Context, prefix, cursor string) (topics []TopicEntry, next string, err error) {
	var out struct {
		Topics []TopicEntry `json:"topics"`
		Next   string       `json:"next_cursor"`
	}
	err = c.get(ctx, "/v0/topics?"+listQuery(cursor, "prefix", prefix), &out)
	return out.Topics, out.Next, err
}

func listQuery(cursor string, pairs ...string) string {
	q := url.Values{"page_size": {strconv.Itoa(listPage)}}
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			q.Set(pairs[i], pairs[i+1])
		}
	}
	if cursor != "" {
		q.Set("cursor", cursor)
	}
	return q.Encode()
}

// TopicInfo is the state of a topic. What is JSON in it is the server's own, which may be
// newer.
type TopicInfo struct {
	Topic             string          `json:"topic"`
	Type              string          `json:"type"`
	Count             uint64          `json:"count"`
	Bytes             uint64          `json:"bytes"`
	EarliestSeq       uint64          `json:"earliest_seq"`
	HeadSeq           uint64          `json:"head_seq"`
	LastWriteTS       *int64          `json:"last_write_ts"` // Unix ms; nil: never
	LastReadTS        *int64          `json:"last_read_ts"`  // likewise
	EffectivePriority int64           `json:"effective_priority"`
	Config            json.RawMessage `json:"config"`
	Queue             json.RawMessage `json:"queue,omitempty"`
}

func (i *TopicInfo) foreign() bool { return i.Topic == "" }

// TopicInfo reads a topic's state with its whole configuration, without marking it as read.
func (c *Client) TopicInfo(ctx context.Context, topic string) (info TopicInfo, err error) {
	err = c.get(ctx, topicPath(topic, "")+"?touch=false", &info)
	return info, err
}

// Configure creates the topic, or replaces its configuration by these fields and the defaults
// of the others. A server that does not know one of them refuses it.
func (c *Client) Configure(ctx context.Context, topic string, fields map[string]any) (created bool, config json.RawMessage, err error) {
	var out struct {
		aboutTopic
		Created bool            `json:"created"`
		Config  json.RawMessage `json:"config"`
	}
	err = c.call(ctx, callTimeout, http.MethodPut, topicPath(topic, "")+"?strict=true", encode(fields), &out)
	return out.Created, out.Config, err
}

// DeleteTopic deletes a topic with everything in it, and its routers; with ifEmpty, only if it
// has no records. deleted is false if there was none.
func (c *Client) DeleteTopic(ctx context.Context, topic string, ifEmpty bool) (deleted bool, routers []string, err error) {
	var out struct {
		aboutTopic
		Deleted bool     `json:"deleted"`
		Routers []string `json:"routers_removed"`
	}
	path := topicPath(topic, "")
	if ifEmpty {
		path += "?if_empty=true"
	}
	err = c.call(ctx, callTimeout, http.MethodDelete, path, nil, &out)
	return out.Deleted, out.Routers, err
}

// RemoveTopic is DeleteTopic for callers to whom it is all the same what was there.
func (c *Client) RemoveTopic(ctx context.Context, topic string) error {
	_, _, err := c.DeleteTopic(ctx, topic, false)
	return err
}

// Router is a line of the list of routers.
type Router struct {
	Router         string `json:"router"`
	Source         string `json:"source"`
	Dest           string `json:"dest"`
	Guarantee      string `json:"guarantee"`
	ForwardedTotal uint64 `json:"forwarded_total"` // copies made since it was created
}

// Routers reads a page of the list of routers, as Topics does. An empty source, or dest, is any.
func (c *Client) Routers(ctx context.Context, prefix, source, dest, cursor string) (routers []Router, next string, err error) {
	var out struct {
		Routers []Router `json:"routers"`
		Next    string   `json:"next_cursor"`
	}
	err = c.get(ctx, "/v0/routers?"+listQuery(cursor, "prefix", prefix, "source", source, "dest", dest), &out)
	return out.Routers, out.Next, err
}

func routerPath(router string) string { return "/v0/routers/" + url.PathEscape(router) }

// Router reads the state of a router.
func (c *Client) Router(ctx context.Context, router string) (r Router, err error) {
	err = c.get(ctx, routerPath(router), &r)
	return r, err
}

// PutRouter creates a router with these fields, or changes what may change of it. A server
// that does not know one of them refuses it.
func (c *Client) PutRouter(ctx context.Context, router string, fields map[string]any) (created bool, err error) {
	var out struct {
		Created bool `json:"created"`
	}
	err = c.call(ctx, callTimeout, http.MethodPut, routerPath(router)+"?strict=true", encode(fields), &out)
	return out.Created, err
}

// DeleteRouter deletes a router and reports whether there was one. Its copies stay.
func (c *Client) DeleteRouter(ctx context.Context, router string) (deleted bool, err error) {
	var out struct {
		Deleted bool `json:"deleted"`
	}
	err = c.call(ctx, callTimeout, http.MethodDelete, routerPath(router), nil, &out)
	return out.Deleted, err
}

// ParseRouterURL reads http://[:key@]host:port/router.
func ParseRouterURL(raw string) (t Target, router string, err error) {
	t, path, err := parseURL(raw)
	if err != nil {
		return Target{}, "", err
	}
	router = strings.TrimPrefix(path, "/")
	if router == "" {
		return Target{}, "", errors.New("the URL names no router; expected http://[:key@]host:port/router")
	}
	if !api.ValidRouterName(router) {
		return Target{}, "", errors.New(api.Sentence(api.RouterNotFound(router)))
	}
	return t, router, nil
}
