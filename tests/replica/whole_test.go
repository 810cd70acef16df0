package replica

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/weirmq/weir/tests/weirtest"
)

// witness calls a server and keeps what it answers, but for what changes with the time.
type witness struct {
	t     *testing.T
	c     *client
	base  string
	lines []string
}

// volatile are members of answers that no two servers have in common.
var volatile = []string{"performance", "last_read_ts", "deadline", "lease_id", "effective_priority"}

func settled(v any) any {
	switch v := v.(type) {
	case map[string]any:
		if v["data"] == "new" {
			delete(v, "$ts")
		}
		for _, name := range volatile {
			delete(v, name)
		}
		for name := range v {
			v[name] = settled(v[name])
		}
	case []any:
		for i := range v {
			v[i] = settled(v[i])
		}
	}
	return v
}

// ask makes a call and returns its answer.
func (w *witness) ask(method, path string, body any) map[string]any {
	w.t.Helper()
	var reply map[string]any
	if _, err := w.c.call(w.t.Context(), method, w.base+path, body, &reply); err != nil {
		w.t.Fatal(err)
	}
	return reply
}

// note keeps the answer to a call, or with which status it was refused.
func (w *witness) note(method, path string, body any) {
	w.t.Helper()
	var reply any
	status, err := w.c.call(w.t.Context(), method, w.base+path, body, &reply)
	if status == 0 {
		w.t.Fatal(err)
	}
	text, _ := json.Marshal(settled(reply))
	w.lines = append(w.lines, fmt.Sprintf("%s %s %v: %d %s", method, path, body, status, text))
}

// read keeps the records of a topic.
func (w *witness) read(topic string) {
	w.t.Helper()
	var all []any
	for from := any(0); ; {
		got := w.ask("POST", "/v0/topics/"+topic+"/diff", object{"from_seq": from, "include_tags": true})
		all = append(all, got["records"].([]any)...)
		if from = got["next_from_seq"]; got["caught_up"] == true {
			break
		}
	}
	text, _ := json.Marshal(settled(all))
	w.lines = append(w.lines, fmt.Sprintf("records of %s: %s", topic, text))
}

// watch reads the stream of a session until it has caught up, and returns its events and the last id.
func (w *witness) watch(wid string) (events []string, last string) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), 30*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, w.base+"/v0/watch/"+wid, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	res, err := w.c.http.Do(req)
	if err != nil {
		w.t.Fatal(err)
	}
	defer res.Body.Close()
	events = append(events, res.Status)
	for in := bufio.NewScanner(res.Body); in.Scan(); {
		if id, ok := strings.CutPrefix(in.Text(), "id: "); ok {
			last = id
		}
		if data, ok := strings.CutPrefix(in.Text(), "data: "); ok {
			if events = append(events, data); !strings.Contains(data, "records") {
				break
			}
		}
	}
	return events, last
}

type object = map[string]any

// furnish gives a server some of everything that it keeps. It returns the session of a watch and
// the lease of a job in each queue.
func (w *witness) furnish() (wid string, leases map[string]any) {
	w.t.Helper()
	w.ask("PUT", "/v0/topics/log", object{"cap_records": 5, "ttl_ms": 3_600_000, "priority": 3, "idempotency_window_ms": 3_600_000})
	for i := range 9 {
		w.ask("POST", "/v0/topics/log", object{"records": []object{{"data": i, "tag": fmt.Sprint("t", i%3), "node": "n", "meta": object{"k": "v"}}}, "idempotency_key": fmt.Sprint("k", i)})
	}
	w.ask("POST", "/v0/topics/log/delete", object{"match": "t1"})
	w.ask("PUT", "/v0/routers/copies", object{"source": "log", "dest": "copied", "filter": "t*"})
	w.ask("POST", "/v0/topics/log", object{"records": []object{{"data": "routed", "tag": "t2"}}})
	leases = object{}
	for _, queue := range []string{"jobs", "leased"} {
		w.ask("PUT", "/v0/topics/"+queue, object{"type": "queue", "max_deliveries": 3, "dead_letter": queue + ".dlq", "leases_durable": queue == "leased", "wait_slo_ms": 60_000})
		w.ask("PUT", "/v0/routers/of-"+queue, object{"source": queue, "dest": "seen-" + queue, "guarantee": "exactly_once", "preserve_tag": false})
		var records []object
		for i := range 8 {
			records = append(records, object{"data": i, "priority": []string{"high", "normal", "low"}[i%3], "fair_key": fmt.Sprint("f", i%2)})
		}
		w.ask("POST", "/v0/topics/"+queue, object{"records": append(records, object{"data": "later", "delay_ms": 3_600_000})})
		for range 4 { // which buries one
			got := w.ask("POST", "/v0/topics/"+queue+"/claim", object{"node": "w", "max": 1})["claimed"].([]any)
			w.ask("POST", "/v0/topics/"+queue+"/nack", object{"node": "w", "seqs": []any{got[0].(object)["$seq"]}})
		}
		got := w.ask("POST", "/v0/topics/"+queue+"/claim", object{"node": "w", "max": 3, "lease_ms": 3_600_000})["claimed"].([]any)
		seq := func(i int) []any { return []any{got[i].(object)["$seq"]} }
		w.ask("POST", "/v0/topics/"+queue+"/ack", object{"node": "w", "seqs": seq(0)})
		w.ask("POST", "/v0/topics/"+queue+"/nack", object{"node": "w", "seqs": seq(1), "delay_ms": 3_600_000})
		leases[queue] = object{"node": "w", "seqs": seq(2), "lease_ids": []any{got[2].(object)["lease_id"]}}
	}
	w.ask("POST", "/v0/topics/paused", object{"records": []object{{"data": 1}}, "config": object{"type": "queue"}})
	w.ask("POST", "/v0/topics/paused/pause", object{})
	wid = w.ask("POST", "/v0/watch", object{"topics": object{"log": object{"from_seq": 0}}})["wid"].(string)
	w.watch(wid)
	return wid, leases
}

