package server

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirmq/weir/internal/keyfile"
	"github.com/weirmq/weir/tests/bubble"
)

// runKeys runs the keys of a file until the test ends.
func runKeys(t *testing.T, file string) *Keys {
	t.Helper()
	keys, err := LoadKeys("given", file)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { keys.run(ctx, slog.New(slog.DiscardHandler)) })
	t.Cleanup(func() { cancel(); running.Wait() })
	return keys
}

func newFileKey(name string, scopes ...string) (string, keyfile.Key) {
	text, k := keyfile.New(name, time.Now())
	k.Scopes = scopes
	return text, k
}

func writeKeys(t *testing.T, file string, keys ...keyfile.Key) {
	t.Helper()
	if err := keyfile.Write(file, keys); err != nil {
		t.Fatal(err)
	}
}

func TestAKeyOfAFileEndsWithItsTime(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "keys.json")
		text, k := newFileKey("short", "read")
		k.Expires = time.Now().Add(time.Minute)
		writeKeys(t, file, k)
		keys := runKeys(t, file)
		found := keys.find(text)
		if found == nil {
			t.Fatal("the key is not known")
		}
		time.Sleep(59 * time.Second)
		if keys.find(text) == nil || found.life.Err() != nil {
			t.Error("the key ended before its time")
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if keys.find(text) != nil || found.life.Err() == nil {
			t.Error("the key did not end with its time")
		}
		if keys.find("given") == nil {
			t.Error("a key of the list ended, too")
		}
	})
}

// Only what has changed about a key ends it.
func TestKeysThatStayAreTheSame(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "keys.json")
		one, first := newFileKey("one", "read")
		two, second := newFileKey("two", "read", "write")
		writeKeys(t, file, first, second)
		keys := runKeys(t, file)
		before, changed := keys.find(one), keys.find(two)
		second.Prefixes = []string{"orders"}
		three, third := newFileKey("three", "admin")
		writeKeys(t, file, third, second, first)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if keys.find(one) != before || !before.stands() {
			t.Error("a key that stays as it is ended")
		}
		if now := keys.find(two); now == changed || changed.stands() || now == nil || !now.limited() {
			t.Error("a key with other rights still has those before")
		}
		if k := keys.find(three); k == nil || !k.has(scopeAdmin) || k.has(scopeRead) {
			t.Error("a new key is not known, or has other rights")
		}
		writeKeys(t, file)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if keys.find(one) != nil || before.stands() {
			t.Error("a removed key stands")
		}
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
		writeKeys(t, file, first)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if k := keys.find(one); k == nil || k == before {
			t.Error("a key that came back does not count anew")
		}
	})
}

// A file that is away for a while is an error in the log, and one line says that it is back.
func TestAFileOfKeysThatIsBackIsInTheLog(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "keys.json")
		_, one := newFileKey("one", "read")
		writeKeys(t, file, one)
		keys, err := LoadKeys("", file)
		if err != nil {
			t.Fatal(err)
		}
		var log strings.Builder
		ctx, end := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			keys.run(ctx, slog.New(slog.NewTextHandler(&log, nil)))
		}()
		for _, to := range [][2]string{{file, file + ".aside"}, {file + ".aside", file}} {
			if err := os.Rename(to[0], to[1]); err != nil {
				t.Fatal(err)
			}
			time.Sleep(10 * time.Second)
		}
		end()
		<-ended
		if got := log.String(); strings.Count(got, "cannot be read") != 1 || strings.Count(got, "was read") != 1 {
			t.Errorf("the log says\n%s", got)
		}
	})
}

