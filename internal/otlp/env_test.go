package otlp

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// unset takes all variables of OpenTelemetry out of the environment.
func unset(t *testing.T) {
	t.Helper()
	for _, entry := range os.Environ() {
		if name, _, _ := strings.Cut(entry, "="); strings.HasPrefix(name, "OTEL_") {
			t.Setenv(name, "")
		}
	}
}

const somewhere = "OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:4318"

// What is to be sent is what the environment asks for.
func TestTheEnvironmentSaysWhatIsSent(t *testing.T) {
	for env, want := range map[string]string{
		"":        "",
		somewhere: "TRACES METRICS LOGS",
		"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=http://127.0.0.1:4318":       "TRACES",
		somewhere + " OTEL_LOGS_EXPORTER=none OTEL_TRACES_EXPORTER=otlp": "TRACES METRICS",
		somewhere + " OTEL_SDK_DISABLED=TRUE":                            "",
		somewhere + " OTEL_SDK_DISABLED=no":                              "TRACES METRICS LOGS",
		somewhere + " OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf":         "TRACES METRICS LOGS",
		somewhere + " OTEL_EXPORTER_OTLP_TRACES_PROTOCOL=http/protobuf OTEL_EXPORTER_OTLP_PROTOCOL=grpc OTEL_METRICS_EXPORTER=none": "TRACES LOGS?",
	} {
		t.Run(env, func(t *testing.T) {
			unset(t)
			for entry := range strings.FieldsSeq(env) {
				name, value, _ := strings.Cut(entry, "=")
				t.Setenv(name, value)
			}
			var got []string
			for _, s := range []signal{traces, metrics, logs} {
				on, err := wanted(s)
				if err != nil {
					got = append(got, string(s)+"?")
				} else if on {
					got = append(got, string(s))
				}
			}
			if strings.Join(got, " ") != want {
				t.Errorf("sent is %q, want %q", got, want)
			}
		})
	}
}

// A variable that the SDK would pass over, or with which nothing could be sent, is refused by its
// name; of a secret the value is not repeated.
func TestAVariableThatCannotBeMeantIsRefused(t *testing.T) {
	for _, c := range []struct {
		signal signal
		env    string
		bad    bool
	}{
		{traces, "OTEL_EXPORTER_OTLP_ENDPOINT=https://collector:65535/path", false},
		{traces, "OTEL_EXPORTER_OTLP_ENDPOINT=http://collector:0", true},
		{traces, "OTEL_EXPORTER_OTLP_ENDPOINT=http://collector:65536", true},
		{traces, "OTEL_EXPORTER_OTLP_ENDPOINT=http://:4318", true},
		{traces, "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=collector:4318", true},
		{logs, "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=collector:4318", false}, // another signal's
		{traces, "OTEL_EXPORTER_OTLP_ENDPOINT=ftp://user:hunter2@collector", true},
		{traces, "OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf OTEL_EXPORTER_OTLP_TIMEOUT=10s", true},
		{traces, "OTEL_EXPORTER_OTLP_TIMEOUT=0", false},
		{traces, "OTEL_EXPORTER_OTLP_TIMEOUT=-1", true},
		{metrics, "OTEL_EXPORTER_OTLP_METRICS_TIMEOUT=9223372036854", false},
		{metrics, "OTEL_EXPORTER_OTLP_METRICS_TIMEOUT=9223372036855", true},
		{traces, "OTEL_EXPORTER_OTLP_HEADERS=authorization=Basic%20hunter2,b=", false},
		{traces, "OTEL_EXPORTER_OTLP_HEADERS=a=b,=hunter2", true},
		{traces, "OTEL_EXPORTER_OTLP_HEADERS=hunter2", true},
		{traces, "OTEL_EXPORTER_OTLP_HEADERS=a=hunter2%zz", true},
		{traces, "OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE=/nowhere", true},
		{traces, "OTEL_EXPORTER_OTLP_CLIENT_KEY=/nowhere", true},
		{traces, "OTEL_EXPORTER_OTLP_CERTIFICATE=env_test.go", true},
		{traces, "OTEL_BSP_EXPORT_TIMEOUT=0", false},
		{logs, "OTEL_BLRP_EXPORT_TIMEOUT=0", true},
		{traces, "OTEL_BSP_MAX_QUEUE_SIZE=1000000", false},
		{traces, "OTEL_BSP_MAX_QUEUE_SIZE=1000001", true},
		{traces, "OTEL_BSP_MAX_QUEUE_SIZE=0", true},
		{metrics, "OTEL_METRIC_EXPORT_INTERVAL=0", true},
		{traces, "OTEL_RESOURCE_ATTRIBUTES=team=a", false},
		{traces, "OTEL_RESOURCE_ATTRIBUTES=hunter2", true},
		{traces, "OTEL_TRACES_SAMPLER=ALWAYS_ON OTEL_TRACES_SAMPLER_ARG=hunter2", false},
		{traces, "OTEL_TRACES_SAMPLER=sometimes", true},
		{traces, "OTEL_TRACES_SAMPLER=TraceIDRatio OTEL_TRACES_SAMPLER_ARG=0.5", false},
		{traces, "OTEL_TRACES_SAMPLER=traceidratio OTEL_TRACES_SAMPLER_ARG=NaN", true},
		{traces, "OTEL_TRACES_SAMPLER=traceidratio OTEL_TRACES_SAMPLER_ARG=1.1", true},
		{metrics, "OTEL_TRACES_SAMPLER=sometimes", false},
	} {
		t.Run(fmt.Sprint(c.signal, " ", c.env), func(t *testing.T) {
			unset(t)
			name, value := "", ""
			for entry := range strings.FieldsSeq(somewhere + " " + c.env) {
				name, value, _ = strings.Cut(entry, "=")
				t.Setenv(name, value)
			}
			_, err := wanted(c.signal)
			if c.bad != (err != nil) {
				t.Fatalf("%v", err)
			}
			if err != nil && (!strings.Contains(err.Error(), name) || strings.Contains(err.Error(), "hunter2")) {
				t.Errorf("the error says %q", err)
			}
		})
	}
}
