// Package address reads the parts that the URLs of servers have in common. No error
// contains more of a URL than the part that it is about.
package address

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weirmq/weir/internal/certs"
)

// Shards is the query key with which open.URL makes one stream of several. A backend knows it
// for the list of keys only.
const Shards = "shards"

// ErrShards is a backend's error for Shards.
var ErrShards = errors.New("shards: use open.URL, which opens each of them")

// ErrNil is a backend's error for a URL that is nil, as url.Parse returns it with an error.
var ErrNil = errors.New("the URL is nil")

// Query returns the keys of a query, each given once and all of them known.
func Query(raw string, known []string) (map[string]string, error) {
	values, err := url.ParseQuery(raw)
	if err != nil {
		return nil, fmt.Errorf("query of the URL: %w", err)
	}
	query := map[string]string{}
	for key, list := range values {
		switch {
		case !slices.Contains(known, key):
			return nil, fmt.Errorf("query key %q is unknown; known: %s", key, strings.Join(known, ", "))
		case len(list) > 1:
			return nil, fmt.Errorf("query key %q appears %d times; give it once", key, len(list))
		}
		query[key] = list[0]
	}
	return query, nil
}

// Hosts splits "a:1,b:2"; port is that of a host without one. Without any host it is the
// local server.
func Hosts(list, port string) ([]string, error) {
	var addrs []string
	for part := range strings.SplitSeq(cmp.Or(list, "localhost"), ",") {
		u := url.URL{Host: part}
		host, port := u.Hostname(), cmp.Or(u.Port(), port)
		if host == "" {
			return nil, fmt.Errorf("hosts %q: a host is empty", list)
		}
		if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
			return nil, fmt.Errorf("port %q is not 1 to 65535", port)
		}
		addrs = append(addrs, net.JoinHostPort(host, port))
	}
	return addrs, nil
}

// TLSKeys are the query keys that TLS reads.
var TLSKeys = []string{"ca", "cert", "key"}

// TLS reads the files that ca, cert and key of a query name. It returns nil unless the
// scheme is secure, the one that speaks TLS.
func TLS(scheme, secure string, query map[string]string) (*tls.Config, error) {
	if scheme == secure {
		return certs.Client{CA: query["ca"], Cert: query["cert"], Key: query["key"]}.Config()
	}
	for _, key := range TLSKeys {
		if query[key] != "" {
			return nil, fmt.Errorf("%s is for TLS; use %s://, or leave it out", key, secure)
		}
	}
	return nil, nil
}

// Early calls look once half of the time that ctx leaves is over. What that finds out about a
// silent server is there before ctx ends, and nobody has to wait any longer for it. found
// returns it, nil if there is nothing yet; stop ends the look and waits for it.
func Early(ctx context.Context, look func(context.Context) error) (found func() error, stop func()) {
	until, ends := ctx.Deadline()
	if !ends {
		return func() error { return nil }, func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	result, over := make(chan error, 1), make(chan struct{})
	timer := time.AfterFunc(time.Until(until)/2, func() {
		defer close(over)
		result <- look(ctx)
	})
	found = func() error {
		select {
		case err := <-result:
			return err
		default:
			return nil
		}
	}
	return found, func() {
		waiting := timer.Stop()
		if cancel(); !waiting {
			<-over
		}
	}
}
