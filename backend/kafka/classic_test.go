package kafka_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/weirmq/weir"
	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/tests/kafkatest"
)

// shortSession lets a broker notice soon that a member of a classic group is gone.
var shortSession = []kgo.Opt{kgo.SessionTimeout(1500 * time.Millisecond), kgo.HeartbeatInterval(300 * time.Millisecond)}

// startClassic starts a broker without share groups that allows shortSession.
func startClassic(t *testing.T) *kafkatest.Broker {
	t.Helper()
	return kafkatest.Start(t, kafkatest.Options{
		ShareVersion: kafkatest.Without,
		Settings:     map[string]string{"group.min.session.timeout.ms": "500"},
	})
}

// TestAClassicWorkerIsKilledUnderLoad, several times, by a message that ends its process:
// nothing else is lost, little is repeated, and the message becomes a dead letter.
func TestAClassicWorkerIsKilledUnderLoad(t *testing.T) {
	t.Parallel()
	const messageCount, limit = 3000, 3
	url := startClassic(t).URL() + "/killed?partitions=4"
	b := open(t, url, shortSession...)
	defer b.Close()
	texts := make([]string, messageCount)
	for i := range texts {
		texts[i] = fmt.Sprint(i)
	}
	texts[messageCount/2] = "poison"
	if _, err := b.Append(t.Context(), messages(texts...)); err != nil {
		t.Fatal(err)
	}
	log := filepath.Join(t.TempDir(), "handled")
	kills := 0
	var letters []backend.DeadLetter
	for len(letters) == 0 || left(t, b) > 0 {
		if kills > limit {
			t.Fatalf("%d processes died of the message, the limit is %d", kills, limit)
		}
		worker := startWorker(t, url, log, limit)
		await(t, "the end of the worker or of the work", func() bool {
			select {
			case <-worker.ended:
				return true
			default:
				letters = listed(t, b)
				return len(letters) > 0 && left(t, b) == 0
			}
		})
		select {
		case <-worker.ended:
			kills++
		default:
		}
	}
	handled := map[string]int{}
	text, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range strings.Fields(string(text)) {
		handled[line]++
	}
	repeats, buried := 0, map[string]bool{}
	for _, letter := range letters {
		buried[string(letter.Data)] = true
		if letter.Reason != backend.ReasonMaxDeliveries || letter.Attempts != limit {
			t.Errorf("letter %s: %s after %d attempts", letter.Data, letter.Reason, letter.Attempts)
		}
	}
	for _, text := range texts {
		if handled[text] == 0 && !buried[text] {
			t.Errorf("message %s is lost", text)
		}
		repeats += max(0, handled[text]-1)
	}
	if kills != limit || handled["poison"] != 0 || !buried["poison"] || len(buried) > 1 {
		t.Errorf("limit %d: %d processes died, %d letters, of the poison: %v", limit, kills, len(letters), buried["poison"])
	}
	// What was handled and not acknowledged: at most what is on its way to be.
	if repeats > kills*1000 {
		t.Errorf("%d repeats by %d kills", repeats, kills)
	}
	t.Logf("%d kills, %d repeats, letters: %v", kills, repeats, buried)
}

const workerCount, workerBatch = 4, 4

// worker is a process with a pool.
type worker struct {
	cmd   *exec.Cmd
	ended chan struct{}
}

func startWorker(t *testing.T, url, log string, limit int) *worker {
	t.Helper()
	w := &worker{cmd: exec.Command(os.Args[0], "-test.run", "^TestWorker$"), ended: make(chan struct{})}
	w.cmd.Env = append(os.Environ(), "WEIR_TEST_WORK="+url, "WEIR_TEST_LOG="+log, fmt.Sprint("WEIR_TEST_LIMIT=", limit))
	out, err := w.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := w.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		text, _ := io.ReadAll(bufio.NewReader(out))
		if err := w.cmd.Wait(); w.cmd.ProcessState.ExitCode() != -1 {
			t.Errorf("a worker ended with %v:\n%s", err, text)
		}
		close(w.ended)
	}()
	t.Cleanup(func() {
		w.cmd.Process.Kill()
		<-w.ended
	})
	return w
}

