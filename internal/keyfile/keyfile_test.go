package keyfile_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weirmq/weir/internal/keyfile"
)

// Who wrote a file by hand is told what is wrong with it, and where.
func TestABrokenFileIsExplained(t *testing.T) {
	digest, other := strings.Repeat("ab", 32), strings.Repeat("cd", 32)
	for text, want := range map[string]string{
		"":                                "it is empty",
		`{"keys": [`:                      "it ends in the middle of a value",
		"{\n\"keys\": [\n{,}]}":           "line 3 is not JSON",
		"keys: []\n":                      "line 1 is not JSON",
		"[]":                              "line 1: the whole is of the type array; expected an object",
		"{\n\"keys\": {}}":                "line 2: keys is of the type object; expected a list",
		`{"keys": [{"scopes": "read"}]}`:  "keys.scopes is of the type string; expected a list",
		`{"keys": [{"name": 1}]}`:         "keys.name is of the type number; expected a string",
		"{\"keys\": [\n{\"scope\": []}]}": `line 2: unknown field "scope"`,
		`{"keys": [{"expires": "90d"}]}`:  `"90d" is not a time such as 2026-01-31T12:00:00Z`,
		`{"keys": []} x`:                  "something follows the object",
		`{"keys": [{"name": "a", "sha256": "1"}]}`:                                                         `key "a": sha256 is not 64 hexadecimal digits`,
		`{"keys": [{"name": "a", "sha256": "abab"}]}`:                                                      `key "a": sha256 is not 64 hexadecimal digits`,
		`{"keys": [{"name": "a", "sha256": "` + digest + `"}, {"name": "a", "sha256": "` + other + `"}]}`:  `the name "a" is there twice`,
		`{"keys": [{"name": "a", "sha256": "` + digest + `"}, {"name": "b", "sha256": "` + digest + `"}]}`: `keys "a" and "b" are the same`,
	} {
		path := filepath.Join(t.TempDir(), "keys.json")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if keys, err := keyfile.Read(path); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), path) || len(keys) > 0 {
			t.Errorf("%s: %v, %v; want %q and the file's name", text, keys, err, want)
		}
	}
}

// A file that is written can be read: those who add one key at a time never get to one that cannot.
func TestAFileIsNotWrittenThatCannotBeRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys.json")
	keys := make([]keyfile.Key, 1000)
	for i := range keys {
		_, keys[i] = keyfile.New(fmt.Sprintf("key-%04d", i), time.Now())
		keys[i].Scopes = []string{"read"}
	}
	size := func(prefix int) int64 {
		t.Helper()
		keys[0].Prefixes = []string{strings.Repeat("p", prefix)}
		if err := keyfile.Write(path, keys); err != nil {
			t.Fatal(err)
		}
		if got, err := keyfile.Read(path); err != nil || len(got) != len(keys) {
			t.Fatalf("%d keys are read: %v", len(got), err)
		}
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		return info.Size()
	}
	const most = 4 << 20
	left := most - size(1)
	if got := size(1 + int(left)); got != most {
		t.Fatalf("%d bytes are written, want %d", got, most)
	}
	keys[0].Prefixes[0] += "p"
	if err := keyfile.Write(path, keys); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("a file that is too large is written: %v", err)
	}
	if got, err := keyfile.Read(path); err != nil || len(got) != len(keys) {
		t.Errorf("then %d keys are read: %v", len(got), err)
	}
	if err := os.WriteFile(path, make([]byte, most+1), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := keyfile.Read(path); err == nil || !strings.Contains(err.Error(), "larger than") {
		t.Errorf("a file of more bytes: %v", err)
	}
}

// There is room for 10,000 keys, each with a name of its own.
func TestNumberOfKeysIsLimited(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys.json")
	keys := make([]keyfile.Key, 10_000)
	for i := range keys {
		keys[i] = keyfile.Key{Name: fmt.Sprint("k", i), SHA256: fmt.Sprintf("%064x", i)}
	}
	if err := keyfile.Write(path, keys); err != nil {
		t.Error(err)
	}
	if err := keyfile.Write(path, append(keys, keyfile.Key{Name: "more", SHA256: strings.Repeat("ab", 32)})); err == nil || !strings.Contains(err.Error(), "at most 10000") {
		t.Errorf("one key too many: %v", err)
	}
}
