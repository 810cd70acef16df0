package settings

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/weirmq/weir"
	"github.com/weirmq/weir/internal/api"
)

// The defaults that --help shows are those that the library has without them.
func TestTheDefaultsShownAreTheLibrarys(t *testing.T) {
	var shown Configs
	fields := shown.fields(Library)
	for _, s := range of(Library) {
		if s.deft == "" || !s.ofLibrary() {
			continue
		}
		value, err := s.kind.read(s.deft)
		if err != nil {
			t.Fatal(err)
		}
		fields.store(s, value)
	}
	same := func(name string, got, want any) {
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s\ngot  %+v\nwant %+v", name, got, want)
		}
	}
	same("producer", shown.Producer.WithDefaults(), weir.ProducerConfig{}.WithDefaults())
	shown.Pool.Consumer = "c"
	same("pool", shown.Pool.WithDefaults(), weir.PoolConfig{Consumer: "c"}.WithDefaults())
}

func TestTheServersLimitsAreThoseOfTheContract(t *testing.T) {
	limits := reflect.ValueOf(api.DefaultLimits())
	for i := range limits.NumField() {
		name := strings.ToLower(limits.Type().Field(i).Name)
		found := false
		for _, s := range of(Serve) {
			if strings.ReplaceAll(s.name, "-", "") == name {
				value, err := s.kind.read(s.deft)
				found = err == nil && value == limits.Field(i).Int()
			}
		}
		if !found {
			t.Errorf("no setting has the name and the default of %s", name)
		}
	}
}

// What the table takes for a field of the library's the library takes, and it refuses
// what the table refuses: their ranges are the same.
func TestTheRangesAreTheLibrarys(t *testing.T) {
	for _, s := range of(Library) {
		if !s.ofLibrary() {
			continue
		}
		for _, text := range []string{"0", "1", "-1", "off", "10", "20", "21", "1000", "1001", "10000", "10001", "1073741824", "1073741825",
			"1048576", "1048577", "1099511627776", "1099511627777", "0.001", "0.01", "60", "61", "0.009", "1ns", "999us", "1ms", "9ms", "10ms", "99ms", "100ms",
			"999ms", "1s", "1001ms", "30s", "30001ms", "1m", "60001ms", "1h", "3600001ms", "24h", "86400001ms", "adaptive", "shadow", "static", "hold", "stream", "auto", "on"} {
			value, err := s.kind.read(text)
			if err != nil {
				continue
			}
			var c Configs
			c.fields(Library).store(s, value)
			if s.name == "lag-warn" {
				c.Producer.LagPause = -1 // else it has to be above
			}
			if s.name == "lag-pause" {
				c.Producer.LagWarn = -1
			}
			if s.name == "retry-base" {
				c.Pool.RetryMax = max(c.Pool.RetryBase, c.Pool.WithDefaults().RetryMax)
			}
			if s.name == "retry-max" {
				c.Pool.RetryBase = min(c.Pool.RetryMax, c.Pool.WithDefaults().RetryBase)
			}
			for _, err := range []error{c.Producer.WithDefaults().Validate(), c.Pool.WithDefaults().Validate()} {
				if err != nil {
					t.Errorf("%s=%s: %v", s.name, text, err)
				}
			}
		}
	}
}

// Each setting is stored in the field that its errors name, and in no other.
func TestEverySettingOfTheLibraryReachesItsField(t *testing.T) {
	for _, s := range of(Library) {
		if !s.ofLibrary() {
			continue
		}
		var c Configs
		var text string
		for _, text = range []string{"7", "0.07", "7ms", "7s", "false", "true", "static", "backlog", "hold", "stream", "drop", "off"} {
			if value, err := s.kind.read(text); err == nil {
				c.fields(Library).store(s, value)
			}
			if !reflect.DeepEqual(c, Configs{}) {
				break
			}
		}
		var want, got []string
		for of, field := range map[any]string{&c.Producer: s.field, &c.Pool: s.field, &c.Kafka: strings.TrimPrefix(s.field, "Kafka")} {
			all := reflect.ValueOf(of).Elem()
			for i := range all.NumField() {
				name := fmt.Sprint(all.Type().Name(), ".", all.Type().Field(i).Name)
				if !all.Field(i).IsZero() {
					got = append(got, name)
				}
				if all.Type().Field(i).Name == field && strings.HasPrefix(s.field, "Kafka") == (of == &c.Kafka) {
					want = append(want, name)
				}
			}
		}
		slices.Sort(want)
		if slices.Sort(got); !slices.Equal(got, want) {
			t.Errorf("%s=%s is stored in %v, want %v", s.name, text, got, want)
		}
	}
}

