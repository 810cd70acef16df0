package kafka_test

import (
	"errors"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/backend/backendtest"
	"github.com/weirmq/weir/backend/kafka"
	"github.com/weirmq/weir/tests/kafkatest"
)

// TestConformanceClassic: on brokers without share groups, nothing has to be said.
func TestConformanceClassic(t *testing.T) {
	t.Parallel()
	address, planted := os.Getenv("WEIR_TEST_BROKER"), os.Getenv("WEIR_TEST_PLANTED")
	if planted == "" {
		address = kafkatest.Start(t, kafkatest.Options{ShareVersion: kafkatest.Without}).URL()
	}
	open := func(t testing.TB, url string) backend.Backend {
		b := open(t, address+url)
		if planted != "" {
			kafka.Plant(b, planted)
		}
		return b
	}
	backendtest.Run(t, backendtest.Harness{
		Name: "kafka " + kafkatest.Version + ", classic consumer groups",
		Open: func(t testing.TB, stream string) backend.Backend {
			return open(t, "/"+stream+"?partitions=1")
		},
		OpenGroup: func(t testing.TB, stream, group string) backend.Backend {
			return open(t, "/"+stream+"?partitions=1&group="+group)
		},
		ReclaimAfter:    300 * time.Millisecond,
		NoKeys:          true,
		LocalLeases:     true,
		OneOwner:        true,
		ReleasesOnClose: true,
		Late:            5 * time.Second,
	})
}

func TestConformance(t *testing.T) {
	t.Parallel()
	broker := kafkatest.Start(t, kafkatest.Options{})
	first := open(t, broker.URL()+"/first?partitions=1")
	await(t, "the state of share groups", func() bool { // which the broker makes at the first claim
		_, err := first.Claim(t.Context(), claim(1))
		return err == nil
	})
	first.Close()
	backendtest.Run(t, backendtest.Harness{
		Name: "kafka " + kafkatest.Version,
		Open: func(t testing.TB, stream string) backend.Backend {
			return open(t, broker.URL()+"/"+stream+"?partitions=1")
		},
		OpenGroup: func(t testing.TB, stream, group string) backend.Backend {
			return open(t, broker.URL()+"/"+stream+"?partitions=1&group="+group)
		},
		ReclaimAfter:    300 * time.Millisecond,
		NoKeys:          true,
		LocalLeases:     true,
		ReleasesOnClose: true,
		CountsUnstarted: true,
		MaxDeliveries:   8,
		Late:            5 * time.Second,
	})
}

// TestTheSuiteFindsFaultsOfAClassicGroup that are planted in what its commits say.
func TestTheSuiteFindsFaultsOfAClassicGroup(t *testing.T) {
	t.Parallel()
	broker := kafkatest.Start(t, kafkatest.Options{ShareVersion: kafkatest.Without})
	for _, fault := range kafka.Faults() {
		t.Run(fault, func(t *testing.T) {
			t.Parallel()
			run := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestConformanceClassic$/^what_a_closed_handle_has_not")
			run.Env = append(os.Environ(), "WEIR_TEST_PLANTED="+fault, "WEIR_TEST_BROKER="+broker.URL())
			out, err := run.CombinedOutput()
			var exit *exec.ExitError
			if !errors.As(err, &exit) || exit.ExitCode() != 1 || !strings.Contains(string(out), "--- FAIL") || strings.Contains(string(out), "panic:") {
				t.Errorf("the suite did not find it: %v\n%s", err, out)
			}
		})
	}
}

func open(t testing.TB, rawURL string, opts ...kgo.Opt) *kafka.Backend {
	t.Helper()
	u, err := url.Parse(rawURL)
	if err != nil {
		t.Fatal(err)
	}
	b, err := kafka.Open(t.Context(), u, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