// TestWorker is the process of a worker, which one of the messages kills.
func TestWorker(t *testing.T) {
	url := os.Getenv("WEIR_TEST_WORK")
	if url == "" {
		t.Skip("it is started by other tests")
	}
	log, err := os.OpenFile(os.Getenv("WEIR_TEST_LOG"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	var limit int
	fmt.Sscan(os.Getenv("WEIR_TEST_LIMIT"), &limit)
	pool, err := weir.NewPool(weir.New(open(t, url, shortSession...)), func(_ context.Context, d *weir.Delivery) error {
		if string(d.Data) == "poison" {
			return syscall.Kill(os.Getpid(), syscall.SIGKILL)
		}
		_, err := fmt.Fprintln(log, string(d.Data))
		return err
	}, weir.PoolConfig{Workers: workerCount, Batch: workerBatch, MaxDeliveries: limit})
	if err != nil {
		t.Fatal(err)
	}
	t.Fatal(pool.Run(t.Context()))
}

func left(t *testing.T, b backend.Backend) int64 {
	t.Helper()
	stats, err := b.Stats(t.Context())
	if err != nil || stats.Lag == nil {
		return 1 // a group that nobody has joined yet, a coordinator that is on its way
	}
	return stats.Pending + *stats.Lag
}

func listed(t *testing.T, b backend.DeadLetters) []backend.DeadLetter {
	t.Helper()
	letters, err := b.List(t.Context(), "", "", 100)
	if err != nil {
		t.Fatal(err)
	}
	return letters
}

// TestPartitionsMoveBetweenWorkers: pools join and leave while there is work, and each
// message is handled once.
func TestPartitionsMoveBetweenWorkers(t *testing.T) {
	t.Parallel()
	broker := startClassic(t)
	url := broker.URL() + "/moves?partitions=4"
	producer := open(t, url)
	defer producer.Close()
	var mu sync.Mutex
	handled, by := map[string]int{}, map[string]int{}
	attempts := 0
	work := func(name string) (stop func()) {
		b := open(t, url)
		ctx, cancel := context.WithCancel(t.Context())
		pool, err := weir.NewPool(weir.New(b), func(_ context.Context, d *weir.Delivery) error {
			time.Sleep(time.Millisecond)
			mu.Lock()
			defer mu.Unlock()
			handled[string(d.Data)]++
			by[name]++
			attempts = max(attempts, d.Attempt)
			return nil
		}, weir.PoolConfig{Workers: 4})
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- pool.Run(ctx) }()
		return func() {
			cancel()
			if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
				t.Errorf("%s ended with %v", name, err)
			}
			b.Close()
		}
	}
	did := func(name string, n int) func() bool {
		mu.Lock()
		before := by[name]
		mu.Unlock()
		return func() bool {
			mu.Lock()
			defer mu.Unlock()
			return by[name] >= before+n
		}
	}
	stored, stop := 0, make(chan struct{})
	var publish sync.WaitGroup
	publish.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			var texts []string
			for range 20 {
				texts = append(texts, fmt.Sprint(stored))
				stored++
			}
			if _, err := producer.Append(t.Context(), messages(texts...)); err != nil {
				t.Error(err)
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
	})
	endA := work("a")
	await(t, "work of a", did("a", 200))
	endB := work("b")
	await(t, "work of b", did("b", 200))
	await(t, "more work of a", did("a", 200))
	endA()
	await(t, "work of b after a", did("b", 200))
	endC := work("c")
	await(t, "work of c", did("c", 200))
	close(stop)
	publish.Wait()
	await(t, "all", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(handled) == stored
	})
	endB()
	endC()
	for text, n := range handled {
		if n != 1 {
			t.Errorf("message %s was handled %d times", text, n)
		}
	}
	if n := left(t, producer); n != 0 || attempts != 1 {
		t.Errorf("%d messages are left, the highest attempt is %d", n, attempts)
	}
	t.Logf("%d messages: %v", stored, by)
}

// TestAGroupIsOfOneType: a group that exists as the other type is refused by all that ask
// for it, with the setting that helps.
func TestAGroupIsOfOneType(t *testing.T) {
	t.Parallel()
	broker := kafkatest.Start(t, kafkatest.Options{})
	for _, c := range []struct{ first, then, name string }{
		{"&group_type=classic", "", "group_type=classic"},
		{"", "&group_type=classic", "group_type=share"},
	} {
		url := broker.URL() + "/typed?partitions=1&group=g" + c.name
		url = strings.ReplaceAll(url, "g"+c.name, "g"+c.name[len("group_type="):])
		a := open(t, url+c.first)
		if _, err := a.Append(t.Context(), messages("x")); err != nil {
			t.Fatal(err)
		}
		gather(t, a, 1)
		b := open(t, url+c.then)
		for what, do := range map[string]func() error{
			"claim":   func() error { _, err := b.Claim(t.Context(), claim(1)); return err },
			"stats":   func() error { _, err := b.Stats(t.Context()); return err },
			"signal":  func() error { _, err := b.Signal(t.Context(), 1); return err },
			"examine": func() error { _, err := b.Examine(t.Context()); return err },
		} {
			if err := do(); err == nil || !strings.Contains(err.Error(), "exists as another type") || !strings.Contains(err.Error(), c.name) {
				t.Errorf("%s of a group of the other type: %v, want %s", what, err, c.name)
			}
		}
		b.Close()
		a.Close()
	}
}

// TestDoctorNamesTheGroupsType, why it is that, and each thing that the suite is told it
// cannot do.
func TestDoctorNamesTheGroupsType(t *testing.T) {
	t.Parallel()
	broker := kafkatest.Start(t, kafkatest.Options{})
	for query, want := range map[string][]string{
		"":                    {"is a share group (the brokers have share.version 2)", "settle", "idempotency key", "no handler began", "at most 8 times"},
		"&group_type=classic": {"is a classic group (the URL asks for it)", "settle", "idempotency key", "all with one handle"},
	} {
		b := open(t, broker.URL()+"/typed?partitions=1"+query)
		if _, err := b.Append(t.Context(), messages("x")); err != nil {
			t.Fatal(err)
		}
		found, err := b.Examine(t.Context())
		text := ""
		for _, f := range found {
			if f.Code == "group_type" {
				text = f.Problem
			}
		}
		for _, part := range want {
			if !strings.Contains(text, part) {
				t.Errorf("doctor on %q says %q, %v; want %q", query, text, err, part)
			}
		}
		b.Close()
	}
}
