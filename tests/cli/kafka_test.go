package cli

import (
	"errors"
	"net/url"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/tests/kafkatest"
	"github.com/weirmq/weir/tests/stall"
	"github.com/weirmq/weir/tests/weirtest"
)

// kafkaCommands are all commands with the URL of a stream.
func kafkaCommands(t *testing.T, raw string) [][]string {
	t.Helper()
	return [][]string{
		{"publish", raw, writeLines(t, []string{"good", "bad"})},
		{"work", raw, "--until-empty", "300ms", "--max-deliveries", "1", "--", "sh", "-c", `[ "$(cat)" = good ]`},
		{"sample", raw},
		{"doctor", raw, "--interval", "0"},
		{"tail", raw, "--no-follow"},
		{"dlq", "ls", raw},
		{"dlq", "redrive", raw, "--yes", "--delay", "0"},
		{"dlq", "purge", raw, "--yes"},
		{"bench", "overload", "--against", raw, "--length", "1s"},
	}
}

// TestNoCommandTellsThePasswordOfKafka, whether it is right or wrong, in the URL or in the
// environment, on standard output, in a log or in the metrics.
func TestNoCommandTellsThePasswordOfKafka(t *testing.T) {
	t.Parallel()
	s := kafkatest.StartSecure(t, kafkatest.Options{})
	query := "?partitions=1&ca=" + url.QueryEscape(s.CA)
	bare := "kafkas://" + s.Listener(kafkatest.SASL) + "/jobs" + query
	inURL := func(password string) string {
		return strings.Replace(bare, "kafkas://", "kafkas://"+url.UserPassword(kafkatest.Admin, password).String()+"@", 1)
	}
	asEnvironment := []string{"KAFKA_USER=" + kafkatest.Admin, "KAFKA_PASSWORD=" + kafkatest.Password}
	silent := func(said string, args []string) {
		t.Helper()
		for _, secret := range []string{kafkatest.Password, url.QueryEscape(kafkatest.Password), url.PathEscape(kafkatest.Password), "sesame", "wrong-word"} {
			if strings.Contains(said, secret) {
				t.Errorf("weir %s tells a password:\n%s", args[0], said)
			}
		}
	}
	for _, c := range []struct {
		url string
		env []string
		ok  bool
	}{
		{bare, asEnvironment, true},
		{inURL(kafkatest.Password), nil, true},
		{inURL("wrong-word"), asEnvironment, false},
	} {
		for _, args := range kafkaCommands(t, c.url) {
			out, stderr, code := runOnKafka(t, c.env, args...)
			silent(out+stderr, args)
			switch {
			case c.ok && strings.Contains(stderr, "not supported"): // only here
			case c.ok && code != 0 && (args[0] != "work" || code != 3): // it makes a dead letter
				t.Errorf("weir %v: code %d\n%s%s", args, code, out, stderr)
			case !c.ok && (code == 0 || !strings.Contains(stderr+out, "does not accept the user and password")):
				t.Errorf("weir %v with a wrong password: code %d\n%s%s", args, code, out, stderr)
			}
		}
	}
	unknown := strings.Replace(strings.Replace(bare, "/jobs?", "/unknown?", 1), "partitions=1&", "", 1)
	for _, args := range kafkaCommands(t, unknown) {
		start, stalled := time.Now(), stall.Busy()
		out, stderr, code := weirtest.Run(t, asEnvironment, args...)
		took, late := time.Since(start), stalled()
		if !strings.Contains(out+stderr, "add partitions=N to the URL") && args[0] != "tail" || code == 0 || took > 10*time.Second+late {
			t.Errorf("weir %v of an unknown topic: code %d after %s\n%s%s", args, code, took, out, stderr)
		}
	}
	args := []string{"work", bare, "--metrics", "0", "--log-format", "json", "--", "true"}
	p := weirtest.Go(t, asEnvironment, args...)
	page := scrape(t, metricsURL(t, p))
	silent(page, args)
	p.Signal(syscall.SIGTERM)
	p.Wait()
	silent(p.Stdout.String()+p.Stderr.String(), args)
}

// TestCommandsOnAClassicGroup do what they do on a share group, and doctor says which it is.
func TestCommandsOnAClassicGroup(t *testing.T) {
	t.Parallel()
	raw := kafkatest.Start(t, kafkatest.Options{ShareVersion: kafkatest.Without}).URL() + "/jobs?partitions=1"
	want := map[string]string{
		"sample":    `"pending":0,"lag":0,"lag_valid":true`,
		"doctor":    `group "weir" is a classic group (the brokers offer no share groups`,
		"dlq ls":    "max_deliveries",
		"dlq purge": "",
	}
	for _, args := range kafkaCommands(t, raw) {
		out, stderr, code := runOnKafka(t, nil, args...)
		name := args[0]
		if name == "dlq" {
			name += " " + args[1]
		}
		fine := code == 0 || code == 3 && name == "work" || strings.Contains(stderr, "not supported") // work makes a dead letter
		if !fine || !strings.Contains(out, want[name]) {
			t.Errorf("weir %v: code %d, want %q\n%s%s", args, code, want[name], out, stderr)
		}
	}
}

// runOnKafka runs a command, again if its call had no answer in time: on a slow machine a broker needs longer.
func runOnKafka(t *testing.T, env []string, args ...string) (out, stderr string, code int) {
	t.Helper()
	for try := 0; ; try++ {
		out, stderr, code = weirtest.Run(t, env, args...)
		if code == 0 || try == 5 || !strings.Contains(stderr, "no answer in time") {
			return out, stderr, code
		}
	}
}

