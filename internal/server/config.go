package server

import (
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/weirmq/weir/internal/api"
)

// Config is what a server is started with, read from its environment.
type Config struct {
	Addr        string        // host:port to listen on
	PortFile    string        // where the bound host:port is written; empty: nowhere
	DataDir     string        // the engine's directory
	DiskFlush   time.Duration // longest time a disk write stays unsynced
	IngestSlots int           // submissions that may wait for the log
	StallAfter  time.Duration // how long the log may stand still with work waiting; 0: for ever
	DiskReserve int64         // bytes of the disk that writes leave free; 0: the engine's default, negative: none

	AllowedHosts  []string // host names accepted besides loopback
	Keys          *Keys    // nil: auth is off
	ProbeAuth     bool     // the health paths need a key too
	AllowInsecure bool     // a bind beyond loopback without keys is wanted

	MinHeartbeatMS int64 // shortest heartbeat of a stream; 0: the contract's

	Limits api.Limits

	Changed []string // the numbers, sizes, times and switches that differ from their defaults, as NAME=value
}

// Lookup finds a setting by the name of its environment variable.
type Lookup func(name string) (value string, ok bool)

// ConfigFrom reads the settings and limits of docs/API.md. Its
// error names the variable that cannot be used; a variable that is set to
// nothing counts as not set.
func ConfigFrom(lookup Lookup) (Config, error) {
	r := settings{lookup: lookup}
	c := Config{
		Addr:           r.addr(),
		PortFile:       r.text("WEIR_PORT_FILE", ""),
		DataDir:        r.text("WEIR_DATA_DIR", "./weir-data"),
		DiskFlush:      time.Duration(r.number("WEIR_DISK_FLUSH_MS", 1000, 1, 3_600_000)) * time.Millisecond,
		IngestSlots:    int(r.number("WEIR_INGEST_QUEUE", 4096, 1, 1<<20)),
		StallAfter:     r.duration("WEIR_STALL_AFTER", 30*time.Second, time.Second, 24*time.Hour),
		DiskReserve:    r.diskReserve(),
		AllowedHosts:   splitTrim(r.text("WEIR_ALLOWED_HOSTS", ""), ","),
		ProbeAuth:      r.flag("WEIR_PROBE_AUTH"),
		AllowInsecure:  r.flag("WEIR_ALLOW_INSECURE_NO_AUTH"),
		Limits:         r.limits(),
		MinHeartbeatMS: r.number("WEIR_TEST_MIN_HEARTBEAT_MS", api.MinHeartbeatMS, 1, api.MinHeartbeatMS),
	}
	if r.err != nil {
		return Config{}, r.err
	}
	c.Changed = r.changed
	keys, err := ParseKeys(r.text("WEIR_API_KEYS", ""))
	if err != nil {
		return Config{}, fmt.Errorf("WEIR_API_KEYS: %w", err)
	}
	c.Keys = keys
	return c, nil
}

// CheckBind refuses an address that is reachable from elsewhere while everyone
// who reaches it has full rights.
func (c *Config) CheckBind() error {
	if c.Keys != nil || c.AllowInsecure {
		return nil
	}
	host, _, err := net.SplitHostPort(c.Addr)
	if err != nil {
		return fmt.Errorf("address %q: %w", c.Addr, err)
	}
	if bindsLoopback(host) {
		return nil
	}
	return fmt.Errorf("refusing to listen on %s without keys: anyone who reaches it could read and delete everything; "+
		"set WEIR_API_KEYS, or WEIR_ALLOW_INSECURE_NO_AUTH=true if that is what you want", c.Addr)
}

func bindsLoopback(host string) bool {
	if addr, err := netip.ParseAddr(host); err == nil {
		return addr.IsLoopback()
	}
	addrs, err := net.LookupHost(host)
	if host == "" || err != nil || len(addrs) == 0 {
		return false
	}
	for _, a := range addrs {
		if addr, err := netip.ParseAddr(a); err != nil || !addr.IsLoopback() {
			return false
		}
	}
	return true
}

// settings reads typed values and keeps the first error.
type settings struct {
	lookup  Lookup
	err     error
	changed []string
}

// note keeps a value that differs from its default. Text is not among them: it
// may be what nobody else is to read.
func (r *settings) note(name, value string, differs bool) {
	if differs {
		r.changed = append(r.changed, name+"="+value)
	}
}

func (r *settings) text(name, def string) string {
	if v, ok := r.lookup(name); ok && v != "" {
		return v
	}
	return def
}

func (r *settings) refuse(name, value, want string) {
	if r.err == nil {
		r.err = fmt.Errorf("%s=%q: want %s", name, value, want)
	}
}

func (r *settings) number(name string, def, low, high int64) int64 {
	v := r.text(name, "")
	if v == "" {
		return def
	}
	n, err := strconv.ParseInt(v, 10, 64)
	if err != nil || n < low || n > high {
		r.refuse(name, v, fmt.Sprintf("a whole number from %d to %d", low, high))
		return def
	}
	r.note(name, v, n != def)
	return n
}