func TestTheQueueTiersVariables(t *testing.T) {
	got, _, err := LoadConfigs(Source{Command: Library, Lookup: environment(
		"QUEUE_MAX_DEPTH=500", "QUEUE_BACKPRESSURE_THRESHOLD=0.95", "QUEUE_BACKPRESSURE_MAX_RETRIES=5",
		"QUEUE_BACKPRESSURE_BASE_DELAY=0.25", "QUEUE_LOAD_SHEDDING_ENABLED=False", "QUEUE_LOAD_SHEDDING_MAX_REQUESTS=7",
		"KAFKA_BUFFER_MEMORY=1048576", "KAFKA_MAX_IN_FLIGHT_REQUESTS=2", "WEIR_LAG_WARN=")}, nil)
	want := Configs{Producer: weir.ProducerConfig{MaxDepth: 500, BackpressureThreshold: 0.95, BackpressureRetries: 5,
		BackpressureBaseDelay: 250e6, DisableLoadShedding: true, LoadSheddingMaxRequests: 7},
		Kafka: Kafka{BufferMemory: 1 << 20, MaxInFlight: 2}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v, %v\nwant %+v", got, err, want)
	}
}

// A 0 means in a file what it means in a field of the library's configuration, its default,
// or is refused; off is what a field's -1 is. The queue tier's variable is older than weir:
// its 0 is no retry.
func TestZeroIsTheDefaultOrRefused(t *testing.T) {
	for _, s := range of(Library) {
		if !s.ofLibrary() || s.name == "queue-backpressure-max-retries" {
			continue
		}
		for _, text := range []string{"0", "0s", "0.0"} {
			value, err := s.kind.read(text)
			if err != nil {
				continue
			}
			var c Configs
			c.fields(Library).store(s, value)
			set := Configs{Producer: c.Producer.WithDefaults(), Pool: c.Pool.WithDefaults(), Kafka: c.Kafka}
			unset := Configs{Producer: weir.ProducerConfig{}.WithDefaults(), Pool: weir.PoolConfig{}.WithDefaults()}
			set.Pool.Consumer, unset.Pool.Consumer = "", "" // random
			if !reflect.DeepEqual(set, unset) && !isText(value) {
				t.Errorf("%s=%s is %v, and the field's 0 is its default %s", s.name, text, value, s.deft)
			}
		}
	}
	_, _, err := LoadConfigs(Source{Command: Library, Lookup: environment("WEIR_MAX_DELIVERIES=0")}, nil)
	if want := `environment variable WEIR_MAX_DELIVERIES: "0" is not a whole number from 1 to 1073741824, or "off"`; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

// isText reports whether a 0 is a name, or means false.
func isText(v any) bool {
	kind := reflect.TypeOf(v).Kind()
	return kind == reflect.String || kind == reflect.Bool
}

func TestOffMeansWhatItSays(t *testing.T) {
	got, _, err := LoadConfigs(Source{Command: Library, Lookup: environment("WEIR_LAG_WARN=off", "WEIR_LAG_PAUSE=-1", "WEIR_LAG_CACHE=off",
		"QUEUE_BACKPRESSURE_MAX_RETRIES=0", "WEIR_MAX_DELIVERIES=off", "WEIR_HANDLER_TIMEOUT=off", "WEIR_ACK_LINGER=off", "WEIR_SHED_CONCURRENCY=off", "WEIR_TRIM_EVERY=off")}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"-1", "-2"} {
		if _, _, err := LoadConfigs(Source{Command: Library, Lookup: environment("WEIR_SHED_CONCURRENCY=" + text)}, nil); err == nil {
			t.Errorf("shed_concurrency %s, whose off is 0, is taken", text)
		}
	}
	p, w := got.Producer.WithDefaults(), got.Pool.WithDefaults()
	if p.LagWarn != -1 || p.LagPause != -1 || p.LagCache != -1 || p.BackpressureRetries != -1 || p.ShedConcurrency != 0 {
		t.Errorf("producer %+v", p)
	}
	if w.MaxDeliveries != -1 || w.HandlerTimeout != -1 || w.AckLinger != -1 || w.Trim != weir.TrimOff {
		t.Errorf("pool %+v", w)
	}
}

// Where two settings do not fit together, the error names both places.
func TestSettingsThatDoNotFitAreBothNamed(t *testing.T) {
	path := write(t, "# first\nretry_base: 10s\n")
	_, _, err := LoadConfigs(Source{Command: Library, File: path, Lookup: environment("WEIR_RETRY_MAX=2s")}, nil)
	want := fmt.Sprintf("config file %s, line 2, key retry_base, environment variable WEIR_RETRY_MAX: retry_max 2s is less than retry_base 10s", path)
	if err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

// Only the commands that publish or work check what is for Kafka.
func TestSettingsWithoutAFlagAreChecked(t *testing.T) {
	for c, want := range map[Command]bool{Library: true, Repair: false} {
		f := Fields{}
		if c == Repair {
			f["mark"] = new(bool)
		}
		_, _, err := LoadConfigs(Source{Command: c, Lookup: environment("KAFKA_BUFFER_MEMORY=lots")}, f)
		if (err != nil && strings.HasPrefix(err.Error(), `environment variable KAFKA_BUFFER_MEMORY: "lots" is not a size`)) != want {
			t.Errorf("command %b: %v", c, err)
		}
	}
}
