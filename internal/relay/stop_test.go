package relay_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/tests/bubble"
)

// A relay that stops waits for nobody who waits: who polls is told to go to the next one, and pages
// that are open end.
func TestARelayThatStopsKeepsNobodyWaiting(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		p := newPlace(t, "")
		p.write("log", 1, 10, api.Fsync)
		if status, answer := p.call("", "PUT", "/v0/topics/jobs", `{"type":"queue"}`); status != http.StatusCreated {
			t.Fatalf("%d %s", status, answer)
		}
		var all sync.WaitGroup
		ask := func(method, path, body, want string) {
			all.Go(func() {
				resp := p.do("", method, path, body, "")
				defer resp.Body.Close()
				text, err := io.ReadAll(resp.Body)
				if got := fmt.Sprint(resp.StatusCode, " ", string(text), err); !strings.Contains(got, want) {
					t.Errorf("%s: %s", path, got)
				}
			})
		}
		ask("POST", "/v0/topics/log/diff", `{"from_seq":1,"wait_ms":30000}`, `503 {"error":{"code":"shutting_down"`)
		ask("POST", "/v0/topics/jobs/claim", `{"node":"w","wait_ms":30000}`, `503 {"error":{"code":"shutting_down"`)
		ask("GET", "/ui/live", "", `unexpected EOF`)
		synctest.Wait()
		time.Sleep(3 * time.Second)
		begun := time.Now()
		p.server.Stop()
		if took := time.Since(begun); took > 2*time.Second {
			t.Errorf("stopping took %v", took)
		}
		all.Wait()
	})
}
