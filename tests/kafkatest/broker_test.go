package kafkatest_test

import (
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/weirmq/weir/tests/kafkatest"
)

// TestABrokerComesBackWithItsData after a kill. What it had unpacked by then goes with the test.
func TestABrokerComesBackWithItsData(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	b := kafkatest.Start(inDir{t, dir}, kafkatest.Options{})
	client := b.Client(kgo.DefaultProduceTopic("t"), kgo.ProducerBatchCompression(kgo.SnappyCompression()))
	if _, err := kadm.NewClient(client).CreateTopic(t.Context(), 1, 1, nil, "t"); err != nil {
		t.Fatal(err)
	}
	if err := client.ProduceSync(t.Context(), kgo.StringRecord(strings.Repeat("before", 100))).FirstErr(); err != nil {
		t.Fatal(err)
	}
	b.Kill()
	if unpacked, err := filepath.Glob(filepath.Join(dir, "*", "snappy*")); err != nil || len(unpacked) == 0 {
		t.Errorf("it has unpacked the library for snappy elsewhere: %v", err)
	}
	b.Restart()
	if err := client.ProduceSync(t.Context(), kgo.StringRecord("after")).FirstErr(); err != nil {
		t.Fatal(err)
	}
	end, err := kadm.NewClient(client).ListEndOffsets(t.Context(), "t")
	if o, ok := end.Lookup("t", 0); err != nil || !ok || o.Offset != 2 {
		t.Errorf("after a kill the log ends at %+v, %v; want 2", end, err)
	}
}

func TestAFrozenBrokerDoesNotAnswerUntilItGoesOn(t *testing.T) {
	t.Parallel()
	b := kafkatest.Start(t, kafkatest.Options{ShareVersion: kafkatest.Without})
	client := b.Client()
	b.Pause()
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if err := client.Ping(ctx); err == nil {
		t.Error("a frozen broker answers")
	}
	b.Resume()
	if err := client.Ping(t.Context()); err != nil {
		t.Error(err)
	}
}

// inDir is a test whose servers have a known directory.
type inDir struct {
	*testing.T
	dir string
}

func (t inDir) TempDir() string { return t.dir }
