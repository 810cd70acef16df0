package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/weirmq/weir/tests/weirtest"
)

// smallDisk returns a directory on a file system of 160 MB and the settings of a
// server on it. Where nothing may be mounted it is a directory of the machine's
// own disk, of which the server may take 400 MiB.
func smallDisk(t *testing.T) (dir string, env []string, mounted bool) {
	t.Helper()
	dir = t.TempDir()
	if err := exec.Command("mount", "-t", "tmpfs", "-o", "size=160m", "weir-test", dir).Run(); err == nil {
		t.Cleanup(func() {
			if out, err := exec.Command("umount", dir).CombinedOutput(); err != nil {
				t.Errorf("umount: %v: %s", err, out)
			}
		})
		return dir, nil, true
	}
	var fs syscall.Statfs_t
	if err := syscall.Statfs(dir, &fs); err != nil {
		t.Fatal(err)
	}
	return dir, []string{fmt.Sprintf("WEIR_DISK_RESERVE=%d", int64(fs.Bavail)*int64(fs.Bsize)-400<<20)}, false
}

// answer is what a server said.
type answer struct {
	status     int
	retryAfter string
	body       string
}

func (a answer) String() string { return fmt.Sprintf("%d %.300s", a.status, a.body) }

func ask(t *testing.T, method, url, body string) answer {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Error(err)
		return answer{}
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return answer{body: err.Error()}
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(resp.Body) // a body cut short does not hold what is looked for
	return answer{resp.StatusCode, resp.Header.Get("Retry-After"), string(text)}
}

// load writes to a topic without end and counts what became of it.
type load struct {
	stored, refused atomic.Int64 // batches
	other           atomic.Value // the first answer that is neither, a string
}

func (l *load) run(t *testing.T, url, batch string, stop <-chan struct{}) {
	for {
		select {
		case <-stop:
			return
		default:
		}
		switch a := ask(t, "POST", url+"?return_seqs=false", batch); {
		case a.status == 200 || a.status == 201:
			l.stored.Add(1)
		case a.status == 507 && strings.Contains(a.body, `"code":"disk_full"`) && a.retryAfter == "5":
			l.refused.Add(1)
			time.Sleep(20 * time.Millisecond)
		case a.status == 429 && strings.Contains(a.body, "the ingest queue is full"): // sealing waits for a processor
			time.Sleep(20 * time.Millisecond)
		default:
			l.other.CompareAndSwap(nil, a.String())
			return
		}
	}
}

// A disk that fills up under load: writes are refused in time, what frees space
// goes on, also when another program takes the last byte, and the space comes
// back and writes with it, without a restart. Nothing acknowledged is lost.
func TestAFullDisk(t *testing.T) {
	disk, env, mounted := smallDisk(t)
	srv := weirtest.Start(t, weirtest.Options{Dir: filepath.Join(disk, "data"), Env: env})
	topics := map[string]*load{"jobs": {}, "capped": {}, "log": {}}
	for name, config := range map[string]string{
		"jobs": `{"type":"queue"}`, "capped": `{"cap_bytes":8388608}`, "log": `{"durability":"fsync"}`,
	} {
		if a := ask(t, "PUT", srv.URL+"/v0/topics/"+name, config); a.status != 201 {
			t.Fatal(a)
		}
	}
	const perBatch = 50
	record := `{"data":"` + strings.Repeat("x", 4000) + `"}`
	batch := `{"records":[` + strings.Repeat(record+",", perBatch-1) + record + `]}`
	stop := make(chan struct{})
	var writers sync.WaitGroup
	for name, l := range topics {
		for range 2 {
			writers.Go(func() { l.run(t, srv.URL+"/v0/topics/"+name, batch, stop) })
		}
	}
	halt := sync.OnceFunc(func() { close(stop); writers.Wait() })
	t.Cleanup(halt)
	eventually(t, "writes to every topic are refused", func() bool {
		for name, l := range topics {
			if other := l.other.Load(); other != nil {
				t.Fatalf("a write to %s answers %v", name, other)
			}
			if l.refused.Load() == 0 {
				return false
			}
		}
		return true
	})
	halt()
	for name, l := range topics {
		t.Logf("%s: %d batches stored, %d refused", name, l.stored.Load(), l.refused.Load())
		if l.stored.Load() == 0 {
			t.Errorf("%s took no write before the disk was full", name)
		}
	}
	if mounted {
		// What the cap and the sealing still free is taken, too.
		eventually(t, "the disk stays full", func() bool {
			takeTheRest(t, filepath.Join(disk, "foreign"))
			for range 30 { // for longer than the server waits until it tries again to seal
				if ask(t, "POST", srv.URL+"/v0/topics/probe", `{"records":[{"data":1}]}`).status != 507 {
					return false
				}
				time.Sleep(100 * time.Millisecond)
			}
			return true
		})
	}
	checkRefusing(t, srv, "other")
	if mounted { // it starts without a free byte, too
		srv.Kill()
		takeTheRest(t, filepath.Join(disk, "foreign"))
		srv.Restart()
		checkRefusing(t, srv, "third")
	}
	acked := ackJobs(t, srv.URL, int(topics["jobs"].stored.Load())*perBatch*3/4)
	if a := ask(t, "DELETE", srv.URL+"/v0/topics/capped", ""); a.status != 200 {
		t.Errorf("DELETE: %v", a)
	}
	half := topics["log"].stored.Load() * perBatch / 2
	if a := ask(t, "POST", srv.URL+"/v0/topics/log/delete", fmt.Sprintf(`{"before_seq":%d}`, half+1)); !strings.Contains(a.body, fmt.Sprintf(`"deleted":%d,`, half)) {
		t.Errorf("delete: %v", a)
	}
	eventually(t, "writes are taken again", func() bool {
		return ask(t, "POST", srv.URL+"/v0/topics/after", `{"records":[{"data":1}]}`).status/100 == 2
	})
	if a := ask(t, "GET", srv.URL+"/v0/ready", ""); strings.Contains(a.body, "writable") {
		t.Errorf("ready: %v", a)
	}
	wantJobs := topics["jobs"].stored.Load()*perBatch - int64(acked)
	for range 2 {
		if st := topicState(t, srv, "jobs"); int64(st.Count) != wantJobs {
			t.Errorf("jobs holds %d, want %d", st.Count, wantJobs)
		}
		if st := topicState(t, srv, "log"); int64(st.Count) != topics["log"].stored.Load()*perBatch-half {
			t.Errorf("log holds %d of %d batches less %d", st.Count, topics["log"].stored.Load(), half)
		}
		if code := srv.Stop(); code != 0 {
			t.Errorf("SIGTERM ends with %d", code)
		}
		srv.Restart()
	}
}

