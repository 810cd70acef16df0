package cli

import (
	"encoding/json"
	"net/http"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/weirmq/weir/tests/redistest"
	"github.com/weirmq/weir/tests/weirtest"
)

// loaded is what the tests look at in the JSON of weir bench load.
type loaded struct {
	Stream                                                      string
	Stopped                                                     bool
	Published, Handled, Repeated, Refused, Failed, Unsent, Lost int64
	Publish                                                     map[string]float64
	Handle                                                      map[string]float64 `json:"publish_to_handled"`
}

// topicNames are the topics of a server.
func topicNames(t *testing.T, srv *weirtest.Server) (names []string) {
	t.Helper()
	var out struct{ Topics []struct{ Topic string } }
	if !request(t, http.MethodGet, srv.URL+"/v0/topics", "", &out) {
		t.Fatal("the topics cannot be listed")
	}
	for _, topic := range out.Topics {
		names = append(names, topic.Topic)
	}
	return names
}

// wantLoaded runs bench load and fails unless all that was published was handled.
func wantLoaded(t *testing.T, args ...string) loaded {
	t.Helper()
	var l loaded
	out := must(t, append([]string{"bench", "load", "--json"}, args...)...)
	if err := json.Unmarshal([]byte(out), &l); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if l.Published == 0 || l.Handled-l.Repeated != l.Published || l.Failed != 0 || l.Lost != 0 || l.Stopped ||
		l.Publish["p50_ms"] > l.Publish["p99_ms"] || l.Publish["p999_ms"] > l.Publish["max_ms"] || l.Handle["max_ms"] <= 0 {
		t.Errorf("%v: %s", args, out)
	}
	return l
}

func TestBenchLoadHandlesWhatItPublishesAndLeavesNothing(t *testing.T) {
	t.Parallel()
	srv := weirtest.Start(t, weirtest.Options{})
	put(t, srv, "orders", `{"type":"queue"}`)
	for _, args := range [][]string{{"--duration", "1s"}, {"--duration", "1s", "--rate", "200"}, {"--duration", "500ms", "--batch", "20", "--publishers", "2", "--guard", "off"}} {
		l := wantLoaded(t, append(args, srv.URL+"/orders")...)
		if !strings.HasPrefix(l.Stream, "orders-load-") {
			t.Errorf("the stream was %s", l.Stream)
		}
		if len(args) == 4 && args[2] == "--rate" && l.Published+l.Refused+l.Unsent != 200 {
			t.Errorf("200 messages were due: %+v", l)
		}
		if names := topicNames(t, srv); len(names) != 1 || names[0] != "orders" {
			t.Errorf("the server has %q", names)
		}
	}
	if s := topicState(t, srv, "orders"); s.HeadSeq != 0 {
		t.Errorf("orders was written to: %+v", s)
	}
	wantLoaded(t, "--duration", "300ms", "file://"+t.TempDir()+"?topic=a")
}

func TestBenchLoadLeavesNothingOnRedis(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t, redistest.Options{})
	wantLoaded(t, "--duration", "1s", "--rate", "500", redisURL(srv.Addr(), "orders", "crew"))
	if keys := command(t, srv.Client(), "KEYS", "*").([]any); len(keys) != 0 {
		t.Errorf("Redis has %v", keys)
	}
}

func TestBenchLoadCleansUpWhenItIsStopped(t *testing.T) {
	t.Parallel()
	srv := weirtest.Start(t, weirtest.Options{})
	redis := redistest.Start(t, redistest.Options{})
	for url, left := range map[string]func() bool{
		srv.URL + "/orders":                      func() bool { return len(topicNames(t, srv)) > 0 },
		redisURL(redis.Addr(), "orders", "crew"): func() bool { return len(command(t, redis.Client(), "KEYS", "*").([]any)) > 0 },
	} {
		for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
			p := run(t, "bench", "load", "--duration", "10m", "--json", url)
			eventually(t, "there is a stream", left)
			p.Signal(sig)
			if code := p.Wait(); code != 1 || !strings.Contains(p.Stdout.String(), `"stopped":true`) || !strings.HasSuffix(p.Stderr.String(), "weir: stopped before its end\n") {
				t.Errorf("%v: exit code %d, %s%s", sig, code, p.Stdout.String(), p.Stderr.String())
			}
			if left() {
				t.Errorf("%v left something on %s", sig, url)
			}
		}
	}
}

// bash asks the built command for values, by the script that the command prints.
func TestBashCompletesTopics(t *testing.T) {
	t.Parallel()
	srv := weirtest.Start(t, weirtest.Options{})
	for _, name := range []string{"orders", "orders.dlq", "bills"} {
		put(t, srv, name, `{}`)
	}
	if got := must(t, "__complete", "tail", srv.URL+"/ord"); !strings.HasPrefix(got, srv.URL+"/orders\n"+srv.URL+"/orders.dlq\n:") {
		t.Errorf("the command offers %q", got)
	}
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("no bash here")
	}
	script := `eval "$(weir completion bash)"; COMP_WORDS=(weir topic info or); COMP_CWORD=3; COMP_LINE="${COMP_WORDS[*]}"; COMP_POINT=${#COMP_LINE}
_init_completion() { cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} words=("${COMP_WORDS[@]}") cword=$COMP_CWORD; }
_get_comp_words_by_ref() { _init_completion; }
compopt() { :; }; __ltrim_colon_completions() { :; }
COMP_TYPE=9; __start_weir; printf '%s\n' "${COMPREPLY[@]}"`
	cmd := exec.Command(bash, "--norc", "-c", `weir() { "$WEIR_BINARY" "$@"; }; `+script)
	cmd.Env = []string{"PATH=/usr/bin:/bin", "WEIR_BINARY=" + weirtest.Binary(t), "WEIR_URL=" + srv.URL, "XDG_CONFIG_HOME=" + t.TempDir()}
	out, err := cmd.CombinedOutput()
	if got := strings.Join(strings.Fields(string(out)), " "); err != nil || got != "orders orders.dlq" {
		t.Errorf("bash offers %q (%v)", got, err)
	}
}
