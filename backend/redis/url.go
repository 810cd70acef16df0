package redis

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirmq/weir/internal/address"
)

const (
	defaultGroup    = "weir"
	defaultPort     = "6379"
	defaultSentinel = "26379"
	maxNameBytes    = 512 // of a stream or a group
)

// queryKeys are the query keys of a redis URL.
var queryKeys = []string{"stream", "group", "master", "durability", "signal", "enqueue_field", "trim", "start", "create", "sentinel_user", "sentinel_password", "ca", "cert", "key", address.Shards}

// What trim says in a URL.
const (
	trimAuto = "auto"
	trimOn   = "on"
	trimOff  = "off"
)

// What start and create say in a URL.
const (
	startFirst  = "0"
	startNew    = "$"
	createNever = "never"
)

// settings is what a URL says.
type settings struct {
	keys       keys
	addrs      []string
	user, pass string
	sentinel   struct{ user, pass string }
	db         int
	tls        *tls.Config // nil: none
	files      struct{ ca, cert, key string }
	master     string
	durability string // weakest class accepted; empty: any
	enqueued   string // the field that Stats takes ages from
	trim       string // trimAuto, trimOn or trimOff
	start      string // startNew, or empty: where a new group begins
	create     string // createNever or empty
}

// parse reads a URL. Its errors never contain the user name or password.
func parse(u *url.URL) (settings, error) {
	var s settings
	if u == nil {
		return s, address.ErrNil
	}
	if u.Scheme != "redis" && u.Scheme != "rediss" {
		return s, fmt.Errorf("scheme %q is not redis or rediss", u.Scheme)
	}
	if strings.Contains(u.EscapedPath()+u.RawQuery+u.EscapedFragment(), "@") {
		// A password with a / ? or # ends up there, so the error must not quote it.
		return s, errors.New("there is an @ after the host; special characters in a user name, password or name need percent-encoding")
	}
	query, err := address.Query(u.RawQuery, queryKeys)
	if err != nil {
		return s, err
	}
	if _, ok := query[address.Shards]; ok {
		return s, address.ErrShards
	}
	if s.tls, err = address.TLS(u.Scheme, "rediss", query); err != nil {
		return s, err
	}
	s.files.ca, s.files.cert, s.files.key = query["ca"], query["cert"], query["key"]
	if u.User != nil {
		s.user = u.User.Username()
		s.pass, _ = u.User.Password()
	}
	s.master = query["master"]
	s.sentinel.user, s.sentinel.pass = query["sentinel_user"], query["sentinel_password"]
	if s.master == "" && s.sentinel.user+s.sentinel.pass != "" {
		return s, errors.New("sentinel_user and sentinel_password are for Sentinels; add master=NAME, or leave them out")
	}
	port := defaultPort
	if s.master != "" {
		port = defaultSentinel
	}
	if s.addrs, err = address.Hosts(u.Host, port); err != nil {
		return s, err
	}
	if s.db, err = parseDB(u.Path); err != nil {
		return s, err
	}
	if s.cluster() && s.db != 0 {
		return s, fmt.Errorf("database %d: a Cluster (several hosts without master=) has only database 0", s.db)
	}
	if query["stream"] == "" {
		return s, errors.New("the URL names no stream; add ?stream=NAME")
	}
	return s, s.setStream(Options{
		Stream: query["stream"], Group: query["group"], Durability: query["durability"],
		Signal: query["signal"], EnqueueField: query["enqueue_field"], Trim: query["trim"],
		Start: query["start"], Create: query["create"],
	})
}

// known checks a setting that has a list of values.
func known(name, value string, values []string) error {
	if slices.Contains(values, value) {
		return nil
	}
	return fmt.Errorf("%s %q is unknown; known: %s", name, value, strings.Join(values, ", "))
}

// cluster reports whether the hosts are nodes of a Cluster.
func (s settings) cluster() bool { return s.master == "" && len(s.addrs) > 1 }

// namedKeys returns the keys of a stream and a group; an empty signal is the default.
func namedKeys(stream, group, signal string) (keys, error) {
	if stream == "" {
		return keys{}, errors.New("no stream is named")
	}
	group = cmp.Or(group, defaultGroup)
	if len(stream) > maxNameBytes || len(group) > maxNameBytes {
		return keys{}, fmt.Errorf("stream and group may have at most %d bytes each", maxNameBytes)
	}
	k, err := keysOf(stream, group)
	if err == nil && signal != "" {
		k.lag = signal
	}
	return k, err
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
	opt.TLSConfig = s.tls
	return opt
}
