package settings

import (
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"

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

// A name of earlier versions counts, says what it is called now, and is in no help.
func TestANameOfEarlierVersionsCounts(t *testing.T) {
	only(t, &Setting{name: "count", was: "limit", places: byFlag | byEnv, kind: integer("letters", 0, most).kind(), deft: "0"})
	load := func(env string, args ...string) (limit int, said string) {
		t.Helper()
		flags := pflag.NewFlagSet("", pflag.ContinueOnError)
		var out strings.Builder
		flags.SetOutput(&out)
		AddFlags(flags, single)
		if usage := flags.FlagUsages(); strings.Contains(usage, "--limit") || !strings.Contains(usage, "--count") {
			t.Errorf("the help has\n%s", usage)
		}
		if err := flags.Parse(args); err != nil {
			t.Fatal(err)
		}
		src := Source{Command: single, Flags: flags, Lookup: environment("WEIR_LIMIT=" + env)}
		if _, err := Load(src, Fields{"count": &limit}); err != nil {
			t.Fatal(err)
		}
		return limit, out.String()
	}
	if limit, said := load("", "--limit", "7"); limit != 7 || !strings.Contains(said, "use --count") {
		t.Errorf("--limit 7 is %d, and says %q", limit, said)
	}
	if limit, said := load("", "--count", "7"); limit != 7 || said != "" {
		t.Errorf("--count 7 is %d, and says %q", limit, said)
	}
	if limit, _ := load("7"); limit != 7 {
		t.Errorf("WEIR_LIMIT=7 is %d", limit)
	}
	if limit, _ := load("7", "--count", "8"); limit != 8 {
		t.Errorf("--count 8 beside WEIR_LIMIT is %d", limit)
	}
	if got := Unknown([]string{"WEIR_LIMIT=7"}); len(got) != 1 || !strings.Contains(got[0], "WEIR_LIMIT is called WEIR_COUNT now") {
		t.Errorf("WEIR_LIMIT is told as %q", got)
	}
}
