package main

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weirmq/weir/internal/api"
)

func TestTheLogIsTextOrJSON(t *testing.T) {
	line := func(format string) string {
		var out bytes.Buffer
		newLog(&out, format, slog.LevelInfo).Info("ready", "topics", 3)
		return out.String()
	}
	if got := line("text"); !strings.Contains(got, "msg=ready topics=3") {
		t.Errorf("text: %q", got)
	}
	var got map[string]any
	if err := json.Unmarshal([]byte(line("json")), &got); err != nil || got["msg"] != "ready" || got["topics"] != 3.0 {
		t.Errorf("json: %v, %v", got, err)
	}
}

// loadServe reads the settings of serve from pairs of an environment.
func loadServe(t *testing.T, env map[string]string, args ...string) (serveOptions, error) {
	t.Helper()
	for name, text := range env {
		t.Setenv(name, text)
	}
	cmd := newServeCmd()
	if err := cmd.ParseFlags(args); err != nil {
		t.Fatal(err)
	}
	var opt serveOptions
	_, err := opt.load(cmd)
	return opt, err
}

func TestSettingsHaveTheDefaultsOfTheContract(t *testing.T) {
	for _, env := range []map[string]string{nil, {"WEIR_HOST": "", "WEIR_PORT": "", "WEIR_MAX_TOPICS": "", "WEIR_PROBE_AUTH": ""}} {
		c, err := loadServe(t, env)
		if err != nil {
			t.Fatal(err)
		}
		if c.Addr != "127.0.0.1:4000" || c.DataDir != "./weir-data" || c.DiskFlush != time.Second || c.IngestSlots != 4096 ||
			c.StallAfter != 30*time.Second || c.DiskReserve != 0 || c.MinHeartbeatMS != api.MinHeartbeatMS ||
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
		{"[::1]", "80", "[::1]:80"},
		{"::1", "80", "[::1]:80"},
		{"::", "80", "[::]:80"},
		{":8080", "80", ":8080"},
		{"", "tcp://10.0.0.1:4000", "127.0.0.1:4000"}, // what Kubernetes sets for a service called weir
	} {
		got, err := loadServe(t, map[string]string{"WEIR_HOST": c.host, "WEIR_PORT": c.port, "WEIR_ALLOW_INSECURE_NO_AUTH": "1"})
		if err != nil || got.Addr != c.want {
			t.Errorf("%q %q: got %q, %v, want %q", c.host, c.port, got.Addr, err, c.want)
		}
	}
}

// Whoever names an address on which a command cannot listen is told what mends that.
func TestAnAddressWithoutAListenerIsToldWithWhatMendsIt(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	for line, want := range map[string]string{
		"serve --allow-insecure-no-auth --port 0 --host 192.0.2.1 --data-dir DIR": "use an address of this machine",
		"serve --host " + taken.Addr().String() + " --data-dir DIR":               "address already in use; choose another with --port",
		"dash --allow-insecure-no-auth --listen 192.0.2.1:0 http://127.0.0.1:1/x": "use an address of this machine",
		"dash --listen " + taken.Addr().String() + " http://127.0.0.1:1/x":        "address already in use; choose another with --listen",
	} {
		res := runWeir(t, "", strings.Fields(strings.ReplaceAll(line, "DIR", t.TempDir()))...)
		if res.err == nil || exitCode(res.err) != exitFailed || !strings.Contains(res.err.Error(), want) {
			t.Errorf("weir %s: %v, want %s", line, res.err, want)
		}
	}
	if err := notListening(os.NewSyscallError("bind", syscall.EACCES), "with --port"); !strings.Contains(err.Error(), "permission denied; ports below 1024 may need rights") {
		t.Error(err)
	}
}

func TestEveryLimitCanBeSet(t *testing.T) {
	c, err := loadServe(t, map[string]string{
		"WEIR_MAX_TOPICS": "1", "WEIR_MAX_ROUTERS": "2", "WEIR_MAX_WATCH_SESSIONS": "3", "WEIR_MAX_SSE_CONNECTIONS": "4",
		"WEIR_MAX_SSE_CONNECTIONS_PER_KEY": "5", "WEIR_MAX_INFLIGHT_PER_KEY": "6", "WEIR_MAX_INFLIGHT_BYTES": "0",
		"WEIR_MAX_TOTAL_BYTES": "8", "WEIR_MAX_IDEMPOTENCY_KEYS": "18", "WEIR_MAX_BODY_BYTES": "9", "WEIR_MAX_BATCH_RECORDS": "10", "WEIR_MAX_RECORD_BYTES": "11",
		"WEIR_MAX_META_BYTES": "12", "WEIR_MAX_TAG_BYTES": "13",
	}, "--max-node-bytes=14", "--max-limit=15", "--max-claim", "16", "--max-watch-topics", "17")
	want := api.Limits{
		MaxTopics: 1, MaxRouters: 2, MaxWatchSessions: 3, MaxSSEConnections: 4, MaxSSEConnectionsPerKey: 5, MaxInflightPerKey: 6,
		MaxInflightBytes: 0, MaxTotalBytes: 8, MaxIdempotencyKeys: 18, MaxBodyBytes: 9, MaxBatchRecords: 10, MaxRecordBytes: 11, MaxMetaBytes: 12,
		MaxTagBytes: 13, MaxNodeBytes: 14, MaxLimit: 15, MaxClaim: 16, MaxWatchTopics: 17,
	}
	if err != nil || c.Limits != want {
		t.Errorf("got %+v, %v", c.Limits, err)
	}
}

// Keys that are still to be made keep everybody out, and a relay's are its upstream's: neither
// is a server that anyone may use.
func TestTheStartSaysWhetherKeysAreNeeded(t *testing.T) {
	empty := filepath.Join(t.TempDir(), "keys.json")
	if err := os.WriteFile(empty, []byte(`{"keys": []}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{nil, "auth is off: anyone"},
		{[]string{"--keys-file", empty}, "auth is on"},
		{[]string{"--upstream", "http://127.0.0.1:1"}, "auth is up to the upstream"},
		{[]string{"--tls-client-ca", "ca.pem"}, "auth is off: anyone with a certificate"},
	} {
		opt, err := loadServe(t, nil, c.args...)
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		logStart(&opt, nil, newLog(&out, "text", slog.LevelInfo))
		got := out.String()
		if !strings.Contains(got, c.want) || strings.Count(got, "auth is ") != 1 {
			t.Errorf("%v: %s", c.args, got)
		}
		if relay := opt.upstream.Upstream != ""; strings.Contains(got, "data_dir=") == relay {
			t.Errorf("%v: a relay has no directory, a server has: %s", c.args, got)
		}
	}
}

func TestWrongKeysAreNamedWithoutTheirText(t *testing.T) {
	for _, keys := range []string{"k:wrong", ":r", "k,k", "x:rw:", "abc:rw:orders-*"} {
		_, err := loadServe(t, map[string]string{"WEIR_API_KEYS": keys})
		if err == nil || !strings.Contains(err.Error(), "environment variable WEIR_API_KEYS") || exitCode(err) != exitUsage {
			t.Errorf("%s: %v", keys, err)
		}
	}
}

func TestAnUnknownLogFormatIsRefused(t *testing.T) {
	res := runWeir(t, "", "serve", "--data-dir", t.TempDir(), "--port", "0", "--log-format", "xml")
	if res.err == nil || res.err.Error() != `flag --log-format: "xml" is not text or json` {
		t.Errorf("error %v", res.err)
	}
}
