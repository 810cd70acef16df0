package kafka_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/weirmq/weir/internal/replica"
	"github.com/weirmq/weir/internal/replica/kafka"
	"github.com/weirmq/weir/internal/replica/replicatest"
	"github.com/weirmq/weir/tests/kafkatest"
	"github.com/weirmq/weir/tests/link"
	"github.com/weirmq/weir/tests/stall"
)

func open(t testing.TB, address string) *kafka.Log {
	t.Helper()
	return openWith(t, address, func(err error) { t.Logf("again after: %v", err) })
}

// openTold is open, and returns the first trouble.
func openTold(t testing.TB, address string) (*kafka.Log, <-chan error) {
	t.Helper()
	first := make(chan error, 1)
	return openWith(t, address, func(err error) {
		select {
		case first <- err:
		default:
		}
	}), first
}

func openWith(t testing.TB, address string, trouble func(error)) *kafka.Log {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	l, err := kafka.Open(t.Context(), u, kafka.Options{Trouble: trouble})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

type outcome struct {
	pos uint64
	err error
}

func start(t *testing.T, l *kafka.Log, data string) chan outcome {
	t.Helper()
	told := make(chan outcome, 1)
	if err := l.Append(t.Context(), []byte(data), func(pos uint64, err error) { told <- outcome{pos, err} }); err != nil {
		told <- outcome{0, err}
	}
	return told
}

func await(t *testing.T, told <-chan outcome) outcome {
	t.Helper()
	select {
	case o := <-told:
		return o
	case <-time.After(time.Minute):
		t.Fatal("nothing was said of an entry within a minute")
		panic("unreachable")
	}
}

func lead(t *testing.T, l *kafka.Log) replica.Lead {
	t.Helper()
	got, err := l.Lead(t.Context(), "node")
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// expect reads everything but the entries that begin a term.
func expect(t *testing.T, l *kafka.Log, want ...string) {
	t.Helper()
	var got []string
	for after := uint64(0); ; {
		e, err := l.Read(t.Context(), after)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("behind %d: %v", after, err)
		}
		if len(e.Data) > 0 {
			got = append(got, string(e.Data))
		}
		after = e.Pos
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("the log holds %.300q, want %.300q", got, want)
	}
}

// records are the values of all records of a topic.
func records(t *testing.T, b *kafkatest.Broker, topic string) (all [][]byte) {
	t.Helper()
	client := b.Client(kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {0: kgo.NewOffset().At(0)}}))
	ends, err := kadm.NewClient(client).ListEndOffsets(t.Context(), topic)
	if err != nil {
		t.Fatal(err)
	}
	end, _ := ends.Lookup(topic, 0)
	for int64(len(all)) < end.Offset {
		for _, r := range client.PollFetches(t.Context()).Records() {
			all = append(all, r.Value)
		}
	}
	return all
}

func TestLog(t *testing.T) {
	t.Parallel()
	var proxy *link.Proxy
	b := kafkatest.Start(t, kafkatest.Options{
		ShareVersion: kafkatest.Without,
		Listeners:    map[string]string{"PROXIED": "PLAINTEXT"},
		Advertise: map[string]func(string) string{"PROXIED": func(addr string) string {
			proxy = link.NewProxy(t, addr)
			return proxy.Addr()
		}},
	})
	t.Run("suite", func(t *testing.T) {
		replicatest.Run(t, replicatest.Harness{
			Keeps: 1, Large: 9 << 20,
			Log: func(t testing.TB, name string) replica.Log { return open(t, b.URL()+"/"+name) },
		})
	})
	t.Run("an old leader's leavings", func(t *testing.T) { leavings(t, b) })
	t.Run("lost answers", func(t *testing.T) { lostAnswers(t, b, proxy) })
	t.Run("a context ends", func(t *testing.T) { contextEnds(t, proxy) })
	t.Run("topics", func(t *testing.T) { topics(t, b) })
	t.Run("small records", func(t *testing.T) { smallRecords(t, b, proxy) })
	t.Run("refused for a while", func(t *testing.T) { refusedForAWhile(t, b) })
	t.Run("brokers away", func(t *testing.T) { brokersAway(t, b) })
	t.Run("a lost end", func(t *testing.T) { lostEnd(t, b) })
	t.Run("a reader of a lost end", func(t *testing.T) { readerOfLostEnd(t, b) })
	t.Run("an end that has grown again", func(t *testing.T) { regrownEnd(t, b) })
	t.Run("a leader looks", func(t *testing.T) { leaderLooks(t, b) })
	t.Run("an emptied topic", func(t *testing.T) { emptied(t, b) })
	t.Run("a topic is made anew", func(t *testing.T) { madeAnew(t, b) })
}

