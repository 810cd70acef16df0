package scenario

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Peers that do not speak HTTP bring a client of their own: a process that
// publishes and prints what it measured. weir's side of these rows is the same
// as in write-fsync.

func againstRedis(ctx context.Context, s *session) (measure, measure, error) {
	w, err := s.freshTopic(ctx, writeTopic, "log", "fsync")
	if err != nil {
		return nil, nil, err
	}
	server, addr, err := s.redis(ctx)
	if err != nil {
		return nil, nil, err
	}
	plan := s.writers(w.addr, writeTopic, manyConns, 1)
	return over(w.proc, plan), s.foreign(server, "redis-load", "-addr", addr), nil
}

func againstNATS(ctx context.Context, s *session) (measure, measure, error) {
	w, err := s.freshTopic(ctx, writeTopic, "log", "fsync")
	if err != nil {
		return nil, nil, err
	}
	server, url, err := s.peer(ctx, peersProgram, "nats-serve", "-dir", filepath.Join(s.dir, "nats"))
	if err != nil {
		return nil, nil, err
	}
	plan := s.writers(w.addr, writeTopic, manyConns, 1)
	return over(w.proc, plan), s.foreign(server, "nats-load", "-url", url), nil
}

// redis starts a Redis server that syncs its append-only file before every
// answer and does nothing else with the disk.
func (s *session) redis(ctx context.Context) (*proc, string, error) {
	return s.redisServer(ctx, "--appendonly", "yes", "--appendfsync", "always", "--auto-aof-rewrite-percentage", "0")
}

// memoryRedis starts one that never writes to the disk: what its clients do
// shows most beside it.
func (s *session) memoryRedis(ctx context.Context) (*proc, string, error) {
	return s.redisServer(ctx, "--appendonly", "no")
}

func (s *session) redisServer(ctx context.Context, args ...string) (*proc, string, error) {
	path, err := exec.LookPath("redis-server")
	if err != nil {
		return nil, "", fmt.Errorf("%w: install redis-server", err)
	}
	dir := filepath.Join(s.dir, "redis")
	if err := os.Mkdir(dir, 0o755); err != nil {
		return nil, "", err
	}
	port, err := freePort()
	if err != nil {
		return nil, "", err
	}
	args = append([]string{"--bind", "127.0.0.1", "--port", strconv.Itoa(port), "--dir", dir, "--save", ""}, args...)
	server, err := startProc(path, args, nil)
	if err != nil {
		return nil, "", err
	}
	server.drain()
	s.servers = append(s.servers, server)
	addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	return server, addr, waitForPort(ctx, server, addr)
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

func waitForPort(ctx context.Context, server *proc, addr string) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	for {
		c, err := net.Dial("tcp", addr)
		if err == nil {
			return c.Close()
		}
		if server.exited() {
			return fmt.Errorf("%s ended before it served: %v", server.cmd.Path, server.err)
		}
		if err := pause(ctx, readyStep); err != nil {
			return fmt.Errorf("%s does not listen at %s: %w", server.cmd.Path, addr, err)
		}
	}
}

// foreignResult is what a client process prints.
type foreignResult struct {
	Ops     int64   `json:"ops"`
	Seconds float64 `json:"seconds"`
	P50us   float64 `json:"p50_us"`
	P99us   float64 `json:"p99_us"`
	Value   float64 `json:"value"`
	Note    string  `json:"note"`
}

// foreign measures a load that weirpeers makes on server.
func (s *session) foreign(server *proc, args ...string) measure {
	return s.client(peersProgram, server, append(args, "-n", strconv.Itoa(manyConns))...)
}

// client measures a load that a process of its own makes on server.
func (s *session) client(p program, server *proc, args ...string) measure {
	return func(ctx context.Context) (measured, error) {
		r, cpu, err := s.runClient(ctx, p, server, args...)
		if err != nil {
			return measured{}, err
		}
		return measured{
			rate:          float64(r.Ops) / r.Seconds,
			cpuPerMillion: perMillion(cpu, r.Ops),
			p50:           time.Duration(r.P50us * float64(time.Microsecond)),
			p99:           time.Duration(r.P99us * float64(time.Microsecond)),
			note:          r.Note,
		}, nil
	}
}

// runClient runs a client to its end. It prints a line when its warm-up is over
// and its result when it is done; cpu is what server has used in between.
func (s *session) runClient(ctx context.Context, p program, server *proc, args ...string) (r foreignResult, cpu time.Duration, err error) {
	path, err := s.binary(ctx, p)
	if err != nil {
		return r, 0, err
	}
	server.settle(ctx)
	args = append(args, "-size", strconv.Itoa(recordSize), "-warmup", s.size.warmup.String(), "-for", s.Sample.String())
	client := exec.CommandContext(ctx, path, args...)
	client.Env = cleanEnv()
	var errors tail
	client.Stderr = &errors
	out, err := client.StdoutPipe()
	if err != nil {
		return r, 0, err
	}
	if err := client.Start(); err != nil {
		return r, 0, err
	}
	lines := bufio.NewReader(out)
	_, beginErr := lines.ReadString('\n')
	before := server.cpu()
	decodeErr := json.NewDecoder(lines).Decode(&r)
	if err := client.Wait(); err != nil {
		return r, 0, fmt.Errorf("%s: %w: %s", strings.Join(args, " "), err, errors.String())
	}
	if beginErr != nil || decodeErr != nil {
		return r, 0, fmt.Errorf("%s: output: %v, %v", args[0], beginErr, decodeErr)
	}
	server.settle(ctx)
	return r, server.cpu() - before, nil
}
