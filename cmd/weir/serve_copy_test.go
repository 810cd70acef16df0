package main

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirmq/weir/tests/bubble"
)

// A store may be away for days, and each call to it is tried again every two seconds.
func TestAStoreThatIsAwayDoesNotFillTheLog(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		var out bytes.Buffer
		var awaits atomic.Bool
		waiting := 0
		c := &copyOf{waiting: func(bool) { waiting++ }, log: newLog(&out, "text", slog.LevelInfo)}
		tell := c.trouble(&awaits)
		for range 60 {
			awaits.Store(waiting < 30)
			tell(errors.New("the bucket is away"))
			tell(errors.New("so is another call"))
			time.Sleep(2 * time.Second)
		}
		if n := strings.Count(out.String(), "\n"); n != 12 || waiting != 30 {
			t.Errorf("%d lines in two minutes, want one each ten seconds; said to be waiting %d times:\n%s", n, waiting, out.String())
		}
		if text := out.String(); !strings.Contains(text, "has to say who leads") || !strings.Contains(text, "the copy: trying again") {
			t.Errorf("%s", text)
		}
	})
}