// leavings are records of an old leader between and behind those of a new one.
func leavings(t *testing.T, b *kafkatest.Broker) {
	address := b.URL() + "/leavings"
	old := open(t, address)
	lead(t, old)
	if o := await(t, start(t, old, "a")); o.err != nil {
		t.Fatal(o.err)
	}
	before := records(t, b, "leavings")
	zombie := b.Client(kgo.DefaultProduceTopic("leavings"))
	next := bytes.Clone(before[1])
	next[16] = 2 // the entry behind the last one of the old term
	lost := bytes.Clone(next)
	lost[8] = 9 // of a term that the brokers have lost
	half := bytes.Clone(next)
	half[28] = 2 // parts, of which this is one
	if err := zombie.ProduceSync(t.Context(), &kgo.Record{Value: half}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	young := open(t, address)
	lead(t, young)
	rival := records(t, b, "leavings")[3] // who wanted the young one's term, and was late
	rival[len(rival)-1] ^= 1
	leave := func() {
		t.Helper()
		if err := zombie.ProduceSync(t.Context(), &kgo.Record{Value: next}, &kgo.Record{Value: lost}, &kgo.Record{Value: rival}, kgo.StringRecord("not weir's")).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	leave()
	if o := await(t, start(t, young, "b")); o.err != nil {
		t.Fatalf("a new leader behind an old one's leavings: %v", o.err)
	}
	leave()
	for range 2 {
		if o := await(t, start(t, old, "void")); !errors.Is(o.err, replica.ErrFenced) {
			t.Errorf("an old leader's entry: %+v", o)
		}
	}
	if o := await(t, start(t, young, "c")); o.err != nil {
		t.Fatal(o.err)
	}
	expect(t, open(t, address), "a", "b", "c")
}

func lostAnswers(t *testing.T, b *kafkatest.Broker, proxy *link.Proxy) {
	l := open(t, "kafka://"+proxy.Addr()+"/lost")
	lead(t, l)
	var want []string
	faults := []link.Fault{{HoldDown: true}, {HoldUp: true}, {Slice: 100}}
	for round := range 9 {
		proxy.Set(faults[round%3])
		var told []chan outcome
		for range 3 {
			want = append(want, fmt.Sprint(len(want), ".", strings.Repeat("x", 2000)))
			told = append(told, start(t, l, want[len(want)-1]))
		}
		if round%3 == 0 { // the broker has some of them
			for n := len(records(t, b, "lost")); n < len(want)-1; n = len(records(t, b, "lost")) {
				time.Sleep(5 * time.Millisecond)
			}
		}
		reconnect(t, proxy, told)
	}
	expect(t, open(t, b.URL()+"/lost"), want...)
	if n := len(records(t, b, "lost")); n <= 1+len(want) {
		t.Errorf("%d records: nothing was sent twice, so nothing was tested", n)
	}
}

// smallRecords are all that the topic takes: an entry is many of them, of which some are sent twice.
func smallRecords(t *testing.T, b *kafkatest.Broker, proxy *link.Proxy) {
	most := "8192"
	if _, err := kadm.NewClient(b.Client()).CreateTopic(t.Context(), 1, 1,
		map[string]*string{"max.message.bytes": &most, "retention.ms": new("-1")}, "small"); err != nil {
		t.Fatal(err)
	}
	l := open(t, "kafka://"+proxy.Addr()+"/small")
	lead(t, l)
	var want []string
	for range 4 {
		before := len(records(t, b, "small"))
		proxy.Set(link.Fault{HoldDown: true})
		var told []chan outcome
		for range 3 {
			want = append(want, strings.Repeat(fmt.Sprint(len(want), "."), 10_000))
			told = append(told, start(t, l, want[len(want)-1]))
		}
		for len(records(t, b, "small")) == before { // the broker has a part of an entry
			time.Sleep(5 * time.Millisecond)
		}
		reconnect(t, proxy, told)
	}
	expect(t, open(t, b.URL()+"/small"), want...)
}

// reconnect ends the connections and the faults of a proxy, and waits until all that was begun is stored.
func reconnect(t *testing.T, proxy *link.Proxy, told []chan outcome) {
	t.Helper()
	proxy.Reset()
	proxy.Heal()
	for _, c := range told {
		if o := await(t, c); o.err != nil {
			t.Fatal(o.err)
		}
	}
}

// refusedForAWhile are entries that the topic does not take until somebody mends its settings.
func refusedForAWhile(t *testing.T, b *kafkatest.Broker) {
	l, refused := openTold(t, b.URL()+"/refused")
	lead(t, l)
	take := func(most string) { set(t, b, "refused", "max.message.bytes", most) }
	take("500")
	var want []string
	var told []chan outcome
	for wait := true; wait; { // a busy broker goes by its new setting after a while
		if len(want) == 500 {
			t.Fatal("nothing is refused")
		}
		want = append(want, strings.Repeat(fmt.Sprint(len(want)%10), 1000))
		told = append(told, start(t, l, want[len(want)-1]))
		select {
		case <-refused:
			wait = false
		case <-time.After(100 * time.Millisecond):
		}
	}
	take("1048588")
	for _, c := range told {
		if o := await(t, c); o.err != nil {
			t.Fatal(o.err)
		}
	}
	expect(t, open(t, b.URL()+"/refused"), want...)
}

// set changes a setting of a topic.
func set(t *testing.T, b *kafkatest.Broker, topic, key, value string) {
	t.Helper()
	change := []kadm.AlterConfig{{Op: kadm.SetConfig, Name: key, Value: &value}}
	if _, err := kadm.NewClient(b.Client()).AlterTopicConfigs(t.Context(), change, topic); err != nil {
		t.Fatal(err)
	}
}

// brokersAway are those of a leader that appends: somebody is told that it tries again, and it goes on when they
// are back.
func brokersAway(t *testing.T, b *kafkatest.Broker) {
	l, trouble := openTold(t, b.URL()+"/away")
	lead(t, l)
	b.Kill()
	told := start(t, l, "a")
	select {
	case <-trouble:
	case o := <-told:
		t.Errorf("without a broker: %+v", o)
	case <-time.After(time.Minute):
		t.Error("nobody was told within a minute that the brokers are away")
	}
	opened := opensWhileAway(t, b.URL()+"/away")
	b.Restart()
	if err := <-opened; err != nil {
		t.Errorf("opened while the brokers were away: %v", err)
	}
	if o := await(t, told); o.err != nil {
		t.Fatal(o.err)
	}
	expect(t, open(t, b.URL()+"/away"), "a")
}

// opensWhileAway opens a log whose brokers do not answer, and has been told so. It returns where the outcome will be.
func opensWhileAway(t *testing.T, address string) <-chan error {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	opened, told := make(chan error, 1), make(chan error, 1)
	opt := kafka.WithOpening(kafka.Options{Trouble: func(err error) {
		select {
		case told <- err:
		default:
		}
	}}, 2*time.Second)
	go func() {
		l, err := kafka.Open(t.Context(), u, opt)
		if err == nil {
			err = l.Close()
		}
		opened <- err
	}()
	select {
	case <-told:
	case err := <-opened:
		t.Errorf("opened without a broker: %v", err)
		opened <- nil
	}
	return opened
}

// lostEnd is what the last replica may lose in a power cut: its leader is given offsets again, and stops, since
// what it was told to count is gone.
func lostEnd(t *testing.T, b *kafkatest.Broker) {
	address := b.URL() + "/ended"
	l := open(t, address)
	lead(t, l)
	for _, data := range []string{"a", "b", "c", "d"} {
		if o := await(t, start(t, l, data)); o.err != nil {
			t.Fatal(o.err)
		}
	}
	b.Kill()
	b.LoseEnd("ended", 0, 3)
	b.Restart()
	if err := l.Kept(t.Context(), 0); !errors.Is(err, replica.ErrLost) {
		t.Errorf("who looks for a lost end is told %v", err)
	}
	if o := await(t, start(t, l, "e")); !errors.Is(o.err, replica.ErrLost) {
		t.Errorf("behind a lost end: %+v", o)
	}
	next := open(t, address)
	lead(t, next)
	if o := await(t, start(t, next, "f")); o.err != nil {
		t.Fatal(o.err)
	}
	expect(t, open(t, address), "a", "b", "f")
}

// ledAndRead returns who leads a log that begins with four entries, one that has read them, and one that knows
// the term.
func ledAndRead(t *testing.T, address string) (leader, reader, walker *kafka.Log) {
	t.Helper()
	leader = open(t, address)
	lead(t, leader)
	for _, data := range []string{"a", "b", "c", "d"} {
		if o := await(t, start(t, leader, data)); o.err != nil {
			t.Fatal(o.err)
		}
	}
	reader, walker = open(t, address), open(t, address)
	expect(t, reader, "a", "b", "c", "d")
	if term, err := walker.Newest(t.Context()); err != nil || term.Number != 1 {
		t.Fatalf("the newest term is %+v, %v", term, err)
	}
	return leader, reader, walker
}

// readerOfLostEnd has read what the last replica then lost: it is told so once another leads, whose records
// in that place must not be missed.
func readerOfLostEnd(t *testing.T, b *kafkatest.Broker) {
	address := b.URL() + "/reread"
	_, reader, walker := ledAndRead(t, address)
	b.Kill()
	b.LoseEnd("reread", 0, 3)
	b.Restart()
	if e, err := reader.Read(t.Context(), 5); !errors.Is(err, io.EOF) {
		t.Errorf("behind a lost end, while nobody leads anew: %+v, %v", e, err)
	}
	next := open(t, address)
	lead(t, next)
	if e, err := reader.Read(t.Context(), 5); !errors.Is(err, replica.ErrTrimmed) {
		t.Errorf("behind a lost end, while another leads: %+v, %v", e, err)
	}
	for _, data := range []string{"e", "f", "g"} {
		if o := await(t, start(t, next, data)); o.err != nil {
			t.Fatal(o.err)
		}
	}
	if e, err := reader.Read(t.Context(), 5); !errors.Is(err, replica.ErrTrimmed) {
		t.Errorf("where another's record is by now: %+v, %v", e, err)
	}
	for _, l := range []*kafka.Log{reader, walker} {
		if term, err := l.Newest(t.Context()); err != nil || term.Number != 2 {
			t.Errorf("the newest term is %+v, %v", term, err)
		}
	}
	expect(t, reader, "a", "b", "e", "f", "g")
	if got := lead(t, walker); got.Term != 3 {
		t.Errorf("who leads behind term 2 has term %d", got.Term)
	}
	if o := await(t, start(t, walker, "h")); o.err != nil {
		t.Fatal(o.err)
	}
	expect(t, open(t, address), "a", "b", "e", "f", "g", "h")
}

// regrownEnd is one that the last replica has lost and another leader has filled, up to where it was or
// beyond, before those look again who know what was there. With its beginning a term may be lost, whose number
// the other one then has.
func regrownEnd(t *testing.T, b *kafkatest.Broker) {
	for i, c := range []struct {
		from       int64
		left, more []string
	}{{3, []string{"a", "b"}, []string{"e"}}, {3, []string{"a", "b"}, []string{"e", "f", "g"}}, {0, nil, []string{"e", "f", "g", "h", "i"}}} {
		topic := fmt.Sprint("regrown", i)
		address := b.URL() + "/" + topic
		old, reader, walker := ledAndRead(t, address)
		b.Kill()
		b.LoseEnd(topic, 0, c.from)
		b.Restart()
		next := open(t, address)
		led := lead(t, next)
		for _, data := range c.more {
			if o := await(t, start(t, next, data)); o.err != nil {
				t.Fatal(o.err)
			}
		}
		if e, err := reader.Read(t.Context(), 5); !errors.Is(err, replica.ErrTrimmed) {
			t.Errorf("%s: a reader at what was the end: %+v, %v", topic, e, err)
		}
		if term, err := walker.Newest(t.Context()); err != nil || term.Number != led.Term {
			t.Errorf("%s: the newest term is %+v, %v", topic, term, err)
		}
		if o := await(t, start(t, old, "void")); !errors.Is(o.err, replica.ErrFenced) || errors.Is(o.err, replica.ErrLost) {
			t.Errorf("%s: the old leader's entry, while another leads: %+v", topic, o)
		}
		if o := await(t, start(t, next, "last")); o.err != nil {
			t.Fatal(o.err)
		}
		expect(t, open(t, address), append(append(c.left, c.more...), "last")...)
	}
}

// topics are those that would lose the log by themselves.
func topics(t *testing.T, b *kafkatest.Broker) {
	if got := open(t, b.URL()+"/own").Warnings(); len(got) != 1 || !strings.Contains(got[0], "min.insync.replicas") {
		t.Errorf("with one broker it warns %q", got)
	}
	admin := kadm.NewClient(b.Client())
	week, forever := "604800000", "-1"
	for name, make := range map[string]struct {
		partitions int32
		retention  *string
		want       string
	}{"short": {1, &week, "retention.ms=-1"}, "wide": {2, &forever, "one"}} {
		if _, err := admin.CreateTopic(t.Context(), make.partitions, 1, map[string]*string{"retention.ms": make.retention}, name); err != nil {
			t.Fatal(err)
		}
		u, _ := url.Parse(b.URL() + "/" + name)
		if _, err := kafka.Open(t.Context(), u, kafka.Options{}); err == nil || !strings.Contains(err.Error(), make.want) {
			t.Errorf("topic %s: %v, want %q in it", name, err, make.want)
		}
	}
	u, _ := url.Parse(b.URL() + "/absent")
	if _, err := kafka.Open(t.Context(), u, kafka.Options{ReadOnly: true}); err == nil || !strings.Contains(err.Error(), "no copy") {
		t.Errorf("a copy that is not there was opened to be looked at: %v", err)
	}
}

func contextEnds(t *testing.T, proxy *link.Proxy) {
	l := open(t, "kafka://"+proxy.Addr()+"/context")
	lead(t, l)
	proxy.Set(link.Blackhole)
	defer proxy.Heal()
	ctx, cancel := context.WithCancel(t.Context())
	told := make(chan outcome, 1)
	if err := l.Append(ctx, []byte("a"), func(pos uint64, err error) { told <- outcome{pos, err} }); err != nil {
		t.Fatal(err)
	}
	cancel()
	if o := await(t, told); !errors.Is(o.err, context.Canceled) {
		t.Errorf("%+v", o)
	}
}

// What counts has all replicas in sync, and these are enough: before that neither an entry nor a term does, somebody is
// told, and it goes on when they are.
func TestTooFewInSync(t *testing.T) {
	t.Parallel()
	c := kafkatest.StartCluster(t, kafkatest.Options{ShareVersion: kafkatest.Without})
	leader, refused := openTold(t, c.URL()+"/entries")
	next, refusedTerm := openTold(t, c.URL()+"/terms")
	if got := leader.Warnings(); len(got) != 0 {
		t.Errorf("with three brokers it warns %q", got)
	}
	lead(t, leader)
	topics, err := kadm.NewClient(c.Brokers[0].Client()).ListTopics(t.Context(), "entries", "terms")
	if err != nil {
		t.Fatal(err)
	}
	dead := int32(1)
	for dead == topics["entries"].Partitions[0].Leader || dead == topics["terms"].Partitions[0].Leader {
		dead++
	}
	need := func(replicas string) {
		for topic := range topics {
			set(t, c.Broker(dead%3+1), topic, "min.insync.replicas", replicas)
		}
	}
	need("3")
	c.Broker(dead).Kill()
	entry, term := start(t, leader, "a"), make(chan outcome, 1)
	go func() {
		got, err := next.Lead(t.Context(), "node")
		term <- outcome{got.End, err}
	}()
	for _, of := range []struct {
		refused <-chan error
		told    <-chan outcome
	}{{refused, entry}, {refusedTerm, term}} {
		select {
		case <-of.refused:
		case o := <-of.told:
			t.Fatalf("two of three replicas have it: %+v", o)
		case <-time.After(2 * time.Minute):
			t.Fatal("nobody was told within two minutes that too few are in sync")
		}
	}
	need("2")
	for _, told := range []<-chan outcome{entry, term} {
		if o := await(t, told); o.err != nil {
			t.Error(o.err)
		}
	}
	expect(t, open(t, c.URL()+"/entries"), "a")
}

// A broker that leads the log and stands still is left for the one that leads next: entries count, and are read,
// within seconds.
func TestALeaderThatStandsStill(t *testing.T) {
	t.Parallel()
	c := kafkatest.StartCluster(t, kafkatest.Options{ShareVersion: kafkatest.Without})
	l, reader := open(t, c.URL()+"/log"), open(t, c.URL()+"/log")
	lead(t, l)
	a := await(t, start(t, l, "a"))
	if a.err != nil {
		t.Fatal(a.err)
	}
	expect(t, reader, "a")
	topics, err := kadm.NewClient(c.Brokers[0].Client()).ListTopics(t.Context(), "log")
	if err != nil {
		t.Fatal(err)
	}
	silent := c.Broker(topics["log"].Partitions[0].Leader)
	silent.Pause()
	defer silent.Resume()
	watch := stall.Watch()
	began := time.Now()
	if o := await(t, start(t, l, "b")); o.err != nil {
		t.Error(o.err)
	}
	stored := time.Since(began) - watch()
	for {
		e, err := reader.Read(t.Context(), a.pos)
		if err == nil && string(e.Data) == "b" {
			break
		}
		if time.Since(began) > 2*time.Minute {
			t.Fatalf("it is not read: %q, %v", e.Data, err)
		}
	}
	t.Logf("stored after %s, read after %s", stored, time.Since(began))
	if stored > 19*time.Second { // 10 for the append, 5 for asking that broker who leads
		t.Errorf("it counts after %s", stored)
	}
}

// The log's connection is said as that of a stream: users, certificates, and what is wrong.
func TestTLSAndSASL(t *testing.T) {
	t.Parallel()
	s := kafkatest.StartSecure(t, kafkatest.Options{})
	address := func(listener, user, password, query string) string {
		u := url.URL{Scheme: "kafkas", Host: s.Listener(listener), Path: "/log", RawQuery: query}
		if user != "" {
			u.User = url.UserPassword(user, password)
		}
		return u.String()
	}
	ca := "ca=" + url.QueryEscape(s.CA)
	pair := "&cert=" + url.QueryEscape(s.Cert) + "&key=" + url.QueryEscape(s.Key)
	for name, to := range map[string]string{
		"TLS":                  address(kafkatest.TLS, "", "", ca),
		"a client certificate": address(kafkatest.MutualTLS, "", "", ca+pair),
		"SCRAM over TLS":       address(kafkatest.SASL, kafkatest.Admin, kafkatest.Password, ca),
		"PLAIN over TLS":       address(kafkatest.SASL, kafkatest.Admin, kafkatest.Password, ca+"&sasl=plain"),
		"SCRAM":                strings.Replace(address(kafkatest.PlainSASL, kafkatest.Admin, kafkatest.Password, "sasl=scram-sha-512"), "kafkas:", "kafka:", 1),
	} {
		l := open(t, to)
		lead(t, l)
		if o := await(t, start(t, l, name)); o.err != nil {
			t.Errorf("%s: %v", name, o.err)
		}
	}
	for to, want := range map[string]string{
		address(kafkatest.TLS, "", "", ""):                                 "certificate",
		address(kafkatest.SASL, kafkatest.Admin, "pw-secret", ca):          "SASL_AUTHENTICATION_FAILED",
		"kafka://127.0.0.1:1/log?ca=x":                                     "ca is for TLS; use kafkas://",
		"kafka://127.0.0.1:1/log?sasl=plain":                               "there is no user",
		"kafka://u@127.0.0.1:1/log":                                        "no password",
		"kafka://127.0.0.1:1/log?linger=5":                                 "known: base, sasl, ca, cert, key",
		"kafkas://127.0.0.1:1/log?cert=x":                                  "cert and key belong together",
		"kafkas://u:p@127.0.0.1:1/log?sasl=oauth":                          `sasl "oauth" is unknown`,
		"kafkas://127.0.0.1:1/log?" + "ca=" + url.QueryEscape(t.TempDir()): "ca:",
	} {
		u, err := url.Parse(to)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second) // for the brokers that are tried again
		if _, err = kafka.Open(ctx, u, kafka.Options{}); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "pw-secret") {
			t.Errorf("%s: %v, want %q in it", to, err, want)
		}
		cancel()
	}
}
