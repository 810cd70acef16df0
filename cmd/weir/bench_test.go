package main

import (
	"crypto/tls"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/weirmq/weir/tests/certtest"
)

// tiny is a run that takes a second.
var tiny = []string{"bench", "overload", "--deadline=200ms", "--service=5ms", "--workers=4", "--phases=0.5,2,1", "--load=3"}

func TestBenchOverloadPrintsEachGoalOfEachArm(t *testing.T) {
	dir := t.TempDir()
	report, picture := filepath.Join(dir, "r.json"), filepath.Join(dir, "p.svg")
	res := runWeir(t, "", append(tiny, "--arms=off,static?lag_pause=20&lag_warn=5", "--json="+report, "--picture="+picture, "--together")...)
	for _, want := range []string{"goodput", "top tier in time", "latency p99", "calm after", "variation", "refusal p99", "lost", "static?lag_pause=20&lag_warn=5"} {
		if !strings.Contains(res.stdout, want) {
			t.Errorf("no %q in the table", want)
		}
	}
	if !strings.Contains(res.stdout, "0 met") || t.Failed() { // the lost ones
		t.Errorf("%v\n%s%s", res.err, res.stdout, res.stderr)
	}
	for path, want := range map[string]string{report: `"goals"`, picture: "<polyline"} {
		if text, err := os.ReadFile(path); err != nil || !strings.Contains(string(text), want) {
			t.Errorf("%s: %v, %.200s", path, err, text)
		}
	}
}

func TestBenchOverloadTellsWhatIsWrongBeforeItRuns(t *testing.T) {
	text := filepath.Join(t.TempDir(), "times")
	if err := os.WriteFile(text, []byte("1\n2,9\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for flag, want := range map[string]string{
		"--arms=onoff":                     "flag --arms: arm \"onoff\": mode \"onoff\" is unknown; known: off, static, proportional, adaptive",
		"--arms=off?lag=3":                 `no setting "lag"`,
		"--phases=1,2":                     `flag --phases: phases "1,2": three numbers`,
		"--phases=1,0,1":                   "the plateau is longer than 0",
		"--picture=x.png":                  `flag --picture: "x.png" does not end in .svg`,
		"--arrivals=" + text:               "line 2: tier \"9\"",
		"--arrivals=" + text + "1":         "no such file",
		"--load=0":                         `flag --load: "0" is not a number from 0.01 to 1000`,
		"--variant=paused":                 "longer than the plateau",
		"--variant=paused --disturbance=1": "variant paused: only a Redis server named by redis://host:port can be made to stand still",
		"--processes=2":                    "an engine belongs to one process",
		"--disturbance=1":                  "variant none has none",
		"--variant=chaos":                  "none, halved, greedy, slow, impatient or paused",
	} {
		res := runWeir(t, "", append(tiny, strings.Fields(flag)...)...)
		if res.err == nil || exitCode(res.err) != exitUsage || !strings.Contains(res.err.Error(), want) || res.stdout+res.stderr != "" {
			t.Errorf("%s: %v, want %q\n%s%s", flag, res.err, want, res.stdout, res.stderr)
		}
	}
}

// The guards are judged on streams that the command makes: what is on the one that the URL names
// stays there, and nothing comes to it.
func TestBenchOverloadLeavesTheStreamOfItsURLAlone(t *testing.T) {
	brokers, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "orders"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(brokers.Close)
	for kind, url := range map[string]string{
		"kafka": "kafka://" + brokers.ListenAddrs()[0] + "/orders",
		"topic": "kafka://" + brokers.ListenAddrs()[0] + "?topic=orders",
		"file":  "file://" + t.TempDir() + "?topic=orders",
	} {
		if res := runWeir(t, "an order\n", "publish", url); res.err != nil {
			t.Fatalf("%s: %v\n%s", kind, res.err, res.stderr)
		}
		sample := func() string {
			res := runWeir(t, "", "sample", url)
			if res.err != nil {
				t.Fatalf("%s: %v\n%s", kind, res.err, res.stderr)
			}
			_, counts, _ := strings.Cut(res.stdout, `"group"`)
			counts, _, _ = strings.Cut(counts, `,"oldest_age_ms"`)
			return counts
		}
		before := sample()
		res := runWeir(t, "", append(tiny, "--arms=off", url)...)
		if !strings.Contains(res.stdout, "goodput") {
			t.Fatalf("%s: %v\n%s%s", kind, res.err, res.stdout, res.stderr)
		}
		if after := sample(); after != before {
			t.Errorf("%s: the stream had %s, now it has %s", kind, before, after)
		}
	}
}

// Who reaches the brokers by flags and variables reaches them with every arm.
func TestBenchOverloadLogsInWithWhatFlagsAndVariablesSay(t *testing.T) {
	certs := certtest.New(t)
	pair, err := tls.LoadX509KeyPair(certs.File("server.pem"), certs.File("server.key"))
	if err != nil {
		t.Fatal(err)
	}
	brokers, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.EnableSASL(), kfake.Superuser("SCRAM-SHA-512", "bench", "pencil"),
		kfake.TLS(&tls.Config{Certificates: []tls.Certificate{pair}}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(brokers.Close)
	t.Setenv("KAFKA_USER", "bench")
	t.Setenv("KAFKA_PASSWORD", "pencil")
	slow := []string{"bench", "overload", "--deadline=3s", "--service=50ms", "--workers=4", "--phases=0.5,1,0.5", "--load=0.5"} // logging in takes its time
	res := runWeir(t, "", append(slow, "--arms=off", "--ca="+certs.File("ca.pem"), "kafkas://"+brokers.ListenAddrs()[0]+"/orders")...)
	stored := regexp.MustCompile(`(?m)^stored +[1-9]`)
	if !stored.MatchString(res.stdout) {
		t.Errorf("%v\n%s%s", res.err, res.stdout, res.stderr)
	}
}
