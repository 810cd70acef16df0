package crash

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/weirmq/weir/tests/crash/rounds"
	"github.com/weirmq/weir/tests/weirtest"
)

// minRounds is how many rounds the loop must reach to have tested anything. A slow
// machine takes longer for them.
const minRounds = 20

func TestKilledServerKeepsWhatItAcknowledged(t *testing.T) {
	dir := t.TempDir()
	data := filepath.Join(dir, "data")
	binary := weirtest.Binary(t)
	seed := uint64(time.Now().UnixNano())
	process := &rounds.Process{Binary: binary, Dir: data}
	begin := time.Now()
	sum, err := rounds.Run(t.Context(), rounds.Options{
		Host: process, Rounds: 60, Deadline: begin.Add(2 * time.Minute), AtLeast: minRounds, Latest: begin.Add(7 * time.Minute),
		Seed: seed, DiskFlush: time.Second,
		Backup: rounds.CommandBackup(binary, dir),
		Twice:  rounds.Twice(binary, data, dir, nil), TwiceEvery: 15,
	})
	t.Log(sum)
	if err != nil {
		t.Fatalf("%v\nstandard error of the last server:\n%s", err, process.Stderr())
	}
	for _, v := range sum.Violations {
		t.Error(v)
	}
	if err := sum.Err(); err != nil {
		t.Error(err)
	}
	if sum.Internal > 0 {
		t.Errorf("%d answers with status 500 from a server that lacked nothing", sum.Internal)
	}
	if sum.Rounds < minRounds {
		t.Errorf("only %d rounds reached %d acknowledged records, want %d", sum.Rounds, rounds.MinAcked, minRounds)
	}
}
