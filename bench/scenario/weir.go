package scenario

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/weirmq/weir/bench/load"
)

const (
	startLimit = 60 * time.Second // for a server to become ready
	stopLimit  = 30 * time.Second // for a server to stop when asked
	readyStep  = time.Millisecond // between two looks at a starting server
)

// weir is a weir server under test.
type weir struct {
	*proc
	addr  string
	tls   *tls.Config   // nil: the server speaks HTTP
	ready time.Duration // from the start of the process to the first 200 of /v0/ready
}

// startWeir runs a server on dir, whose settings make it speak TLS unless conf is nil, and waits
// until it is ready.
func startWeir(ctx context.Context, binary, dir string, conf *tls.Config, settings ...string) (*weir, error) {
	portFile := filepath.Join(dir, "..", filepath.Base(dir)+".port")
	if err := os.Remove(portFile); err != nil && !os.IsNotExist(err) {
		return nil, err
	}
	begin := time.Now()
	p, err := startProc(binary, []string{"serve"}, append([]string{
		"WEIR_PORT=0", "WEIR_PORT_FILE=" + portFile, "WEIR_DATA_DIR=" + dir,
	}, settings...))
	if err != nil {
		return nil, err
	}
	p.drain()
	w := &weir{proc: p, tls: conf}
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	for !w.isReady(ctx, portFile) {
		if p.exited() {
			return nil, fmt.Errorf("weir ended before it was ready: %v: %s", p.err, p.errors.String())
		}
		if err := pause(ctx, readyStep); err != nil {
			p.kill()
			return nil, fmt.Errorf("weir was not ready: %w: %s", err, p.errors.String())
		}
	}
	w.ready = time.Since(begin)
	return w, nil
}

func (w *weir) isReady(ctx context.Context, portFile string) bool {
	if w.addr == "" {
		text, err := os.ReadFile(portFile)
		if err != nil {
			return false
		}
		w.addr = strings.TrimSpace(string(text))
	}
	status, _, err := w.call(ctx, "GET", "/v0/ready", nil)
	return err == nil && status == 200
}

// call makes one request on a connection of its own.
func (w *weir) call(ctx context.Context, method, path string, body []byte) (int, []byte, error) {
	c, err := load.DialTLS(ctx, w.addr, w.tls)
	if err != nil {
		return 0, nil, err
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(startLimit))
	return c.Fetch(load.Request(method, path, body))
}

// do is call for requests that have to succeed; into may be nil.
func (w *weir) do(ctx context.Context, method, path string, body []byte, into any) error {
	status, answer, err := w.call(ctx, method, path, body)
	if err != nil {
		return fmt.Errorf("%s %s: %w", method, path, err)
	}
	if status >= 300 {
		return fmt.Errorf("%s %s: status %d: %.200s", method, path, status, answer)
	}
	if into == nil {
		return nil
	}
	if err := json.Unmarshal(answer, into); err != nil {
		return fmt.Errorf("%s %s: %w", method, path, err)
	}
	return nil
}

// createTopic makes a topic of a type and durability class.
func (w *weir) createTopic(ctx context.Context, name, kind, class string) error {
	body := fmt.Appendf(nil, `{"type":%q,"durability":%q}`, kind, class)
	return w.do(ctx, "PUT", "/v0/topics/"+name, body, nil)
}

// counters is what the benchmark reads of a topic's state.
type counters struct {
	Head  uint64 `json:"head_seq"`
	Count int64  `json:"count"`
	Bytes int64  `json:"bytes"`
}

func (w *weir) counters(ctx context.Context, topic string) (c counters, err error) {
	err = w.do(ctx, "GET", "/v0/topics/"+topic, nil, &c)
	return c, err
}

// rotations is how many log segments have been sealed since the start.
func (w *weir) rotations(ctx context.Context) (int64, error) {
	var m struct {
		WAL struct {
			Rotations int64 `json:"rotations"`
		} `json:"wal"`
	}
	err := w.metrics(ctx, &m)
	return m.WAL.Rotations, err
}

// metrics reads the numbers of the server that into names.
func (w *weir) metrics(ctx context.Context, into any) error {
	c, err := load.Dial(ctx, w.addr)
	if err != nil {
		return err
	}
	defer c.Close()
	request := []byte("GET /v0/metrics HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: application/json\r\n\r\n")
	_, body, err := c.Fetch(request)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(body, into); err != nil {
		return fmt.Errorf("metrics: %w", err)
	}
	return nil
}