func TestReadingKafka(t *testing.T) {
	t.Parallel()
	broker := kafkatest.Start(t, kafkatest.Options{})
	t.Run("tail reads a topic", func(t *testing.T) { tailReadsATopic(t, broker) })
	t.Run("the dashboard shows what is known", func(t *testing.T) { dashboardShowsWhatIsKnown(t, broker) })
	t.Run("doctor finds a group missing", func(t *testing.T) { doctorFindsAGroupMissing(t, broker) })
}

// A topic that nobody has read yet is no failure of the command.
func doctorFindsAGroupMissing(t *testing.T, broker *kafkatest.Broker) {
	t.Parallel()
	for _, query := range []string{"", "&create=never", "&group_type=classic"} {
		url := broker.URL() + "/unread?partitions=1&group=nobody" + query
		must(t, "publish", url, writeLines(t, []string{"a"}))
		out, stderr, code := weirtest.Run(t, nil, "doctor", "--interval", "0", url)
		if code != 0 || !strings.Contains(out, "group_missing: the ") || !strings.Contains(out, `group "nobody" has read nothing of the topic`) {
			t.Errorf("%s: code %d\n%s%s", query, code, out, stderr)
		}
	}
}

// Of groups of either type the dashboard shows what is known; the rest is null, and a dash in
// the terminal, but never 0: which messages somebody holds, what is refused elsewhere, and all
// that consumers do that are not weir's.
func dashboardShowsWhatIsKnown(t *testing.T, broker *kafkatest.Broker) {
	t.Parallel()
	raw := broker.URL() + "/jobs?partitions=2&group="
	urls := []string{raw + "billing", raw + "mails&group_type=classic", raw + "java&group_type=classic"}
	first := openStream(t, urls[0]).Backend()
	eventually(t, "three messages are stored", func() bool { // making the topic may take a slow broker long
		_, err := first.Append(t.Context(), []backend.Message{{Data: []byte("a")}, {Data: []byte("b")}, {Data: []byte("c")}})
		if err != nil && (!backend.Retryable(err) || errors.Is(err, backend.ErrOutcomeUnknown)) {
			t.Fatal(err)
		}
		return err == nil
	})
	p := startDash(t, nil, urls...)
	three := func(r row) bool { return r.Lag != nil && *r.Lag == 3 && r.Error == "" }
	p.until("everything waits and no worker is there", func(rows map[string]row) bool {
		for _, id := range []string{"jobs", "jobs · mails", "jobs · java"} {
			if r := rows[id]; !three(r) || r.Signal != nil {
				return false
			}
		}
		return true
	})

	if n := broker.Consumer("jobs", "java").PollFetches(t.Context()).NumRecords(); n == 0 {
		t.Fatal("another consumer gets nothing")
	}
	for i, url := range urls[:2] {
		s := openStream(t, url)
		all := take(t, s, 3)
		if i == 0 {
			if err := s.Backend().DeadLetter(t.Context(), all[0], "", backend.Cause{Reason: backend.ReasonPoison}); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.Backend().(backend.Signaler).PublishSignal(t.Context(), time.Minute); err != nil {
			t.Fatal(err)
		}
	}
	is := func(v *int64, want int64) bool { return v != nil && *v == want }
	p.until("who holds how many", func(rows map[string]row) bool {
		billing, mails, java := rows["jobs"], rows["jobs · mails"], rows["jobs · java"]
		return is(billing.Signal, 2) && is(billing.Pending, 2) && is(billing.Lag, 0) && is(billing.Workers, 1) && is(billing.Dead, 1) &&
			is(mails.Signal, 3) && is(mails.Pending, 3) && is(mails.Lag, 0) && is(mails.Workers, 1) &&
			three(java) && java.Signal == nil && java.Pending == nil && is(java.Workers, 1)
	})
	for what, c := range map[string]struct{ id, want string }{
		"a share group":         {"jobs", `"workers":[{"name":"w","holds":2,`},
		"its messages":          {"jobs", `"held":null,`},
		"the groups":            {"jobs", `"groups":[{"name":"billing","workers":1,"pending":2,"lag":0},{"name":"mails","workers":1,"pending":3,"lag":null}]`},
		"the newest":            {"jobs", `"data":"c"`},
		"a classic group":       {"jobs · mails", `"workers":[{"name":"w","holds":3,`},
		"that of other clients": {"jobs · java", `{"groups":null,"workers":null,"held":null,`},
	} {
		if status, body, _ := p.ask("GET", "/ui/streams/"+url.PathEscape(c.id), "", nil); status != 200 || !strings.Contains(body, c.want) {
			t.Errorf("%s: %d %s", what, status, body)
		}
	}
	var lines string
	eventually(t, "top shows the same", func() bool { // a stream may not answer within three seconds
		lines = must(t, append([]string{"top", "--count", "1"}, urls...)...)
		return !strings.Contains(lines, "unreachable")
	})
	for _, want := range []string{"group=billing kind=kafka signal=2 backlog=0 pending=2 ", "group=java kind=kafka signal=– backlog=3 pending=– ", " pressure=– refused=– dead=1\n"} {
		if !strings.Contains(lines, want) {
			t.Errorf("top says\n%swant %q", lines, want)
		}
	}
	if _, body, _ := p.ask("POST", "/ui/redrive/jobs", `{"all":true}`, nil); !strings.Contains(body, `"sent":1,"failed":0,"done":true`) {
		t.Errorf("redrive: %s", body)
	}
	p.Process.Signal(syscall.SIGTERM)
	p.Succeed()
}
