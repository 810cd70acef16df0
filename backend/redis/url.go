package redis

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirmq/weir/backend"
)

const (
	defaultGroup    = "weir"
	defaultPort     = "6379"
	defaultSentinel = "26379"
	maxNameBytes    = 512 // of a stream or a group
)

// known are the query keys of a redis URL.
var known = []string{"stream", "group", "master", "durability", "signal", "enqueue_field", "trim", "sentinel_user", "sentinel_password"}

// What trim says in a URL.
const (
	trimAuto = "auto"
	trimOn   = "on"
	trimOff  = "off"
)

// settings is what a URL says.
type settings struct {
	keys       keys
	addrs      []string
	user, pass string
	sentinel   struct{ user, pass string }
	db         int
	tls        bool
	master     string
	durability string // weakest class accepted; empty: any
	enqueued   string // the field that Stats takes ages from
	trim       string // trimAuto, trimOn or trimOff
}

// parse reads a URL. Its errors never contain the user name or password.
func parse(u *url.URL) (settings, error) {
	s := settings{tls: u.Scheme == "rediss"}
	if u.Scheme != "redis" && u.Scheme != "rediss" {
		return s, fmt.Errorf("scheme %q is not redis or rediss", u.Scheme)
	}
	if strings.Contains(u.EscapedPath()+u.RawQuery+u.EscapedFragment(), "@") {
		// A password with a / ? or # ends up there, so the error must not quote it.
		return s, errors.New("there is an @ after the host; special characters in a user name, password or name need percent-encoding")
	}
	query, err := parseQuery(u.RawQuery)
	if err != nil {
		return s, err
	}
	if u.User != nil {
		s.user = u.User.Username()
		s.pass, _ = u.User.Password()
	}
	s.master = query["master"]
	s.sentinel.user, s.sentinel.pass = query["sentinel_user"], query["sentinel_password"]
	if s.master == "" && s.sentinel.user+s.sentinel.pass != "" {
		return s, errors.New("sentinel_user and sentinel_password are for Sentinels; add master=NAME, or leave them out")
	}
	if s.addrs, err = parseHosts(u.Host, s.master != ""); err != nil {
		return s, err
	}
	if s.db, err = parseDB(u.Path); err != nil {
		return s, err
	}
	if s.cluster() && s.db != 0 {
		return s, fmt.Errorf("database %d: a Cluster (several hosts without master=) has only database 0", s.db)
	}
	s.enqueued = cmp.Or(query["enqueue_field"], backend.FieldEnqueued)
	s.durability = query["durability"]
	if s.durability != "" && !slices.Contains(classes, s.durability) {
		return s, fmt.Errorf("durability %q is unknown; known: %s", s.durability, strings.Join(classes, ", "))
	}
	if s.trim = cmp.Or(query["trim"], trimAuto); !slices.Contains([]string{trimAuto, trimOn, trimOff}, s.trim) {
		return s, fmt.Errorf("trim %q is unknown; use %s, %s or %s", s.trim, trimAuto, trimOn, trimOff)
	}
	s.keys, err = parseNames(query)
	return s, err
}

// cluster reports whether the hosts are nodes of a Cluster.
func (s settings) cluster() bool { return s.master == "" && len(s.addrs) > 1 }

func parseQuery(raw string) (map[string]string, error) {
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

func parseNames(query map[string]string) (keys, error) {
	stream, group := query["stream"], query["group"]
	if stream == "" {
		return keys{}, fmt.Errorf("the URL names no stream; add ?stream=NAME")
	}
	if group == "" {
		group = defaultGroup
	}
	if len(stream) > maxNameBytes || len(group) > maxNameBytes {
		return keys{}, fmt.Errorf("stream and group may have at most %d bytes each", maxNameBytes)
	}
	k, err := keysOf(stream, group)
	if err == nil && query["signal"] != "" {
		k.lag = query["signal"]
	}
	return k, err
}

// parseHosts splits "a:1,b:2". Without any host it is the local server.
func parseHosts(list string, sentinel bool) ([]string, error) {
	fallback := defaultPort
	if sentinel {
		fallback = defaultSentinel
	}
	if list == "" {
		list = "localhost"
	}
	var addrs []string
	for part := range strings.SplitSeq(list, ",") {
		u := url.URL{Host: part}
		host, port := u.Hostname(), u.Port()
		if host == "" {
			return nil, fmt.Errorf("hosts %q: a host is empty", list)
		}
		if port == "" {
			port = fallback
		}
		if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
			return nil, fmt.Errorf("port %q is not 1 to 65535", port)
		}
		addrs = append(addrs, net.JoinHostPort(host, port))
	}
	return addrs, nil
}

func parseDB(path string) (int, error) {
	name := strings.Trim(path, "/")
	if name == "" {
		return 0, nil
	}
	db, err := strconv.Atoi(name)
	if err != nil || db < 0 {
		return 0, fmt.Errorf("database %q is not a number; the stream is named by ?stream=NAME", name)
	}
	return db, nil
}

// options are what every kind of client has in common.
func (s settings) options() *redis.UniversalOptions {
	opt := &redis.UniversalOptions{
		Addrs:      s.addrs,
		MasterName: s.master,
		Username:   s.user,
		Password:   s.pass,
		DB:         s.db,

		SentinelUsername: s.sentinel.user,
		SentinelPassword: s.sentinel.pass,
		// Every server supports version 2, and its replies are all arrays.
		Protocol: 2,
		// Only this package knows what may be repeated (see node.go).
		MaxRetries:            -1,
		DialerRetries:         1,
		DialTimeout:           dialTimeout,
		ReadTimeout:           callTimeout + time.Second, // later than any watched call's deadline
		WriteTimeout:          callTimeout + time.Second,
		PoolTimeout:           callTimeout,
		ContextTimeoutEnabled: true,
		DisableIdentity:       true,
		IsClusterMode:         s.cluster(),
	}
	if s.tls {
		opt.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12} // for the name dialed
	}
	return opt
}
