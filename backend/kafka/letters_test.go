package kafka_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weirmq/weir"
	"github.com/weirmq/weir/backend"
)

// nothingIsLostWhileLettersCannotBeStored: their topic takes no large record for a while.
// The others are handled, and the one that is dead becomes a letter once there is room.
func nothingIsLostWhileLettersCannotBeStored(t *testing.T, all *ground) {
	for _, kind := range groupTypes {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			g := all.on(t)
			topic := "stuck-" + kind
			g.create(topic)
			g.create(topic+".dlq", "cleanup.policy=compact", "max.message.bytes=300")
			b := g.open(topic + "?group=g-" + topic + "&group_type=" + kind)
			var ran sync.Map
			pool, err := weir.NewPool(weir.New(b), func(_ context.Context, d *weir.Delivery) error {
				ran.Store(string(d.Data), true)
				if d.Headers["poison"] != "" {
					return errors.New("poison")
				}
				return nil
			}, weir.PoolConfig{Workers: 2, MaxDeliveries: 2, RetryBase: 10 * time.Millisecond, ReclaimAfter: 3 * time.Second, Logger: slog.New(slog.DiscardHandler)})
			g.must(err)
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- pool.Run(ctx) }()
			defer func() { cancel(); <-ended }()
			bad := random(2000)
			_, err = b.Append(ctx, []backend.Message{{Data: bad, Headers: map[string]string{"poison": "1"}}})
			g.must(err)
			n := 0
			for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
				_, err := b.Append(ctx, messages(fmt.Sprint("good-", n)))
				g.must(err)
				n++
			}
			g.must(g.alter(topic+".dlq", "max.message.bytes", "1048588"))
			await(g, "the letter", func() bool { return len(g.letters(b)) > 0 })
			if l := g.letters(b); len(l) != 1 || string(l[0].Data) != string(bad) || l[0].Attempts != 2 {
				t.Errorf("one message is dead after 2 attempts, there are %d letters, %d attempts", len(l), l[0].Attempts)
			}
			await(g, "all messages", func() bool {
				for i := range n {
					if _, ok := ran.Load(fmt.Sprint("good-", i)); !ok {
						return false
					}
				}
				return true
			})
		})
	}
}

// theLargestMessagesBecomeDeadLetters, and go back.
func theLargestMessagesBecomeDeadLetters(t *testing.T, g *ground) {
	g.create("larger", "max.message.bytes=4000000")
	for path, size := range map[string]int{"usual?partitions=1": 1_040_000, "larger": 3_900_000} {
		b := g.open(path)
		_, err := b.Append(t.Context(), []backend.Message{{Data: random(size)}})
		g.must(err)
		if err := b.DeadLetter(t.Context(), gather(t, b, 1)[0], "", poison); err != nil {
			t.Errorf("%d bytes: %v", size, err)
			continue
		}
		if err := b.Redrive(t.Context(), "", g.letters(b)[0]); err != nil {
			t.Errorf("%d bytes back: %v", size, err)
		}
	}
}

