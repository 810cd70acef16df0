package scenario

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/weirmq/weir/bench/load"
)

// fanLimit is how long a fan may take to receive what was written.
const fanLimit = 20 * time.Second

// stampedWrite appends a write of one record that holds the time of the call.
func stampedWrite(dst []byte, topic string) []byte {
	const front = `{"records":[{"data":{"note":"abcdefghijklmno abcdefghijklmno abcdefghijklmno abcdefghijklmno ` +
		`abcdefghijklmno abcdefghijklmno abcdefghijklmno abcdefghijklmno abcdefghijklmno","t":`
	body := fmt.Appendf(nil, "%s%d}}]}", front, time.Now().UnixNano())
	return load.AppendRequest(dst, "POST", "/v0/topics/"+topic, body)
}

// fan is a set of open streams. A goroutine per stream counts the records that
// arrive and the time since each was written.
type fan struct {
	streams []*load.Stream
	readers []fanReader
	ended   sync.WaitGroup
}

type fanReader struct {
	mu      sync.Mutex
	latency load.Latency
	records int64
	err     error
}

// opener opens one stream.
type opener func(ctx context.Context) (*load.Stream, error)

// openFan opens n streams and reads the first block of each.
func openFan(ctx context.Context, n int, open opener) (*fan, error) {
	f := &fan{readers: make([]fanReader, n)}
	for i := range n {
		s, err := open(ctx)
		if err == nil {
			f.streams = append(f.streams, s)
			_, err = s.Next()
		}
		if err != nil {
			f.close()
			return nil, fmt.Errorf("stream %d: %w", i, err)
		}
	}
	for i, s := range f.streams {
		f.ended.Go(func() { f.readers[i].loop(s) })
	}
	return f, nil
}

// close ends every stream and waits for its reader.
func (f *fan) close() {
	for _, s := range f.streams {
		s.Close()
	}
	f.ended.Wait()
}

func (r *fanReader) loop(s *load.Stream) {
	for {
		frame, err := s.Next()
		now := time.Now().UnixNano()
		r.mu.Lock()
		if err != nil {
			r.err = err
			r.mu.Unlock()
			return
		}
		if string(frame.Event) == "record" {
			r.count(frame.Data, now)
		}
		r.mu.Unlock()
	}
}

func (r *fanReader) count(data []byte, now int64) {
	for {
		sent, rest, ok := load.Number(data, "t")
		if !ok {
			return
		}
		r.latency.Add(time.Duration(now - int64(sent)))
		r.records++
		data = rest
	}
}

// arrived is how many records have come since the last take.
func (f *fan) arrived() (n int64, err error) {
	for i := range f.readers {
		r := &f.readers[i]
		r.mu.Lock()
		n += r.records
		err = errors.Join(err, r.err)
		r.mu.Unlock()
	}
	return n, err
}

// take returns what has arrived since the last take.
func (f *fan) take() (int64, *load.Latency) {
	var n int64
	all := &load.Latency{}
	for i := range f.readers {
		r := &f.readers[i]
		r.mu.Lock()
		n += r.records
		all.Merge(&r.latency)
		r.records, r.latency = 0, load.Latency{}
		r.mu.Unlock()
	}
	return n, all
}

// await waits until every stream has got n records since the last take.
func (f *fan) await(ctx context.Context, n int) error {
	want := int64(n) * int64(len(f.streams))
	deadline := time.Now().Add(fanLimit)
	for {
		got, err := f.arrived()
		if err != nil {
			return fmt.Errorf("a stream ended: %w", err)
		}
		if got >= want {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%d of %d records arrived within %v", got, want, fanLimit)
		}
		if err := pause(ctx, time.Millisecond); err != nil {
			return err
		}
	}
}

// paced sends one stamped write to every topic in turn, one each interval, and
// returns how many each got.
func paced(ctx context.Context, addr string, interval, length time.Duration, topics ...string) (int, error) {
	c, err := load.Dial(ctx, addr)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	ticks := time.NewTicker(interval)
	defer ticks.Stop()
	var request []byte
	begin := time.Now()
	for n := 0; ; n++ {
		for _, topic := range topics {
			select {
			case <-ticks.C:
			case <-ctx.Done():
				return n, ctx.Err()
			}
			request = stampedWrite(request[:0], topic)
			if status, err := c.Do(request); err != nil || status != 200 && status != 201 {
				return n, fmt.Errorf("write to %s: status %d, error %v", topic, status, err)
			}
		}
		if time.Since(begin) >= length {
			return n + 1, nil
		}
	}
}

// watch opens a session of topics that begins at their heads, and its stream.
func (w *weir) watch(o load.StreamOptions, topics ...string) opener {
	type start struct {
		Tail bool `json:"tail"`
	}
	request := map[string]map[string]start{"topics": {}}
	for _, t := range topics {
		request["topics"][t] = start{Tail: true}
	}
	return func(ctx context.Context) (*load.Stream, error) {
		body, err := json.Marshal(request)
		if err != nil {
			return nil, err
		}
		var made struct {
			URL string `json:"stream_url"`
		}
		if err := w.do(ctx, "POST", "/v0/watch", body, &made); err != nil {
			return nil, err
		}
		return load.OpenStream(ctx, w.addr, made.URL, o)
	}
}

// bareStream opens a stream of a bare handler.
func bareStream(addr string) opener {
	return func(ctx context.Context) (*load.Stream, error) {
		return load.OpenStream(ctx, addr, "/", load.StreamOptions{})
	}
}
