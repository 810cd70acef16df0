package cli

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/weirmq/weir/tests/weirtest"
)

// fails runs a command that has to fail with code 1 and one line that contains want.
func fails(t *testing.T, want string, args ...string) {
	t.Helper()
	stdout, stderr, code := weirtest.Run(t, nil, args...)
	if code != 1 || stdout != "" || strings.Count(stderr, "\n") != 1 || !strings.Contains(stderr, want) {
		t.Errorf("weir %s: code %d, %q, %q, want code 1 and %q", strings.Join(args, " "), code, stdout, stderr, want)
	}
}

func TestTopicsAreCreatedListedAndChanged(t *testing.T) {
	t.Parallel()
	srv := weirtest.Start(t, weirtest.Options{})
	orders := srv.URL + "/orders"
	if got := must(t, "topic", "create", "--type", "queue", "--max-deliveries", "5", "--dead-letter", "orders.dlq", "--lease", "1m", orders); got != "created orders\n" {
		t.Errorf("create printed %q", got)
	}
	fails(t, `topic "orders" exists`, "topic", "create", orders)
	must(t, "publish", orders, writeLines(t, []string{"a", "b", "c"}))
	must(t, "topic", "create", srv.URL+"/events")
	long := strings.Repeat("long", 40)
	must(t, "topic", "create", srv.URL+"/"+long)

	if got := must(t, "topic", "ls", srv.URL); !strings.HasPrefix(got, "TOPIC ") || strings.Count(got, "\n") != 4 ||
		!strings.Contains(got, "\norders  3        9      1      3     false\n") || !strings.Contains(got, "\n"+long+"  0 ") {
		t.Errorf("ls printed\n%s", got)
	}
	if got := must(t, "topic", "ls", "--prefix", "ord", "--json", srv.URL); got != `{"topic":"orders","count":3,"bytes":9,"earliest_seq":1,"head_seq":3,"durable":false}`+"\n" {
		t.Errorf("ls --json printed %s", got)
	}
	info := must(t, "topic", "info", orders)
	for _, line := range []string{"records ", "queue ready ", "dead_letter ", "max_deliveries "} {
		if !strings.Contains("\n"+info, "\n"+line) {
			t.Errorf("info has no line %q:\n%s", line, info)
		}
	}

	if got := must(t, "topic", "set", "--lease", "30s", "--max-deliveries", "5", "--wait-slo", "2s", "--priority", "7", orders); got !=
		"orders changed: lease_ms 60000 → 30000, priority – → 7, wait_slo_ms 0 → 2000\n" {
		t.Errorf("set printed %q", got)
	}
	if got := must(t, "topic", "set", "--dead-letter", "", "--priority", "off", orders); got != "orders changed: dead_letter orders.dlq → –, priority 7 → –\n" {
		t.Errorf("set printed %q", got)
	}
	var state struct {
		Config map[string]any `json:"config"`
	}
	if err := json.Unmarshal([]byte(must(t, "topic", "info", "--json", orders)), &state); err != nil {
		t.Fatal(err)
	}
	if c := state.Config; c["type"] != "queue" || c["max_deliveries"] != 5.0 || c["wait_slo_ms"] != 2000.0 || c["dead_letter"] != nil || c["lease_ms"] != 30000.0 {
		t.Errorf("what no flag names has to stay: %v", c)
	}
	if _, stderr, code := weirtest.Run(t, nil, "topic", "set", "--lease", "5s", srv.URL+"/events"); code != 2 || !strings.Contains(stderr, `--lease is for queues and "events" is a log`) {
		t.Errorf("a lease of a log: code %d, %q", code, stderr)
	}
	fails(t, `topic "nowhere" does not exist`, "topic", "set", "--ttl", "1h", srv.URL+"/nowhere")
	fails(t, `topic "nowhere" does not exist`, "topic", "info", srv.URL+"/nowhere")
	fails(t, "no answer from the server", "topic", "ls", "http://127.0.0.1:1")
}

func TestRecordsGoOnlyIfThatIsMeant(t *testing.T) {
	t.Parallel()
	srv := weirtest.Start(t, weirtest.Options{})
	events := srv.URL + "/events"
	for _, tag := range []string{"a", "b1", "b2", "a", "c"} {
		if !request(t, "POST", srv.URL+"/v0/topics/events", `{"records":[{"data":1,"tag":"`+tag+`"}]}`, new(struct{})) {
			t.Fatal("no write")
		}
	}
	count := func() uint64 { return topicState(t, srv, "events").Count }
	said := func(want string, args ...string) {
		t.Helper()
		if got := must(t, args...); got != want+"\n" {
			t.Errorf("weir %s printed %q, want %q", strings.Join(args, " "), got, want)
		}
	}
	said("2 records would be removed from events", "topic", "purge", "--tag", "b*", "--dry-run", events)
	said("4 records would be removed from events", "topic", "truncate", "--keep", "1", "--dry-run", events)
	said("events would be changed: cap_records 0 → 2", "topic", "set", "--cap-records", "2", "--dry-run", events)
	if _, stderr, code := weirtest.Run(t, nil, "topic", "set", "--cap-records", "2", events); code != 2 || !strings.Contains(stderr, "add --yes") {
		t.Errorf("a cap that removes records: code %d, %q", code, stderr)
	}
	if n := count(); n != 5 {
		t.Fatalf("%d records are left, want all 5", n)
	}
	said("2 records removed from events", "topic", "purge", "--tag", "b*", "--yes", events)
	said("1 record would be removed from events", "topic", "truncate", "--before", "4", "--dry-run", events)
	said(`{"topic":"events","dry_run":false,"before_seq":4,"removed":1}`, "topic", "truncate", "--before", "4", "--yes", "--json", events)
	said("events changed: cap_records 0 → 1", "topic", "set", "--cap-records", "1", "--yes", events)
	said("1 record removed from events", "topic", "purge", "--yes", events)
	if st := topicState(t, srv, "events"); st.Count != 0 || st.HeadSeq != 5 {
		t.Errorf("after the purge %+v", st)
	}
}