// duration reads a time like 30s; 0s is off.
func (r *settings) duration(name string, def, low, high time.Duration) time.Duration {
	v := r.text(name, "")
	if v == "" {
		return def
	}
	d, err := time.ParseDuration(v)
	if err != nil || d != 0 && d < low || d > high {
		r.refuse(name, v, fmt.Sprintf("a time from %s to %s such as 30s, or 0s for never", low, high))
		return def
	}
	r.note(name, v, d != def)
	return d
}

// diskReserve is a size, with 0 for none.
func (r *settings) diskReserve() int64 {
	const name = "WEIR_DISK_RESERVE"
	v := r.text(name, "")
	if v == "" {
		return 0
	}
	digits, unit := v, int64(1)
	for suffix, bytes := range map[string]int64{"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40} {
		if d, ok := strings.CutSuffix(v, suffix); ok {
			digits, unit = strings.TrimSpace(d), bytes
		}
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || n < 0 || n > (1<<60)/unit {
		r.refuse(name, v, "bytes, or a number with KiB, MiB, GiB or TiB, such as 192MiB; 0 for none")
		return 0
	}
	r.note(name, v, true)
	if n == 0 {
		return -1
	}
	return n * unit
}

func (r *settings) flag(name string) bool {
	v := r.text(name, "")
	switch strings.ToLower(v) {
	case "1", "true":
		r.note(name, v, true)
		return true
	case "", "0", "false":
		return false
	}
	r.refuse(name, v, "true or false")
	return false
}

func (r *settings) addr() string {
	host := r.text("WEIR_HOST", "127.0.0.1")
	if bare := strings.Trim(host, "[]"); strings.Contains(bare, ":") {
		if _, err := netip.ParseAddr(bare); err != nil {
			return r.hostPort(host)
		}
		host = bare
	}
	return net.JoinHostPort(host, strconv.FormatInt(r.number("WEIR_PORT", 4000, 0, 65535), 10))
}

func (r *settings) hostPort(v string) string {
	_, port, err := net.SplitHostPort(v)
	n, perr := strconv.Atoi(port)
	if err != nil || perr != nil || n < 0 || n > 65535 {
		r.refuse("WEIR_HOST", v, "a host, or host:port")
	}
	return v
}

func (r *settings) limits() api.Limits {
	const most = 1 << 50
	l := api.DefaultLimits()
	for _, v := range []struct {
		name string
		at   *int64
	}{
		{"WEIR_MAX_TOPICS", &l.MaxTopics},
		{"WEIR_MAX_ROUTERS", &l.MaxRouters},
		{"WEIR_MAX_WATCH_SESSIONS", &l.MaxWatchSessions},
		{"WEIR_MAX_SSE_CONNECTIONS", &l.MaxSSEConnections},
		{"WEIR_MAX_SSE_CONNECTIONS_PER_KEY", &l.MaxSSEConnectionsPerKey},
		{"WEIR_MAX_INFLIGHT_PER_KEY", &l.MaxInflightPerKey},
		{"WEIR_MAX_INFLIGHT_BYTES", &l.MaxInflightBytes},
		{"WEIR_MAX_TOTAL_BYTES", &l.MaxTotalBytes},
		{"WEIR_MAX_IDEMPOTENCY_KEYS", &l.MaxIdempotencyKeys},
	} {
		*v.at = r.number(v.name, *v.at, 0, most)
	}
	l.MaxBodyBytes = r.number("WEIR_MAX_BODY_BYTES", l.MaxBodyBytes, 1, 1<<30)
	for _, v := range []struct {
		name string
		at   *int
	}{
		{"WEIR_MAX_BATCH_RECORDS", &l.MaxBatchRecords},
		{"WEIR_MAX_RECORD_BYTES", &l.MaxRecordBytes},
		{"WEIR_MAX_META_BYTES", &l.MaxMetaBytes},
		{"WEIR_MAX_TAG_BYTES", &l.MaxTagBytes},
		{"WEIR_MAX_NODE_BYTES", &l.MaxNodeBytes},
		{"WEIR_MAX_LIMIT", &l.MaxLimit},
		{"WEIR_MAX_CLAIM", &l.MaxClaim},
		{"WEIR_MAX_WATCH_TOPICS", &l.MaxWatchTopics},
	} {
		*v.at = int(r.number(v.name, int64(*v.at), 1, 1<<30))
	}
	return l
}

// splitTrim splits a list, trims blanks and drops empty entries.
func splitTrim(s, sep string) []string {
	var out []string
	for _, e := range strings.Split(s, sep) {
		if e = strings.TrimSpace(e); e != "" {
			out = append(out, e)
		}
	}
	return out
}
