package library

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/weirmq/weir"
	"github.com/weirmq/weir/open"
	"github.com/weirmq/weir/tests/kafkatest"
	"github.com/weirmq/weir/tests/link"
	"github.com/weirmq/weir/tests/weirtest"
)

// chaosLimit is how often a message is delivered before it is dead.
const chaosLimit = 3

var chaosFor = flag.Duration("chaos", 0, "how long workers and the Kafka broker are killed, with many of them and a slow link; by default a few for one round")

// TestNothingIsLostOnKafkaThoughWorkersAndTheBrokerAreKilledAgainAndAgain, in both types of
// groups: what was acknowledged is handled or a dead letter, and what is dead was delivered as
// often as the limit says; see (*chaos).judge for the exception.
func TestNothingIsLostOnKafkaThoughWorkersAndTheBrokerAreKilledAgainAndAgain(t *testing.T) {
	t.Parallel()
	weirtest.Binary(t)
	shape := chaosShape{processes: 3, workers: 4, lanes: 1}
	if *chaosFor > 0 {
		shape = chaosShape{processes: 10, workers: 20, lanes: 8, slow: link.Fault{Latency: 20 * time.Millisecond, Rate: 200_000}}
	}
	var proxy *link.Proxy
	broker := kafkatest.Start(t, kafkatest.Options{Listeners: map[string]string{"LINK": "PLAINTEXT"}, Advertise: map[string]func(string) string{
		"LINK": func(addr string) string { proxy = link.NewProxy(t, addr); return proxy.Addr() },
	}})
	for _, groupType := range []string{"share", "classic"} {
		t.Run(groupType, func(t *testing.T) {
			topic := fmt.Sprintf("/work-%s?partitions=%d&group=%s&group_type=%s", groupType, shape.processes+1, groupType, groupType)
			c := &chaos{
				T: t, chaosShape: shape, url: "kafka://" + proxy.Addr() + topic, direct: broker.URL() + topic,
				journal: newJournal(filepath.Join(t.TempDir(), "journal")), killed: map[string]int64{}, stored: map[string]bool{},
			}
			c.outage = func() { broker.Kill(); broker.Restart() }
			c.run(proxy)
		})
	}
}

// TestNothingIsLostOnThreeKafkaBrokersThatAreKilledAgainAndAgain: as on one, while the others go on without the one
// that is killed, or stands still, until it comes back.
func TestNothingIsLostOnThreeKafkaBrokersThatAreKilledAgainAndAgain(t *testing.T) {
	if *chaosFor == 0 {
		t.Skip("three brokers are a part of make soak")
	}
	weirtest.Binary(t)
	cluster := kafkatest.StartCluster(t, kafkatest.Options{})
	for _, groupType := range []string{"share", "classic"} {
		t.Run(groupType, func(t *testing.T) {
			url := fmt.Sprintf("%s/three-%s?partitions=6&group=three-%[2]s&group_type=%[2]s", cluster.URL(), groupType)
			c := &chaos{
				T: t, chaosShape: chaosShape{processes: 4, workers: 4, lanes: 4}, url: url, direct: url,
				journal: newJournal(filepath.Join(t.TempDir(), "journal")), killed: map[string]int64{}, stored: map[string]bool{},
			}
			c.outage = func() {
				b := cluster.Brokers[rand.IntN(len(cluster.Brokers))]
				stop, back := b.Kill, b.Restart
				if rand.IntN(3) == 0 {
					stop, back = b.Pause, b.Resume
				}
				stop()
				c.worksOn("work goes on without a broker")
				back()
			}
			c.run(nil)
		})
	}
}

// chaosShape is how large a run is.
type chaosShape struct {
	processes, workers int
	lanes              int        // messages published at once
	slow               link.Fault // of the link for the middle third of the time
}

// chaos is what was published, who was killed, and what became of it.
type chaos struct {
	*testing.T
	chaosShape
	outage      func() // ends a broker, and brings it back
	url, direct string // over the link, and beside it
	journal     *journal
	seats       []seat
	lives       int              // of all seats
	killed      map[string]int64 // worker processes, and how long the journal was then
	outages     []int64          // how long it was when the broker was killed
	stalls      []int64          // how long it was when the machine had stood still
	started     int              // workers again that could not open their URL meanwhile

	mu       sync.Mutex
	stored   map[string]bool // acknowledged
	numbered int
	unknown  int
}

