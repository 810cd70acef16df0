package kafkatest

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing/fstest"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/weirmq/weir/tests/process"
)

// Version is the Apache Kafka that brokers are of.
const Version = "4.4.0"

// TB is what kafkatest needs of a test; every testing.TB is one, and a program can bring its own.
type TB = process.TB

// How long a broker may take to answer. It covers a restart after a kill on a
// busy machine.
const (
	startTimeout = 3 * time.Minute
	pollEvery    = 20 * time.Millisecond
)

// Options of a broker.
type Options struct {
	// ShareVersion is the feature level share.version; 0: the newest. Without turns share
	// groups off.
	ShareVersion int
	// Settings are lines of server.properties in addition to, or in place of, the own ones.
	Settings map[string]string
	// Listeners are those besides Addr, which is plain: names in capitals, and their
	// security protocols (SSL, SASL_SSL, SASL_PLAINTEXT).
	Listeners map[string]string
	// Advertise says under which address clients are told to find a listener, such as that of
	// a proxy; it is called with the listener's own. Without it, that is the listener's own.
	Advertise map[string]func(addr string) string
}

// Without is the ShareVersion of a broker without share groups.
const Without = -1

// Broker is one Kafka node, replaced by a new process at Restart. Its methods are for one
// goroutine at a time, except Addr and URL.
type Broker struct {
	t          TB
	dir, data  string
	id         int
	voters     string // of a cluster, empty alone
	port       int
	controller int
	settings   map[string]string
	protocols  map[string]string // by listener
	listeners  map[string]int    // their ports
	advertise  map[string]func(addr string) string
	advertised map[string]string // by listener, where it is not its own
	process    *process.Process  // nil: none has been started
}

// Start formats and starts a broker, waits until it answers and ends it with the test.
func Start(t TB, opt Options) *Broker {
	t.Helper()
	if _, err := os.Stat(jars()); err != nil {
		t.Fatalf("kafkatest: Kafka %s is not installed, run make deps: %v", Version, err)
	}
	b := newBroker(t, 1, opt)
	for try := 0; ; try++ {
		err := b.choosePorts()
		if err == nil {
			err = b.create(opt.ShareVersion)
		}
		if err == nil {
			return b
		}
		if try == 4 || !strings.Contains(b.logTail(), "in use") {
			t.Fatalf("kafkatest: %v", err)
		}
	}
}

// newBroker is a broker that has not been created; it ends with the test.
func newBroker(t TB, id int, opt Options) *Broker {
	b := &Broker{t: t, dir: t.TempDir(), data: process.QuickDir(t), id: id, settings: opt.Settings, protocols: opt.Listeners, listeners: map[string]int{}, advertise: opt.Advertise, advertised: map[string]string{}}
	t.Cleanup(func() {
		b.process.End(syscall.SIGKILL)
		if t.Failed() {
			t.Logf("kafkatest: log of broker %d on %s:\n%s", b.id, b.Addr(), b.logTail())
		}
	})
	return b
}

// jars is the directory of the version's jars.
func jars() string {
	cache := os.Getenv("XDG_CACHE_HOME")
	if cache == "" {
		home, _ := os.UserHomeDir() // without one, the jars are not found
		cache = filepath.Join(home, ".cache")
	}
	return filepath.Join(cache, "weir", "kafka", Version)
}

func (b *Broker) choosePorts() error {
	var err error
	if b.port, err = process.FreePort(0); err != nil {
		return err
	}
	if b.controller, err = process.FreePort(0); err != nil {
		return err
	}
	for name := range b.protocols {
		if b.listeners[name], err = process.FreePort(0); err != nil {
			return err
		}
		if advertise := b.advertise[name]; advertise != nil {
			b.advertised[name] = advertise(b.Listener(name))
		}
	}
	return nil
}

// voter is the broker as a member of the controllers' quorum.
func (b *Broker) voter() string { return fmt.Sprintf("%d@127.0.0.1:%d", b.id, b.controller) }

// create makes a new data directory and runs the broker in it.
func (b *Broker) create(shareVersion int) error {
	if err := os.RemoveAll(b.data); err != nil {
		return err
	}
	if err := b.configure(); err != nil {
		return err
	}
	if err := b.format(shareVersion); err != nil {
		return fmt.Errorf("format: %w", err)
	}
	return b.run()
}

