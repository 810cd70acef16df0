package settings

import (
	"os"
	"path/filepath"
	"testing"
)

// A file that is being written is read once it stands still, and once only.
func TestAFileIsReadWhenItStandsStill(t *testing.T) {
	path := filepath.Join(t.TempDir(), "weir.yaml")
	w := watcher{path: path}
	before := ""
	for i, look := range []struct {
		text  string // of the file at this look; empty: it is not there
		reads bool
	}{
		{"", false},
		{"l", false}, {"lag", false}, {"lag_warn: 5", false}, {"lag_warn: 5", true}, {"lag_warn: 5", false},
		{"lag_warn: 50", false}, {"lag_warn: 500", false}, {"lag_warn: 500", true}, {"lag_warn: 500", false},
		{"", false}, {"", true}, {"", false},
	} {
		var err error
		switch {
		case look.text == before:
		case look.text == "":
			err = os.Remove(path)
		default:
			err = os.WriteFile(path, []byte(look.text), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		before = look.text
		if got := w.settled(stat(path)); got != look.reads {
			t.Errorf("look %d, at %q: read %v", i+1, look.text, got)
		}
	}
}
