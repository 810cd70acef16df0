package kafka_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
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
			wide := "1048588"
			_, err = g.admin.AlterTopicConfigs(ctx, []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "max.message.bytes", Value: &wide}}, topic+".dlq")
			g.must(err)
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
	g.remove("cleared.dlq")
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
