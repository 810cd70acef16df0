package server

import (
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/weirmq/weir/internal/api"
)

// Config is what a server is started with. internal/settings has the defaults.
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