// aLongListOfLetters is read once by who goes through it, and says what became of letters
// that another process has purged, or the topic's retention.
func aLongListOfLetters(t *testing.T, g *ground) {
	const topic, each, size = "long.dlq", 2000, 1000
	g.create("long")
	_, err := g.admin.CreateTopic(t.Context(), 2, 1, settingsOf([]string{"cleanup.policy=compact,delete"}), topic)
	g.must(err)
	records := make([]*kgo.Record, 2*each)
	for i := range records {
		records[i] = &kgo.Record{Topic: topic, Key: fmt.Append(nil, i), Value: random(size)}
	}
	client, err := kgo.NewClient(append(g.client.Opts(), kgo.ProducerBatchMaxBytes(8<<10))...) // a broker answers with whole batches
	g.must(err)
	defer client.Close()
	g.must(client.ProduceSync(t.Context(), records...).FirstErr())
	slices.SortFunc(records, func(a, b *kgo.Record) int {
		return cmp.Or(cmp.Compare(a.Partition, b.Partition), cmp.Compare(a.Offset, b.Offset))
	})
	idsOf := func(records []*kgo.Record) (ids []string) {
		for _, r := range records {
			ids = append(ids, fmt.Sprintf("%d:%d", r.Partition, r.Offset))
		}
		return ids
	}

	var read bytesRead
	b := g.open("long", kgo.WithHooks(&read))
	lists := func(left []*kgo.Record, after string) {
		t.Helper()
		var got []string
		for {
			page, err := b.List(t.Context(), "", after, 100)
			g.must(err)
			for i := range page {
				got, after = append(got, page[i].ID), page[i].ID
			}
			if len(page) < 100 {
				break
			}
		}
		if want := idsOf(left); !slices.Equal(got, want) {
			t.Fatalf("%d letters are listed, there are %d", len(got), len(want))
		}
	}
	lists(records, "")
	if n := read.Load(); n > 4*2*each*size {
		t.Errorf("to list letters of %d bytes, %d bytes were read", 2*each*size, n)
	}

	var purged, left []*kgo.Record
	for i, r := range records {
		if i%3 == 0 {
			purged = append(purged, r)
		} else {
			left = append(left, r)
		}
	}
	read.Store(0)
	n, err := g.open("long?group=other", kgo.WithHooks(&read)).Purge(t.Context(), "", idsOf(purged))
	g.must(err)
	if n != len(purged) || read.Load() > 4*2*each*size {
		t.Errorf("%d of %d were purged, and %d bytes read of %d", n, len(purged), read.Load(), 2*each*size)
	}
	lists(left, "")
	lists(left[100:], idsOf(left[99:100])[0])
	next := slices.Index(left, records[301]) // behind one that is gone
	lists(left[next:], idsOf(records[300:301])[0])

	cut := kadm.Offsets{}
	cut.AddOffset(topic, 0, left[500].Offset, -1)
	deleted, err := g.admin.DeleteRecords(t.Context(), cut)
	g.must(errors.Join(err, deleted.Error()))
	if s, err := b.Stats(t.Context()); err != nil || s.DeadLetters == nil || *s.DeadLetters != int64(len(left)-500) {
		t.Errorf("%s letters are counted, there are %d: %v", shown(s.DeadLetters), len(left)-500, err)
	}
	lists(left[500:], "")
}

// bytesRead counts those of fetches.
type bytesRead struct{ atomic.Int64 }

func (n *bytesRead) OnBrokerRead(_ kgo.BrokerMetadata, key int16, read int, _, _ time.Duration, _ error) {
	if key == int16(kmsg.Fetch) {
		n.Add(int64(read))
	}
}

// TestLettersOfALogThatHasLostItsEnd: the new leader does not know the place to which the list has
// been read, and has what is before it.
func TestLettersOfALogThatHasLostItsEnd(t *testing.T) {
	t.Parallel()
	f := newFake(t, kfake.SeedTopics(1, "jobs.dlq"))
	b := f.open(groupShare)
	client := f.client()
	want := ""
	lists := func(letter string) {
		t.Helper()
		if err := client.ProduceSync(t.Context(), &kgo.Record{Topic: "jobs.dlq", Key: []byte(letter), Value: []byte(letter)}).FirstErr(); err != nil {
			t.Fatal(err)
		}
		want += letter
		got, after := "", ""
		for range len(want) + 1 {
			page, err := b.List(t.Context(), "", after, 1)
			if err != nil {
				t.Fatal(err)
			}
			for _, l := range page {
				got, after = got+string(l.Data), l.ID
			}
		}
		if got != want {
			t.Errorf("letters %s are listed, there are %s", got, want)
		}
	}
	for _, letter := range []string{"a", "b", "c"} {
		lists(letter)
	}
	fault := f.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Fetch}, Err: kerr.OffsetOutOfRange, Count: 1})
	lists("d")
	if err := fault.Wait(t.Context(), 1); err != nil {
		t.Error(err)
	}
	lists("e")
}

