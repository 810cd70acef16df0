package scenario

import (
	"context"
	"fmt"
	"time"

	"github.com/weirmq/weir/bench/load"
	"github.com/weirmq/weir/bench/report"
)

// routeFigures are the rows on topics behind a router.
var routeFigures = []figure{
	{rows: []report.Figure{
		{Name: "push-router-ratio", Title: "through one router, idle, p99 over that without it", Unit: "×", Goal: 2},
		{Name: "push-router-p99", Title: "write to frame through one router, idle, p99", Unit: "ms", Goal: 5},
	}, measure: routedPush},
}

// routedPush writes to a topic that is watched itself and to one that is
// watched behind a router, by turns.
func routedPush(ctx context.Context, s *session) ([]value, error) {
	const source, dest = "source", "dest"
	w, err := s.freshTopic(ctx, writeTopic, "log", "disk")
	if err != nil {
		return nil, err
	}
	router := fmt.Appendf(nil, `{"source":%q,"dest":%q}`, source, dest)
	if err := w.do(ctx, "PUT", "/v0/routers/r", router, nil); err != nil {
		return nil, err
	}
	fans := map[string]*fan{}
	for _, topic := range []string{writeTopic, dest} {
		f, err := openFan(ctx, 1, w.watch(load.StreamOptions{}, topic))
		if err != nil {
			return nil, err
		}
		defer f.close()
		fans[topic] = f
	}
	for _, length := range []time.Duration{s.size.warmup, 2 * s.Sample} {
		for _, f := range fans {
			f.take()
		}
		wrote, err := paced(ctx, w.addr, idlePace, length, writeTopic, source)
		if err != nil {
			return nil, err
		}
		for topic, f := range fans {
			if err := f.await(ctx, wrote); err != nil {
				return nil, fmt.Errorf("watch of %s: %w", topic, err)
			}
		}
	}
	_, direct := fans[writeTopic].take()
	_, routed := fans[dest].take()
	d, r := direct.Quantile(0.99), routed.Quantile(0.99)
	note := fmt.Sprintf("p50/p99 %s routed, %s direct", quantiles(routed), quantiles(direct))
	return []value{{float64(r) / float64(d), note}, {amount: millis(r)}}, nil
}