// seat holds one worker process at a time.
type seat struct {
	*weirtest.Process
	name string
}

func (c *chaos) run(proxy *link.Proxy) {
	c.seats = make([]seat, c.processes)
	for i := range c.seats {
		c.fill(i)
	}
	ctx, stop := context.WithCancel(c.Context())
	var publishing sync.WaitGroup
	publishing.Go(func() { c.publish(ctx) })
	standing, settled := context.WithCancel(c.Context())
	var watching sync.WaitGroup
	watching.Go(func() { c.stand(standing) })
	c.eventually("the first messages are handled", func() bool { return c.journal.begun() > 50 })
	for round, began := 0, time.Now(); round < 1 || time.Since(began) < *chaosFor; round++ {
		past := time.Since(began)
		switch {
		case proxy == nil:
		case past > *chaosFor/3 && past < *chaosFor*2/3:
			proxy.Set(c.slow)
		default:
			proxy.Heal()
		}
		c.killSome(round)
		c.worksOn("work goes on")
	}
	if proxy != nil {
		proxy.Heal()
	}
	stop()
	publishing.Wait()
	letters := c.settle()
	settled()
	watching.Wait()
	c.judge(letters)
	for _, s := range c.seats {
		s.Signal(syscall.SIGTERM)
	}
	for _, s := range c.seats {
		if code := s.Wait(); code != 0 && code != 3 { // with dead letters
			c.Errorf("worker %s ended with code %d", s.name, code)
		}
	}
}

// killSome kills a third of the workers at most, and the broker every other time.
func (c *chaos) killSome(round int) {
	for range 1 + rand.IntN(c.processes/3) {
		s := &c.seats[rand.IntN(c.processes)]
		s.Signal(syscall.SIGKILL)
		<-s.Exited()
		if _, again := c.killed[s.name]; !again {
			c.killed[s.name] = c.journal.size()
		}
	}
	if round%2 == 0 {
		c.outages = append(c.outages, c.journal.size())
		c.outage()
	}
}

func (c *chaos) worksOn(what string) {
	c.Helper()
	before := c.journal.begun()
	c.eventually(what, func() bool { return c.journal.begun() > before+50 })
}

// fill starts the next process of a seat.
func (c *chaos) fill(i int) {
	c.lives++
	name := fmt.Sprintf("w%d.%d", i, c.lives)
	c.seats[i] = seat{name: name, Process: weirtest.Go(c, []string{"JOURNAL=" + c.journal.path, "WHO=" + name},
		"work", c.url, "--workers", fmt.Sprint(c.workers), "--max-deliveries", fmt.Sprint(chaosLimit),
		"--reclaim-after", "5s", "--retry-base", "50ms", "--retry-max", "200ms", "--", "sh", "-c",
		`read -r n; echo "$n $WEIR_ATTEMPT $WHO" >> "$JOURNAL"; case $n in *bad) exit 1; esac`)}
}

// eventually waits, and starts processes again like a supervisor: those that were killed, and
// those that found no broker when they opened their URL. No other may end.
func (c *chaos) eventually(what string, ok func() bool) {
	c.Helper()
	weirtest.Eventually(c, what, func() bool {
		for i, s := range c.seats {
			select {
			case <-s.Exited():
				if _, killed := c.killed[s.name]; !killed {
					c.started++
					if said := s.Stderr.String(); s.Wait() != 1 || !strings.HasPrefix(said, "weir: open ") {
						c.Errorf("worker %s ended by itself: %d, %s", s.name, s.Wait(), said)
					}
				}
				c.fill(i)
			default:
			}
		}
		return ok()
	})
}

// publish stores messages until ctx ends; each 20th fails whenever it is handled.
func (c *chaos) publish(ctx context.Context) {
	s, err := open.URL(ctx, c.url)
	if err != nil {
		c.Error(err)
		return
	}
	defer s.Close()
	p, err := weir.NewProducer(s, weir.ProducerConfig{Guard: weir.GuardOff, Logger: quiet()})
	if err != nil {
		c.Error(err)
		return
	}
	var lanes sync.WaitGroup
	for range c.lanes {
		lanes.Go(func() {
			for ctx.Err() == nil {
				c.publishOne(context.WithoutCancel(ctx), p)
				time.Sleep(time.Duration(c.lanes) * 10 * time.Millisecond)
			}
		})
	}
	lanes.Wait()
}