// TestAPurgeThatIsRefusedSaysSo: it counts what is gone, with an error too.
func TestAPurgeThatIsRefusedSaysSo(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	b := f.open(groupClassic)
	if _, err := b.Append(t.Context(), messages("1", "2", "3")); err != nil {
		t.Fatal(err)
	}
	for _, d := range gather(t, b, 3) {
		if err := b.DeadLetter(t.Context(), d, "", poison); err != nil {
			t.Fatal(err)
		}
	}
	letters, err := weir.New(b).DeadLetters("")
	if err != nil {
		t.Fatal(err)
	}
	f.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: "jobs.dlq", Err: kerr.TopicAuthorizationFailed, Count: 1})
	if n, err := letters.Purge(t.Context(), weir.LetterFilter{}); n != 0 || !errors.Is(err, weir.ErrForbidden) {
		t.Errorf("none may be removed, %d are said to be: %v", n, err)
	}
	if n, err := letters.Purge(t.Context(), weir.LetterFilter{}); n != 3 || err != nil {
		t.Errorf("of three letters %d are removed: %v", n, err)
	}
}

// TestTheLargestMessageIsBuriedAtOnce: a broker may not have heard of the topic of letters that
// another has made for them, when it is asked what that takes.
func TestTheLargestMessageIsBuriedAtOnce(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	b := f.open(groupClassic)
	if _, err := b.Append(t.Context(), []backend.Message{{Data: random(1_040_000)}}); err != nil {
		t.Fatal(err)
	}
	d := gather(t, b, 1)[0]
	f.ControlKey(int16(kmsg.DescribeConfigs), func(req kmsg.Request) (kmsg.Response, error, bool) {
		res := req.ResponseKind().(*kmsg.DescribeConfigsResponse)
		for _, r := range req.(*kmsg.DescribeConfigsRequest).Resources {
			one := kmsg.NewDescribeConfigsResponseResource()
			one.ResourceType, one.ResourceName, one.ErrorCode = r.ResourceType, r.ResourceName, kerr.UnknownTopicOrPartition.Code
			res.Resources = append(res.Resources, one)
		}
		return res, nil, true
	})
	if err := b.DeadLetter(t.Context(), d, "", poison); err != nil {
		t.Error(err)
	}
}

// TestNamesThatAreNotForLetters: the stream would hand them out, and the ledger forget them.
func TestNamesThatAreNotForLetters(t *testing.T) {
	t.Parallel()
	b := newFake(t).open(groupClassic)
	for name, fits := range map[string]bool{"": true, "others": true, "jobs": false, "jobs.weir": false, "a/b": false} {
		if err := b.CheckDeadLetter(name); (err == nil) != fits {
			t.Errorf("dead letters in %q: %v", name, err)
		}
	}
}

// aTopicOfLettersThatIsDeleted is made again by the next letter.
func aTopicOfLettersThatIsDeleted(t *testing.T, g *ground) {
	b := g.open("cleared?partitions=1")
	_, err := b.Append(t.Context(), messages("1", "2"))
	g.must(err)
	list := gather(t, b, 2)
	g.must(b.DeadLetter(t.Context(), list[0], "", poison))
	if l := g.letters(b); len(l) != 1 {
		t.Errorf("one message is dead, the letters are %+v", l)
	}
	g.remove("cleared.dlq")
	if l := g.letters(b); len(l) > 0 {
		t.Errorf("their topic is gone, the letters are %+v", l)
	}
	await(t, "a letter in the new topic", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		err := b.DeadLetter(ctx, list[1], "", poison)
		if err != nil {
			t.Log(err)
		}
		return err == nil
	})
	if l := g.letters(b); len(l) != 1 || string(l[0].Data) != string(list[1].Data) {
		t.Errorf("one letter was stored in the new topic, it has %+v", l)
	}
}

// TestMostLettersArePurged: the others are still listed, also when the places of the purged ones are forgotten,
// and a purge takes them in any order.
func TestMostLettersArePurged(t *testing.T) {
	t.Parallel()
	f := newFake(t, kfake.SeedTopics(1, "jobs.dlq"))
	b := f.open(groupClassic)
	client := f.client()
	const all, keep = 1300, 7
	records := make([]*kgo.Record, all)
	for i := range records {
		records[i] = &kgo.Record{Topic: "jobs.dlq", Key: fmt.Append(nil, i), Value: []byte("x")}
	}
	if err := client.ProduceSync(t.Context(), records...).FirstErr(); err != nil {
		t.Fatal(err)
	}
	var want, purged []string
	for i := all - 1; i >= 0; i-- {
		if id := fmt.Sprint("0:", i); i%(all/keep) == 1 {
			want = append(want, id)
		} else {
			purged = append(purged, id)
		}
	}
	slices.Reverse(want)
	if n, err := b.Purge(t.Context(), "", purged); n != len(purged) || err != nil {
		t.Errorf("%d of %d were purged, %v", n, len(purged), err)
	}
	for range 2 {
		var got []string
		for _, l := range listed(t, b) {
			got = append(got, l.ID)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%v are listed, %v are left", got, want)
		}
	}
}

