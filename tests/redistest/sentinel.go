package redistest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/redis/go-redis/v9"
)

// MasterName is what the sentinels call the primary.
const MasterName = "weir"

const (
	sentinels = 3
	quorum    = 2
)

// Sentinel is a primary, a replica of it and three sentinels that watch them.
type Sentinel struct {
	Primary, Replica *Server // as they are at the start
	Sentinels        []*Server
	t                TB
}

// StartSentinel starts the five servers, waits until each sentinel knows all the
// others, and ends them with the test. A primary that does not answer for half
// a second is replaced. opt is for the primary and the replica.
func StartSentinel(t TB, opt Options) *Sentinel {
	t.Helper()
	opt.Args = append([]string{"--repl-diskless-sync-delay", "0"}, opt.Args...)
	s := &Sentinel{t: t, Primary: Start(t, opt)}
	opt.Dir = ""
	opt.Args = append([]string{"--replicaof", "127.0.0.1 " + portOf(s.Primary)}, opt.Args...)
	s.Replica = Start(t, opt)
	awaitLink(t, s.Replica)
	for range sentinels {
		s.Sentinels = append(s.Sentinels, s.watch(opt))
	}
	s.awaitWatch()
	return s
}

// URL names the sentinels, without a stream: redis://a:1,b:2,c:3/0?master=weir.
func (s *Sentinel) URL() string {
	var addrs []string
	for _, w := range s.Sentinels {
		addrs = append(addrs, w.Addr())
	}
	return "redis://" + strings.Join(addrs, ",") + "/0?master=" + MasterName
}

// AwaitFailover waits until all sentinels name another primary than old, and
// returns it.
func (s *Sentinel) AwaitFailover(old *Server) *Server {
	s.t.Helper()
	next := s.Replica
	if old == next {
		next = s.Primary
	}
	for _, w := range s.Sentinels {
		client := s.client(w)
		eventually(s.t, "fail-over", func() error {
			addr, err := client.GetMasterAddrByName(context.Background(), MasterName).Result()
			if err == nil && (len(addr) != 2 || addr[1] != portOf(next)) {
				err = fmt.Errorf("the primary is still %v", addr)
			}
			return err
		})
	}
	return next
}

func portOf(s *Server) string { return fmt.Sprint(s.port) }

// watch starts one sentinel. It rewrites its own configuration file.
func (s *Sentinel) watch(opt Options) *Server {
	s.t.Helper()
	downAfter := 500
	if opt.Steady {
		downAfter = 60_000
	}
	w := prepare(s.t, Options{Version: opt.Version})
	config := filepath.Join(w.Dir(), "sentinel.conf")
	w.args = func() []string { return []string{config, "--sentinel"} }
	err := w.launch(func() (int, error) {
		port, err := freePort()
		if err != nil {
			return 0, err
		}
		text := strings.Join([]string{
			fmt.Sprintf("port %d", port), "bind 127.0.0.1", "dir " + w.Dir(), "logfile " + w.logPath(),
			fmt.Sprintf("sentinel monitor %s 127.0.0.1 %d %d", MasterName, s.Primary.port, quorum),
			fmt.Sprintf("sentinel down-after-milliseconds %s %d", MasterName, downAfter),
			fmt.Sprintf("sentinel failover-timeout %s 2000", MasterName), "",
		}, "\n")
		return port, os.WriteFile(config, []byte(text), 0o600)
	})
	if err != nil {
		s.t.Fatalf("redistest: sentinel: %v", err)
	}
	return w
}

func (s *Sentinel) client(w *Server) *redis.SentinelClient {
	c := redis.NewSentinelClient(&redis.Options{
		Addr: w.Addr(), Protocol: 2, DisableIdentity: true,
		DialTimeout: Patience, ReadTimeout: Patience, WriteTimeout: Patience,
	})
	s.t.Cleanup(func() { _ = c.Close() })
	return c
}

func (s *Sentinel) awaitWatch() {
	s.t.Helper()
	for _, w := range s.Sentinels {
		client := s.client(w)
		eventually(s.t, "sentinel that knows the others", func() error {
			state, err := client.Master(context.Background(), MasterName).Result()
			if err != nil {
				return err
			}
			if state["num-slaves"] != "1" || state["num-other-sentinels"] != fmt.Sprint(sentinels-1) || state["flags"] != "master" {
				return errors.New(fmt.Sprint(state))
			}
			return nil
		})
	}
}
