package server

import (
	"strings"
	"testing"
	"time"

	"github.com/weirmq/weir/internal/api"
)

func lookup(env map[string]string) Lookup {
	return func(name string) (string, bool) {
		v, ok := env[name]
		return v, ok
	}
}

func TestSettingsHaveTheDefaultsOfTheContract(t *testing.T) {
	for _, env := range []map[string]string{nil, {"WEIR_HOST": "", "WEIR_PORT": "", "WEIR_MAX_TOPICS": "", "WEIR_PROBE_AUTH": ""}} {
		c, err := ConfigFrom(lookup(env))
		if err != nil {
			t.Fatal(err)
		}
		if c.Addr != "127.0.0.1:4000" || c.DataDir != "./weir-data" || c.DiskFlush != time.Second || c.IngestSlots != 4096 ||
			c.Keys != nil || c.ProbeAuth || c.AllowInsecure || c.PortFile != "" || c.Limits != api.DefaultLimits() {
			t.Errorf("got %+v", c)
		}
	}
}

func TestHostAndPort(t *testing.T) {
	for _, c := range []struct{ host, port, want string }{
		{"", "", "127.0.0.1:4000"},
		{"", "0", "127.0.0.1:0"},
		{"0.0.0.0", "80", "0.0.0.0:80"},
		{"10.0.0.1:7", "80", "10.0.0.1:7"},
		{"10.0.0.1:7", "nonsense", "10.0.0.1:7"},
		{"localhost:0", "80", "localhost:0"},
		{"[::1]:9", "80", "[::1]:9"},
		{"::1", "80", "[::1]:80"},
		{"::", "80", "[::]:80"},
		{":8080", "80", ":8080"},
	} {
		got, err := ConfigFrom(lookup(map[string]string{"WEIR_HOST": c.host, "WEIR_PORT": c.port}))
		if err != nil || got.Addr != c.want {
			t.Errorf("%q %q: got %q, %v, want %q", c.host, c.port, got.Addr, err, c.want)
		}
	}
}

func TestAnUnusableSettingIsNamed(t *testing.T) {
	bad := map[string][]string{
		"WEIR_PORT":                   {"65536", "-1", "http", "4000 "},
		"WEIR_HOST":                   {"a:b", "1.2.3.4:", "1.2.3.4:99999", "a:1:2"},
		"WEIR_DISK_FLUSH_MS":          {"0", "-1", "1s", "1e3"},
		"WEIR_INGEST_QUEUE":           {"0", "x"},
		"WEIR_DISK_RESERVE":           {"-1", "1.5GiB", "MiB", "10MB", "99999999999TiB", "half"},
		"WEIR_PROBE_AUTH":             {"yes", "2"},
		"WEIR_TEST_MIN_HEARTBEAT_MS":  {"0", "1001", "1s"},
		"WEIR_ALLOW_INSECURE_NO_AUTH": {"please"},
		"WEIR_API_KEYS":               {"k:wrong", ":r", "k,k", "x:rw:", "abc:rw:orders-*"},
		"WEIR_MAX_BODY_BYTES":         {"0", "64MiB"},
	}
	for _, name := range []string{
		"TOPICS", "ROUTERS", "WATCH_SESSIONS", "SSE_CONNECTIONS", "SSE_CONNECTIONS_PER_KEY", "INFLIGHT_PER_KEY", "INFLIGHT_BYTES",
		"TOTAL_BYTES", "BATCH_RECORDS", "RECORD_BYTES", "META_BYTES", "TAG_BYTES", "NODE_BYTES", "LIMIT", "CLAIM", "WATCH_TOPICS",
	} {
		bad["WEIR_MAX_"+name] = []string{"-1", "1.5", "many", "99999999999999999999"}
	}
	for name, values := range bad {
		for _, v := range values {
			if _, err := ConfigFrom(lookup(map[string]string{name: v})); err == nil || !strings.Contains(err.Error(), name) {
				t.Errorf("%s=%q: the error is %v", name, v, err)
			}
		}
	}
}

func TestTheDiskReserveIsASize(t *testing.T) {
	for v, want := range map[string]int64{"": 0, "0": -1, "0MiB": -1, "4096": 4096, "3KiB": 3 << 10, "192MiB": 192 << 20, "2 GiB": 2 << 30, "1TiB": 1 << 40} {
		c, err := ConfigFrom(lookup(map[string]string{"WEIR_DISK_RESERVE": v}))
		if err != nil || c.DiskReserve != want {
			t.Errorf("%q: got %d, %v, want %d", v, c.DiskReserve, err, want)
		}
	}
}

func TestEveryLimitCanBeSet(t *testing.T) {
	c, err := ConfigFrom(lookup(map[string]string{
		"WEIR_MAX_TOPICS": "1", "WEIR_MAX_ROUTERS": "2", "WEIR_MAX_WATCH_SESSIONS": "3", "WEIR_MAX_SSE_CONNECTIONS": "4",
		"WEIR_MAX_SSE_CONNECTIONS_PER_KEY": "5", "WEIR_MAX_INFLIGHT_PER_KEY": "6", "WEIR_MAX_INFLIGHT_BYTES": "0",
		"WEIR_MAX_TOTAL_BYTES": "8", "WEIR_MAX_IDEMPOTENCY_KEYS": "18", "WEIR_MAX_BODY_BYTES": "9", "WEIR_MAX_BATCH_RECORDS": "10", "WEIR_MAX_RECORD_BYTES": "11",
		"WEIR_MAX_META_BYTES": "12", "WEIR_MAX_TAG_BYTES": "13", "WEIR_MAX_NODE_BYTES": "14", "WEIR_MAX_LIMIT": "15",
		"WEIR_MAX_CLAIM": "16", "WEIR_MAX_WATCH_TOPICS": "17",
	}))
	want := api.Limits{
		MaxTopics: 1, MaxRouters: 2, MaxWatchSessions: 3, MaxSSEConnections: 4, MaxSSEConnectionsPerKey: 5, MaxInflightPerKey: 6,
		MaxInflightBytes: 0, MaxTotalBytes: 8, MaxIdempotencyKeys: 18, MaxBodyBytes: 9, MaxBatchRecords: 10, MaxRecordBytes: 11, MaxMetaBytes: 12,
		MaxTagBytes: 13, MaxNodeBytes: 14, MaxLimit: 15, MaxClaim: 16, MaxWatchTopics: 17,
	}
	if err != nil || c.Limits != want {
		t.Errorf("got %+v, %v", c.Limits, err)
	}
}

func TestABindBeyondLoopbackNeedsKeys(t *testing.T) {
	for host, ok := range map[string]bool{
		"127.0.0.1": true, "localhost": true, "::1": true, "127.9.9.9": true,
		"0.0.0.0": false, "::": false, "[::]:4000": false, ":4000": false, "10.1.2.3": false, "no.such.host.invalid": false,
	} {
		env := map[string]string{"WEIR_HOST": host}
		check := func(want bool) {
			t.Helper()
			c, err := ConfigFrom(lookup(env))
			if err != nil {
				t.Fatal(err)
			}
			if err := c.CheckBind(); (err == nil) != want {
				t.Errorf("%v: got %v, want accepted %v", env, err, want)
			}
		}
		check(ok)
		env["WEIR_ALLOW_INSECURE_NO_AUTH"] = "0"
		check(ok)
		env["WEIR_ALLOW_INSECURE_NO_AUTH"] = "true"
		check(true)
		env["WEIR_ALLOW_INSECURE_NO_AUTH"], env["WEIR_API_KEYS"] = "", "k"
		check(true)
	}
}
