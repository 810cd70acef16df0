package config

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/weirmq/weir"
)

// none is an empty environment.
func none(string) (string, bool) { return "", false }

func environment(pairs ...string) func(string) (string, bool) {
	m := map[string]string{}
	for _, p := range pairs {
		name, text, _ := strings.Cut(p, "=")
		m[name] = text
	}
	return func(name string) (string, bool) {
		text, ok := m[name]
		return text, ok
	}
}

func file(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "weir.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func flags(t *testing.T, args ...string) *pflag.FlagSet {
	t.Helper()
	set := pflag.NewFlagSet("test", pflag.ContinueOnError)
	AddFlags(set, Producer|Pool)
	if err := set.Parse(args); err != nil {
		t.Fatal(err)
	}
	return set
}

func TestEachSettingInItsThreeSpellings(t *testing.T) {
	const spellings = `guard WEIR_GUARD --guard
shadow_of WEIR_SHADOW_OF --shadow-of
lag_warn WEIR_LAG_WARN --lag-warn
lag_warn_sleep WEIR_LAG_WARN_SLEEP --lag-warn-sleep
lag_pause WEIR_LAG_PAUSE --lag-pause
lag_poll WEIR_LAG_POLL --lag-poll
lag_ttl WEIR_LAG_TTL --lag-ttl
lag_signal WEIR_LAG_SIGNAL --lag-signal
lag_unknown WEIR_LAG_UNKNOWN --lag-unknown
lag_cache WEIR_LAG_CACHE --lag-cache
queue_max_depth QUEUE_MAX_DEPTH --queue-max-depth
queue_backpressure_threshold QUEUE_BACKPRESSURE_THRESHOLD --queue-backpressure-threshold
queue_backpressure_max_retries QUEUE_BACKPRESSURE_MAX_RETRIES --queue-backpressure-max-retries
queue_backpressure_base_delay QUEUE_BACKPRESSURE_BASE_DELAY --queue-backpressure-base-delay
queue_load_shedding_enabled QUEUE_LOAD_SHEDDING_ENABLED --queue-load-shedding-enabled
queue_load_shedding_max_requests QUEUE_LOAD_SHEDDING_MAX_REQUESTS --queue-load-shedding-max-requests
shed_window WEIR_SHED_WINDOW --shed-window
shed_scope WEIR_SHED_SCOPE --shed-scope
shed_wait WEIR_SHED_WAIT --shed-wait
shed_concurrency WEIR_SHED_CONCURRENCY --shed-concurrency
wait_slo WEIR_WAIT_SLO --wait-slo
kafka_buffer_memory KAFKA_BUFFER_MEMORY --kafka-buffer-memory
kafka_max_in_flight_requests KAFKA_MAX_IN_FLIGHT_REQUESTS --kafka-max-in-flight-requests
workers WEIR_WORKERS --workers
batch WEIR_BATCH --batch
block WEIR_BLOCK --block
reclaim_after WEIR_RECLAIM_AFTER --reclaim-after
max_deliveries WEIR_MAX_DELIVERIES --max-deliveries
dead_letter WEIR_DEAD_LETTER --dead-letter
consumer WEIR_CONSUMER --consumer
handler_timeout WEIR_HANDLER_TIMEOUT --handler-timeout
drain_timeout WEIR_DRAIN_TIMEOUT --drain-timeout
ack_linger WEIR_ACK_LINGER --ack-linger
retry_base WEIR_RETRY_BASE --retry-base
retry_max WEIR_RETRY_MAX --retry-max
trim WEIR_TRIM --trim
trim_every WEIR_TRIM_EVERY --trim-every
`
	var got strings.Builder
	for _, s := range table {
		fmt.Fprintf(&got, "%s %s --%s\n", s.key, s.variable(), s.flag())
	}
	if got.String() != spellings {
		t.Errorf("the settings are\n%s", got.String())
	}
}

// What --help shows as a default has to be what the library does without it.
func TestTheDefaultsShownAreTheLibrarys(t *testing.T) {
	var shown Settings
	for _, s := range table {
		if s.deft == "" {
			continue
		}
		if err := s.set(&shown, s.deft); err != nil {
			t.Errorf("%s: %v", s.key, err)
		}
	}
	same := func(name string, got, want any) {
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s\ngot  %+v\nwant %+v", name, got, want)
		}
	}
	same("producer", shown.Producer.WithDefaults(), weir.ProducerConfig{}.WithDefaults())
	want := weir.PoolConfig{Consumer: "c"}.WithDefaults()
	shown.Pool.Consumer = "c"
	same("pool", shown.Pool.WithDefaults(), want)
	same("kafka", shown.Kafka, KafkaProducer{BufferMemory: 33554432, MaxInFlightRequests: 5})
}

