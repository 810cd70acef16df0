package engine

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/tests/crashfs"
)

func TestALogThatWasSealedWholeIsSealedAgainAfterARestart(t *testing.T) {
	for _, how := range []string{"close", "kill", "close, kill"} {
		fs := crashfs.New()
		for life := range 4 {
			e := openOn(t, fs, "a")
			put(t, e, "t", configOf(api.Disk))
			write(t, e, "t", "1", "2")
			if err := e.Backup(bg, fmt.Sprint("/backup", life)); err != nil {
				t.Fatalf("%s, life %d: %v", how, life, err)
			}
			next := fs
			if how == "kill" || how == "close, kill" && life%2 == 1 {
				next = fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rand.New(rand.NewPCG(1, 1))})
			}
			if err := e.Close(); err != nil {
				t.Fatal(err)
			}
			fs = next
		}
	}
}
