package replica

import (
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirmq/weir/tests/s3test"
	"github.com/weirmq/weir/tests/weirtest"
)

// TestAServerThatStartsWhileItsStoreIsAwaySaysSo gives it a store that refuses connections.
func TestAServerThatStartsWhileItsStoreIsAwaySaysSo(t *testing.T) {
	away, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	away.Close()
	s := weirtest.Start(t, weirtest.Options{NoWait: true, Env: []string{"AWS_ACCESS_KEY_ID=a", "AWS_SECRET_ACCESS_KEY=b",
		"WEIR_REPLICA=s3://weir/copy?region=us-east-1&endpoint=http://" + away.Addr().String()}})
	client := http.Client{Timeout: 30 * time.Second}
	for path, want := range map[string]int{"/v0/health": http.StatusOK, "/v0/ready": http.StatusServiceUnavailable, "/v0/topics": http.StatusServiceUnavailable} {
		res, err := client.Get(s.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if res.StatusCode != want {
			t.Errorf("%s: %d, want %d", path, res.StatusCode, want)
		}
	}
	weirtest.Eventually(t, "the log names what the server waits for", func() bool { return strings.Contains(s.Stderr(), "--replica") })
	if code := s.Stop(); code != 0 {
		t.Errorf("stopped while it waits: exit code %d", code)
	}
}

// TestAServerThatFetchesALongBaseAnswers holds back the files of the base that a server on an empty
// directory begins with.
func TestAServerThatFetchesALongBaseAnswers(t *testing.T) {
	t.Parallel()
	b := newBucket(t)
	first := weirtest.Start(t, weirtest.Options{Env: []string{"WEIR_REPLICA=" + b.URL}})
	weirtest.Eventually(t, "the copy has a base", func() bool { return number(t, first.URL, "weir_replica_base_age_seconds") >= 0 })
	if code := first.Stop(); code != 0 {
		t.Fatalf("exit code %d", code)
	}
	release := make(chan struct{})
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet && (strings.Contains(r.URL.Path, "/kv/") || strings.Contains(r.URL.Path, "/wal/")) {
			<-release
		}
		b.ServeHTTP(w, r)
	}))
	t.Cleanup(front.Close)
	t.Cleanup(front.CloseClientConnections)
	let := sync.OnceFunc(func() { close(release) })
	t.Cleanup(let)
	s := weirtest.Start(t, weirtest.Options{NoWait: true, Env: []string{"WEIR_REPLICA=" + s3test.URL(front.Listener.Addr().String(), "copy")}})
	for path, want := range map[string]int{"/v0/health": http.StatusOK, "/v0/ready": http.StatusServiceUnavailable} {
		res, err := http.Get(s.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if res.StatusCode != want {
			t.Errorf("%s: %d, want %d", path, res.StatusCode, want)
		}
	}
	let()
	if err := s.AwaitReady(); err != nil {
		t.Error(err)
	}
}
