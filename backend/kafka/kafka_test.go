package kafka_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/weirmq/weir"
	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/backend/kafka"
	"github.com/weirmq/weir/tests/kafkatest"
	"github.com/weirmq/weir/tests/stall"
	"github.com/weirmq/weir/tests/tracetest"
)

func TestOpenSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	old := kafkatest.Start(t, kafkatest.Options{ShareVersion: kafkatest.Without})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody := l.Addr().String()
	l.Close()
	for raw, want := range map[string]string{
		"kafka://h":                       "names no topic",
		"kafka://h/a?topic=b":             "two topics",
		"kafka://h/a/b":                   "a name has 1 to 240",
		"kafka://h:99999/a":               "port",
		"kafka://h/a?stream=x":            `"stream" is unknown; known: topic, group, partitions, replication, retention, client_id, sasl, ca, cert, key, buffer_memory, max_in_flight`,
		"kafka://h/a?buffer_memory=0":     "not a number from 1",
		"kafka://h/a?max_in_flight=4":     `max_in_flight (KAFKA_MAX_IN_FLIGHT_REQUESTS) "4": up to 5 appends are in flight`,
		"kafka://h/a?partitions=0":        "not a number from 1",
		"kafka://u:pw-secret@h/a/b":       "a name has 1 to 240",
		"kafka://" + nobody + "/a":        "not available",
		"kafka://h/a?group_type=consumer": "neither share nor classic",
		"kafka://h/a?group=team#1":        "write %23",
		"kafka://h/a?group=%ff":           "group may have at most 249 bytes of UTF-8",

		old.URL() + "/a?group=billing&group_type=share": "no share groups",
	} {
		u, err := url.Parse(raw)
		if err != nil {
			continue // what is no URL does not get here
		}
		var took time.Duration
		for try, slow := 0, true; slow && try < 5; try++ { // which does not get to an answer in the time that it has
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
			stalled, watch := stall.Watch(), stopwatch()
			var b *kafka.Backend
			if b, err = kafka.Open(ctx, u); err == nil {
				b.Close()
			}
			took, slow = watch(), stalled() > time.Second
			cancel()
		}
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "pw-secret") || took > 4*time.Second {
			t.Errorf("%s: %v after %s, want %q", raw, err, took, want)
		}
	}
}

func TestWhatCannotSucceedIsAnErrorAtOnce(t *testing.T) {
	t.Parallel()
	broker := kafkatest.Start(t, kafkatest.Options{})
	b := open(t, broker.URL()+"/missing")
	defer b.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	watch := stopwatch()
	defer func() {
		if took := watch(); took > 10*time.Second {
			t.Errorf("all of it took %s", took)
		}
	}()
	if _, err := b.Append(ctx, messages("x")); !errors.Is(err, backend.ErrStreamNotFound) || !strings.Contains(err.Error(), "partitions=N") {
		t.Errorf("append to a missing topic: %v", err)
	}
	if _, err := b.Claim(ctx, claim(1)); !errors.Is(err, backend.ErrStreamNotFound) {
		t.Errorf("claim of a missing topic: %v", err)
	}

	made := open(t, broker.URL()+"/made?partitions=2")
	defer made.Close()
	results, err := made.Append(ctx, []backend.Message{{Data: []byte("a")}, {Data: make([]byte, 2<<20)}, {Data: []byte("b")}})
	if !errors.Is(err, backend.ErrTooLarge) || len(results) != 3 || results[0].Err != nil || results[2].Err != nil || !errors.Is(results[1].Err, backend.ErrTooLarge) {
		t.Errorf("a record over the limit between two others: %+v, %v", results, err)
	}
	req := claim(1)
	req.MaxDeliveries = 9
	if _, err := made.Claim(ctx, req); err == nil || !strings.Contains(err.Error(), "at most 8") {
		t.Errorf("more deliveries than the broker allows: %v", err)
	}
}

