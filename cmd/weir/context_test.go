package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/spf13/cobra"

	"github.com/weirmq/weir/internal/settings"
)

// TestMain keeps the contexts of who runs the tests out of them.
func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "weir-test")
	if err != nil {
		panic(err)
	}
	os.Setenv("XDG_CONFIG_HOME", dir)
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

// contextsOf gives the test contexts of its own and makes these, each a line of `context set`.
func contextsOf(t *testing.T, set ...string) {
	t.Helper()
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	for _, line := range set {
		if res := runWeir(t, "", strings.Fields("context set "+line)...); res.err != nil {
			t.Fatal(res.err)
		}
	}
}

func TestNamesBecomeURLs(t *testing.T) {
	for _, c := range []struct{ use, url, args, want string }{
		{"tail URL", "http://h:1", "orders", "http://h:1/orders"},
		{"tail URL", "http://h:1/?standby=i:1", "orders", "http://h:1/orders?standby=i:1"},
		{"tail URL", "https://:key@h:1/", "orders", "https://:key@h:1/orders"},
		{"tail URL", "http://h:1/orders", "", "http://h:1/orders"},
		{"tail URL", "redis://h:1/0?group=g", "jobs:mail", "redis://h:1/0?group=g&stream=jobs%3Amail"},
		{"tail URL", "kafka://a:1,b:2?group=g", "events", "kafka://a:1,b:2/events?group=g"},
		{"tail URL", "file:///data", "in", "file:///data?topic=in"},
		{"tail URL", "http://h:1", "http://i:2/x", "http://i:2/x"},
		{"tail URL", "http://h:1", "./x", "./x"},
		{"tail URL", "http://h:1", "localhost:4000", "localhost:4000"},
		{"publish URL [FILE…]", "http://h:1", "orders lines.txt", "http://h:1/orders lines.txt"},
		{"work URL -- CMD [ARG…]", "http://h:1/orders", "true", "has a name already"},
		{"backup URL DIR", "http://h:1", "copy", "http://h:1 copy"},
		{"backup URL DIR", "http://h:1", "http://i:1 copy", "http://i:1 copy"},
		{"top URL…", "http://h:1", "a http://i/b c", "http://h:1/a http://i/b http://h:1/c"},
		{"top URL…", "http://h:1", "", "http://h:1"},
		{"sample [URL…]", "http://h:1", "", ""},
		{"sample [URL…]", "http://h:1", "a", "http://h:1/a"},
		{"tail URL", "redis://h:1/0?stream=a", "b", "has a name already"},
		{"tail URL", "", "orders", `"orders" is not a URL, and as a name it needs WEIR_URL or a context`},
		{"tail URL", "", "", ""},
		{"tail URL", "h:1", "a", "environment variable WEIR_URL"},
		{"tail URL", "amqp://:secret@h", "a", "environment variable WEIR_URL: not the URL of a server"},
	} {
		t.Setenv("WEIR_URL", c.url)
		cmd := newTailCmd()
		cmd.Use = c.use
		got, _, err := withURLs(cmd, strings.Fields(c.args))
		said := strings.Join(got, " ")
		if err != nil {
			said = err.Error()
		}
		if err == nil && said != c.want || err != nil && (!strings.Contains(said, c.want) || strings.Contains(said, "secret")) {
			t.Errorf("%s with WEIR_URL=%s: %q becomes %q, want %q", c.use, c.url, c.args, said, c.want)
		}
	}
}

// Each command that has a context takes the key that it names: one that does not would
// not miss the key's variable.
func TestEveryCommandTakesTheKeyOfItsContext(t *testing.T) {
	contextsOf(t, "prod http://127.0.0.1:1 --api-key-env KEY_OF_PROD")
	tried := 0
	var try func(cmd *cobra.Command)
	try = func(cmd *cobra.Command) {
		for _, sub := range cmd.Commands() {
			try(sub)
		}
		if !cmd.Runnable() || cmd.Flags().Lookup("context") == nil {
			return
		}
		args := strings.Fields(cmd.CommandPath())[1:]
		words := strings.Fields(cmd.Use)[1:]
		for i, word := range words {
			switch {
			case i == 0 && strings.Contains(word, "URL"), word == "ID…":
				args = append(args, "orders")
			case word == "--":
				args = append(args, word, "true")
			case word == "DIR":
				args = append(args, t.TempDir())
			}
		}
		tried++
		res := runWeir(t, "", args...)
		if want := "the environment variable KEY_OF_PROD, which has its key, is not set"; res.err == nil || !strings.Contains(res.err.Error(), want) {
			t.Errorf("weir %s: %v, want %s", strings.Join(args, " "), res.err, want)
		}
	}
	try(newRoot())
	if tried < 20 {
		t.Errorf("tried %d commands", tried)
	}
}

