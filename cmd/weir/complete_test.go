package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirmq/weir/internal/keyfile"
)

// completed are the values that a shell is offered for a line whose last word was begun.
func completed(t *testing.T, words ...string) []string {
	t.Helper()
	res := runWeir(t, "", append([]string{"__complete"}, words...)...)
	lines := strings.Split(strings.TrimSuffix(res.stdout, "\n"), "\n")
	if res.err != nil || !strings.HasPrefix(lines[len(lines)-1], ":") {
		t.Fatalf("weir __complete %q: %v, %q", words, res.err, res.stdout)
	}
	return lines[:len(lines)-1]
}

// topicServer answers with topics that begin with what was asked for, and notes the keys.
func topicServer(t *testing.T, topics ...string) (url string, keys *[]string) {
	t.Helper()
	keys = new([]string)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		*keys = append(*keys, r.Header.Get("Authorization"))
		if r.URL.Path != "/v0/topics" {
			http.NotFound(w, r)
			return
		}
		var rows []string
		for _, name := range topics {
			if strings.HasPrefix(name, r.URL.Query().Get("prefix")) {
				rows = append(rows, fmt.Sprintf(`{"topic":%q}`, name))
			}
		}
		fmt.Fprintf(w, `{"topics":[%s],"next_cursor":"more"}`, strings.Join(rows, ","))
	}))
	t.Cleanup(s.Close)
	return s.URL, keys
}

func TestTopicsOfTheServerAreOffered(t *testing.T) {
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	url, keys := topicServer(t, "orders", "orders.dlq", "bills", "a\nb")
	for _, line := range [][]string{{"tail"}, {"topic", "info"}, {"topic", "set"}, {"topic", "rm"}, {"topic", "purge"}, {"topic", "truncate"}, {"queue", "pause"}, {"work"}, {"dlq", "ls"}, {"top", "http://h/x"}} {
		if got, want := completed(t, append(line, url+"/ord")...), []string{url + "/orders", url + "/orders.dlq"}; !slices.Equal(got, want) {
			t.Errorf("%v: %q, want %q", line, got, want)
		}
	}
	if got := completed(t, "tail", ""); len(got) > 0 {
		t.Errorf("without a server: %q", got)
	}
	t.Setenv("WEIR_URL", url)
	t.Setenv("WEIR_API_KEY", "secret-secret-secret")
	if got, want := completed(t, "tail", ""), []string{"orders", "orders.dlq", "bills"}; !slices.Equal(got, want) {
		t.Errorf("by name: %q, want %q", got, want)
	}
	if got := *keys; got[len(got)-1] != "Bearer secret-secret-secret" {
		t.Errorf("the server was shown %q", got[len(got)-1])
	}
	asked := len(*keys)
	for _, begun := range []string{"http://", url, url + "/x?y=", "redis://h/0", "./x", "x/y"} {
		if got := completed(t, "tail", begun); len(got) > 0 {
			t.Errorf("%s: %q", begun, got)
		}
	}
	for _, line := range [][]string{{"tail", "orders", ""}, {"topic", "ls", ""}, {"topic", "create", ""}, {"version", ""}} {
		if got := completed(t, line...); len(got) > 0 {
			t.Errorf("%v: %q", line, got)
		}
	}
	if len(*keys) != asked {
		t.Error("the server was asked though no topic can follow")
	}
}

func TestWhatIsOfferedIsBounded(t *testing.T) {
	var many []string
	for i := range 900 {
		many = append(many, fmt.Sprintf("t%03d", i))
	}
	url, _ := topicServer(t, many...)
	if got := completed(t, "tail", url+"/"); len(got) != completeNames || got[0] != url+"/t000" {
		t.Errorf("%d names are offered", len(got))
	}

	gone := make(chan struct{})
	silent := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		<-r.Context().Done()
		close(gone)
	}))
	defer silent.Close()
	begin := time.Now()
	if got := completed(t, "tail", silent.URL+"/"); len(got) > 0 {
		t.Errorf("a silent server: %q", got)
	}
	<-gone // the command has hung up
	if took := time.Since(begin); took < completeTimeout {
		t.Errorf("it was given up after %s", took)
	}
	if got := completed(t, "tail", "http://127.0.0.1:1/"); len(got) > 0 {
		t.Errorf("no server: %q", got)
	}
}

func TestContextsKeysAndWordsAreOffered(t *testing.T) {
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	url, keys := topicServer(t, "orders", "bills")
	t.Setenv("WEIR_TEST_KEY", "of-the-context-only")
	for _, line := range [][]string{{"prod", url, "--api-key-env", "WEIR_TEST_KEY"}, {"private", "http://127.0.0.1:1"}, {"test", "http://127.0.0.1:1"}} {
		if res := runWeir(t, "", append([]string{"context", "set"}, line...)...); res.err != nil {
			t.Fatal(res.err)
		}
	}
	file := filepath.Join(t.TempDir(), "keys.json")
	var all []keyfile.Key
	for _, name := range []string{"worker", "web", "admin"} {
		_, key := keyfile.New(name, time.Now())
		key.Scopes = []string{"read"}
		all = append(all, key)
	}
	if err := keyfile.Write(file, all); err != nil {
		t.Fatal(err)
	}
	for line, want := range map[string]string{
		"context use pr":                         "prod private",
		"context rm t":                           "test",
		"tail --context p":                       "prod private",
		"tail or":                                "orders",
		"tail --context prod b":                  "bills",
		"key revoke --keys-file " + file + " w":  "worker web",
		"key revoke --keys-file " + file + "x w": "",
		"serve --log-level ":                     "debug info warn error",
		"serve --log-format ":                    "text json",
		"publish --guard ":                       "static proportional adaptive off shadow",
		"publish --durability ":                  "ephemeral memory disk fsync",
		"topic create --discard ":                "old reject",
		"doctor --fail-on ":                      "error warning info",
	} {
		words := strings.Split(line, " ")
		if got := strings.Join(completed(t, words...), " "); got != want {
			t.Errorf("%s: %q, want %q", line, got, want)
		}
	}
	if got := *keys; len(got) != 2 || got[0] != "Bearer of-the-context-only" {
		t.Errorf("the server was shown %q", got)
	}
	if completed(t, "tail", url+"/o"); (*keys)[2] != "" {
		t.Errorf("a URL got the key of a context: %q", (*keys)[2])
	}
}
