package kafka_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/weirmq/weir"
	"github.com/weirmq/weir/tests/kafkatest"
)

// load is four producers and two pools at work, and what came of it.
type load struct {
	t       *testing.T
	url     string
	publish sync.WaitGroup
	stop    chan struct{} // closed: nothing more is published
	pools   sync.WaitGroup
	cancel  context.CancelFunc // ends the pools

	mu      sync.Mutex
	stored  map[string]string      // ID by text, of what was acknowledged
	handled map[string]int         // runs by text
	last    map[string][]time.Time // by partition: when something published was stored last, and handled last
}

func startLoad(t *testing.T, url string) *load {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	l := &load{t: t, url: url, stop: make(chan struct{}), cancel: cancel, stored: map[string]string{}, handled: map[string]int{}, last: map[string][]time.Time{}}
	t.Cleanup(func() { cancel(); l.publish.Wait(); l.pools.Wait() })
	l.produce(ctx, "a")
	for range 2 {
		worker := open(t, url)
		pool, err := weir.NewPool(weir.New(worker), l.handle, weir.PoolConfig{Workers: 4})
		if err != nil {
			t.Fatal(err)
		}
		l.pools.Go(func() {
			defer worker.Close()
			if err := pool.Run(ctx); err != nil && !errors.Is(err, context.Canceled) {
				t.Errorf("the pool ended with %v", err)
			}
		})
	}
	return l
}

// produce publishes from four goroutines, each as fast as it is answered.
func (l *load) produce(ctx context.Context, name string) {
	b := open(l.t, l.url)
	l.t.Cleanup(func() { b.Close() })
	for w := range 4 {
		l.publish.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				select {
				case <-l.stop:
					return
				case <-time.After(2 * time.Millisecond):
				}
				text := fmt.Sprintf("%s%d-%d", name, w, i)
				call, done := context.WithTimeout(ctx, 2*time.Second)
				got, err := b.Append(call, messages(text))
				done()
				if err == nil {
					l.note(0, got[0].ID)
					l.mu.Lock()
					l.stored[text] = got[0].ID
					l.mu.Unlock()
				}
			}
		})
	}
}

func (l *load) handle(_ context.Context, d *weir.Delivery) error {
	l.mu.Lock()
	l.handled[string(d.Data)]++
	l.mu.Unlock()
	l.note(1, d.ID)
	return nil
}

// note says that something of a partition was stored (0) or handled (1).
func (l *load) note(what int, id string) {
	partition, _, _ := strings.Cut(id, ":")
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.last[partition] == nil {
		l.last[partition] = make([]time.Time, 2)
	}
	l.last[partition][what] = time.Now()
}

// goesOn waits until something of each partition was stored and handled after a moment,
// and returns how long after it that was.
func (l *load) goesOn(after time.Time, partitions ...int32) (stored, handled time.Duration) {
	l.t.Helper()
	var took [2]time.Duration
	for what, name := range []string{"stored", "handled"} {
		for _, p := range partitions {
			await(l.t, fmt.Sprintf("something %s of partition %d", name, p), func() bool {
				l.mu.Lock()
				defer l.mu.Unlock()
				last := l.last[fmt.Sprint(p)]
				return last != nil && last[what].After(after)
			})
		}
		took[what] = time.Since(after).Round(time.Millisecond)
	}
	return took[0], took[1]
}

// count returns how much was stored and handled, and how much of the stored was not.
func (l *load) count() (stored, handled, missing int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for text := range l.stored {
		if l.handled[text] == 0 {
			missing++
		}
	}
	return len(l.stored), len(l.handled), missing
}

// end waits until all that was acknowledged has been handled.
func (l *load) end() {
	l.t.Helper()
	close(l.stop)
	l.publish.Wait()
	await(l.t, "all that was stored", func() bool { _, _, missing := l.count(); return missing == 0 })
	l.cancel()
	l.pools.Wait()
	stored, _, _ := l.count()
	repeats := 0
	for _, n := range l.handled {
		repeats += n - 1
	}
	l.t.Logf("%d stored, none lost, %d repeats", stored, repeats)
}