// TestAFrozenBrokerFillsTheBuffer: no call outlasts its context, what was sent is unknown,
// what did not fit was not sent, and the rest is there when the broker goes on.
func TestAFrozenBrokerFillsTheBuffer(t *testing.T) {
	broker := kafkatest.Start(t, kafkatest.Options{})
	b := open(t, broker.URL()+"/frozen?partitions=1")
	defer b.Close()
	if _, err := b.Append(t.Context(), messages("warm")); err != nil {
		t.Fatal(err)
	}
	broker.Pause()
	big := make([]backend.Message, 40)
	for i := range big {
		big[i].Data = bytes.Repeat([]byte{'x'}, 900<<10)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond) // enough to fill the buffer
	watch := stopwatch()
	results, err := b.Append(ctx, big)
	took := watch()
	cancel()
	unknown, full := 0, 0
	for _, r := range results {
		var refused *backend.FullError
		switch {
		case errors.Is(r.Err, backend.ErrOutcomeUnknown):
			unknown++
		case errors.As(r.Err, &refused) && refused.Reason == backend.ReasonBufferFull:
			full++
		}
	}
	if !errors.Is(err, backend.ErrOutcomeUnknown) || unknown != 32<<20/(900<<10) || unknown+full != 40 || took > 3*time.Second {
		t.Errorf("40 appends of 900 KiB into 32 MiB: %d unknown, %d full, %v after %s", unknown, full, err, took)
	}
	p, err := weir.NewProducer(weir.New(b), weir.ProducerConfig{Guard: weir.GuardOff})
	if err != nil {
		t.Fatal(err)
	}
	var refused *weir.QueueFullError
	if err := p.TryPublish(t.Context(), weir.Message{Data: big[0].Data}); !errors.As(err, &refused) || refused.Reason != weir.BufferFull {
		t.Errorf("TryPublish into a full buffer: %v", err)
	}
	ctx, cancel = context.WithTimeout(t.Context(), 300*time.Millisecond)
	watch = stopwatch()
	err = p.Publish(ctx, weir.Message{Data: big[0].Data})
	cancel()
	if took := watch(); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "buffer_full") || took > time.Second {
		t.Errorf("Publish into a full buffer: %v after %s", err, took)
	}
	waited := make(chan error, 1)
	go func() { waited <- p.Publish(t.Context(), weir.Message{Data: big[0].Data}) }()
	keyed := []backend.Message{{Data: []byte("once"), IdempotencyKey: "k"}}
	for range 2 {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		if _, err := b.Append(ctx, keyed); !errors.Is(err, backend.ErrOutcomeUnknown) {
			t.Errorf("append with a key: %v", err)
		}
		cancel()
	}
	unknown++
	broker.Resume()
	if err := <-waited; err != nil {
		t.Errorf("Publish that waits for the broker: %v", err)
	}
	unknown++ // it is known, and stored like them
	if got, err := b.Append(t.Context(), keyed); err != nil || !got[0].Deduped || got[0].ID == "" {
		t.Errorf("its repeat: %+v, %v", got, err)
	}
	deadline := time.Now().Add(30 * time.Second)
	for stored := int64(0); stored != int64(1+unknown); {
		if time.Now().After(deadline) {
			t.Fatalf("%d of %d messages are stored", stored, 1+unknown)
		}
		if s, err := b.Signal(t.Context(), 0); err == nil {
			stored = s.XLen
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// TestAPoolWorksAsElsewhere: retries, dead letters and the default guard, on the first
// version of share groups.
func TestAPoolWorksAsElsewhere(t *testing.T) {
	t.Parallel()
	broker := kafkatest.Start(t, kafkatest.Options{ShareVersion: 1})
	for _, groupType := range groupTypes {
		t.Run(groupType, func(t *testing.T) { poolWorks(t, open(t, broker.URL()+"/"+ofType(groupType))) })
		t.Run(groupType+"/trace", func(t *testing.T) {
			t.Parallel()
			tracetest.Run(t, func() *weir.Stream { return weir.New(open(t, broker.URL()+"/traced-"+ofType(groupType))) })
		})
	}
}

func poolWorks(t *testing.T, b *kafka.Backend) {
	s := weir.New(b)
	defer s.Close()
	p, err := weir.NewProducer(s, weir.ProducerConfig{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 200 {
		if err := p.Publish(t.Context(), weir.Message{Data: fmt.Appendf(nil, "%d", i)}); err != nil {
			t.Fatal(err)
		}
	}
	var mu sync.Mutex
	runs := map[string]int{}
	ctx, cancel := context.WithCancel(t.Context())
	pool, err := weir.NewPool(s, func(_ context.Context, d *weir.Delivery) error {
		mu.Lock()
		defer mu.Unlock()
		runs[string(d.Data)]++
		switch {
		case string(d.Data) == "7":
			return errors.New("never")
		case string(d.Data) == "9" && d.Attempt == 1:
			return weir.RetryIn(50*time.Millisecond, errors.New("later"))
		}
		return nil
	}, weir.PoolConfig{Workers: 4, MaxDeliveries: 3, RetryBase: 20 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- pool.Run(ctx) }()
	await(t, "the end of the work", func() bool {
		stats, err := b.Stats(t.Context())
		return err == nil && stats.Pending == 0 && stats.Lag != nil && *stats.Lag == 0 && stats.DeadLetters != nil && *stats.DeadLetters == 1
	})
	sig, err := b.Signal(t.Context(), 100)
	if err != nil || sig.Finished == nil || *sig.Finished != 200 {
		t.Errorf("200 messages are finished, the signal says %+v, %v", sig, err)
	}
	cancel()
	if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
		t.Errorf("the pool ended with %v", err)
	}
	if len(runs) != 200 || runs["7"] != 3 || runs["9"] != 2 {
		t.Errorf("%d of 200 ran, the poison %d times, the retried one %d", len(runs), runs["7"], runs["9"])
	}
}

// TestAProcessIsKilledWithWhatItHolds: another gets it, and it counts.
func TestAProcessIsKilledWithWhatItHolds(t *testing.T) {
	t.Parallel()
	broker := kafkatest.Start(t, kafkatest.Options{})
	b, holder := open(t, broker.URL()+"/held?partitions=1"), startHolder(t, broker.URL()+"/held?partitions=1")
	defer b.Close()
	holder.cmd.Process.Kill()
	start := time.Now()
	for _, d := range gather(t, b, 5) {
		if d.Attempt != 2 {
			t.Errorf("message %s comes with attempt %d", d.Data, d.Attempt)
		}
	}
	t.Logf("it came %s after the kill", time.Since(start).Round(time.Millisecond))
}

// TestAProcessStandsStillForLongerThanItsLock, or its session: what it acknowledges
// afterwards is another's.
func TestAProcessStandsStillForLongerThanItsLock(t *testing.T) {
	t.Parallel()
	broker := kafkatest.Start(t, kafkatest.Options{Settings: map[string]string{"group.share.record.lock.duration.ms": "1000", "group.min.session.timeout.ms": "500"}})
	for _, groupType := range groupTypes {
		t.Run(groupType, func(t *testing.T) { standsStill(t, broker.URL()+"/"+ofType(groupType)) })
	}
}

// groupTypes are the two types of groups; ofType is a topic with a group of one.
var groupTypes = []string{"share", "classic"}

func ofType(groupType string) string {
	return fmt.Sprintf("on-%s?partitions=2&group=of-%[1]s&group_type=%[1]s", groupType)
}

func standsStill(t *testing.T, url string) {
	b, holder := open(t, url, shortSession...), startHolder(t, url)
	defer b.Close()
	if err := holder.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	got := gather(t, b, 5)
	if err := holder.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	for _, what := range []string{"extends its leases", "acknowledges"} {
		fmt.Fprintln(holder.in, "go on")
		if said := holder.says(t); said != "lost 5, <nil>" {
			t.Errorf("the one that stood still %s: %s", what, said)
		}
	}
	var leases []backend.Lease
	for _, d := range got {
		leases = append(leases, d.Lease)
	}
	if lost, err := b.Ack(t.Context(), leases); err != nil || len(lost) > 0 {
		t.Errorf("the other acknowledges: lost %v, %v", lost, err)
	}
}

// holder is a process that has claimed five messages and acknowledges them on demand.
type holder struct {
	cmd *exec.Cmd
	in  io.Writer
	out *bufio.Reader
}

func startHolder(t *testing.T, url string) *holder {
	t.Helper()
	b := open(t, url)
	defer b.Close()
	if _, err := b.Append(t.Context(), messages("1", "2", "3", "4", "5")); err != nil {
		t.Fatal(err)
	}
	h := &holder{cmd: exec.Command(os.Args[0], "-test.run", "^TestHolder$")}
	h.cmd.Env = append(os.Environ(), "WEIR_TEST_HOLD="+url)
	out, err := h.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if h.in, err = h.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	h.out = bufio.NewReader(out)
	if err := h.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		h.cmd.Process.Kill()
		h.cmd.Wait()
	})
	if said := h.says(t); said != "holding 5" {
		t.Fatalf("the holder says %q", said)
	}
	return h
}

func (h *holder) says(t *testing.T) string {
	t.Helper()
	line, err := h.out.ReadString('\n')
	if err != nil {
		t.Fatalf("the holder says %q, %v", line, err)
	}
	return strings.TrimSpace(line)
}

// TestHolder is the process of a holder.
func TestHolder(t *testing.T) {
	url := os.Getenv("WEIR_TEST_HOLD")
	if url == "" {
		t.Skip("it is started by other tests")
	}
	b := open(t, url, shortSession...)
	defer b.Close()
	var leases []backend.Lease
	for _, d := range gather(t, b, 5) {
		leases = append(leases, d.Lease)
	}
	fmt.Printf("holding %d\n", len(leases))
	told := func(lost []string, err error) { fmt.Printf("lost %d, %v\n", len(lost), err) }
	goOn := bufio.NewScanner(os.Stdin)
	goOn.Scan()
	told(b.Extend(t.Context(), leases, time.Minute))
	goOn.Scan()
	told(b.Ack(t.Context(), leases))
}

// gather claims n messages.
func gather(t testing.TB, b backend.Backend, n int) (all []*backend.Delivery) {
	t.Helper()
	await(t, "what is to be claimed", func() bool {
		got, err := b.Claim(t.Context(), claim(n))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, got.Deliveries...)
		return len(all) >= n
	})
	return all
}

// stopwatch measures a time, less what this machine stalled meanwhile.
func stopwatch() (read func() time.Duration) {
	start, stalled := time.Now(), stall.Watch()
	return func() time.Duration { return time.Since(start) - stalled() }
}

func messages(texts ...string) []backend.Message {
	list := make([]backend.Message, len(texts))
	for i, text := range texts {
		list[i].Data = []byte(text)
	}
	return list
}

func claim(most int) backend.ClaimRequest {
	return backend.ClaimRequest{Consumer: "a", Max: most, Block: 100 * time.Millisecond, ReclaimAfter: 30 * time.Second}
}

func await(t testing.TB, what string, there func() bool) {
	t.Helper()
	if !stall.Until(time.Minute, there) {
		t.Fatalf("%s did not come within a minute", what)
	}
}