// java is the command of a program of Kafka's. The archive holds the classes of a broker, as
// scripts/kafka.sh has written them; Java does without one that it cannot use.
func java(args ...string) *exec.Cmd {
	options := []string{
		"-Xms64m", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
		"-XX:SharedArchiveFile=" + filepath.Join(jars(), "broker.jsa"), "-Xlog:cds=off", "-Xlog:cds+dynamic=off", "-cp", jars() + "/*",
	}
	return exec.Command("java", append(options, args...)...)
}

// formatted are the data directories of brokers that are alone, by their ShareVersion: each
// costs a start of Java, and they are all the same.
var formatted sync.Map

// format fills the data directory.
func (b *Broker) format(shareVersion int) error {
	if done, ok := formatted.Load(shareVersion); ok && b.voters == "" {
		return os.CopyFS(b.data, done.(fs.FS))
	}
	args := []string{
		"kafka.tools.StorageTool", "format", "-t", "4L6g3nShT-eMCtK--X86sw", "-c", b.path("server.properties"),
	}
	if shareVersion != 0 {
		args = append(args, "--feature", fmt.Sprintf("share.version=%d", max(0, shareVersion)))
	}
	if out, err := java(args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	if b.voters != "" {
		return nil
	}
	files := fstest.MapFS{}
	err := fs.WalkDir(os.DirFS(b.data), ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(filepath.Join(b.data, path))
		files[path] = &fstest.MapFile{Data: text, Mode: 0o600}
		return err
	})
	if err == nil {
		formatted.Store(shareVersion, files)
	}
	return err
}

// configure writes server.properties. The timeouts are short so that tests are: a lock of
// the server's shortest kind, and a restart that does not wait for the old registration.
func (b *Broker) configure() error {
	listeners := fmt.Sprintf("PLAINTEXT://%s,CONTROLLER://127.0.0.1:%d", b.Addr(), b.controller)
	advertised := "PLAINTEXT://" + b.Addr()
	protocols := "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT"
	for name, protocol := range b.protocols {
		listeners += "," + name + "://" + b.Listener(name)
		advertised += "," + name + "://" + cmp.Or(b.advertised[name], b.Listener(name))
		protocols += "," + name + ":" + protocol
	}
	own := map[string]string{
		"process.roles":             "broker,controller",
		"node.id":                   strconv.Itoa(b.id),
		"controller.quorum.voters":  cmp.Or(b.voters, b.voter()),
		"listeners":                 listeners,
		"advertised.listeners":      advertised,
		"controller.listener.names": "CONTROLLER",
		"log.dirs":                  b.data,

		"listener.security.protocol.map": protocols,

		"offsets.topic.replication.factor": "1", "offsets.topic.num.partitions": "2",
		"transaction.state.log.replication.factor": "1", "transaction.state.log.num.partitions": "2", "transaction.state.log.min.isr": "1",
		"share.coordinator.state.topic.replication.factor": "1", "share.coordinator.state.topic.num.partitions": "4", "share.coordinator.state.topic.min.isr": "1",
		"auto.create.topics.enable": "false", "group.initial.rebalance.delay.ms": "0", "log.cleaner.enable": "false",
		"num.network.threads": "2", "num.io.threads": "2", "background.threads": "2",
		"group.share.min.record.lock.duration.ms": "1000", "group.share.record.lock.duration.ms": "5000",
		"group.share.min.session.timeout.ms": "3000", "group.share.session.timeout.ms": "6000",
		"group.share.min.heartbeat.interval.ms": "500", "group.share.heartbeat.interval.ms": "1000",
		"broker.session.timeout.ms": "9000", "broker.heartbeat.interval.ms": "250",
	}
	maps.Copy(own, b.settings)
	var text strings.Builder
	for _, key := range slices.Sorted(maps.Keys(own)) {
		fmt.Fprintf(&text, "%s=%s\n", key, own[key])
	}
	if err := os.WriteFile(b.path("server.properties"), []byte(text.String()), 0o600); err != nil {
		return err
	}
	return os.WriteFile(b.path("log4j2.yaml"), []byte(logging), 0o600)
}

const logging = `Configuration:
  Appenders:
    Console: {name: out, PatternLayout: {pattern: "%d %p %m (%c)%n"}}
  Loggers:
    Root: {level: WARN, AppenderRef: {ref: out}}
`

// Addr is host:port.
func (b *Broker) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(b.port)) }

