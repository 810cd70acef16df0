package otlp

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"unicode/utf8"

	"go.opentelemetry.io/otel/attribute"
	sdklog "go.opentelemetry.io/otel/sdk/log"
)

// sent keeps the lines of a log that are sent.
type sent struct{ lines []string }

func (s *sent) Export(_ context.Context, records []sdklog.Record) error {
	for i := range records {
		line := fmt.Sprint(records[i].Body().AsInterface())
		records[i].WalkAttributes(func(kv attribute.KeyValue) bool {
			line += fmt.Sprint(" ", kv.Key, "=", kv.Value.AsInterface())
			return true
		})
		s.lines = append(s.lines, line)
	}
	return nil
}

func (*sent) Shutdown(context.Context) error   { return nil }
func (*sent) ForceFlush(context.Context) error { return nil }

// A log is also sent from a level on, with all that its lines have, as UTF-8.
func TestTheLogIsSentFromALevelOn(t *testing.T) {
	got := &sent{}
	e := &Exporter{logs: sdklog.NewLoggerProvider(sdklog.WithProcessor(validLines{}), sdklog.WithProcessor(sdklog.NewSimpleProcessor(got)))}
	var here bytes.Buffer
	log := e.Log(slog.New(slog.NewTextHandler(&here, nil)), slog.LevelWarn)
	log.Info("nothing")
	log.With("a", "one\xff").Warn("first\xff", "list", []string{"two\xff"}, slog.Group("g\xff", "b", "three\xff", "c", []any{"four\xff"}))
	log.WithGroup("within").Error("second", "d", "five")
	log.With("e", "six").Info("nothing")
	if n := strings.Count(here.String(), "\n"); n != 4 {
		t.Errorf("%d of 4 lines are in the log itself", n)
	}
	if len(got.lines) != 2 {
		t.Fatalf("sent are %q", got.lines)
	}
	for i, want := range [][]string{{"first\uFFFD", "one\uFFFD", "two\uFFFD", "g\uFFFD", "three\uFFFD", "four\uFFFD"}, {"second", "within", "five"}} {
		for _, text := range want {
			if !strings.Contains(got.lines[i], text) {
				t.Errorf("line %d lacks %q: %q", i, text, got.lines[i])
			}
		}
		if !utf8.ValidString(got.lines[i]) {
			t.Errorf("line %d is not UTF-8: %q", i, got.lines[i])
		}
	}
}
