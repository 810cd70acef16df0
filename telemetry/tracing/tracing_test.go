package tracing_test

import (
	"testing"

	"github.com/weirmq/weir"
	"github.com/weirmq/weir/open"
	"github.com/weirmq/weir/tests/redistest"
	"github.com/weirmq/weir/tests/tracetest"
)

// One message is one story, wherever it is stored; tests/tracetest tells it, on Kafka in
// the tests of backend/kafka.
func TestOneMessageIsOneStory(t *testing.T) {
	urls := map[string]func(t *testing.T) string{
		"embedded": func(t *testing.T) string { return "file://" + t.TempDir() + "?topic=orders" },
		"memory":   func(*testing.T) string { return "mem://orders" },
		"redis": func(t *testing.T) string {
			return redistest.Start(t, redistest.Options{}).URL() + "?stream=orders&group=billing"
		},
		"shards": func(t *testing.T) string {
			return redistest.Start(t, redistest.Options{}).URL() + "?stream=orders&group=billing&shards=2"
		},
	}
	for name, url := range urls {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			from := url(t)
			tracetest.Run(t, func() *weir.Stream {
				s, err := open.URL(t.Context(), from)
				if err != nil {
					t.Fatal(err)
				}
				return s
			})
		})
	}
}
