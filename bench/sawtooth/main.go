// Command sawtooth lets the same callers publish to the same slow workers on a
// real Redis, once for each guard, and writes how the lag went: one CSV file for
// each arm, and a table of their numbers. bench/sawtooth/plot draws the pictures.
//
// The workers are written by hand, as a team has them before it knows weir: each
// reads ten messages, works on one after the other, acknowledges each, and then
// publishes the number of pending messages for ten seconds.
package main

import (
	"context"
	"encoding/csv"
	"flag"
	"fmt"
	"log"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirmq/weir"
)

// arm is one way to guard the producer.
type arm struct {
	name, what string
	config     weir.ProducerConfig
	byHand     bool // guarded by onOff
}

// noDepth keeps the depth limit out of the comparison: it is about lag.
const noDepth = 1 << 40

var arms = []arm{
	{name: "off", what: "off", config: weir.ProducerConfig{Guard: weir.GuardOff}},
	{name: "onoff", what: "on/off by hand, 200 unread", config: weir.ProducerConfig{Guard: weir.GuardOff}, byHand: true},
	{name: "static", what: "static, 50/200 pending", config: weir.ProducerConfig{Guard: weir.GuardStatic}},
	{name: "proportional", what: "proportional, 50/200 pending", config: weir.ProducerConfig{Guard: weir.GuardProportional}},
	{name: "backlog", what: "proportional, 50/200 backlog", config: weir.ProducerConfig{Guard: weir.GuardProportional, LagSignal: weir.SignalBacklog}},
}

func main() {
	log.SetFlags(0)
	var o options
	out := flag.String("out", "docs/sawtooth", "folder for the files")
	flag.DurationVar(&o.length, "length", 25*time.Second, "how long each arm runs")
	flag.DurationVar(&o.warmup, "warmup", 5*time.Second, "how much of its beginning the numbers leave out")
	flag.IntVar(&o.workers, "workers", 40, "workers")
	flag.IntVar(&o.callers, "callers", 1200, "callers that publish")
	flag.DurationVar(&o.service, "service", 80*time.Millisecond, "mean time to work on a message")
	flag.Float64Var(&o.load, "load", 1.5, "messages offered, as a multiple of what the workers can do")
	flag.Parse()
	if err := run(context.Background(), o, *out); err != nil {
		log.Fatal("sawtooth: ", err)
	}
}

func run(ctx context.Context, o options, out string) error {
	addr, stop, err := startRedis()
	if err != nil {
		return err
	}
	defer stop()
	client := redis.NewClient(&redis.Options{Addr: addr, PoolSize: o.workers + 10})
	defer client.Close()
	if err := awaitRedis(ctx, client); err != nil {
		return err
	}
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	table := [][]string{heading}
	for _, a := range arms {
		log.Printf("%s: %s", a.what, o.length)
		r, err := measure(ctx, o, a, client, addr)
		if err != nil {
			return fmt.Errorf("%s: %w", a.name, err)
		}
		row := r.numbers(a, o)
		log.Print(strings.Join(row, " | "))
		table = append(table, row)
		if err := write(filepath.Join(out, a.name+".csv"), r.rows()); err != nil {
			return err
		}
	}
	return write(filepath.Join(out, "numbers.csv"), table)
}

func write(name string, rows [][]string) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	if err := csv.NewWriter(f).WriteAll(rows); err != nil {
		_ = f.Close()
		return err
	}
	return f.Close()
}

// startRedis starts a server of its own on a free port.
func startRedis() (addr string, stop func(), err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	port := l.Addr().(*net.TCPAddr).Port
	if err := l.Close(); err != nil {
		return "", nil, err
	}
	dir, err := os.MkdirTemp("", "sawtooth")
	if err != nil {
		return "", nil, err
	}
	server := exec.Command("redis-server", "--bind", "127.0.0.1", "--port", strconv.Itoa(port), "--save", "", "--dir", dir)
	if err := server.Start(); err != nil {
		return "", nil, err
	}
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), func() {
		_ = server.Process.Kill()
		_ = server.Wait()
		_ = os.RemoveAll(dir)
	}, nil
}

func awaitRedis(ctx context.Context, client *redis.Client) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	for {
		err := client.Ping(ctx).Err()
		if err == nil || ctx.Err() != nil {
			return err
		}
		time.Sleep(20 * time.Millisecond)
	}
}
