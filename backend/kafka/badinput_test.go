package kafka_test

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/backend/kafka"
	"github.com/weirmq/weir/tests/kafkatest"
)

// listen answers each connection with do.
func listen(t *testing.T, do func(net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { conn.Close() })
			go do(conn)
		}
	}()
	return l.Addr().String()
}

// oldBroker knows the oldest versions of a few requests, as Kafka 0.10 did.
func oldBroker(conn net.Conn) {
	for {
		head := make([]byte, 12)
		if _, err := io.ReadFull(conn, head); err != nil {
			return
		}
		if _, err := io.CopyN(io.Discard, conn, int64(binary.BigEndian.Uint32(head))-8); err != nil {
			return
		}
		if key := binary.BigEndian.Uint16(head[4:]); key != 18 {
			conn.Close() // what it does with what it does not know
			return
		}
		resp := kmsg.NewPtrApiVersionsResponse()
		for key, most := range map[int16]int16{0: 2, 1: 2, 2: 0, 3: 1, 8: 2, 9: 1, 10: 0, 11: 0, 12: 0, 18: 0} {
			k := kmsg.NewApiVersionsResponseApiKey()
			k.ApiKey, k.MaxVersion = key, most
			resp.ApiKeys = append(resp.ApiKeys, k)
		}
		if binary.BigEndian.Uint16(head[6:]) > 0 {
			resp.ErrorCode, resp.ApiKeys = 35, resp.ApiKeys[:0]
		}
		body := resp.AppendTo(append([]byte(nil), head[8:12]...))
		_, _ = conn.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...))
	}
}

func TestWhatIsNoBrokerIsSaidAtOnce(t *testing.T) {
	t.Parallel()
	web := httptest.NewServer(http.NotFoundHandler())
	defer web.Close()
	for what, c := range map[string]struct {
		addr, want string
		again      bool // it may be there later
	}{
		"a web server":       {strings.TrimPrefix(web.URL, "http://"), "is a web server and no Kafka broker; check the host and the port", false},
		"one that hangs up":  {listen(t, func(c net.Conn) { _, _ = c.Read(make([]byte, 4096)); c.Close() }), "does not answer as a Kafka broker does; check the host and the port", false},
		"another protocol":   {listen(t, func(c net.Conn) { _, _ = c.Write([]byte("-ERR unknown command\r\n")) }), "does not answer as a Kafka broker does", false},
		"one that is silent": {listen(t, func(net.Conn) {}), "backend not available: no answer in time", true},
		"nobody":             {"127.0.0.1:1", "connection refused", true},
		"Kafka 0.10":         {listen(t, oldBroker), "the brokers are too old: weir needs Kafka 3.1 or newer, and 4.2 for share groups", false},
	} {
		patience := 2 * time.Second
		if c.again { // what does not answer takes as long as it may
			patience = 500 * time.Millisecond
		}
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		watch := stopwatch()
		b, err := kafka.Open(ctx, parsed(t, "kafka://"+c.addr+"/jobs"))
		took := watch()
		cancel()
		if err == nil {
			b.Close()
		}
		if err == nil || !strings.Contains(err.Error(), c.want) || backend.Retryable(err) != c.again || took > patience+2*time.Second {
			t.Errorf("%s: %v after %s, retryable %v; want %q", what, err, took, backend.Retryable(err), c.want)
		}
	}
}

// What a topic promises and takes is known of one that is made after the handle was opened, too.
func TestATopicMadeAfterTheOpen(t *testing.T) {
	t.Parallel()
	broker := kafkatest.Start(t, kafkatest.Options{})
	b := open(t, broker.URL()+"/later")
	defer b.Close()
	if got := b.Info().Durability; got != "disk" {
		t.Errorf("durability before the topic is there: %s; want disk", got)
	}
	settings := map[string]*string{"max.message.bytes": new("3000000"), "unclean.leader.election.enable": new("true")}
	if _, err := kadm.NewClient(broker.Client()).CreateTopic(t.Context(), 1, 1, settings, "later"); err != nil {
		t.Fatal(err)
	}
	large := make([]byte, 2_000_000)
	if _, err := rand.Read(large); err != nil { // what compresses fits
		t.Fatal(err)
	}
	await(t, "an append of what the topic takes", func() bool {
		_, err := b.Append(t.Context(), []backend.Message{{Data: large}})
		if err != nil && !errors.Is(err, backend.ErrStreamNotFound) {
			t.Fatal(err)
		}
		return err == nil
	})
	if got := b.Info().Durability; got != "memory" {
		t.Errorf("durability of a topic with unclean elections: %s; want memory", got)
	}
}

