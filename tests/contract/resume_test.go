package contract

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirmq/weir/tests/weirtest"
)

// home is where the server is; it moves when the server is killed.
type home struct {
	mu    sync.Mutex
	addr  string
	moved chan struct{} // closed at the next move
}

func (h *home) at() (addr string, moved <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.addr, h.moved
}

func (h *home) move(addr string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.addr = addr
	if h.moved != nil {
		close(h.moved)
	}
	h.moved = make(chan struct{})
}

// restless is a client that keeps to contract 12.2 and stays nowhere for long: it takes
// a few records, drops the connection and connects again at once with the id it
// got last. Nothing that it says it has may come again, and nothing may be left
// out.
type restless struct {
	at map[string]uint64 // the last record of each topic

	addr   string
	wid    string
	id     string   // of the last frame of the session
	before net.Conn // to be closed once the next connection is open

	connects, records int
}

// errAway is what a server that was killed looks like.
var errAway = errors.New("the server is away")

// session makes a session that begins at the client's own positions.
func (c *restless) session() error {
	topics := map[string]map[string]uint64{}
	for name, seq := range c.at {
		topics[name] = map[string]uint64{"from_seq": seq}
	}
	body, err := json.Marshal(map[string]any{"topics": topics, "limit": 7})
	if err != nil {
		return err
	}
	resp, err := http.Post("http://"+c.addr+"/v0/watch", "application/json", bytes.NewReader(body))
	if err != nil {
		return errAway
	}
	defer resp.Body.Close()
	if resp.StatusCode != 200 {
		return fmt.Errorf("a session was answered with %d", resp.StatusCode)
	}
	var out struct{ WID string }
	if err := json.NewDecoder(resp.Body).Decode(&out); err != nil {
		return errAway
	}
	c.wid, c.id = out.WID, ""
	return nil
}

// connect opens a stream, takes records and leaves. If it overlaps, it leaves
// only when the next one is open.
func (c *restless) connect(records int, overlap bool) error {
	if c.id == "" { // without an id nobody can know what was lost on the way
		if err := c.session(); err != nil {
			return err
		}
	}
	conn, err := net.Dial("tcp", c.addr)
	if err != nil {
		return errAway
	}
	c.connects++
	defer c.leave(c.before)
	if c.before = nil; overlap {
		c.before = conn
	} else {
		defer conn.Close()
	}
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	head := "GET /v0/watch/" + c.wid + " HTTP/1.1\r\nHost: 127.0.0.1\r\n"
	if c.id != "" {
		head += "Last-Event-ID: " + c.id + "\r\n"
	}
	if _, err := io.WriteString(conn, head+"\r\n"); err != nil {
		return errAway
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return c.away(err)
	}
	if resp.StatusCode != 200 {
		return fmt.Errorf("a stream was answered with %d", resp.StatusCode)
	}
	body := bufio.NewReader(resp.Body)
	for records > 0 {
		f, err := nextFrame(body)
		if err != nil {
			return c.away(err)
		}
		n, err := c.take(f)
		if err != nil {
			return err
		}
		records -= n
	}
	return nil
}

func (c *restless) leave(conn net.Conn) {
	if conn != nil {
		conn.Close()
	}
}

// away tells the end of a server from one that sends nothing.
func (c *restless) away(err error) error {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return fmt.Errorf("connection %d: nothing came for %v", c.connects, patience)
	}
	return errAway
}

// nextFrame reads up to the next event.
func nextFrame(in *bufio.Reader) (frame, error) {
	var lines []string
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return frame{}, err
		}
		if line = strings.TrimSuffix(line, "\n"); line != "" {
			lines = append(lines, line)
			continue
		}
		if strings.HasPrefix(lines[0], "retry") || lines[0][0] == ':' {
			lines = nil
			continue
		}
		f := parseFrame(lines)
		return f, f.err
	}
}