// TestABrokerIsKilledUnderLoad: what was acknowledged is delivered, whatever happens.
func TestABrokerIsKilledUnderLoad(t *testing.T) {
	t.Parallel()
	broker := kafkatest.Start(t, kafkatest.Options{})
	for _, groupType := range groupTypes {
		t.Run(groupType, func(t *testing.T) { brokerKilled(t, broker, broker.URL()+"/"+ofType(groupType)) })
	}
}

func brokerKilled(t *testing.T, broker *kafkatest.Broker, url string) {
	l := startLoad(t, url)
	l.goesOn(time.Now(), 0, 1)
	broker.Kill()
	at := time.Now()
	broker.Restart()
	back := time.Since(at)
	stored, handled := l.goesOn(at, 0, 1)
	t.Logf("the broker was back after %s, both partitions took messages after %s and were handled after %s", back.Round(time.Millisecond), stored, handled)
	l.end()
}

// TestOneOfThreeBrokersIsKilledUnderLoad, and others move: the partitions' leader dies, then
// the controller, in both types of groups; a partition moves to other brokers, and the topic gets more partitions.
func TestOneOfThreeBrokersIsKilledUnderLoad(t *testing.T) {
	cluster := kafkatest.StartCluster(t, kafkatest.Options{})
	client, err := kgo.NewClient(kgo.SeedBrokers(cluster.Addrs()...))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	admin := kadm.NewClient(client)
	leads := func(broker int32) (led []int32) {
		topics, err := admin.ListTopics(t.Context(), "load")
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range topics["load"].Partitions {
			if p.Leader == broker {
				led = append(led, p.Partition)
			}
		}
		return led
	}
	began := time.Now()
	l := startLoad(t, cluster.URL()+"/load?partitions=3&group=g")
	classic := startLoad(t, cluster.URL()+"/load-classic?partitions=3&group=c&group_type=classic")
	l.goesOn(began, 0, 1, 2)
	classic.goesOn(began, 0, 1, 2)

	controller := cluster.Controller(client)
	leader := controller%3 + 1
	kill := func(what string, id int32) {
		led := leads(id)
		at := time.Now()
		cluster.Broker(id).Kill()
		stored, handled := l.goesOn(at.Add(20*time.Millisecond), led...) // what was on its way when it died
		t.Logf("%s killed: its partitions %v took messages after %s and were handled after %s", what, led, stored, handled)
		stored, handled = classic.goesOn(at.Add(20*time.Millisecond), 0, 1, 2)
		t.Logf("the topic of a classic group took messages in all partitions after %s, and they were handled after %s", stored, handled)
		cluster.Broker(id).Restart()
	}
	kill("a leader", leader)
	kill("the controller", controller)
	classic.end()

	at := time.Now()
	others := []int32{leader, controller} // the third leads it by now
	var move kadm.AlterPartitionAssignmentsReq
	move.Assign("load", 0, others)
	if answer, err := admin.AlterPartitionAssignments(t.Context(), move); err != nil || answer.Error() != nil {
		t.Fatal(err, answer.Error())
	}
	await(t, "the new leader", func() bool {
		return slices.Contains(leads(leader), 0) || slices.Contains(leads(controller), 0)
	})
	moved := time.Now()
	stored, handled := l.goesOn(moved, 0)
	t.Logf("a partition moved within %s: it took messages %s after that and was handled after %s", moved.Sub(at).Round(time.Millisecond), stored, handled)

	at = time.Now()
	if answer, err := admin.UpdatePartitions(t.Context(), 5, "load"); err != nil || answer.Error() != nil {
		t.Fatal(err, answer.Error())
	}
	for _, b := range cluster.Brokers {
		asked := kadm.NewClient(b.Client())
		await(t, "a broker that knows the partitions", func() bool {
			topics, err := asked.ListTopics(t.Context(), "load")
			return err == nil && len(topics["load"].Partitions) == 5
		})
	}
	l.produce(t.Context(), "b") // the other producer learns of them when its metadata gets old
	stored, handled = l.goesOn(at, 3, 4)
	t.Logf("two partitions were added: they took messages after %s and were handled after %s", stored, handled)
	l.end()
	tooFewReplicas(t, cluster, admin)
}