// Where a copy or a backup is no context and no WEIR_URL says.
func TestACopyIsNamedByItsURLAlone(t *testing.T) {
	t.Setenv("WEIR_URL", "http://127.0.0.1:1")
	for line, want := range map[string]string{
		"replica ls": "weir replica ls URL", "replica ls copies": "expected file:///path, s3://", "replica verify copies": "expected file:///path, s3://",
		"restore nosuch": "open nosuch",
	} {
		if res := runWeir(t, "", strings.Fields(line)...); res.err == nil || !strings.Contains(res.err.Error(), want) {
			t.Errorf("weir %s: %v, want %s", line, res.err, want)
		}
	}
}

// A key's file that is not there is said to be the context's: no flag has named it.
func TestTheFileOfAKeyIsSaidToBeTheContexts(t *testing.T) {
	file := filepath.Join(t.TempDir(), "prod.key")
	contextsOf(t, "prod http://127.0.0.1:1 --api-key-file "+file)
	res := runWeir(t, "", "tail", "orders")
	if want := "context prod: the file of its key: open " + file; res.err == nil || !strings.HasPrefix(res.err.Error(), want) || exitCode(res.err) != exitUsage {
		t.Errorf("%v, want %s", res.err, want)
	}
}

func TestWhatSaysTheServer(t *testing.T) {
	one, two, three := newFakeServer(t), newFakeServer(t), newFakeServer(t)
	for f, text := range map[*fakeServer]string{one: `"one"`, two: `"two"`, three: `"three"`} {
		f.add("in", text)
	}
	contextsOf(t, "one "+one.URL, "two "+two.URL+" --api-key-env KEY_OF_TWO")
	t.Setenv("KEY_OF_TWO", "k2-secret")
	read := func(want string, args ...string) {
		t.Helper()
		res := runWeir(t, "", append(append([]string{"tail"}, args...), "--from", "0", "--no-follow")...)
		if res.err != nil || res.stdout != want+"\n" {
			t.Errorf("tail %v: %v, %q, want %s", args, res.err, res.stdout, want)
		}
	}
	read("one", "in") // the first is in use
	read("two", "in", "--context", "two")
	if len(two.authz) == 0 || two.authz[0] != "Bearer k2-secret" {
		t.Errorf("the context's key was not sent: %v", two.authz)
	}
	t.Setenv("WEIR_CONTEXT", "two")
	read("two", "in")
	t.Setenv("WEIR_URL", three.URL)
	read("three", "in")
	read("one", "in", "--context", "one")
	read("two", two.URL+"/in", "--context", "one") // an argument beats all
	t.Setenv("WEIR_URL", three.URL+"/in")
	read("three")
	t.Setenv("WEIR_URL", "")

	for _, f := range []*fakeServer{one, three} {
		if got := strings.Join(f.authz, ""); strings.Contains(got, "k2") {
			t.Errorf("another server got the key: %s", got)
		}
	}
	t.Setenv("KEY_OF_TWO", "")
	for line, want := range map[string]string{
		"tail in --context too":                                   `flag --context: there is no context "too", did you mean two?`,
		"tail in --context two":                                   "context two: the environment variable KEY_OF_TWO, which has its key, is not set",
		"top a --context one http://127.0.0.1:1/b":                "context one is for names, and argument 2 is a URL",
		"tail http://127.0.0.1:1/in --context too":                `flag --context: there is no context "too", did you mean two?`,
		"tail --context too":                                      `flag --context: there is no context "too", did you mean two?`,
		"topic ls --context too":                                  `flag --context: there is no context "too", did you mean two?`,
		"publish --context too":                                   `flag --context: there is no context "too", did you mean two?`,
		"context use three":                                       `there is no context "three"`,
		"context set x amqp://h":                                  "not the URL of a server",
		"context set x http://:secret@h:1":                        "holds a user or a key",
		"context set x localhost:4000":                            "did you mean http://localhost:4000?",
		"context set a/b http://h":                                "is not the name of a context",
		"context set x http://h --api-key-env A --api-key-file b": "exclude each other",
		"context set x http://h --api-key-env A=b":                `flag --api-key-env: "A=b" is not the name of an environment variable`,
		"context set x http://h --api-key-env 2ND":                `flag --api-key-env: "2ND" is not the name of an environment variable`,
	} {
		res := runWeir(t, "", strings.Fields(line)...)
		if res.err == nil || exitCode(res.err) != exitUsage || !strings.Contains(res.err.Error(), want) || strings.Contains(res.err.Error(), "secret") {
			t.Errorf("weir %s: %v, want %s", line, res.err, want)
		}
	}
}