// sit asks for all that furnish has made. It claims what there is, so it asks once of each server.
func (w *witness) sit(wid string, leases map[string]any) string {
	w.t.Helper()
	w.note("GET", "/v0/topics", nil)
	topics := w.ask("GET", "/v0/topics", nil)["topics"].([]any)
	for _, topic := range topics {
		name := topic.(object)["topic"].(string)
		w.note("GET", "/v0/topics/"+name+"?touch=false", nil)
		w.note("POST", "/v0/topics/"+name+"/diff", object{"limit": 1})
		w.read(name)
	}
	w.note("GET", "/v0/routers", nil)
	for _, name := range []string{"copies", "of-jobs", "of-leased"} {
		w.note("GET", "/v0/routers/"+name, nil)
	}
	events, _ := w.watch(wid)
	w.lines = append(w.lines, "watch "+strings.Join(events, "; "))
	w.note("POST", "/v0/topics/log", object{"records": []object{{"data": 8}}, "idempotency_key": "k8"})
	w.note("POST", "/v0/topics/log", object{"records": []object{{"data": "new", "tag": "t2"}}})
	w.read("copied")
	for _, queue := range []string{"jobs", "leased"} {
		w.note("POST", "/v0/topics/"+queue+"/extend", leases[queue])
		for range 3 {
			w.note("POST", "/v0/topics/"+queue+"/claim", object{"node": "v", "max": 3, "lease_ms": 60_000})
		}
		w.note("POST", "/v0/topics/"+queue+"/ack", leases[queue])
	}
	w.note("POST", "/v0/topics/paused/claim", object{"node": "v"})
	w.note("POST", "/v0/topics/paused/resume", object{})
	w.note("POST", "/v0/topics/paused/claim", object{"node": "v"})
	return strings.Join(w.lines, "\n")
}

// numbers are what is said of the end of a topic, and of what is written behind it.
var numbers = regexp.MustCompile(`"(head_seq|next_seq|lag|first_seq|last_seq)":\d+|"seqs":\[\d+\]|"caught_up":\w+|"\$seq":\d+,"\$tag":"t2","data":"new"`)

// A server that begins with what was restored is the one that was restarted: its leases, delays, pauses,
// routers, sessions and counters go on alike, whichever way it was copied.
func TestWhatIsRestoredIsAllThatTheServerHad(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	for _, name := range []string{"copy", "empty"} {
		if err := os.Mkdir(at(name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	first := weirtest.Start(t, weirtest.Options{Dir: at("data"), Env: []string{"WEIR_REPLICA=file://" + at("copy"), "WEIR_REPLICA_EVERY=100ms"}})
	w := &witness{t: t, c: newClient(t), base: first.URL}
	wid, leases := w.furnish()
	weirtest.Must(t, "backup", first.URL, at("backup"))
	if code := first.Stop(); code != 0 {
		t.Fatalf("exit code %d", code)
	}
	weirtest.Must(t, "restore", at("backup"), at("of-backup"))
	weirtest.Must(t, "restore", "file://"+at("copy"), at("of-copy"))
	sits := func(name string, env ...string) string {
		s := weirtest.Start(t, weirtest.Options{Dir: at(name), Env: env})
		defer s.Stop()
		return (&witness{t: t, c: newClient(t), base: s.URL}).sit(wid, leases)
	}
	want := strings.Split(sits("data"), "\n")
	for _, name := range []string{"of-backup", "of-copy", "empty"} {
		var env []string
		if name == "empty" { // another machine takes over
			env = append(env, "WEIR_REPLICA=file://"+at("copy"))
		}
		got := strings.Split(sits(name, env...), "\n")
		if len(got) != len(want) {
			t.Fatalf("%s: %d answers, want %d", name, len(got), len(want))
		}
		for i, line := range want {
			if name == "of-backup" { // of a server that ran, which had more numbers in hand
				got[i], line = numbers.ReplaceAllString(got[i], ""), numbers.ReplaceAllString(line, "")
			}
			if name == "of-backup" && strings.HasPrefix(line, "watch ") {
				line = "watch 404 Not Found" // another history
			}
			if got[i] != line {
				t.Errorf("%s:\n  it has %s\nrestarted %s", name, got[i], line)
			}
		}
	}
}
