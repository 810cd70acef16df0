// Command backup fills a server, takes a backup of it with `weir backup` while
// clients write, ack and evict as fast as they can, and says how many writes
// were refused and how much slower they were. Then the backup is verified,
// restored, served, and compared record by record with what was acknowledged.
//
//	go run ./tests/backup -gib 2
//
// It ends with 1 if a write was refused or a record is not what it should be.
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/weirmq/weir/tests/crash/rounds"
)

func main() {
	gib := flag.Float64("gib", 2, "GiB to fill the server with")
	rate := flag.Int("rate", 32, "--rate of the backup, MiB per second")
	quiet := flag.Duration("quiet", 30*time.Second, "how long throughput is measured before and after the backup, each")
	temp := flag.String("dir", "", "where to work; default: the system's temporary directory")
	flag.Parse()
	if err := run(*gib, *rate, *quiet, *temp); err != nil {
		fmt.Fprintln(os.Stderr, "backup:", err)
		os.Exit(1)
	}
}

func run(gib float64, rate int, quiet time.Duration, temp string) (err error) {
	dir, err := os.MkdirTemp(temp, "weir-backup-test-*")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	weir, err := rounds.Build(".", dir)
	if err != nil {
		return err
	}
	srv, err := serve(weir, filepath.Join(dir, "data"))
	if err != nil {
		return err
	}
	defer srv.kill()
	l := newLoad(srv.url)
	begin := time.Now()
	if err := l.fill(int64(gib * (1 << 30))); err != nil {
		return err
	}
	fmt.Printf("filled with %d records, %.2f GiB, in %s\n", l.base.Load(), gib, time.Since(begin).Round(time.Second))
	stop := l.start()
	backup := filepath.Join(dir, "backup")
	err = l.during(weir, backup, rate, quiet)
	stop()
	if err = errors.Join(err, l.failed()); err != nil {
		return err
	}
	srv.kill()
	return l.compare(weir, backup, filepath.Join(dir, "restored"))
}

// during measures throughput before, during and after the backup.
func (l *load) during(weir, dir string, rate int, quiet time.Duration) error {
	l.measure("warming up", 5*time.Second)
	before := l.measure("before", quiet)
	l.note()
	refused, done, begin := l.refused.Load(), l.done.Load(), time.Now()
	out, err := exec.Command(weir, "backup", "--rate", fmt.Sprint(rate), l.url, dir).CombinedOutput()
	took := time.Since(begin)
	with := float64(l.done.Load()-done) / took.Seconds()
	refused = l.refused.Load() - refused
	fmt.Printf("backup at %d MiB/s: %s\n", rate, strings.TrimSpace(string(out)))
	if err != nil {
		return err
	}
	fmt.Printf("%-12s %8.0f records/s over %s, %d writes refused, longest write %s\n", "during", with, took.Round(time.Millisecond), refused, l.longest())
	after := l.measure("after", quiet)
	without := (before + after) / 2
	fmt.Printf("throughput during the backup: %.2f of without; %d refused\n", with/without, refused)
	if refused > 0 {
		return fmt.Errorf("%d writes were refused while the backup ran", refused)
	}
	return nil
}

func (l *load) measure(what string, d time.Duration) float64 {
	l.longest()
	done, refused, begin := l.done.Load(), l.refused.Load(), time.Now()
	time.Sleep(d)
	took := time.Since(begin)
	perSecond := float64(l.done.Load()-done) / took.Seconds()
	fmt.Printf("%-12s %8.0f records/s over %s, %d writes refused, longest write %s\n", what, perSecond, took.Round(time.Millisecond), l.refused.Load()-refused, l.longest())
	return perSecond
}

// compare verifies and restores the backup, and reads what it holds.
func (l *load) compare(weir, backup, data string) error {
	for _, args := range [][]string{{"backup", "verify", "--rate", "0", backup}, {"restore", backup, "--data-dir", data}} {
		out, err := exec.Command(weir, args...).CombinedOutput()
		fmt.Println(strings.TrimSpace(string(out)))
		if err != nil {
			return err
		}
	}
	srv, err := serve(weir, data)
	if err != nil {
		return err
	}
	defer srv.kill()
	begin := time.Now()
	n, err := l.judge(srv.url)
	if err != nil {
		return err
	}
	fmt.Printf("restored: %d records read in %s, every one as it was written; what was acknowledged before is there, what was acked before is not\n", n, time.Since(begin).Round(time.Second))
	return nil
}

// server is one weir process.
type server struct {
	url string
	cmd *exec.Cmd
}

func serve(weir, data string) (*server, error) {
	cmd := exec.Command(weir, "serve", "--port", "0", "--data-dir", data)
	cmd.Env = append(os.Environ(), "WEIR_API_KEYS=")
	log, err := os.Create(data + ".log")
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd.Stderr = log
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	s := &server{cmd: cmd}
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if _, rest, ok := strings.Cut(lines.Text(), "is ready at "); ok {
			s.url, _, _ = strings.Cut(rest, ",")
			go func() {
				for lines.Scan() {
				}
			}()
			return s, nil
		}
	}
	err = cmd.Wait()
	text, _ := os.ReadFile(log.Name())
	return nil, errors.Join(fmt.Errorf("the server did not start: %s", text), err)
}

func (s *server) kill() {
	if s.cmd.ProcessState != nil {
		return
	}
	_ = s.cmd.Process.Signal(syscall.SIGTERM)
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = s.cmd.Process.Kill() })
	defer stop()
	_ = s.cmd.Wait()
}