// What a flag or the environment says counts before what the context has.
func TestAContextFillsOnlyWhatIsMissing(t *testing.T) {
	t.Setenv("KEY_OF_IT", "kept-key")
	file := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(file, []byte("kept-key"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, saved := range []savedContext{
		{CA: "kept", TLSCert: "kept", TLSKey: "kept", KeyEnv: "KEY_OF_IT"},
		{CA: "kept", TLSCert: "kept", TLSKey: "kept", KeyFile: file},
	} {
		for _, c := range []struct{ ca, cert, key, file string }{
			{},
			{ca: "mine", cert: "mine", key: "mine"},
			{file: "mine"},
		} {
			cmd := &cobra.Command{}
			cmd.SetContext(t.Context())
			withBase(cmd, &baseURL{where: "context it", saved: &saved})
			ca, cert, tlsKey, key, keyFile := c.ca, c.cert, c.cert, c.key, c.file
			if err := fillFromContext(cmd, settings.Fields{"ca": &ca, "tls-cert": &cert, "tls-key": &tlsKey, "api-key": &key, "api-key-file": &keyFile}); err != nil {
				t.Fatal(err)
			}
			wantKey, wantFile := c.key, c.file
			if c.key == "" && c.file == "" {
				wantFile = saved.KeyFile
				if saved.KeyEnv != "" {
					wantKey = "kept-key"
				}
			}
			got := []string{ca, cert, tlsKey, key, keyFile}
			want := []string{cmp.Or(c.ca, "kept"), cmp.Or(c.cert, "kept"), cmp.Or(c.cert, "kept"), wantKey, wantFile}
			if !slices.Equal(got, want) {
				t.Errorf("%+v of %+v: %q, want %q", c, saved, got, want)
			}
		}
	}
}

// What is wrong with the URL that is to be used is said, not that none was given.
func TestAWrongBaseIsToldWhereNoURLIsGiven(t *testing.T) {
	contextsOf(t)
	for _, line := range []string{"topic ls", "tail", "doctor", "health", "publish", "dlq ls", "backup DIR"} {
		t.Setenv("WEIR_URL", "localhost:4000")
		res := runWeir(t, "", strings.Fields(line)...)
		if want := `environment variable WEIR_URL: "localhost:4000" is not a URL, did you mean http://localhost:4000?`; res.err == nil || res.err.Error() != want || exitCode(res.err) != exitUsage {
			t.Errorf("weir %s: %v, want %s", line, res.err, want)
		}
		t.Setenv("WEIR_URL", "")
		if res := runWeir(t, "", strings.Fields(line)...); res.err == nil || !strings.HasPrefix(res.err.Error(), "the URL is missing: ") {
			t.Errorf("weir %s without a URL: %v", line, res.err)
		}
	}
}

// What several commands add to a file at the same time is all there.
func TestNoChangeOfAFileIsLost(t *testing.T) {
	contextsOf(t)
	keys := filepath.Join(t.TempDir(), "keys.json")
	const n = 20
	var all sync.WaitGroup
	for i := range n {
		for _, args := range [][]string{
			{"key", "new", fmt.Sprint("k", i), "--keys-file", keys},
			{"context", "set", fmt.Sprint("c", i), "http://h:4000"},
		} {
			all.Go(func() {
				if res := runWeir(t, "", args...); res.err != nil {
					t.Errorf("weir %v: %v", args, res.err)
				}
			})
		}
	}
	all.Wait()
	for _, args := range [][]string{{"key", "ls", "--json", "--keys-file", keys}, {"context", "ls", "--json"}} {
		if res := runWeir(t, "", args...); res.err != nil || strings.Count(res.stdout, "\n") != n {
			t.Errorf("weir %v: %v, %s", args, res.err, res.stdout)
		}
	}
}

// A file is changed where a link to it leads, since that is what others read, and the link stays.
func TestAFileBehindALinkIsTheOneThatChanges(t *testing.T) {
	dir := t.TempDir()
	link := func(t *testing.T, at string) (target string) {
		t.Helper()
		target, between := filepath.Join(dir, filepath.Base(at)+".real"), filepath.Join(dir, filepath.Base(at)+".link")
		if err := errors.Join(os.MkdirAll(filepath.Dir(at), 0o700), os.Symlink(filepath.Base(target), between), os.Symlink(between, at)); err != nil {
			t.Fatal(err)
		}
		return target
	}
	must := func(t *testing.T, stdin string, args ...string) string {
		t.Helper()
		res := runWeir(t, stdin, args...)
		if res.err != nil {
			t.Fatalf("weir %v: %v", args, res.err)
		}
		return res.stdout
	}
	t.Run("keys", func(t *testing.T) {
		at := filepath.Join(dir, "keys.json")
		target := link(t, at)
		must(t, "", "key", "new", "stays", "--keys-file", at)
		must(t, "", "key", "new", "goes", "--keys-file", at)
		must(t, "", "key", "revoke", "goes", "--keys-file", at)
		if all := must(t, "", "key", "ls", "--keys-file", target); !strings.Contains(all, "stays") || strings.Contains(all, "goes") {
			t.Errorf("the server's file has %q", all)
		}
	})
	t.Run("contexts", func(t *testing.T) {
		contextsOf(t)
		config, err := os.UserConfigDir()
		if err != nil {
			t.Fatal(err)
		}
		target := link(t, filepath.Join(config, "weir", "contexts.json"))
		must(t, "", "context", "set", "prod", "http://h:4000")
		if text, err := os.ReadFile(target); err != nil || !strings.Contains(string(text), "prod") {
			t.Errorf("what the link leads to has %q, %v", text, err)
		}
	})
	t.Run("place", func(t *testing.T) {
		at := filepath.Join(dir, "place")
		target := link(t, at)
		must(t, "a\nb\n", "publish", "--resume", at, "file://"+filepath.Join(dir, "data")+"?topic=in")
		if text, err := os.ReadFile(target); err != nil || !strings.Contains(string(text), `"records":2`) {
			t.Errorf("what the link leads to has %q, %v", text, err)
		}
	})
}

func TestContextsAreKeptWithoutSecrets(t *testing.T) {
	contextsOf(t, "prod https://h:4000 --ca ca.pem --api-key-file prod.key", "jobs redis://h:6379/0?group=g")
	dir, err := os.UserConfigDir()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "weir", "contexts.json")
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file has %v (%v), want mode 600", info, err)
	}
	here, _ := filepath.Abs("prod.key")
	res := runWeir(t, "", "context", "ls")
	if want := "NAME  IN USE  URL"; res.err != nil || !strings.HasPrefix(res.stdout, want) || !strings.Contains(res.stdout, here) || strings.Count(res.stdout, "*") != 1 {
		t.Errorf("%v\n%s", res.err, res.stdout)
	}
	runWeir(t, "", "context", "use", "jobs")
	res = runWeir(t, "", "context", "ls", "--json")
	if !strings.Contains(res.stdout, `{"name":"jobs","url":"redis://h:6379/0?group=g","current":true}`) {
		t.Errorf("%v\n%s", res.err, res.stdout)
	}
	runWeir(t, "", "context", "rm", "jobs")
	if res = runWeir(t, "", "tail", "in"); res.err == nil || !strings.Contains(res.err.Error(), "needs WEIR_URL or a context") {
		t.Errorf("without the one in use: %v", res.err)
	}
	if err := os.WriteFile(path, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if res = runWeir(t, "", "context", "ls"); res.err == nil || exitCode(res.err) != exitUsage || !strings.Contains(res.err.Error(), path) {
		t.Errorf("a broken file: %v", res.err)
	}
}
