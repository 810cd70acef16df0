package keyfile_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirmq/weir/internal/keyfile"
)

// Who wrote a file by hand is told what is wrong with it, and where.
func TestABrokenFileIsExplained(t *testing.T) {
	digest := strings.Repeat("ab", 32)
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
