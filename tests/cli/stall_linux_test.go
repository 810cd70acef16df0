package cli

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/weirmq/weir/tests/process"
	"github.com/weirmq/weir/tests/weirtest"
)

// stalled is the exit code of a server whose log stands still.
const stalled = 75

// fullPipe returns a pipe that takes no byte more.
func fullPipe(t *testing.T) (r, w *os.File, fill func()) {
	t.Helper()
	var fds [2]int
	if err := syscall.Pipe2(fds[:], syscall.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	r, w = os.NewFile(uintptr(fds[0]), "r"), os.NewFile(uintptr(fds[1]), "w")
	t.Cleanup(func() { r.Close(); w.Close() })
	return r, w, func() {
		// A description of its own, which alone does not wait for room.
		fd, err := syscall.Open(fmt.Sprintf("/proc/self/fd/%d", fds[1]), syscall.O_WRONLY|syscall.O_NONBLOCK|syscall.O_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer syscall.Close(fd)
		for size := 4096; size > 0; {
			if _, err := syscall.Write(fd, make([]byte, size)); err != nil {
				size /= 2
			}
		}
	}
}

// limitFiles lets every write of the process behind the first byte of a file fail.
func limitFiles(t *testing.T, pid int) {
	t.Helper()
	limit := syscall.Rlimit{Cur: 1, Max: 1 << 62}
	_, _, errno := syscall.RawSyscall6(syscall.SYS_PRLIMIT64, uintptr(pid), syscall.RLIMIT_FSIZE,
		uintptr(unsafe.Pointer(&limit)), 0, 0, 0)
	if errno != 0 {
		t.Fatalf("prlimit: %v", errno)
	}
}

// serveToPipe starts a server whose standard error is a pipe that nobody reads, and that fill fills.
func serveToPipe(t *testing.T, dir string, args ...string) (cmd *exec.Cmd, exited chan struct{}, addr string, fill func()) {
	t.Helper()
	_, w, fill := fullPipe(t)
	portFile := filepath.Join(t.TempDir(), "port")
	cmd = exec.Command(weirtest.Binary(t), append([]string{"serve", "--data-dir", dir, "--port", "0", "--port-file", portFile}, args...)...)
	cmd.Stderr = w
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	exited = make(chan struct{})
	go func() { _ = cmd.Wait(); close(exited) }()
	t.Cleanup(func() { _ = cmd.Process.Kill(); <-exited })
	eventually(t, "a port", func() bool { b, _ := os.ReadFile(portFile); addr = string(b); return len(b) > 0 })
	return cmd, exited, addr, fill
}

// Whoever reads the server's standard error has stopped reading: SIGTERM does not mind, also if
// there is something wrong to be told.
func TestALogThatNobodyReadsKeepsNoServerFromStopping(t *testing.T) {
	t.Parallel()
	for _, want := range []int{0, 1} {
		t.Run(fmt.Sprint("exit code ", want), func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "data")
			cmd, exited, addr, fill := serveToPipe(t, dir)
			var answer any
			eventually(t, "a topic", func() bool { return request(t, "PUT", "http://"+addr+"/v0/topics/t", `{}`, &answer) })
			fill()
			if want != 0 {
				if err := os.Rename(dir, dir+".aside"); err != nil {
					t.Fatal(err)
				}
			}
			if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			select {
			case <-exited:
			case <-time.After(time.Minute):
				t.Fatal("the server hangs")
			}
			if code := cmd.ProcessState.ExitCode(); code != want {
				t.Errorf("exit code %d, want %d", code, want)
			}
		})
	}
}

// A write to the disk fails, and whoever reads the server's standard error has
// stopped reading: telling the failure hangs, and the log with it. The server
// ends though nobody takes its last words, and the next start has all that was
// acknowledged.
func TestAServerWhoseLogStandsStillEnds(t *testing.T) {
	t.Parallel()
	dir := process.QuickDir(t)
	cmd, exited, addr, fill := serveToPipe(t, dir, "--stall-after", "1s")
	url := "http://" + addr + "/v0/topics/orders"
	var answer any
	eventually(t, "a queue", func() bool { return request(t, "PUT", url, `{"durability":"fsync"}`, &answer) })
	if !request(t, "POST", url, `{"records":[{"data":"acknowledged"}]}`, &answer) {
		t.Fatal("the first write failed")
	}
	fill()
	limitFiles(t, cmd.Process.Pid)
	if request(t, "POST", url, `{"records":[{"data":"fails"}]}`, &answer) {
		t.Error("a write was acknowledged that could not be stored")
	}
	select {
	case <-exited:
	case <-time.After(time.Minute):
		t.Fatal("the server hangs")
	}
	if code := cmd.ProcessState.ExitCode(); code != stalled {
		t.Errorf("exit code %d, want %d", code, stalled)
	}
	srv := weirtest.Start(t, weirtest.Options{Dir: dir})
	if s := topicState(t, srv, "orders"); s.Count != 1 {
		t.Errorf("%d records after the restart, want the acknowledged one", s.Count)
	}
}

// A stopped process does nothing for longer than the log may stand still, with
// writes under way.
func TestAServerThatWasSuspendedGoesOn(t *testing.T) {
	t.Parallel()
	srv := weirtest.Start(t, weirtest.Options{Dir: filepath.Join(process.QuickDir(t), "data"), Args: []string{"--stall-after", "3s"}})
	put(t, srv, "orders", `{"durability":"fsync"}`)
	url := srv.URL + "/v0/topics/orders"
	acked := make(chan int)
	stop := make(chan struct{})
	go func() {
		n := 0
		defer func() { acked <- n }()
		for {
			select {
			case <-stop:
				return
			default:
			}
			var answer any
			if !request(t, "POST", url, `{"records":[{"data":"x"}]}`, &answer) {
				return
			}
			n++
		}
	}()
	for range 3 {
		eventually(t, "writes", func() bool { return topicState(t, srv, "orders").Count > 0 })
		if err := srv.Signal(syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second) // what is tested is the time itself
		if err := srv.Signal(syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
		before := topicState(t, srv, "orders").Count
		eventually(t, "writes after the pause", func() bool { return topicState(t, srv, "orders").Count > before })
	}
	close(stop)
	n := <-acked
	if s := topicState(t, srv, "orders"); s.Count != uint64(n) {
		t.Errorf("%d records, %d acknowledged", s.Count, n)
	}
	if code := srv.Stop(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}