// take counts the records of a frame and checks that each is the next.
func (c *restless) take(f frame) (int, error) {
	var data struct {
		Topic   string
		Records []struct {
			Seq uint64 `json:"$seq"`
		}
	}
	if err := json.Unmarshal(f.data, &data); err != nil {
		return 0, fmt.Errorf("%v: %w", f, err)
	}
	switch f.event {
	case "caught-up":
	case "record":
		for _, r := range data.Records {
			if due := c.at[data.Topic] + 1; r.Seq != due {
				return 0, fmt.Errorf("connection %d brought record %d of %q, where %d was due", c.connects, r.Seq, data.Topic, due)
			}
			c.at[data.Topic] = r.Seq
			c.records++
		}
	default:
		return 0, fmt.Errorf("got %v", f)
	}
	c.id = f.id
	return len(data.Records), nil
}

// run connects, for up to most records each time, until enough says so.
func (c *restless) run(h *home, i, most int, enough func() bool) error {
	defer func() { c.leave(c.before) }()
	for turn := i; !enough(); turn++ {
		addr, moved := h.at()
		if c.addr != addr {
			c.addr, c.id = addr, "" // sessions end with their server
		}
		err := c.connect(1+turn%most, turn%4 == 0)
		if err == errAway {
			select {
			case <-moved:
				continue
			case <-time.After(3 * patience):
				err = errors.New("connections break though the server was not killed")
			}
		}
		if err != nil {
			return fmt.Errorf("client %d: %w", i, err)
		}
	}
	return nil
}

// Four clients connect again and again while two writers write and the server
// is killed: what a client says it has does not come again, and nothing is
// missing at the end.
func TestAClientThatReconnectsAtOnceGetsEachRecordOnce(t *testing.T) {
	const clients, kills, perKill = 4, 3, 400
	s := weirtest.Start(t, weirtest.Options{})
	var h home
	h.move(s.Addr)
	topics := []string{"a", "b"}
	for _, name := range topics {
		newPeer(t, s, "").must(t, "PUT", "/v0/topics/"+name, `{}`)
	}
	over, cancel := context.WithCancel(t.Context())
	var writers, readers sync.WaitGroup
	defer func() { cancel(); writers.Wait() }()
	for _, name := range topics {
		writers.Go(func() { writeOn(over, &h, name) })
	}

	var connects atomic.Int64
	due := make(chan struct{}, kills+1)
	all := make([]*restless, clients)
	failed := make(chan error, clients)
	for i := range all {
		all[i] = &restless{at: map[string]uint64{"a": 0, "b": 0}}
		readers.Go(func() {
			err := all[i].run(&h, i, 3, func() bool {
				n := connects.Add(1)
				if n%perKill == 0 && n <= perKill*kills {
					due <- struct{}{}
				}
				return n > perKill*(kills+1) || len(failed) > 0
			})
			if err != nil {
				failed <- err
			}
		})
	}
	done := make(chan struct{})
	go func() { readers.Wait(); close(done) }()
	for running := true; running; {
		select {
		case <-due:
			s.Kill()
			s.Restart()
			h.move(s.Addr)
		case <-done:
			running = false
		}
	}
	cancel()
	writers.Wait()
	close(failed)
	for err := range failed {
		t.Error(err)
	}
	if t.Failed() {
		return
	}
	p, records := newPeer(t, s, ""), 0
	for i, c := range all {
		for _, name := range topics {
			head := uint64(p.must(t, "GET", "/v0/topics/"+name, "").number("head_seq"))
			if err := c.run(&h, i, 1, func() bool { return c.at[name] >= head }); err != nil {
				t.Fatal(err)
			}
			if c.at[name] != head {
				t.Errorf("client %d is at %d of %q, whose head is %d", i, c.at[name], name, head)
			}
		}
		records += c.records
	}
	t.Logf("%d records over %d connections and %d kills", records, connects.Load(), kills)
}

// writeOn writes record after record to the topic, wherever the server is.
func writeOn(ctx context.Context, h *home, topic string) {
	for ctx.Err() == nil {
		addr, moved := h.at()
		resp, err := http.Post("http://"+addr+"/v0/topics/"+topic, "application/json", strings.NewReader(`{"records":[{"data":1}]}`))
		if err == nil {
			_, err = io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
		}
		if err != nil {
			select {
			case <-moved:
			case <-ctx.Done():
			}
		}
	}
}
