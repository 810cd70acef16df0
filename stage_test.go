package weir_test

import (
	"context"
	"testing"
	"time"

	"github.com/weirmq/weir"
	"github.com/weirmq/weir/tests/bubble"
)

func TestOneLineForEachStageAndSecondTellsHowManyItStandsFor(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		g := guard(t, weir.ProducerConfig{LoadSheddingMaxRequests: 1, ShedWindow: time.Hour})
		if err := g.Publish(t.Context(), weir.Message{}); err != nil {
			t.Fatal(err)
		}
		for range 2500 {
			refusedFor(t, g.Publish(t.Context(), weir.Message{}), weir.LoadShedding)
			time.Sleep(time.Millisecond)
		}
		time.Sleep(time.Minute)
		told := int64(0)
		said := g.log.of("QUEUE.LOAD_SHEDDING")
		for i, l := range said {
			if i > 0 && l.at.Sub(said[i-1].at) < time.Second {
				t.Errorf("two lines within %s", l.at.Sub(said[i-1].at))
			}
			if l.attrs["stream"].String() != "jobs" || l.attrs["decision"].String() != "load_shedding" {
				t.Errorf("line without its attributes: %v", l.attrs)
			}
			told += l.attrs["count"].Int64()
		}
		if told != 2500 || len(said) != 4 {
			t.Errorf("%d lines stand for %d refusals, want 4 for 2500", len(said), told)
		}
		refusedFor(t, g.Publish(t.Context(), weir.Message{}), weir.LoadShedding)
		if said := g.log.of("QUEUE.LOAD_SHEDDING"); len(said) != 5 || said[4].attrs["count"].Int64() != 1 {
			t.Error("after a silence the first refusal is told at once")
		}
	})
}

func TestCloseTellsWhatTheLinesHoldBack(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		g := guard(t, weir.ProducerConfig{LoadSheddingMaxRequests: 1, ShedWindow: time.Hour})
		for range 11 {
			_ = g.Publish(t.Context(), weir.Message{})
		}
		if err := g.Close(); err != nil {
			t.Fatal(err)
		}
		said := g.log.of("QUEUE.LOAD_SHEDDING")
		if len(said) != 2 || said[1].attrs["count"].Int64() != 9 {
			t.Errorf("lines %v, want 1 and 9 refusals", said)
		}
		time.Sleep(time.Minute)
		if n := len(g.log.of("QUEUE.LOAD_SHEDDING")); n != 2 {
			t.Errorf("%d lines after Close", n)
		}
	})
}

func TestEachWaitIsToldUnderItsStage(t *testing.T) {
	for _, c := range []struct {
		name         string
		workers, lag int64
		want         map[string]string // stage → decision
	}{
		{"soft", 51, 0, map[string]string{"QUEUE.BACKPRESSURE": "sleep"}},
		{"hard", 201, 0, map[string]string{"QUEUE.BACKPRESSURE": "pause"}},
		{"depth", 0, 8000, map[string]string{"QUEUE.WARNING": "depth", "QUEUE.RETRY": "depth", "QUEUE.BACKPRESSURE": "queue_full"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble.Run(t, func(t *testing.T) {
				g := guard(t, weir.ProducerConfig{})
				g.pretend(c.workers, c.lag)
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()
				_ = g.Publish(ctx, weir.Message{})
				_ = g.Close()
				for _, stage := range []string{"QUEUE.BACKPRESSURE", "QUEUE.LOAD_SHEDDING", "QUEUE.RETRY", "QUEUE.WARNING"} {
					said := g.log.of(stage)
					if (len(said) > 0) != (c.want[stage] != "") {
						t.Errorf("%s: %v", stage, said)
						continue
					}
					for _, l := range said {
						if l.attrs["decision"].String() != c.want[stage] || l.attrs["depth"].Int64() != c.workers+c.lag ||
							l.attrs["signal"].Int64() != c.workers || l.attrs["max_depth"].Int64() != 10_000 {
							t.Errorf("%s: %v", stage, l.attrs)
						}
					}
				}
			})
		})
	}
}