// A key that is given other rights makes its watch sessions anew: those of before were made with
// the rights that it had then.
func TestAKeyWithOtherRightsOwnsNoSessionOfBefore(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*keyfile.Key)
		method string // that answers so for topic b from then on
		status int
	}{
		"scopes":   {func(k *keyfile.Key) { k.Scopes = []string{"read", "delete"} }, "DELETE", 200},
		"prefixes": {func(k *keyfile.Key) { k.Prefixes = []string{"a"} }, "GET", 403},
	} {
		file := filepath.Join(t.TempDir(), "keys.json")
		text, entry := newFileKey("app", "read", "write")
		writeKeys(t, file, entry)
		s := serveEngine(t, func(c *Config) {
			var err error
			if c.Keys, err = LoadKeys("", file); err != nil {
				t.Fatal(err)
			}
		})
		app := header{"Authorization": "Bearer " + text}
		s.want(s.ask("POST", "/v0/topics/a", `{"records":[{"data":1}]}`, app), 201, "")
		url := s.watch(`{"topics":{"a":{}}}`, app)
		c.change(&entry)
		writeKeys(t, file, entry)
		s.eventually(func() bool { return s.ask(c.method, "/v0/topics/b", "", app).status == c.status })
		if r := s.ask("HEAD", url, "", app); r.status != 401 {
			t.Errorf("with other %s the session of before answers %d", name, r.status)
		}
		if r := s.ask("HEAD", s.watch(`{"topics":{"a":{}}}`, app), "", app); r.status != 200 {
			t.Errorf("with other %s a new session answers %d", name, r.status)
		}
	}
}

// A diff that waits ends with its key, and says why.
func TestADiffThatWaitsIsToldThatItsKeyIsGone(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "keys.json")
	text, entry := newFileKey("app", "read", "write")
	writeKeys(t, file, entry)
	s := serveEngine(t, func(c *Config) {
		var err error
		if c.Keys, err = LoadKeys("other", file); err != nil {
			t.Fatal(err)
		}
	})
	app := header{"Authorization": "Bearer " + text}
	s.want(s.ask("POST", "/v0/topics/a", `{"records":[{"data":1}]}`, app), 201, "")
	answer := make(chan *reply)
	go func() { answer <- s.ask("POST", "/v0/topics/a/diff", `{"from_seq":1,"wait_ms":30000}`, app) }()
	writeKeys(t, file)
	s.want(<-answer, 401, "unauthorized")
}

// A secret that stood in the list and in the file would have the rights of either.
func TestAKeyOfTheListIsRefusedInTheFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "keys.json")
	text, entry := newFileKey("app", "read")
	writeKeys(t, file, entry)
	if _, err := LoadKeys("other,"+text+":r", file); err == nil || !strings.Contains(err.Error(), `key "app": it is in WEIR_API_KEYS, too`) || strings.Contains(err.Error(), text) {
		t.Errorf("%v", err)
	}
}

func TestFilesOfKeysThatAreRefused(t *testing.T) {
	_, k := newFileKey("app", "read")
	for name, c := range map[string]struct{ text, want string }{
		"no scopes":      {`{"keys":[{"name":"app","sha256":"` + k.SHA256 + `","scopes":[]}]}`, "no scopes"},
		"wrong scope":    {`{"keys":[{"name":"app","sha256":"` + k.SHA256 + `","scopes":["red"]}]}`, `"red" is unknown`},
		"wildcard":       {`{"keys":[{"name":"app","sha256":"` + k.SHA256 + `","scopes":["read"],"prefixes":["a*"]}]}`, "without a wildcard"},
		"empty prefix":   {`{"keys":[{"name":"app","sha256":"` + k.SHA256 + `","scopes":["read"],"prefixes":["a",""]}]}`, `prefix "" is empty`},
		"no prefix":      {`{"keys":[{"name":"app","sha256":"` + k.SHA256 + `","scopes":["read"],"prefixes":[]}]}`, "its list of prefixes is empty"},
		"digest":         {`{"keys":[{"name":"app","sha256":"12","scopes":["read"]}]}`, "64 hexadecimal digits"},
		"the same twice": {`{"keys":[{"name":"a","sha256":"` + k.SHA256 + `","scopes":["read"]},{"name":"b","sha256":"` + k.SHA256 + `","scopes":["read"]}]}`, "are the same"},
		"name":           {`{"keys":[{"name":"a b","sha256":"` + k.SHA256 + `","scopes":["read"]}]}`, "the name"},
		"not JSON":       {`keys`, "not a file of keys"},
		"two objects":    {`{"keys":[]}{}`, "something follows"},
	} {
		file := filepath.Join(t.TempDir(), "keys.json")
		if err := os.WriteFile(file, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := LoadKeys("", file); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q in it", name, err, c.want)
		}
	}
	if _, err := LoadKeys("", filepath.Join(t.TempDir(), "none")); err == nil {
		t.Error("a file that is not there was read")
	}
}