// takeTheRest fills a disk to the last byte, as another program may; name grows.
func takeTheRest(t *testing.T, name string) {
	t.Helper()
	f, err := os.OpenFile(name, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for chunk := make([]byte, 1<<16); err == nil; {
		_, err = f.Write(chunk)
	}
	if !strings.Contains(err.Error(), "no space left") {
		t.Fatal(err)
	}
}

// checkRefusing looks at a server whose disk is full, and creates the topic absent there.
func checkRefusing(t *testing.T, srv *weirtest.Server, absent string) {
	t.Helper()
	if a := ask(t, "GET", srv.URL+"/v0/ready", ""); a.status != 200 || !strings.Contains(a.body, `"writable":false,"reason":"the disk has `) {
		t.Errorf("ready: %v", a)
	}
	if a := ask(t, "GET", srv.URL+"/v0/metrics", ""); !strings.Contains(a.body, "\nweir_writable 0\n") || !strings.Contains(a.body, "\nweir_disk_free_bytes ") || !strings.Contains(a.body, "\nweir_wal_read_only 0\n") {
		t.Error("the metrics do not say that the disk is full, or the log has broken")
	}
	for _, c := range []struct {
		what, method, path, body, want string
		status                         int
	}{
		{"write", "POST", "/v0/topics/log", `{"records":[{"data":1}]}`, `"code":"disk_full"`, 507},
		{"read", "POST", "/v0/topics/log/diff", `{"limit":1}`, `"$seq":1`, 200},
		{"claim", "POST", "/v0/topics/jobs/claim", `{"node":"w","max":3}`, `"count":3`, 200},
		{"extend", "POST", "/v0/topics/jobs/extend", `{"node":"w","seqs":[1],"lease_ms":60000}`, `"extended":1`, 200},
		{"nack", "POST", "/v0/topics/jobs/nack", `{"node":"w","seqs":[1,2,3]}`, `"nacked":3`, 200},
		{"configure", "PUT", "/v0/topics/capped", `{"cap_bytes":4194304}`, `"created":false`, 200},
		{"create", "PUT", "/v0/topics/" + absent, `{}`, `"created":true`, 201},
	} {
		if a := ask(t, c.method, srv.URL+c.path, c.body); a.status != c.status || !strings.Contains(a.body, c.want) {
			t.Errorf("%s: %v, want %d with %s", c.what, a, c.status, c.want)
		}
	}
}

// ackJobs claims and acks at least n jobs and returns how many it were.
func ackJobs(t *testing.T, url string, n int) int {
	t.Helper()
	done := 0
	for done < n {
		a := ask(t, "POST", url+"/v0/topics/jobs/claim", `{"node":"w","max":500}`)
		var claim struct {
			Claimed []struct {
				Seq uint64 `json:"$seq"`
			}
		}
		if err := json.Unmarshal([]byte(a.body), &claim); err != nil || len(claim.Claimed) == 0 {
			t.Fatalf("claim after %d of %d: %v", done, n, a)
		}
		seqs := make([]uint64, len(claim.Claimed))
		for i, c := range claim.Claimed {
			seqs[i] = c.Seq
		}
		list, err := json.Marshal(seqs)
		if err != nil {
			t.Fatal(err)
		}
		a = ask(t, "POST", url+"/v0/topics/jobs/ack", `{"node":"w","seqs":`+string(list)+`}`)
		if want := fmt.Sprintf(`"acked":%d,`, len(seqs)); a.status != 200 || !strings.Contains(a.body, want) {
			t.Fatalf("ack after %d of %d: %v", done, n, a)
		}
		done += len(seqs)
	}
	return done
}