// Listener is host:port of one of Options.Listeners.
func (b *Broker) Listener(name string) string {
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(b.listeners[name]))
}

// URL is the address as a URL without a topic: kafka://host:port.
func (b *Broker) URL() string { return "kafka://" + b.Addr() }

// Kill ends the process with SIGKILL.
func (b *Broker) Kill() { b.process.End(syscall.SIGKILL) }

// Stop ends the process with SIGTERM.
func (b *Broker) Stop() { b.process.End(syscall.SIGTERM) }

// Pause freezes the process: its connections stay open and nothing answers.
func (b *Broker) Pause() { b.signal(syscall.SIGSTOP) }

// Resume lets a frozen process go on.
func (b *Broker) Resume() { b.signal(syscall.SIGCONT) }

// Restart starts a new process on the same ports and directory, after stopping the
// current one if it still runs, and waits until it answers.
func (b *Broker) Restart() {
	b.t.Helper()
	b.Stop()
	if err := b.run(); err != nil {
		b.t.Fatalf("kafkatest: restart: %v", err)
	}
}

// Client returns a client of the broker that is closed with the test.
func (b *Broker) Client(opts ...kgo.Opt) *kgo.Client {
	b.t.Helper()
	client, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(b.Addr())}, opts...)...)
	if err != nil {
		b.t.Fatalf("kafkatest: %v", err)
	}
	b.t.Cleanup(client.Close)
	return client
}

// Consumer returns a client that is in a classic group and not weir's. It commits nothing.
func (b *Broker) Consumer(topic, group string) *kgo.Client {
	b.t.Helper()
	return b.Client(kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic), kgo.DisableAutoCommit())
}

func (b *Broker) signal(sig syscall.Signal) {
	b.t.Helper()
	if err := b.process.Signal(sig); err != nil {
		b.t.Fatalf("kafkatest: %v to %s: %v", sig, b.Addr(), err)
	}
}

func (b *Broker) run() error {
	log, err := os.OpenFile(b.path("kafka.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	if err := os.MkdirAll(b.path("tmp"), 0o700); err != nil {
		return err
	}
	cmd := java("-Djava.io.tmpdir="+b.path("tmp"), "-Dlog4j2.configurationFile="+b.path("log4j2.yaml"), "kafka.Kafka", b.path("server.properties"))
	cmd.Dir, cmd.Stdout, cmd.Stderr = b.dir, log, log
	p, err := process.Start(cmd)
	if err != nil {
		return err
	}
	b.process = p
	return b.awaitAnswer()
}

// awaitAnswer waits until the broker answers and has been let in by the controller.
func (b *Broker) awaitAnswer() error {
	client, err := kgo.NewClient(kgo.SeedBrokers(b.Addr()), kgo.RetryTimeout(time.Second), kgo.DialTimeout(time.Second))
	if err != nil {
		return err
	}
	defer client.Close()
	for deadline := time.Now().Add(startTimeout); ; {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		err := client.Ping(ctx)
		cancel()
		if err == nil {
			return nil
		}
		select {
		case <-b.process.Exited():
			return fmt.Errorf("kafka ended with %v:\n%s", b.process.State(), b.logTail())
		case <-time.After(pollEvery):
		}
		if time.Now().After(deadline) {
			return errors.Join(fmt.Errorf("kafka does not answer within %v:\n%s", startTimeout, b.logTail()), err)
		}
	}
}

func (b *Broker) path(name string) string { return filepath.Join(b.dir, name) }

func (b *Broker) logTail() string { return process.Tail(b.path("kafka.log")) }

// LoseEnd takes the records of a partition from an offset on from the data directory, as a power cut does
// with what was not synced. The broker must not run.
func (b *Broker) LoseEnd(topic string, partition int32, from int64) {
	b.t.Helper()
	segment := filepath.Join(b.data, fmt.Sprintf("%s-%d/%020d.log", topic, partition, 0))
	text, err := os.ReadFile(segment)
	if err != nil {
		b.t.Fatalf("kafkatest: %v", err)
	}
	end := 0
	for end+12 <= len(text) && int64(binary.BigEndian.Uint64(text[end:])) < from {
		end += 12 + int(binary.BigEndian.Uint32(text[end+8:]))
	}
	if err := os.Truncate(segment, int64(end)); err != nil {
		b.t.Fatalf("kafkatest: %v", err)
	}
}
