package redis_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/tests/redistest"
)

// sentinel is one that names the primary that it is told, and that nobody else tells anything.
type sentinel struct {
	net.Listener
	names      atomic.Pointer[redistest.Server]
	subscribed atomic.Int64 // clients that wait for news
}

func startSentinel(t *testing.T, names *redistest.Server) *sentinel {
	t.Helper()
	s := &sentinel{}
	s.names.Store(names)
	s.Listener = listen(t, s.serve)
	return s
}

func (s *sentinel) serve(client net.Conn) {
	defer client.Close()
	waits := false
	defer func() {
		if waits {
			s.subscribed.Add(-1)
		}
	}()
	for r := bufio.NewReader(client); ; {
		args, err := readCommand(r)
		if err != nil {
			return
		}
		answer := "-ERR unknown command\r\n"
		switch verb := strings.ToLower(strings.Join(args[:min(2, len(args))], " ")); {
		case verb == "sentinel get-master-addr-by-name":
			host, port, _ := net.SplitHostPort(s.names.Load().Addr())
			answer = fmt.Sprintf("*2\r\n$%d\r\n%s\r\n$%d\r\n%s\r\n", len(host), host, len(port), port)
		case strings.HasPrefix(verb, "sentinel "):
			answer = "*0\r\n"
		case strings.HasPrefix(verb, "subscribe "):
			if answer = ""; !waits {
				waits = true
				s.subscribed.Add(1)
			}
			for i, channel := range args[1:] {
				answer += fmt.Sprintf("*3\r\n$9\r\nsubscribe\r\n$%d\r\n%s\r\n:%d\r\n", len(channel), channel, i+1)
			}
		case args[0] == "ping" && waits:
			answer = "*2\r\n$4\r\npong\r\n$0\r\n\r\n"
		}
		if _, err := io.WriteString(client, answer); err != nil {
			return
		}
	}
}

// readCommand reads an array of strings.
func readCommand(r *bufio.Reader) (args []string, err error) {
	n, err := readLength(r)
	for ; n > 0 && err == nil; n-- {
		var size int
		if size, err = readLength(r); err != nil {
			break
		}
		arg := make([]byte, size+2)
		_, err = io.ReadFull(r, arg)
		args = append(args, string(arg[:size]))
	}
	if len(args) == 0 && err == nil {
		err = io.ErrUnexpectedEOF
	}
	return args, err
}

func readLength(r *bufio.Reader) (int, error) {
	line, err := r.ReadString('\n')
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(line[1:]))
}

// A Sentinel that is cut off from the others knows nothing of a failover, and names the old primary for as long
// as that lasts. The client asks the same one again and again; what others know is a question away.
func TestNobodyStaysWithASentinelThatHasNotHeardOfTheFailover(t *testing.T) {
	t.Parallel()
	for what, ends := range map[string]func(t *testing.T, old, next *redistest.Server){
		"the old primary is a replica now": func(t *testing.T, old, next *redistest.Server) { follows(t, old, next) },
		"the old primary is gone":          func(_ *testing.T, old, _ *redistest.Server) { old.Kill() },
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			old := redistest.Start(t, redistest.Options{Args: []string{"--repl-diskless-sync-delay", "0"}})
			next := redistest.Start(t, redistest.Options{Args: []string{"--repl-diskless-sync-delay", "0"}})
			follows(t, next, old)
			var all []*sentinel
			var addrs []string
			for range 3 {
				s := startSentinel(t, old)
				all, addrs = append(all, s), append(addrs, s.Addr().String())
			}
			b := openOn(t, "redis://"+strings.Join(addrs, ",")+"/0?master=weir&stream=jobs")
			t.Cleanup(func() { _ = b.Close() }) // before the Sentinels end
			publish(t, b, 1)
			wait(t, "the client waits for news of one of them", func() bool {
				return all[0].subscribed.Load()+all[1].subscribed.Load()+all[2].subscribed.Load() == 1
			})
			wait(t, "the replica has the message", func() bool { return next.Client().XLen(t.Context(), "jobs").Val() == 1 })
			if err := next.Client().Do(t.Context(), "REPLICAOF", "NO", "ONE").Err(); err != nil {
				t.Fatal(err)
			}
			for _, s := range all {
				if s.subscribed.Load() == 0 {
					s.names.Store(next)
				}
			}
			ends(t, old, next)
			wait(t, "publishing goes on at the new primary", func() bool {
				_, err := b.Append(t.Context(), []backend.Message{{Data: []byte("x")}})
				return err == nil
			})
			if got, err := b.Claim(t.Context(), backend.ClaimRequest{Consumer: "c", Max: 10, ReclaimAfter: time.Minute}); err != nil || len(got.Deliveries) < 2 {
				t.Errorf("%d messages, %v", len(got.Deliveries), err)
			}
		})
	}
}
