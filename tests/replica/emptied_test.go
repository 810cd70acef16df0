package replica

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirmq/weir/tests/weirtest"
)

// What is acknowledged under --replica-sync can be restored, or is not acknowledged for long: a copy that is
// emptied beneath its server takes what comes next as if nothing had been in front of it.
func TestACopyThatIsEmptiedBeneathItsServer(t *testing.T) {
	t.Parallel()
	at := t.TempDir()
	s := weirtest.Start(t, weirtest.Options{Env: []string{"WEIR_REPLICA=file://" + at, "WEIR_REPLICA_SYNC=true"}})
	weirtest.Must(t, "topic", "create", "--durability", "fsync", s.URL+"/a")
	write := func() (ok bool) {
		res, err := http.Post(s.URL+"/v0/topics/a", "application/json", strings.NewReader(`{"records":[{"data":1}]}`))
		if err != nil {
			return false
		}
		res.Body.Close()
		return res.StatusCode == http.StatusOK
	}
	if !write() {
		t.Fatal("the first write failed")
	}
	entries, err := os.ReadDir(at)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if err := os.RemoveAll(filepath.Join(at, e.Name())); err != nil {
			t.Fatal(err)
		}
	}
	written := 1
	weirtest.Eventually(t, "the server ends", func() bool {
		if write() {
			written++
		}
		return !s.Running()
	})
	if !strings.Contains(s.Stderr(), "started again, it goes on with its data directory") {
		t.Errorf("it says %s", s.Stderr())
	}
	s.Restart()
	weirtest.Eventually(t, "the copy has a base", func() bool { return number(t, s.URL, "weir_replica_base_age_seconds") >= 0 })
	if !write() {
		t.Error("it takes nothing when it was started again")
	}
	s.Kill()
	out := weirtest.Must(t, "restore", "--json", "file://"+at, filepath.Join(t.TempDir(), "restored"))
	var restored struct{ Records int }
	if err := json.Unmarshal([]byte(out), &restored); err != nil || restored.Records < written+1 {
		t.Errorf("%d records were acknowledged, restored were %d: %v, %s", written+1, restored.Records, err, out)
	}
}
