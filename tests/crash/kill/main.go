// Command kill runs the weir binary through rounds of load over all durability
// classes, each ended by kill -9 at a random moment, and checks after every
// restart that nothing acknowledged is lost, changed or done twice.
//
//	go run ./tests/crash/kill -n 300
//
// It prints what it reached and ends with 1 if a promise was broken; then the
// history and the data directory stay where it says.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/weirmq/weir/tests/crash/rounds"
)

func main() {
	n := flag.Int("n", 300, "rounds that must count")
	seed := flag.Uint64("seed", uint64(time.Now().UnixNano()), "seed of the load and of the moments of the kills")
	every := flag.Int("twice", 25, "rounds between two comparisons of repeated recoveries")
	verbose := flag.Bool("v", false, "print a line per round")
	backups := flag.Bool("backups", true, "take backups under load, restore them and judge what they hold")
	keep := flag.Bool("keep", false, "keep the data directory")
	flag.Parse()
	if err := run(*n, *seed, *every, *verbose, *keep, *backups); err != nil {
		fmt.Fprintln(os.Stderr, "kill:", err)
		os.Exit(1)
	}
}

func run(n int, seed uint64, every int, verbose, keep, backups bool) (err error) {
	dir, err := os.MkdirTemp("", "weir-kill-*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil || keep {
			fmt.Println("kept:", dir)
			return
		}
		err = os.RemoveAll(dir)
	}()
	binary, err := rounds.Build(".", dir)
	if err != nil {
		return err
	}
	log := io.Discard
	if verbose {
		log = os.Stdout
	}
	var backup rounds.Backup
	if backups {
		backup = rounds.CommandBackup(binary, dir)
	}
	begin := time.Now()
	data := filepath.Join(dir, "data")
	process := &rounds.Process{Binary: binary, Dir: data}
	sum, err := rounds.Run(context.Background(), rounds.Options{
		Host: process, Rounds: n, Seed: seed, DiskFlush: time.Second,
		Backup: backup,
		Twice:  rounds.Twice(binary, data, dir, nil), TwiceEvery: every, HistoryDir: dir, Log: log,
	})
	fmt.Printf("%v\ntook %v\n", sum, time.Since(begin).Round(time.Second))
	for _, v := range sum.Violations {
		fmt.Println("violation:", v)
	}
	if err != nil {
		return fmt.Errorf("%w\nstandard error of the last server:\n%s", err, process.Stderr())
	}
	return sum.Err()
}
