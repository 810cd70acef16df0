package client

import (
	"errors"
	"fmt"
	"net/url"
	"sort"
	"strings"

	"github.com/weirmq/weir/internal/api"
)

// Target is what an http URL on the command line refers to.
type Target struct {
	Base  string // scheme and host, nothing else
	Topic string // empty for the server itself
	Key   string // empty if the URL has none
}

// ParseTopicURL reads http://[:key@]host:port/topic. Its errors never contain the URL,
// which may hold a key.
func ParseTopicURL(raw string) (Target, error) {
	t, path, err := parseURL(raw)
	if err != nil {
		return Target{}, err
	}
	t.Topic = strings.TrimPrefix(path, "/")
	if t.Topic == "" {
		return Target{}, errors.New("the URL names no topic; expected http://[:key@]host:port/topic")
	}
	if err := api.CheckTopicName(t.Topic); err != nil {
		return Target{}, errors.New(api.Sentence(err))
	}
	return t, nil
}

// ParseServerURL reads http://[:key@]host:port.
func ParseServerURL(raw string) (Target, error) {
	t, path, err := parseURL(raw)
	if err != nil {
		return Target{}, err
	}
	if path != "" && path != "/" {
		return Target{}, errors.New("the URL has a path; this command works on a whole server: http://[:key@]host:port")
	}
	return t, nil
}

func parseURL(raw string) (Target, string, error) {
	u, err := url.Parse(raw)
	if err != nil {
		return Target{}, "", errors.New("the URL cannot be read; expected http://[:key@]host:port/topic")
	}
	if u.Scheme != "http" && u.Scheme != "https" {
		return Target{}, "", fmt.Errorf("unknown URL scheme %q; known: http, https", u.Scheme)
	}
	if u.Host == "" || u.Hostname() == "" {
		return Target{}, "", errors.New("the URL names no host; expected http://[:key@]host:port/topic")
	}
	if err := refuseQuery(u); err != nil {
		return Target{}, "", err
	}
	var t Target
	if u.User != nil {
		key, ok := u.User.Password()
		if u.User.Username() != "" || !ok || key == "" {
			return Target{}, "", errors.New("the key in the URL has to stand alone behind a colon: http://:KEY@host:port/topic")
		}
		t.Key = key
	}
	t.Base = u.Scheme + "://" + u.Host
	return t, u.Path, nil
}

func refuseQuery(u *url.URL) error {
	if u.Fragment != "" {
		return errors.New("the URL has a fragment (#…); leave it out")
	}
	if u.RawQuery == "" {
		return nil
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return errors.New("the URL's query cannot be read; http URLs take none")
	}
	names := make([]string, 0, len(query))
	for name := range query {
		names = append(names, name)
	}
	sort.Strings(names)
	return fmt.Errorf("unknown URL parameter %q; http URLs take none, use the command's flags", strings.Join(names, ", "))
}