// What no broker can do is an error at once that says what to change; a large record goes
// through where the topic takes it.
func TestBadInputOnARealBroker(t *testing.T) {
	t.Parallel()
	broker := kafkatest.Start(t, kafkatest.Options{})
	admin := kadm.NewClient(broker.Client())
	for topic, setting := range map[string]string{
		"small": "max.message.bytes=2000", "large": "max.message.bytes=4000000", "silent": "max.message.bytes=1048588",
		"compacted": "cleanup.policy=compact", "punctual": "message.timestamp.before.max.ms=0",
	} {
		if _, err := admin.CreateTopic(t.Context(), 1, 1, settingsOf([]string{setting}), topic); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	await(t, "the topics", func() bool {
		all, err := admin.ListTopics(ctx, "small", "large", "silent", "compacted", "punctual")
		return err == nil && all.Error() == nil
	})
	missing := open(t, broker.URL()+"/missing?group=nobody")
	defer missing.Close()
	lonely := open(t, broker.URL()+"/silent?group=nobody")
	defer lonely.Close()
	small, large := open(t, broker.URL()+"/small"), open(t, broker.URL()+"/large")
	defer small.Close()
	defer large.Close()
	tight := open(t, broker.URL()+"/large?buffer_memory=1000")
	defer tight.Close()
	compacted, punctual := open(t, broker.URL()+"/compacted"), open(t, broker.URL()+"/punctual")
	defer compacted.Close()
	defer punctual.Close()
	big := func(n int) []backend.Message { return []backend.Message{{Data: make([]byte, n)}} }
	random := big(5000) // what compresses fits
	if _, err := rand.Read(random[0].Data); err != nil {
		t.Fatal(err)
	}
	for what, c := range map[string]struct {
		do   func() error
		is   error
		want string
	}{
		"publish to an unknown topic":      {func() error { _, err := missing.Append(ctx, big(1)); return err }, backend.ErrStreamNotFound, "add partitions=N"},
		"work on an unknown topic":         {func() error { _, err := missing.Claim(ctx, claim(1)); return err }, backend.ErrStreamNotFound, "add partitions=N"},
		"sample an unknown topic":          {func() error { _, err := missing.Stats(ctx); return err }, backend.ErrStreamNotFound, "add partitions=N"},
		"read an unknown topic":            {func() error { _, err := missing.Signal(ctx, 1); return err }, backend.ErrStreamNotFound, "add partitions=N"},
		"a record over the topic's limit":  {func() error { _, err := small.Append(ctx, random); return err }, backend.ErrTooLarge, "max.message.bytes (2000"},
		"a record over the large limit":    {func() error { _, err := large.Append(ctx, big(5_000_000)); return err }, backend.ErrTooLarge, "max.message.bytes (4000000"},
		"a record over the buffer":         {func() error { _, err := tight.Append(ctx, random); return err }, backend.ErrTooLarge, "buffer_memory (1000)"},
		"no key where there has to be one": {func() error { _, err := compacted.Append(ctx, big(1)); return err }, kerr.InvalidRecord, `set cleanup.policy of topic "compacted" to delete`},
		"a record of another time": {func() (err error) {
			for err == nil { // one that arrives within its millisecond is of this time
				_, err = punctual.Append(ctx, big(1))
			}
			return err
		}, kerr.InvalidTimestamp, "message.timestamp.before.max.ms"},
	} {
		watch := stopwatch()
		err := c.do()
		if took := watch(); !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.want) || backend.Retryable(err) || took > 3*time.Second {
			t.Errorf("%s: %v after %s; want %v, %q", what, err, took, c.is, c.want)
		}
	}
	if _, err := large.Append(ctx, big(3_000_000)); err != nil {
		t.Errorf("3 MB where 4 are allowed: %v", err)
	}
	if _, err := lonely.Examine(ctx); err != nil {
		t.Errorf("examine without a group: %v", err)
	}
	for b, is := range map[backend.Backend]bool{compacted: true, large: false} {
		found, err := b.(backend.Doctor).Examine(ctx)
		if err != nil || slices.ContainsFunc(found, func(f backend.Finding) bool { return f.Code == "compacted" }) != is {
			t.Errorf("compacted %v: %+v, %v", is, found, err)
		}
	}
}
