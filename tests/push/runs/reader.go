package runs

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/weirmq/weir/bench/load"
)

// delays are the times from a write to its arrival at a reader.
type delays struct {
	mu            sync.Mutex
	window, whole load.Latency
	longest       time.Duration
}

func (d *delays) add(t time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.window.Add(t)
	d.whole.Add(t)
	d.longest = max(d.longest, t)
}

// take returns the quantiles since the last take, and adds those times to the
// collections.
func (d *delays) take(to ...*load.Latency) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	text := quantiles(&d.window)
	for _, l := range to {
		l.Merge(&d.window)
	}
	d.window = load.Latency{}
	return text
}

func (d *delays) all() (p50, p99, longest time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.whole.Quantile(0.5), d.whole.Quantile(0.99), d.longest
}

func quantiles(l *load.Latency) string {
	p99 := l.Quantile(0.99)
	if p99 == 0 {
		return "-"
	}
	return short(l.Quantile(0.5)) + "/" + short(p99)
}

// short prints milliseconds with as many digits as matter.
func short(d time.Duration) string {
	ms := float64(d) / float64(time.Millisecond)
	if ms >= 10 {
		return fmt.Sprintf("%.0f", ms)
	}
	return fmt.Sprintf("%.1f", ms)
}

// reader follows topics over one stream and checks that what it gets leaves no
// gap and repeats nothing.
type reader struct {
	stream *load.Stream
	delays *delays // nil: not measured
	every  bool    // each record is measured, not only the first of a frame

	mu         sync.Mutex
	at         map[string]*place
	records    int64
	frames     int64
	tombstones int
	advice     int // frames with code 429
	err        error
}

// place is how far a reader is in one topic.
type place struct {
	pos    uint64
	before uint64 // the position in front of the tombstone that came last
	gap    bool   // the last frame was a tombstone
}

// watch opens a session that reads topics from their beginning, and its stream.
func (t Target) watch(ctx context.Context, c *caller, o load.StreamOptions, topics ...string) (*reader, error) {
	request := map[string]map[string]struct{}{"topics": {}}
	r := &reader{at: map[string]*place{}}
	for _, topic := range topics {
		request["topics"][topic] = struct{}{}
		r.at[topic] = &place{}
	}
	body, err := json.Marshal(request)
	if err != nil {
		return nil, err
	}
	answer, err := c.do("POST", "/v0/watch", body)
	if err != nil {
		return nil, err
	}
	var made struct {
		URL string `json:"stream_url"`
	}
	if err := json.Unmarshal(answer, &made); err != nil {
		return nil, fmt.Errorf("POST /v0/watch: %w", err)
	}
	r.stream, err = load.OpenStream(ctx, t.Addr, made.URL, o)
	return r, err
}

// loop reads until the stream is closed.
func (r *reader) loop() {
	for {
		frame, err := r.stream.Next()
		now := time.Now()
		r.mu.Lock()
		if err == nil {
			err = r.take(frame, now)
		}
		if err != nil {
			r.err = err
			r.mu.Unlock()
			return
		}
		r.mu.Unlock()
	}
}

func (r *reader) take(f load.Frame, now time.Time) error {
	if len(f.Event) == 0 {
		return nil
	}
	r.frames++
	if string(f.Event) == "error" {
		if code, _, ok := load.Number(f.Data, "code"); ok && code == 429 {
			r.advice++
			return nil
		}
		return fmt.Errorf("error frame: %.200s", f.Data)
	}
	name := text(f.Data, "topic")
	p := r.at[string(name)]
	if p == nil {
		return fmt.Errorf("a frame of a topic that is not watched: %.200s", f.Data)
	}
	if err := r.apply(p, f, now); err != nil {
		return fmt.Errorf("topic %s at %d: %w: %.200s", name, p.pos, err, f.Data)
	}
	return nil
}

func (r *reader) apply(p *place, f load.Frame, now time.Time) error {
	switch string(f.Event) {
	case "record":
		return r.takeRecords(p, f.Data, now)
	case "tombstone":
		from, _, ok := load.Number(f.Data, "gap_from")
		to, _, ok2 := load.Number(f.Data, "gap_to")
		if !ok || !ok2 || from != p.pos+1 || to < from {
			return errors.New("a tombstone that does not follow")
		}
		p.before, p.pos, p.gap = p.pos, to, true
		r.tombstones++
	case "caught-up":
		if head, _, ok := load.Number(f.Data, "head_seq"); !ok || head < p.pos {
			return errors.New("caught up with a head behind it")
		}
	default:
		return fmt.Errorf("event %s", f.Event)
	}
	return nil
}

func (r *reader) takeRecords(p *place, data []byte, now time.Time) error {
	from, _, ok := load.Number(data, "from_seq")
	to, _, ok2 := load.Number(data, "to_seq")
	if !ok || !ok2 || from != p.pos && !(p.gap && from == p.before) {
		return errors.New("a frame that does not follow")
	}
	p.gap = false
	for rest, first := data, true; ; first = false {
		seq, next, ok := load.Number(rest, "$seq")
		if !ok {
			break
		}
		if seq != p.pos+1 {
			return fmt.Errorf("number %d does not follow", seq)
		}
		p.pos = seq
		r.records++
		if r.delays != nil && (r.every || first) {
			if sent, _, ok := load.Number(next, "t"); ok {
				r.delays.add(time.Duration(now.UnixNano() - int64(sent)))
			}
		}
		rest = next
	}
	if p.pos != to {
		return fmt.Errorf("the frame ends at %d and says to_seq %d", p.pos, to)
	}
	return nil
}

// text is the string member of compact JSON; it knows no escapes.
func text(data []byte, name string) []byte {
	_, rest, ok := bytes.Cut(data, []byte(`"`+name+`":"`))
	if !ok {
		return nil
	}
	value, _, _ := bytes.Cut(rest, []byte{'"'})
	return value
}

// behind names a topic whose head the reader has not reached, "" if there is
// none; err is what ended the reader.
func (r *reader) behind(heads map[string]uint64) (topic string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for name, p := range r.at {
		if p.pos < heads[name] {
			return name, r.err
		}
	}
	return "", r.err
}

// await waits until every reader has reached every head.
func await(ctx context.Context, readers []*reader, heads map[string]uint64, limit time.Duration) error {
	deadline := time.Now().Add(limit)
	for _, r := range readers {
		for {
			topic, err := r.behind(heads)
			if err != nil {
				return fmt.Errorf("a reader ended: %w", err)
			}
			if topic == "" {
				break
			}
			if time.Now().After(deadline) {
				return fmt.Errorf("a reader of %s is at %d, the head is %d, after %v", topic, r.position(topic), heads[topic], limit)
			}
			if err := pause(ctx, 10*time.Millisecond); err != nil {
				return err
			}
		}
	}
	return nil
}

func (r *reader) position(topic string) uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.at[topic].pos
}

// group runs readers and ends them.
type group struct {
	all []*reader
	wg  sync.WaitGroup
}

func (g *group) start(r *reader) {
	g.all = append(g.all, r)
	g.wg.Go(r.loop)
}

func (g *group) close() {
	for _, r := range g.all {
		r.stream.Close()
	}
	g.wg.Wait()
}
