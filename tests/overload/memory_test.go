package overload

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirmq/weir/tests/weirtest"
)

// smallGroup makes a control group of so many bytes, as a small container has. It skips the test where
// none can be made, as without root.
func smallGroup(t *testing.T, bytes int64) string {
	t.Helper()
	var wrong []error
	for root, files := range map[string][2]string{
		"/sys/fs/cgroup/memory": {"memory.limit_in_bytes", "memory.memsw.limit_in_bytes"},
		"/sys/fs/cgroup":        {"memory.max", "memory.swap.max"},
	} {
		dir := filepath.Join(root, fmt.Sprintf("weirtest-%d", os.Getpid()))
		if err := os.Mkdir(dir, 0o755); err != nil {
			wrong = append(wrong, err)
			continue
		}
		t.Cleanup(func() {
			if err := os.Remove(dir); err != nil {
				t.Error(err)
			}
		})
		err := limit(dir, files[0], bytes)
		if err != nil {
			wrong = append(wrong, err)
			continue
		}
		_ = limit(dir, files[1], bytes) // without swap there is no such file
		return dir
	}
	t.Skipf("no control group with a limit of memory can be made here: %v", wrong)
	return ""
}

// limit writes a limit of a control group; the file is not made if it is not there.
func limit(dir, file string, bytes int64) error {
	f, err := os.OpenFile(filepath.Join(dir, file), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = fmt.Fprint(f, bytes)
	return errors.Join(err, f.Close())
}

// A server knows how little memory its container has: callers who together send more than that are
// refused in part, and the kernel does not end it.
func TestASmallContainerIsNotUsedUp(t *testing.T) {
	const (
		callers = 64
		writes  = 3
		records = 10
		size    = 100_000
	)
	s := weirtest.Start(t, weirtest.Options{Group: smallGroup(t, 128<<20)})
	body := `{"records":[` + strings.TrimSuffix(strings.Repeat(`{"data":"`+strings.Repeat("x", size)+`"},`, records), ",") + `]}`
	ask := func(path, body string) (int, string, error) {
		res, err := http.Post(s.URL+path, "application/json", strings.NewReader(body))
		if err != nil {
			return 0, "", err
		}
		defer res.Body.Close()
		answer, err := io.ReadAll(res.Body)
		return res.StatusCode, string(answer), err
	}
	end := time.Now().Add(2 * time.Minute)
	var all sync.WaitGroup
	for i := range callers {
		all.Go(func() {
			topic := fmt.Sprintf("/v0/topics/t%d", i)
			for stored := 0; stored < writes && !t.Failed(); {
				switch status, answer, err := ask(topic, body); {
				case err != nil:
					t.Errorf("a write got no answer: %v", err)
				case status == http.StatusCreated || status == http.StatusOK:
					stored++
				case status != http.StatusTooManyRequests || time.Now().After(end):
					t.Errorf("a write got %d %.200s", status, answer)
				default:
					time.Sleep(50 * time.Millisecond)
				}
			}
			for read := 0; read < writes*records && !t.Failed(); { // an answer has fewer records where others wait for theirs
				status, answer, err := ask(topic+"/diff", fmt.Sprintf(`{"from_seq":%d,"limit":1000,"max_batch_bytes":8388608}`, read))
				n := strings.Count(answer, `"$seq"`)
				if read += n; err != nil || status != http.StatusOK || n == 0 {
					t.Errorf("a read got %d, %v, and %d records are not there", status, err, writes*records-read)
				}
			}
		})
	}
	all.Wait()
	if code := s.Stop(); code != 0 {
		t.Errorf("the server ended with %d\n%s", code, s.Stderr())
	}
}
