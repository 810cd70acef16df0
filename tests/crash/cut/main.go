// Command cut runs the weir binary on a file system of its own that forgets
// what was not synced, and cuts its power: the server is killed and of all
// unsynced blocks and directory entries none, some or all survive. After every
// restart everything acknowledged as fsync must be there, and what a disk topic
// lost must be young and announced.
//
//	cd tests/crash/cut && go run . -n 40
//
// It ends with 1 if a promise was broken and with 2 if it cannot mount.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/weirmq/weir/tests/crash/rounds"
)

func main() {
	n := flag.Int("n", 40, "cuts that must count")
	seed := flag.Uint64("seed", uint64(time.Now().UnixNano()), "seed of the load, the moments and the survivors")
	verbose := flag.Bool("v", false, "print a line per cut")
	backups := flag.Bool("backups", true, "take backups under load, restore them and judge what they hold")
	flag.Parse()
	err := run(*n, *seed, *verbose, *backups)
	switch {
	case errors.Is(err, errMount):
		fmt.Fprintln(os.Stderr, "cut:", err)
		os.Exit(2)
	case err != nil:
		fmt.Fprintln(os.Stderr, "cut:", err)
		os.Exit(1)
	}
}

var errMount = errors.New("cannot mount a FUSE file system here (it needs /dev/fuse and the right to mount)")

// volume is a disk and where it is mounted.
type volume struct {
	disk   *disk
	at     string
	server *fuse.Server
	rnd    *rand.Rand
	failed error
	cuts   int
}

func (v *volume) mount() error {
	server, err := mount(v.disk, v.at)
	if err != nil {
		return fmt.Errorf("%w: %v", errMount, err)
	}
	v.server = server
	return nil
}

// cut takes the disk away, lets it forget, and gives it back.
func (v *volume) cut() {
	if err := v.server.Unmount(); err != nil {
		v.failed = errors.Join(v.failed, err)
		return
	}
	v.disk.cut([]float64{0, 0.5, 1}[v.rnd.IntN(3)])
	v.cuts++
	v.failed = errors.Join(v.failed, v.mount())
}

func run(n int, seed uint64, verbose, backups bool) (err error) {
	dir, err := os.MkdirTemp("", "weir-cut-*")
	if err != nil {
		return err
	}
	v := &volume{disk: newDisk(seed), at: filepath.Join(dir, "disk"), rnd: rand.New(rand.NewPCG(seed, 2))}
	if err := errors.Join(os.Mkdir(v.at, 0o700), v.mount()); err != nil {
		return errors.Join(err, os.RemoveAll(dir))
	}
	defer func() {
		err = errors.Join(err, v.server.Unmount())
		if err == nil {
			err = os.RemoveAll(dir)
		}
	}()
	binary, err := rounds.Build("../../..", dir)
	if err != nil {
		return err
	}
	log := io.Discard
	if verbose {
		log = os.Stdout
	}
	process := &rounds.Process{
		Binary: binary, Dir: filepath.Join(v.at, "data"), Killed: v.cut,
		Env: func() []string { return []string{fmt.Sprintf("WEIR_TEST_BOOT_ID=boot-%d", v.cuts)} },
	}
	var backup rounds.Backup
	if backups {
		backup = rounds.CommandBackup(binary, dir)
	}
	begin := time.Now()
	sum, err := rounds.Run(context.Background(), rounds.Options{
		Host: process, Rounds: n, Seed: seed, Power: true, DiskFlush: 1200 * time.Millisecond, HistoryDir: dir, Log: log,
		Backup: backup,
	})
	fmt.Printf("%v\npower cuts %d, took %v\n", sum, v.cuts, time.Since(begin).Round(time.Second))
	for _, violation := range sum.Violations {
		fmt.Println("violation:", violation)
	}
	if err = errors.Join(err, v.failed); err != nil {
		return fmt.Errorf("%w\nstandard error of the last server:\n%s", err, process.Stderr())
	}
	return sum.Err()
}
