package cli

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/weirmq/weir/tests/redistest"
	"github.com/weirmq/weir/tests/weirtest"
)

// unpacked returns the files of a bundle.
func unpacked(t *testing.T, file string) map[string]string {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	packed, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for in := tar.NewReader(packed); ; {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(in)
		if err != nil {
			t.Fatal(err)
		}
		all[h.Name] = string(text)
	}
}

// A bundle has what a report needs, and no secret.
func TestABundleForAReport(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	srv := weirtest.Start(t, weirtest.Options{Env: []string{"WEIR_API_KEYS=sesame,limited:read+write+delete+admin:tenant-", "WEIR_MAX_TOPICS=77"}})
	req, _ := http.NewRequestWithContext(t.Context(), "POST", srv.URL+"/v0/topics/orders", strings.NewReader(`{"records":[{"data":"payload"}]}`))
	req.Header = http.Header{"Content-Type": {"application/json"}, "Authorization": {"Bearer sesame"}}
	if resp, err := http.DefaultClient.Do(req); err != nil || resp.Body.Close() != nil || resp.StatusCode != 200 && resp.StatusCode != 201 {
		t.Fatal(resp, err)
	}
	bundle := func(key, url, file string) (string, int) {
		_, stderr, code := weirtest.Run(t, []string{"WEIR_API_KEY=" + key}, "debug", "bundle", "--profile", "100ms", url, file)
		return stderr, code
	}
	ofServer, ofQueue, ofRedis := filepath.Join(dir, "server.tgz"), filepath.Join(dir, "queue.tgz"), filepath.Join(dir, "redis.tgz")
	for file, url := range map[string]string{ofServer: srv.URL, ofQueue: srv.URL + "/orders"} {
		if stderr, code := bundle("sesame", url, file); code != 0 {
			t.Fatalf("%s: %d, %s", url, code, stderr)
		}
	}
	redis := redistest.Start(t, redistest.Options{Args: []string{"--requirepass", "hidden"}})
	must(t, "publish", "redis://:hidden@"+redis.Addr()+"/0?stream=orders&group=billing", writeLines(t, []string{"payload"}))
	if stderr, code := bundle("", "redis://:hidden@"+redis.Addr()+"/0?stream=orders&group=billing", ofRedis); code != 0 {
		t.Fatalf("%d, %s", code, stderr)
	}
	for file, c := range map[string]struct {
		files []string
		holds map[string]string
	}{
		ofServer: {[]string{"command.json", "server/about.json", "server/cpu.pprof", "server/goroutine.pprof", "server/goroutines.txt", "server/heap.pprof", "server/history.json", "server/log.txt", "server/metrics.txt", "server/state.json"},
			map[string]string{"server/about.json": `"WEIR_MAX_TOPICS=77"`, "server/log.txt": "msg=ready", "server/metrics.txt": "weir_build_info", "server/state.json": `"orders"`, "server/goroutines.txt": "goroutine 1 ["}},
		ofQueue: {[]string{"command.json", "doctor.json"}, map[string]string{"doctor.json": `"pressure"`}},
		ofRedis: {[]string{"command.json", "doctor.json"}, map[string]string{"doctor.json": `"billing"`, "command.json": "PASSWORD"}},
	} {
		got := unpacked(t, file)
		var names []string
		for name, text := range got {
			names = append(names, name)
			for _, secret := range []string{"sesame", "payload", "hidden"} {
				if strings.Contains(text, secret) {
					t.Errorf("%s: %s holds %q", file, name, secret)
				}
			}
			if !strings.Contains(text, c.holds[name]) {
				t.Errorf("%s: %s does not hold %q:\n%.2000s", file, name, c.holds[name], text)
			}
		}
		if slices.Sort(names); !slices.Equal(names, c.files) {
			t.Errorf("%s holds %q, want %q", file, names, c.files)
		}
	}
	if stderr, code := bundle("sesame", srv.URL, ofServer); code != 1 || !strings.Contains(stderr, "exists") {
		t.Errorf("over a file that is there: %d, %s", code, stderr)
	}
	absent := filepath.Join(dir, "absent.tgz")
	if stderr, code := bundle("limited", srv.URL, absent); code != 1 || !strings.Contains(stderr, "without prefixes") || exists(absent) {
		t.Errorf("with a key that may not see all: %d, %s, there is a file: %v", code, stderr, exists(absent))
	}
}