// TestSeveralLettersThatCannotBeStored wait together, and say as many deliveries as there were.
func TestSeveralLettersThatCannotBeStored(t *testing.T) {
	t.Parallel()
	for _, kind := range groupTypes {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			const all = 3
			f := newFake(t, kfake.SeedTopics(1, "jobs.dlq"))
			b := f.open(kind)
			f.publish(b, 0, all)
			var returns []backend.Return
			for _, d := range gather(t, b, all) {
				returns = append(returns, backend.Return{Lease: d.Lease})
			}
			if _, err := b.Nack(t.Context(), returns); err != nil {
				t.Fatal(err)
			}
			away := f.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: "jobs.dlq", Err: kerr.PolicyViolation, Count: -1})
			req := claim(all)
			req.MaxDeliveries, req.ReclaimAfter = 1, 500*time.Millisecond
			failed := 0
			for end := time.Now().Add(3 * time.Second); time.Now().Before(end) || failed == 0 && time.Now().Before(end.Add(30*time.Second)); {
				got, err := b.Claim(t.Context(), req)
				if len(got.Deliveries)+len(got.Dead) > 0 {
					t.Fatalf("%+v", got)
				}
				if err != nil || got.Failed != nil {
					failed++
				}
			}
			if failed == 0 {
				t.Error("nothing is said of the letters")
			}
			away.Remove()
			var dead []backend.DeadLetter
			await(t, "the letters", func() bool {
				got, err := b.Claim(t.Context(), req)
				if err != nil && !backend.Retryable(err) { // a slow machine has no time left for one within the lease
					t.Fatal(err)
				}
				dead = append(dead, got.Dead...)
				return len(dead) >= all
			})
			for _, l := range dead {
				if l.Attempts != 1 {
					t.Errorf("letter of %s says %d deliveries, there was one", l.OriginID, l.Attempts)
				}
			}
			if n := len(listed(t, b)); n != all {
				t.Errorf("of %d letters %d are there", all, n)
			}
			f.publish(b, all, all+2)
			await(t, "a reading that says that nobody holds anything", func() bool {
				s, err := b.Stats(t.Context())
				return err == nil && s.Pending == 0 && s.Lag != nil && *s.Lag == 2
			})
		})
	}
}

// TestLettersOfAStreamMadeAgain take the place of none that has the same offset in the first.
func TestLettersOfAStreamMadeAgain(t *testing.T) {
	t.Parallel()
	f := newFake(t, kfake.SeedTopics(1, "jobs.dlq"))
	admin := kadm.NewClient(f.client())
	for _, name := range []string{"first", "second"} {
		b := open(t, "kafka://"+f.ListenAddrs()[0]+"/jobs?group=g&group_type=classic")
		time.Sleep(2 * time.Millisecond) // so that they are of different times
		if _, err := b.Append(t.Context(), messages(name)); err != nil {
			t.Fatal(err)
		}
		d := gather(t, b, 1)[0]
		if err := b.DeadLetter(t.Context(), d, "", poison); err != nil || d.ID != "0:0" {
			t.Fatalf("message %s, %v", d.ID, err)
		}
		if n := len(listed(t, b)); n != map[string]int{"first": 1, "second": 2}[name] {
			t.Errorf("behind that of %s there are %d letters", name, n)
		}
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := admin.DeleteTopics(t.Context(), "jobs"); err != nil {
			t.Fatal(err)
		}
		if _, err := admin.CreateTopic(t.Context(), 1, 1, nil, "jobs"); err != nil {
			t.Fatal(err)
		}
	}
}