func TestRoutersAndTopicsAreDeleted(t *testing.T) {
	t.Parallel()
	srv := weirtest.Start(t, weirtest.Options{})
	said := func(want string, args ...string) {
		t.Helper()
		if got := must(t, args...); got != want+"\n" {
			t.Errorf("weir %s printed %q, want %q", strings.Join(args, " "), got, want)
		}
	}
	archive := srv.URL + "/archive"
	said("created archive from in to out", "router", "create", "--source", "in", "--dest", "out", "--filter", "x*", archive)
	fails(t, `router "archive" exists`, "router", "create", "--source", "in", "--dest", "out", archive)
	said("created second from in to more", "router", "create", "--source", "in", "--dest", "more", srv.URL+"/second")
	said(`{"router":"archive","source":"in","dest":"out","guarantee":"at_least_once","forwarded_total":0}`, "router", "ls", "--dest", "out", "--json", srv.URL)
	said("archive would be deleted, from in to out", "router", "rm", "--dry-run", archive)
	said("archive deleted, from in to out", "router", "rm", "--yes", archive)
	fails(t, `router "archive" does not exist`, "router", "rm", "--yes", archive)

	must(t, "publish", srv.URL+"/in", writeLines(t, []string{"a"}))
	fails(t, "has 1 record", "topic", "rm", "--if-empty", "--yes", srv.URL+"/in")
	said("in would be deleted with 1 record and the routers second", "topic", "rm", "--dry-run", srv.URL+"/in")
	said("in deleted with 1 record and the routers second", "topic", "rm", "--yes", srv.URL+"/in")
	fails(t, `topic "in" does not exist`, "topic", "rm", "--yes", srv.URL+"/in")
	said("out deleted with 0 records", "topic", "rm", "--if-empty", "--yes", srv.URL+"/out")
}

func TestANameStandsForItsURL(t *testing.T) {
	t.Parallel()
	srv := weirtest.Start(t, weirtest.Options{})
	home := t.TempDir()
	said := func(want string, env string, args ...string) {
		t.Helper()
		stdout, stderr, code := weirtest.Run(t, []string{"XDG_CONFIG_HOME=" + home, env}, args...)
		if code != 0 || stdout != want || stderr != "" {
			t.Errorf("weir %s with %s: code %d, %q, %q, want %q", strings.Join(args, " "), env, code, stdout, stderr, want)
		}
	}
	said("created in\n", "WEIR_URL="+srv.URL, "topic", "create", "in")
	must(t, "publish", srv.URL+"/in", writeLines(t, []string{"a"}))
	said("a\n", "WEIR_URL="+srv.URL, "tail", "in", "--from", "0", "--no-follow")
	said("local is in use\n", "WEIR_URL=", "context", "set", "local", srv.URL)
	said("a\n", "WEIR_URL=", "tail", "in", "--from", "0", "--no-follow")
	said("in deleted with 1 record\n", "WEIR_URL=", "topic", "rm", "--yes", "in")
	if _, stderr, code := weirtest.Run(t, nil, "tail", "in"); code != 2 || !strings.Contains(stderr, "needs WEIR_URL or a context") {
		t.Errorf("without either: code %d, %q", code, stderr)
	}
}

// A topic that is there keeps its type: publish says so instead of writing to another kind
// than was meant.
func TestPublishRefusesATopicOfAnotherType(t *testing.T) {
	t.Parallel()
	srv := weirtest.Start(t, weirtest.Options{})
	put(t, srv, "events", `{"type":"log"}`)
	put(t, srv, "jobs", `{"type":"queue"}`)
	lines := writeLines(t, []string{"a"})
	for topic, wrong := range map[string]string{"events": "queue", "jobs": "log"} {
		url := srv.URL + "/" + topic
		if _, stderr, code := weirtest.Run(t, nil, "publish", "--type", wrong, url, lines); code != 1 || !strings.Contains(stderr, "not a "+wrong) || topicState(t, srv, topic).HeadSeq != 0 {
			t.Errorf("%s as a %s: exit code %d, %s", topic, wrong, code, stderr)
		}
		must(t, "publish", url, lines)
	}
	must(t, "publish", "--type", "log", srv.URL+"/events", lines)
	must(t, "publish", "--type", "queue", srv.URL+"/new", lines)
	must(t, "tail", "--no-follow", "--from=0", srv.URL+"/jobs?group=weir&durability=disk")
}