func TestTheQueueTiersVariables(t *testing.T) {
	got, err := Load(Options{Lookup: environment(
		"QUEUE_MAX_DEPTH=500", "QUEUE_BACKPRESSURE_THRESHOLD=0.95", "QUEUE_BACKPRESSURE_MAX_RETRIES=5",
		"QUEUE_BACKPRESSURE_BASE_DELAY=0.25", "QUEUE_LOAD_SHEDDING_ENABLED=False", "QUEUE_LOAD_SHEDDING_MAX_REQUESTS=7",
		"KAFKA_BUFFER_MEMORY=1048576", "KAFKA_MAX_IN_FLIGHT_REQUESTS=2", "WEIR_LAG_WARN=")})
	if err != nil {
		t.Fatal(err)
	}
	want := Settings{
		Producer: weir.ProducerConfig{MaxDepth: 500, BackpressureThreshold: 0.95, BackpressureRetries: 5,
			BackpressureBaseDelay: 250 * time.Millisecond, DisableLoadShedding: true, LoadSheddingMaxRequests: 7},
		Kafka: KafkaProducer{BufferMemory: 1048576, MaxInFlightRequests: 2},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func TestAFlagBeatsTheEnvironmentBeatsTheFile(t *testing.T) {
	path := file(t, "lag_warn: 1\nlag_pause: 1\nqueue_max_depth: 1e3\nbatch: 1\nguard: off\n")
	got, err := Load(Options{
		Flags:  flags(t, "--config", path, "--batch=3"),
		Lookup: environment("WEIR_LAG_PAUSE=2", "WEIR_BATCH=2", "WEIR_CONFIG=/does/not/exist"),
	})
	if err != nil {
		t.Fatal(err)
	}
	p := got.Producer
	if p.LagWarn != 1 || p.LagPause != 2 || got.Pool.Batch != 3 || p.MaxDepth != 1000 || p.Guard != weir.GuardOff {
		t.Errorf("lag_warn %d (file 1), lag_pause %d (environment 2), batch %d (flag 3), depth %d, guard %s", p.LagWarn, p.LagPause, got.Pool.Batch, p.MaxDepth, p.Guard)
	}
	if p.WithDefaults().LagPoll != 100*time.Millisecond {
		t.Error("what nobody sets is not the default")
	}
}

func TestTheFileMayBeJSON(t *testing.T) {
	got, err := Load(Options{Lookup: none, File: file(t, `{"lag_warn": 9, "queue_backpressure_threshold": 0.5, "queue_load_shedding_enabled": false, "retry_max": "1h"}`)})
	if err != nil {
		t.Fatal(err)
	}
	if p := got.Producer; p.LagWarn != 9 || p.BackpressureThreshold != 0.5 || !p.DisableLoadShedding || got.Pool.RetryMax != time.Hour {
		t.Errorf("got %+v", got)
	}
}

// A field's 0 is its default, so a 0 that somebody wrote must not get there.
func TestZeroAndOffMeanWhatTheySay(t *testing.T) {
	got, err := Load(Options{Lookup: environment("WEIR_LAG_WARN=off", "WEIR_LAG_PAUSE=-1", "WEIR_LAG_CACHE=0s",
		"QUEUE_BACKPRESSURE_MAX_RETRIES=0", "WEIR_MAX_DELIVERIES=0", "WEIR_HANDLER_TIMEOUT=off", "WEIR_ACK_LINGER=0", "WEIR_SHED_CONCURRENCY=off")})
	if err != nil {
		t.Fatal(err)
	}
	p, w := got.Producer.WithDefaults(), got.Pool.WithDefaults()
	if p.LagWarn != -1 || p.LagPause != -1 || p.LagCache != -1 || p.BackpressureRetries != -1 || p.ShedConcurrency != 0 {
		t.Errorf("producer %+v", p)
	}
	if w.MaxDeliveries != -1 || w.HandlerTimeout != -1 || w.AckLinger != 1 {
		t.Errorf("pool %+v", w)
	}
}

func TestErrorsNameThePlaceAndTheFix(t *testing.T) {
	cases := []struct {
		name, file string
		env        []string
		want       []string
	}{
		{"unknown key", "lag_wran: 5\n", nil, []string{"weir.yaml", `key "lag_wran" is unknown`, "lag_warn"}},
		{"nested key", "guard:\n  mode: off\n", nil, []string{`"guard.mode" is unknown`}},
		{"list", "batch: [1, 2]\n", nil, []string{"key batch", "not one value"}},
		{"no value", "batch:\n", nil, []string{"key batch", "not one value"}},
		{"not YAML", "a: b: c\n", nil, []string{"weir.yaml", "neither YAML nor JSON", "mapping values"}},
		{"twice", "batch: 1\nbatch: 2\n", nil, []string{"batch", "already defined at line 1"}},
		{"text for a number", "", []string{"QUEUE_MAX_DEPTH=lots"}, []string{"environment variable QUEUE_MAX_DEPTH", `"lots" is not a whole number`}},
		{"zero depth", "", []string{"QUEUE_MAX_DEPTH=0"}, []string{"QUEUE_MAX_DEPTH", "use more"}},
		{"zero limit", "lag_warn: 0\n", nil, []string{"key lag_warn", `"off"`}},
		{"no unit", "block: 5\n", nil, []string{"key block", "as in 500ms"}},
		{"unknown mode", "", []string{"WEIR_GUARD=lenient"}, []string{"environment variable WEIR_GUARD", `Guard "lenient"`, "proportional"}},
		{"out of range", "", []string{"WEIR_LAG_WARN=-7"}, []string{"WEIR_LAG_WARN", "LagWarn -7", "-1 to"}},
		{"share over 1", "", []string{"QUEUE_BACKPRESSURE_THRESHOLD=80"}, []string{"QUEUE_BACKPRESSURE_THRESHOLD", "as in 0.8"}},
		{"two that do not fit", "retry_base: 10s\n", []string{"WEIR_RETRY_MAX=2s"}, []string{"key retry_base", "environment variable WEIR_RETRY_MAX", "less than RetryBase"}},
		{"negative buffer", "", []string{"KAFKA_BUFFER_MEMORY=-1"}, []string{"KAFKA_BUFFER_MEMORY", "less than 0"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			o := Options{Lookup: environment(c.env...)}
			if c.file != "" {
				o.File = file(t, c.file)
			}
			_, err := Load(o)
			if err == nil {
				t.Fatal("no error")
			}
			for _, part := range c.want {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%q does not say %q", err, part)
				}
			}
		})
	}
}

// A command reads its own settings: what stands beside them for another command, or
// has the same name there, is not its business.
func TestSettingsOfOtherCommandsAreLeftAlone(t *testing.T) {
	set := pflag.NewFlagSet("publish", pflag.ContinueOnError)
	AddFlags(set, Producer)
	batch := set.Int("batch", 500, "something else")
	if err := set.Parse([]string{"--batch=7000", "--lag-warn=4"}); err != nil {
		t.Fatal(err)
	}
	o := Options{Flags: set, File: file(t, "workers: many\nlag_pause: 5\n"), Lookup: environment("WEIR_BATCH=5000", "WEIR_RETRY_MAX=1ms")}
	got, err := Load(o)
	if err != nil || got.Producer.LagWarn != 4 || got.Producer.LagPause != 5 || !reflect.DeepEqual(got.Pool, weir.PoolConfig{}) || *batch != 7000 {
		t.Errorf("%+v, %v", got, err)
	}
}

// Settings without a flag are checked by the commands that publish or work, and by no other.
func TestSettingsWithoutAFlagAreChecked(t *testing.T) {
	o := Options{Lookup: environment("KAFKA_BUFFER_MEMORY=lots")}
	for parts, want := range map[Part]bool{Producer: true, Pool: true, 0: false} {
		o.Flags = pflag.NewFlagSet("test", pflag.ContinueOnError)
		AddFlags(o.Flags, parts)
		if _, err := Load(o); (err != nil && strings.Contains(err.Error(), "environment variable KAFKA_BUFFER_MEMORY")) != want {
			t.Errorf("parts %d: %v", parts, err)
		}
	}
}

func TestAFileThatIsNamedHasToBeThere(t *testing.T) {
	_, err := Load(Options{Lookup: environment("WEIR_CONFIG=" + filepath.Join(t.TempDir(), "gone.yaml"))})
	if err == nil || !strings.Contains(err.Error(), "gone.yaml") {
		t.Errorf("got %v", err)
	}
	_, err = Load(Options{Lookup: none, File: file(t, "# "+strings.Repeat("x", maxFileBytes))})
	if err == nil || !strings.Contains(err.Error(), "larger than") {
		t.Errorf("a huge file: %v", err)
	}
}

func TestAWrongFlagIsRefusedAtOnce(t *testing.T) {
	set := pflag.NewFlagSet("test", pflag.ContinueOnError)
	AddFlags(set, Producer, "lag-poll")
	err := set.Parse([]string{"--lag-warn-sleep=5"})
	if err == nil || !strings.Contains(err.Error(), "--lag-warn-sleep") || !strings.Contains(err.Error(), "500ms") {
		t.Errorf("got %v", err)
	}
	if set.Lookup("lag-poll") != nil || set.Lookup("workers") != nil || set.Lookup("kafka-buffer-memory") != nil {
		t.Error("flags that were not asked for")
	}
	if !Reads(set.Lookup("lag-warn")) || !Reads(set.Lookup("config")) {
		t.Error("the flags are not known as this package's")
	}
}