func (c *chaos) publishOne(ctx context.Context, p *weir.Producer) {
	c.mu.Lock()
	text := fmt.Sprint(c.numbered)
	if c.numbered%20 == 0 {
		text += "bad"
	}
	c.numbered++
	c.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	err := p.Publish(ctx, weir.Message{Data: []byte(text)})
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil {
		c.stored[text] = true
	} else {
		c.unknown++
	}
}

// letters returns the attempts of each dead letter.
func (c *chaos) letters() map[string]int {
	c.Helper()
	letters := map[string]int{}
	for lines := bufio.NewScanner(strings.NewReader(weirtest.Must(c, "dlq", "ls", c.direct, "--json", "--count", "0"))); lines.Scan(); {
		var l struct {
			Data     string `json:"data"`
			Attempts int    `json:"attempts"`
		}
		if err := json.Unmarshal(lines.Bytes(), &l); err != nil {
			c.Fatalf("a dead letter is %q: %v", lines.Text(), err)
		}
		letters[l.Data] = l.Attempts
	}
	return letters
}

// settle waits until all that was acknowledged has its end, and returns the letters.
func (c *chaos) settle() (letters map[string]int) {
	c.Helper()
	c.eventually("everything stored is handled or dead", func() bool {
		runs := c.journal.read()
		letters = c.letters()
		for text := range c.stored {
			if _, dead := letters[text]; !dead && (strings.HasSuffix(text, "bad") || len(runs[text]) == 0) {
				return false
			}
		}
		return true
	})
	return letters
}

// stand notes when the machine has stood still for so long that leases may have run out.
func (c *chaos) stand(ctx context.Context) {
	for last := time.Now(); ctx.Err() == nil; {
		time.Sleep(50 * time.Millisecond)
		if now := time.Now(); now.Sub(last) > time.Second {
			c.stalls = append(c.stalls, c.journal.size())
		}
		last = time.Now()
	}
}

// judge wants each letter to tell of as many deliveries as the limit. It may tell of more, by
// one for each kill of a worker or the broker since its last run began, and for each time that the
// machine stood still: after that, a delivery only buries the message, and counts if a kill ends it.
func (c *chaos) judge(letters map[string]int) {
	killed, repeats, late := 0, 0, 0
	runs := c.journal.read()
	for text, attempts := range letters {
		if more := attempts - chaosLimit; more > 0 {
			late++
			if most := c.killsSince(runs[text]); more > most {
				c.Errorf("message %s is dead after %d deliveries, want %d and at most %d more for kills; it ran as %+v", text, attempts, chaosLimit, most, runs[text])
			}
		} else if more < 0 {
			c.Errorf("message %s is dead after %d deliveries, want %d", text, attempts, chaosLimit)
		}
		if !strings.HasSuffix(text, "bad") {
			killed++ // its processes were killed each time, as far as the broker knows
		}
	}
	for text, list := range runs {
		if !strings.HasSuffix(text, "bad") {
			repeats += len(list) - 1
		}
		for _, r := range list {
			if r.attempt > chaosLimit {
				c.Errorf("message %s was handled at delivery %d, the limit is %d", text, r.attempt, chaosLimit)
			}
		}
	}
	c.Logf("%d processes of %d workers: %d killed, and the broker %d times; %d ended because they found no broker", c.processes, c.workers, len(c.killed), len(c.outages), c.started)
	c.Logf("%d stored, %d of unknown outcome, none lost; %d dead letters, %d of them behind the limit, %d of messages that kills ended; %d repeats of good messages",
		len(c.stored), c.unknown, len(letters), late, killed, repeats)
}

// killsSince returns how often a worker or the broker was killed, or all stood still, since the last run began.
func (c *chaos) killsSince(runs []run) (n int) {
	for _, at := range slices.AppendSeq(slices.Concat(c.outages, c.stalls), maps.Values(c.killed)) {
		if len(runs) == 0 || at >= runs[len(runs)-1].at {
			n++
		}
	}
	return n
}
