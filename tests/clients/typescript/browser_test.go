package typescript

import (
	"cmp"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/weirmq/weir/tests/process"
	"github.com/weirmq/weir/tests/weirtest"
)

// page loads the package as a browser does, without any tool.
const page = `<!doctype html><script type="importmap">{"imports":{"@weirmq/client":"/client/index.js"}}</script>
<script type="module" src="/test/browser.js"></script>`

// A page uses the package in Chromium, behind one origin with the server.
func TestAPageInABrowserUsesThePackage(t *testing.T) {
	t.Parallel()
	in := program(t)
	srv := weirtest.Start(t, weirtest.Options{})
	upstream, err := url.Parse(srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan string, 1)
	mux := http.NewServeMux()
	proxy := httputil.NewSingleHostReverseProxy(upstream)
	proxy.ErrorLog = log.New(io.Discard, "", 0) // the page breaks off streams and claims
	mux.Handle("/v0/", proxy)
	mux.Handle("/client/", http.StripPrefix("/client/", http.FileServer(http.Dir(filepath.Join(in.app, "node_modules", "@weirmq", "client", "dist")))))
	mux.Handle("/test/", http.StripPrefix("/test/", http.FileServer(http.Dir(filepath.Join(in.app, "test")))))
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = io.WriteString(w, page)
	})
	mux.HandleFunc("POST /done", func(_ http.ResponseWriter, r *http.Request) {
		text, err := io.ReadAll(r.Body)
		if err != nil {
			text = []byte(err.Error())
		}
		done <- string(text)
	})
	site := httptest.NewServer(mux)
	t.Cleanup(site.Close)

	chromium, err := exec.LookPath("chromium")
	if err != nil {
		other, _ := exec.LookPath("google-chrome")
		chromium = cmp.Or(other, "chromium")
	}
	profile, err := os.MkdirTemp(work, "chromium-") // its last processes may still write to it when the test ends
	if err != nil {
		t.Fatal(err)
	}
	var output weirtest.Output
	cmd := exec.Command(chromium, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--remote-debugging-port=0",
		"--user-data-dir="+profile, site.URL+"/") // without a port to debug it would end at once
	cmd.Stdout, cmd.Stderr = &output, &output
	cmd.WaitDelay = time.Second // its children hold its output
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	browser, err := process.Start(cmd)
	if err != nil {
		t.Fatalf("%v; make deps installs it", err)
	}
	defer func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // it and its children
		<-browser.Exited()
	}()
	select {
	case got := <-done:
		const want = `{"followed":["18446744073709551615","é😀"],"skipped":[],"done":{"done":1,"failed":0,"lost":0},` +
			`"refused":"topic_not_found","aborted":"TimeoutError"}`
		if got != want {
			t.Errorf("the page tells %s\nwant %s", got, want)
		}
	case <-browser.Exited():
		t.Fatalf("Chromium ended:\n%s", output.String())
	case <-time.After(2 * time.Minute):
		t.Fatalf("the page tells nothing:\n%s", output.String())
	}
}
