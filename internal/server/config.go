package server

import (
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/internal/certs"
	"github.com/weirmq/weir/internal/webhook"
)

// Config is what a server is started with. internal/settings has the defaults.
type Config struct {
	Addr        string        // host:port to listen on
	TLS         certs.Files   // of HTTPS; none: HTTP
	PortFile    string        // where the bound host:port is written; empty: nowhere
	DataDir     string        // the engine's directory
	DiskFlush   time.Duration // longest time a disk write stays unsynced
	IngestSlots int           // submissions that may wait for the log
	StallAfter  time.Duration // how long the log may stand still with work waiting; 0: for ever
	Memory      int64         // bytes that the process may take; 0: not known
	DiskReserve int64         // bytes of the disk that writes leave free; 0: the engine's default, negative: none

	Replica Replica

	AllowedHosts  []string // host names accepted besides loopback; see CheckHosts
	CORSOrigins   []string // of web pages that may use /v0; see CheckOrigins
	Keys          *Keys    // nil: auth is off
	ProbeAuth     bool     // the health paths and the OpenAPI document need a key too
	AllowInsecure bool     // a bind beyond loopback without keys is wanted

	Webhooks Webhooks

	MinHeartbeatMS int64 // shortest heartbeat of a stream; 0: the contract's

	LagWarn, LagPause int64 // what the dashboard calls elevated and backpressure; 0: the defaults of producers

	Limits api.Limits

	unwatched bool // a test's engine must not be asked by the dashboard
}

// Webhooks says whether jobs are delivered to URLs, and to which.
type Webhooks struct {
	On    bool // false: none is delivered, and none can be set
	Reach webhook.Reach
}

// Replica says where a copy of the data directory is kept, and how.
type Replica struct {
	URL         string // empty: nowhere
	Sync        bool   // what has to be synced has to be in the copy, too
	Every, Base time.Duration
	Keep        time.Duration
	LagMax      int64 // bytes

	Failover, Standby bool
	FailoverAfter     time.Duration
}

// CheckBind refuses an address that is reachable from elsewhere while everyone
// who reaches it has full rights.
func (c *Config) CheckBind() error {
	if c.Keys != nil || c.AllowInsecure || c.TLS.ClientCA != "" {
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
		"set WEIR_API_KEYS or --keys-file, or WEIR_ALLOW_INSECURE_NO_AUTH=true if that is what you want", c.Addr)
}

// BindsLoopback reports whether only this machine reaches the address.
func (c *Config) BindsLoopback() bool {
	host, _, err := net.SplitHostPort(c.Addr)
	return err == nil && bindsLoopback(host)
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
