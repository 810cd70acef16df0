package replica

import (
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

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
	if !strings.Contains(s.Stderr(), "--replica") {
		t.Error("the log does not name what the server waits for")
	}
	if code := s.Stop(); code != 0 {
		t.Errorf("stopped while it waits: exit code %d", code)
	}
}