// TestManyLettersInATopicThatTakesLittle, as that of a stream with small messages does: they are purged, though
// all that says so is more than the topic takes at once.
func TestManyLettersInATopicThatTakesLittle(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	client := f.client(kgo.ProducerBatchMaxBytes(4000))
	if _, err := kadm.NewClient(client).CreateTopic(t.Context(), 1, 1, settingsOf([]string{"max.message.bytes=4000"}), "jobs.dlq"); err != nil {
		t.Fatal(err)
	}
	records := make([]*kgo.Record, 500)
	ids := make([]string, len(records))
	for i := range records {
		records[i] = &kgo.Record{Topic: "jobs.dlq", Key: random(60), Value: []byte("x")}
		ids[i] = fmt.Sprint("0:", i)
	}
	if err := client.ProduceSync(t.Context(), records...).FirstErr(); err != nil {
		t.Fatal(err)
	}
	b := f.open(groupClassic)
	if n, err := b.Purge(t.Context(), "", ids); n != len(ids) || err != nil {
		t.Errorf("%d of %d were purged, %v", n, len(ids), err)
	}
	if left := listed(t, b); len(left) > 0 {
		t.Errorf("%d are left", len(left))
	}
}

// TestLettersAtOnceInATopicThatTakesLittle are all stored: none is refused because of the others.
func TestLettersAtOnceInATopicThatTakesLittle(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	client := f.client()
	if _, err := kadm.NewClient(client).CreateTopic(t.Context(), 1, 1, settingsOf([]string{"max.message.bytes=4000"}), "jobs.dlq"); err != nil {
		t.Fatal(err)
	}
	b := f.open(groupClassic)
	const all = 100
	list := make([]backend.Message, all)
	for i := range list {
		list[i].Data = random(1000)
	}
	if _, err := b.Append(t.Context(), list); err != nil {
		t.Fatal(err)
	}
	var bury sync.WaitGroup
	for _, d := range gather(t, b, all) {
		bury.Go(func() {
			if err := b.DeadLetter(t.Context(), d, "", poison); err != nil {
				t.Errorf("message %s: %v", d.ID, err)
			}
		})
	}
	bury.Wait()
	if n := len(listed(t, b)); n != all {
		t.Errorf("of %d letters %d are there", all, n)
	}
}

// TestLettersOfATopicMadeAgainWhileTheyAreListed: the list ends there, and the next one is that of the new topic.
func TestLettersOfATopicMadeAgainWhileTheyAreListed(t *testing.T) {
	t.Parallel()
	f := newFake(t, kfake.SeedTopics(2, "jobs.dlq"))
	b, client := f.open(groupClassic), f.client(kgo.RecordPartitioner(kgo.ManualPartitioner()))
	admin := kadm.NewClient(client)
	letters := func(text string) {
		t.Helper()
		for p := range int32(2) {
			r := &kgo.Record{Topic: "jobs.dlq", Partition: p, Key: fmt.Append(nil, text, p), Value: []byte(text)}
			if err := client.ProduceSync(t.Context(), r).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
	}
	letters("first")
	if n := len(listed(t, b)); n != 2 {
		t.Fatalf("of 2 letters %d are listed", n)
	}
	reads := 0
	f.ControlKey(int16(kmsg.Fetch), func(kmsg.Request) (kmsg.Response, error, bool) {
		f.KeepControl()
		if reads++; reads != 3 { // behind those that look for new letters in both partitions
			return nil, nil, false
		}
		f.SleepControl(func() {
			if _, err := admin.DeleteTopics(t.Context(), "jobs.dlq"); err != nil {
				t.Error(err)
			}
			if _, err := admin.CreateTopic(t.Context(), 2, 1, nil, "jobs.dlq"); err != nil {
				t.Error(err)
			}
		})
		return nil, nil, false
	})
	if list, err := b.List(t.Context(), "", "", 10); err != nil || len(list) > 0 {
		t.Errorf("%d letters of a topic that is gone are listed, %v", len(list), err)
	}
	client.PurgeTopicsFromClient("jobs.dlq")
	letters("second")
	for _, l := range listed(t, b) {
		if string(l.Data) != "second" {
			t.Errorf("letter %s of the new topic is %q", l.ID, l.Data)
		}
	}
	if n := len(listed(t, b)); n != 2 {
		t.Errorf("of 2 letters of the new topic %d are listed", n)
	}
}
