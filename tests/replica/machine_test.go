package replica

import (
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/weirmq/weir/tests/crash/rounds"
	"github.com/weirmq/weir/tests/weirtest"
)

var lost = flag.Int("rounds", 2, "rounds in which a machine is lost, with its disk, on each kind of store")

// most is in how many rounds a copy is used: the stand-in for a bucket keeps all in memory.
const most = 25

// machine is a server whose disk goes with it.
type machine struct {
	rounds.Process
	bucket *bucket // nil: the copy is in a directory
	stormy int     // lives in which the store had faults
	lives  int
}

func newMachine(t *testing.T, b *bucket, settings ...string) *machine {
	dir := t.TempDir()
	url := "file://" + filepath.Join(dir, "copy")
	if b != nil {
		url = b.URL
	} else if err := os.Mkdir(filepath.Join(dir, "copy"), 0o700); err != nil {
		t.Fatal(err)
	}
	m := &machine{Process: rounds.Process{Binary: weirtest.Binary(t), Dir: filepath.Join(dir, "data")}, bucket: b}
	m.Env = func() []string {
		m.weather()
		return append([]string{"WEIR_REPLICA=" + url}, settings...)
	}
	m.Killed = func() { os.RemoveAll(m.Dir) }
	return m
}

// weather lets the store have faults in every other life, but not in the first.
func (m *machine) weather() {
	if m.bucket == nil {
		return
	}
	storm := m.lives%2 == 1
	if m.lives++; storm {
		m.stormy++
	}
	m.bucket.forget()
	m.bucket.storm.Store(storm)
}

// onEachStore runs rounds on a copy in a directory, and on one in a bucket with faults.
func onEachStore(t *testing.T, run func(t *testing.T, b *bucket, n int)) {
	t.Run("directory", func(t *testing.T) { run(t, nil, *lost) })
	t.Run("bucket", func(t *testing.T) {
		for left := *lost; left > 0 && !t.Failed(); left -= most {
			run(t, newBucket(t), min(left, most))
		}
	})
}
