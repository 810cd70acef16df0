package settings

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"
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

// A file is another one if its size or its time is, or if another was put in its place.
func TestAFileThatIsReplacedIsRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "weir.yaml")
	w := watcher{path: path}
	for i, look := range []struct {
		text string
		at   time.Time
	}{
		{"lag_warn: 5", time.Unix(1, 0)},
		{"lag_warn: 6", time.Unix(2, 0)},
		{"lag_warn: 66", time.Unix(2, 0)},
		{"lag_warn: 77", time.Unix(2, 0)}, // in the place of the one before
	} {
		at := path
		if i == 3 {
			at = path + ".new"
		}
		err := errors.Join(os.WriteFile(at, []byte(look.text), 0o600), os.Chtimes(at, look.at, look.at))
		if i == 3 {
			err = errors.Join(err, os.Rename(at, path))
		}
		if err != nil {
			t.Fatal(err)
		}
		if first, second := w.settled(stat(path)), w.settled(stat(path)); first || !second {
			t.Errorf("file %d is read at the first look: %v, at the second: %v", i+1, first, second)
		}
	}
}
