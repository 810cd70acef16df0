package replica

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/weirmq/weir/tests/stall"
)

// client writes and reads records of one topic, and remembers what was acknowledged.
type client struct {
	t    *testing.T
	http http.Client

	mu    sync.Mutex
	acked map[string]map[uint64]ack // by topic and number
	gone  map[string]map[uint64]ack // what of it was lost
}

// ack is what was acknowledged, and when.
type ack struct {
	data string
	at   time.Time
}

func newClient(t *testing.T, topics ...string) *client {
	c := &client{t: t, acked: map[string]map[uint64]ack{}, gone: map[string]map[uint64]ack{}}
	for _, topic := range topics {
		c.acked[topic], c.gone[topic] = map[uint64]ack{}, map[uint64]ack{}
	}
	return c
}

func (c *client) call(ctx context.Context, method, url string, body, reply any) (int, error) {
	b, err := json.Marshal(body)
	if err != nil {
		return 0, err
	}
	req, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(b))
	if err != nil {
		return 0, err
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := c.http.Do(req)
	if err != nil {
		return 0, err
	}
	defer res.Body.Close()
	if b, err = io.ReadAll(res.Body); err == nil && res.StatusCode < 300 {
		err = json.Unmarshal(b, reply)
	} else if err == nil {
		err = fmt.Errorf("%s %s: %d %s", method, url, res.StatusCode, b)
	}
	return res.StatusCode, err
}

type record struct {
	Seq  uint64 `json:"$seq,omitempty"`
	Data string `json:"data"`
}

// write writes until the server is gone. A number that is given out again is an
// error.
func (c *client) write(ctx context.Context, base, topic, writer string) {
	for i := 0; ctx.Err() == nil; i++ {
		var req struct {
			Records []record `json:"records"`
		}
		for j := range 1 + rand.IntN(4) {
			req.Records = append(req.Records, record{Data: fmt.Sprintf("%s/%d/%d", writer, i, j)})
		}
		var got struct {
			First uint64 `json:"first_seq"`
			Last  uint64 `json:"last_seq"`
		}
		if _, err := c.call(ctx, "POST", base+"/v0/topics/"+topic, req, &got); err != nil {
			return
		}
		now := time.Now()
		c.mu.Lock()
		for j, r := range req.Records {
			seq := got.First + uint64(j)
			for _, before := range []map[uint64]ack{c.acked[topic], c.gone[topic]} {
				if old, ok := before[seq]; ok {
					c.t.Errorf("number %d of %s was given to %s and to %s", seq, topic, old.data, r.Data)
				}
			}
			c.acked[topic][seq] = ack{r.Data, now}
		}
		c.mu.Unlock()
	}
}

// read returns all records and all tombstones of a topic.
func (c *client) read(ctx context.Context, base, topic string) (map[uint64]string, func(uint64) bool, error) {
	records, lost := map[uint64]string{}, [][2]uint64{}
	for from := uint64(0); ; {
		var got struct {
			Records   []record `json:"records"`
			Next      uint64   `json:"next_from_seq"`
			Caught    bool     `json:"caught_up"`
			Tombstone *struct {
				From uint64 `json:"gap_from"`
				To   uint64 `json:"gap_to"`
			} `json:"tombstone"`
		}
		body := map[string]any{"from_seq": from, "limit": 1000, "max_batch_bytes": 8 << 20}
		if _, err := c.call(ctx, "POST", base+"/v0/topics/"+topic+"/diff", body, &got); err != nil {
			return nil, nil, err
		}
		for _, r := range got.Records {
			records[r.Seq] = r.Data
		}
		if got.Tombstone != nil {
			lost = append(lost, [2]uint64{got.Tombstone.From, got.Tombstone.To})
		}
		if from = got.Next; got.Caught {
			break
		}
	}
	return records, func(seq uint64) bool {
		for _, l := range lost {
			if seq >= l[0] && seq <= l[1] {
				return true
			}
		}
		return false
	}, nil
}

// judge compares a topic with what was acknowledged, and forgets what was lost. It
// returns how many records were, and how old the oldest of them was at a time.
func (c *client) judge(ctx context.Context, base, topic string, at time.Time) (missing int, oldest time.Duration) {
	c.t.Helper()
	records, lost, err := c.read(ctx, base, topic)
	if err != nil {
		c.t.Fatal(err)
	}
	for seq, want := range c.acked[topic] {
		switch got, ok := records[seq]; {
		case ok && got != want.data:
			c.t.Errorf("record %d of %s is %q, acknowledged was %q", seq, topic, got, want.data)
		case !ok && !lost(seq):
			c.t.Errorf("record %d of %s is missing without a tombstone", seq, topic)
		case !ok:
			missing++
			oldest = max(oldest, at.Sub(want.at))
			c.gone[topic][seq] = want
			delete(c.acked[topic], seq)
		}
	}
	return missing, oldest
}

const (
	every = 500 * time.Millisecond // that the copy follows
	late  = 2 * time.Second        // what a server may be besides
)

// TestLostMachineAnnouncesWhatItTook loses servers whose copy is behind: by what was
// written since it followed last, and while the entry was on its way to the store.
func TestLostMachineAnnouncesWhatItTook(t *testing.T) {
	onEachStore(t, announce)
}

func announce(t *testing.T, b *bucket, n int) {
	m := newMachine(t, b, "WEIR_REPLICA_EVERY="+every.String(), "WEIR_REPLICA_BASE=2s")
	topics := map[string]string{"f": "fsync", "d": "disk", "m": "memory"}
	c := newClient(t, "f", "d", "m")
	missing, over := 0, time.Duration(math.MinInt64)
	var killed time.Time
	var longest, busy time.Duration // of the life before: the longest PUT, and for how long the machine stood still
	for round := range n + 1 {
		base, err := m.Start(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for topic, class := range topics {
			if round > 0 {
				gone, oldest := c.judge(t.Context(), base, topic, killed)
				if missing += gone; gone > 0 {
					over = max(over, oldest-every-longest)
				}
				if oldest > every+2*longest+late+busy {
					t.Errorf("round %d: a record of %s that was lost had been acknowledged %v before, the longest PUT took %v, the machine stood still for %v",
						round, topic, oldest, longest, busy)
				}
			} else if _, err := c.call(t.Context(), "PUT", base+"/v0/topics/"+topic, map[string]any{"durability": class}, &struct{}{}); err != nil {
				t.Fatal(err)
			}
		}
		if round == n {
			m.Kill()
			break
		}
		if round == 0 {
			time.Sleep(2 * time.Second) // a topic of the last second may go with its machine
		}
		ctx, stop := context.WithCancel(t.Context())
		stalled := stall.Busy()
		var writers sync.WaitGroup
		for topic := range topics {
			for i := range 4 {
				writers.Go(func() { c.write(ctx, base, topic, fmt.Sprintf("%d.%d", round, i)) })
			}
		}
		life := 1500
		if b != nil && b.storm.Load() {
			life = 3000
		}
		time.Sleep(time.Duration(100+rand.IntN(life)) * time.Millisecond)
		if b != nil {
			longest = b.longest()
		}
		killed, busy = time.Now(), stalled()
		m.Kill()
		writers.Wait()
		stop()
		c.http.CloseIdleConnections()
	}
	t.Logf("%d acknowledged and there, %d lost and announced; the oldest was %v older than --replica-every and the longest PUT", c.there(), missing, over)
	if b != nil {
		t.Logf("%d of %d lives had faults of the store, %d in all", m.stormy, m.lives, b.faults.Load())
	}
}

func (c *client) there() (n int) {
	for _, a := range c.acked {
		n += len(a)
	}
	return n
}
