package client

import (
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/internal/certs"
)

// Target is what an http URL on the command line refers to.
type Target struct {
	Base  string // scheme and host, nothing else; more hosts follow behind commas
	Topic string // empty for the server itself
	Key   string // empty if the URL has none
	Certs certs.Client
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
	if err := validPort(u); err != nil {
		return Target{}, "", err
	}
	var t Target
	others, err := t.readQuery(u)
	if err != nil {
		return Target{}, "", err
	}
	if u.User != nil {
		key, ok := u.User.Password()
		if u.User.Username() != "" || !ok || key == "" {
			return Target{}, "", errors.New("the key in the URL has to stand alone behind a colon: http://:KEY@host:port/topic")
		}
		t.Key = key
	}
	t.Base = u.Scheme + "://" + strings.Join(append([]string{u.Host}, others...), ",")
	return t, u.Path, nil
}

// validPort refuses a port that no server can have: to wait for it would be in vain.
func validPort(u *url.URL) error {
	if port := u.Port(); port != "" {
		if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
			return fmt.Errorf("port %q is not 1 to 65535", port)
		}
	}
	return nil
}

// readQuery reads the files of TLS and returns the hosts of the key standby. It refuses
// any other key.
func (t *Target) readQuery(u *url.URL) (standby []string, err error) {
	if u.Fragment != "" {
		return nil, errors.New("the URL has a fragment (#…); leave it out")
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return nil, errors.New("the URL's query cannot be read; http URLs take none but standby=host:port, and ca, cert and key")
	}
	if standby, err = standbys(query); err != nil {
		return nil, err
	}
	query.Del("standby")
	for key, file := range map[string]*string{"ca": &t.Certs.CA, "cert": &t.Certs.Cert, "key": &t.Certs.Key} {
		if *file = query.Get(key); *file != "" && u.Scheme != "https" {
			return nil, fmt.Errorf("%s is for TLS; use https://, or leave it out", key)
		}
		query.Del(key)
	}
	if len(query) == 0 {
		return standby, nil
	}
	return nil, fmt.Errorf("unknown URL parameter %q; http URLs take none but standby, ca, cert and key, use the command's flags", strings.Join(slices.Sorted(maps.Keys(query)), ", "))
}
