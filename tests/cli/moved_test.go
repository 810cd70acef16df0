package cli

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirmq/weir/tests/weirtest"
)

// A server whose data directory is moved away under it says so and takes no more, goes on once
// it is back, and never touches the one that another server has in its place.
func TestADirectoryThatIsMovedAwayUnderItsServer(t *testing.T) {
	t.Parallel()
	place := t.TempDir()
	dir, aside := filepath.Join(place, "data"), filepath.Join(place, "aside")
	move := func(from, to string) {
		t.Helper()
		if err := os.Rename(from, to); err != nil {
			t.Fatal(err)
		}
	}
	record := bytes.Repeat([]byte("x"), 1_000_000)
	write := func(s *weirtest.Server) bool {
		t.Helper()
		resp, err := http.Post(s.URL+"/v0/topics/t", "text/plain", bytes.NewReader(record))
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return resp.StatusCode < 300
	}
	holds := func(s *weirtest.Server, n int) {
		t.Helper()
		if got := send(t, "GET", s.URL+"/v0/topics/t", ""); !strings.Contains(got, fmt.Sprintf(`"count":%d,`, n)) {
			t.Errorf("of %d records that were acknowledged there are: %s", n, got)
		}
	}

	old := weirtest.Start(t, weirtest.Options{Dir: dir})
	stored := 0
	for range 10 {
		if write(old) {
			stored++
		}
	}
	move(dir, aside)
	weirtest.Eventually(t, "the server to say that it takes nothing", func() bool {
		return strings.Contains(send(t, "GET", old.URL+"/readyz", ""), `"writable":false,"reason":"the data directory`)
	})
	if write(old) {
		t.Error("a write is acknowledged without a directory")
	}
	move(aside, dir)
	weirtest.Eventually(t, "the server to go on", func() bool {
		if !write(old) {
			return false
		}
		stored++
		return true
	})

	move(dir, aside)
	other, theirs := weirtest.Start(t, weirtest.Options{Dir: dir}), 0
	for range 150 { // to the third file of the log
		if write(old) {
			stored++
		}
		if write(other) {
			theirs++
		}
	}
	if theirs != 150 {
		t.Errorf("the other server has taken %d of 150 writes", theirs)
	}
	old.Stop() // however it ends
	other.Kill()
	other.Restart()
	holds(other, theirs)
	holds(weirtest.Start(t, weirtest.Options{Dir: aside}), stored)
}
