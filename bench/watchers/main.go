// Command watchers opens streams of one topic, or of a bare handler, and holds
// them without reading until SIGTERM:
//
//	watchers -addr HOST:PORT -n 10000 -topic T    a watch session and its stream, n times
//	watchers -addr HOST:PORT -n 10000             GET /, n times
//
// It prints "open" once the first block of every stream has arrived. It is a
// process of its own so that the server and its clients do not share one limit
// of open files.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/weirmq/weir/bench/load"
)

func main() {
	addr := flag.String("addr", "", "server, host:port")
	n := flag.Int("n", 1, "streams")
	topic := flag.String("topic", "", "topic to watch; empty: GET /")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := run(ctx, *addr, *topic, *n); err != nil {
		fmt.Fprintln(os.Stderr, "watchers:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, addr, topic string, n int) error {
	control, err := load.Dial(ctx, addr)
	if err != nil {
		return err
	}
	defer control.Close()
	streams := make([]*load.Stream, 0, n)
	defer func() {
		for _, s := range streams {
			s.Close()
		}
	}()
	for range n {
		path := "/"
		if topic != "" {
			if path, err = session(control, topic); err != nil {
				return err
			}
		}
		s, err := load.OpenStream(ctx, addr, path, load.StreamOptions{})
		if err != nil {
			return err
		}
		streams = append(streams, s)
		if _, err := s.Next(); err != nil {
			return fmt.Errorf("first block of stream %d: %w", len(streams), err)
		}
	}
	fmt.Println("open")
	<-ctx.Done()
	return nil
}

// session makes a watch session that sends as few heartbeats as it may and
// returns the path of its stream.
func session(c *load.Conn, topic string) (string, error) {
	body := fmt.Appendf(nil, `{"topics":{%q:{"tail":true}},"heartbeat_ms":60000}`, topic)
	status, answer, err := c.Fetch(load.Request("POST", "/v0/watch", body))
	if err != nil {
		return "", err
	}
	var made struct {
		URL string `json:"stream_url"`
	}
	if err := json.Unmarshal(answer, &made); err != nil || status != 200 {
		return "", fmt.Errorf("POST /v0/watch: status %d: %.200s", status, answer)
	}
	return made.URL, nil
}
