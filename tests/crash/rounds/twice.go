package rounds

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/weirmq/weir/tests/oracle"
)

// Twice returns a check that recovery is repeatable: copies of the data
// directory dir recovered once, recovered after a recovery that was killed, and
// recovered again must answer the same bytes. The copies live in scratch.
func Twice(binary, dir, scratch string, env func() []string) func(context.Context) error {
	return func(ctx context.Context) error {
		a := &Process{Binary: binary, Dir: filepath.Join(scratch, "a"), Env: env}
		b := &Process{Binary: binary, Dir: filepath.Join(scratch, "b"), Env: env}
		for _, p := range []*Process{a, b} {
			if err := errors.Join(os.RemoveAll(p.Dir), os.CopyFS(p.Dir, os.DirFS(dir))); err != nil {
				return err
			}
		}
		begin := time.Now()
		first, err := recovered(ctx, a)
		if err != nil {
			return err
		}
		took := time.Since(begin)
		for range 3 {
			if err := b.StartKilled(rand.N(took)); err != nil {
				return fmt.Errorf("D8: a recovery that was killed: %w", err)
			}
		}
		second, err := recovered(ctx, b)
		if err != nil {
			return fmt.Errorf("D8: after recoveries that were killed: %w", err)
		}
		third, err := recovered(ctx, a)
		if err != nil {
			return fmt.Errorf("D8: second recovery: %w", err)
		}
		return errors.Join(
			sameAnswers("after three killed recoveries", first, second),
			sameAnswers("after a second recovery", first, third))
	}
}

func recovered(ctx context.Context, p *Process) (map[string][]byte, error) {
	base, err := p.Start(ctx)
	if err != nil {
		return nil, err
	}
	defer p.Kill()
	c := NewClient(base)
	defer c.Close()
	return c.dump(ctx)
}

func sameAnswers(when string, want, got map[string][]byte) error {
	for what, text := range want {
		if !bytes.Equal(text, got[what]) {
			return fmt.Errorf("D8: %s, %s answers\n%.600s\ninstead of\n%.600s", when, what, got[what], text)
		}
	}
	if len(want) != len(got) {
		return fmt.Errorf("D8: %s, %d answers instead of %d", when, len(got), len(want))
	}
	return nil
}

// dump asks for everything: the list, every state and every page of every
// topic, without what depends on the time of asking.
func (c *Client) dump(ctx context.Context) (map[string][]byte, error) {
	out := map[string][]byte{}
	for cursor := ""; ; {
		page, err := c.raw(ctx, map[string][]byte{}, http.MethodGet, "/v0/topics?page_size=1000&cursor="+url.QueryEscape(cursor), nil)
		if err != nil {
			return nil, err
		}
		topics, _ := page["topics"].([]any)
		for _, t := range topics {
			entry, _ := t.(map[string]any)
			name, _ := entry["topic"].(string)
			out["topic "+name] = nil // its state says more than the list
			if err := c.dumpTopic(ctx, out, name); err != nil {
				return nil, err
			}
		}
		if cursor, _ = page["next_cursor"].(string); cursor == "" {
			return out, nil
		}
	}
}

func (c *Client) dumpTopic(ctx context.Context, out map[string][]byte, name string) error {
	state := topicPath(name, "") + "?touch=false"
	reply, err := c.raw(ctx, out, http.MethodGet, state, nil)
	if err != nil {
		return err
	}
	cfg, _ := reply["config"].(map[string]any)
	if ttl, _ := cfg["ttl_ms"].(json.Number); ttl != "0" && ttl != "" {
		delete(out, http.MethodGet+" "+state+" ") // what has expired depends on the time of asking
		return nil
	}
	for from := uint64(0); ; {
		body := fmt.Appendf(nil, `{"from_seq":%d,"limit":1000,"include_tags":true}`, from)
		page, err := c.raw(ctx, out, http.MethodPost, topicPath(name, "/diff"), body)
		if err != nil {
			return err
		}
		next, _ := page["next_from_seq"].(json.Number)
		at, err := next.Int64()
		if err != nil {
			return err
		}
		if page["caught_up"] == true {
			return nil
		}
		if uint64(at) <= from {
			return fmt.Errorf("diff of %s from %d does not get on", name, from)
		}
		from = uint64(at)
	}
}

// volatile members of answers depend on when or how often they were asked for.
var volatile = []string{"performance", "last_read_ts", "last_write_ts", "effective_priority"}

func (c *Client) raw(ctx context.Context, out map[string][]byte, method, path string, body []byte) (map[string]any, error) {
	var text json.RawMessage
	e := oracle.Event{}
	if err := c.call(ctx, &e, method, path, body, &text); err != nil {
		return nil, err
	}
	if e.Outcome != oracle.OK {
		return nil, fmt.Errorf("%s %s: %s", method, path, e.Note)
	}
	reply := map[string]any{}
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	if err := dec.Decode(&reply); err != nil {
		return nil, err
	}
	strip(reply)
	plain, err := json.Marshal(reply)
	out[method+" "+path+" "+string(body)] = plain
	return reply, err
}

// strip removes volatile members from an answer and from the entries of its lists.
func strip(o map[string]any) {
	for _, name := range volatile {
		delete(o, name)
	}
	if queue, ok := o["queue"].(map[string]any); ok { // durable leases run out
		delete(queue, "ready")
		delete(queue, "in_flight")
		delete(queue, "delayed")
		delete(queue, "scheduled")
	}
	topics, _ := o["topics"].([]any)
	for _, t := range topics {
		if entry, ok := t.(map[string]any); ok {
			strip(entry)
		}
	}
	if name, _ := o["topic"].(string); strings.HasPrefix(name, "rt") || strings.HasPrefix(name, "rwd") {
		records, _ := o["records"].([]any)
		for _, r := range records {
			if rec, ok := r.(map[string]any); ok {
				delete(rec, "$ts") // a copy is made when it is asked for
			}
		}
	}
}
