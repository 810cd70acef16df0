package settings

import (
	"slices"
	"testing"

	"github.com/weirmq/weir/internal/api"
)

func TestUnknownVariablesAreNamed(t *testing.T) {
	got := Unknown([]string{
		"WEIR_LAG_WRAN=5", "WEIR_COLOUR=red", "WEIR_PROT=1", "WEIR_EMPTY=", // the wrong ones, and one that counts as absent
		"WEIR_LAG_WARN=5", "WEIR_API_KEY=x", "WEIR_API_KEYS=x", "WEIR_CONFIG=x", "WEIR_JSON=1", "WEIR_MAX_TOPICS=1",
		"WEIR_STREAM=s", "WEIR_GROUP=g", "WEIR_ID=1", "WEIR_ATTEMPT=1", "WEIR_HEADER_TRACE_ID=x", "WEIR_TOPIC=t", "WEIR_SEQ=1",
		"WEIR_DELIVERIES=1", "WEIR_TAG=t", "WEIR_META={}", // what weir work gives to commands
		"WEIR_SERVICE_HOST=10.0.0.1", "WEIR_SERVICE_PORT=4000", "WEIR_SERVICE_PORT_HTTP=4000", "WEIR_PORT=tcp://10.0.0.1:4000",
		"WEIR_PORT_4000_TCP=tcp://10.0.0.1:4000", "WEIR_PORT_4000_TCP_PROTO=tcp", "WEIR_PORT_4000_TCP_ADDR=10.0.0.1",
		"WEIR_REDIS_PORT=tcp://10.0.0.2:6379", // of Kubernetes
		"WEIRD=1", "PATH=/bin", "QUEUE_MAX_DEPHT=1",
	})
	want := []string{
		"unknown environment variable WEIR_LAG_WRAN, did you mean WEIR_LAG_WARN?",
		"unknown environment variable WEIR_COLOUR",
		"unknown environment variable WEIR_PROT, did you mean WEIR_PORT?",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
}

func TestTheNearestNameIsMeant(t *testing.T) {
	names := []string{"json", "last", "from", "batch", "lag-ttl", "lag-poll", "data-dir", "config", "metrics"}
	for typed, want := range map[string]string{
		"form": "from", "bach": "batch", "lag-tll": "lag-ttl", "lagttl": "lag-ttl", "x": "", "": "", "jsonn": "json", "frm": "from",
		"something": "", "batches": "batch", "las": "last", "ts": "",
		"data": "data-dir", "Dir": "data-dir", "config-file": "config", "poll": "lag-poll", "ttl-poll-lag": "", "dir-lag": "", "-": "", "retries": "", "metrix": "metrics",
	} {
		if got := api.Nearest(typed, names); got != want {
			t.Errorf("%q: %q, want %q", typed, got, want)
		}
	}
}
