package overload

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/weirmq/weir/tests/weirtest"
)

// TestManyWhoLookAtLargeDeadLettersTakeLittleMemory: the dashboard shows the beginning of each
// of 50, and the server has them whole while it reads them.
func TestManyWhoLookAtLargeDeadLettersTakeLittleMemory(t *testing.T) {
	const letters, readers, most = 50, 30, 600 << 20
	s := weirtest.Start(t, weirtest.Options{})
	ask := func(method, path, body string) string {
		req, err := http.NewRequestWithContext(t.Context(), method, s.URL+path, strings.NewReader(body))
		if err != nil {
			t.Error(err)
			return ""
		}
		req.Header.Set("Content-Type", "application/json")
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Error(err)
			return ""
		}
		defer res.Body.Close()
		b, err := io.ReadAll(res.Body)
		if err != nil || res.StatusCode >= 300 {
			t.Errorf("%s %s: %d %.200s %v", method, path, res.StatusCode, b, err)
		}
		return string(b)
	}
	ask("PUT", "/v0/topics/q", `{"type":"queue","max_deliveries":1,"dead_letter":"q.dlq"}`)
	record := `{"records":[{"data":"` + strings.Repeat("x", 1_000_000) + `"}]}`
	for range letters {
		ask("POST", "/v0/topics/q", record)
		var claim struct {
			Claimed []struct {
				Seq uint64 `json:"$seq"`
			}
		}
		if err := json.Unmarshal([]byte(ask("POST", "/v0/topics/q/claim", `{"node":"w"}`)), &claim); err != nil || len(claim.Claimed) != 1 {
			t.Fatal(claim, err)
		}
		ask("POST", "/v0/topics/q/nack", fmt.Sprintf(`{"node":"w","seqs":[%d]}`, claim.Claimed[0].Seq))
	}
	ask("POST", "/v0/topics/q/claim", `{"node":"w"}`) // moves the last one
	before := s.PeakRSS()
	var all sync.WaitGroup
	for i := range readers {
		path := "/ui/letters/q"
		if i%2 > 0 {
			path += fmt.Sprintf("/%d", letters)
		}
		all.Go(func() {
			if answer := ask("GET", path, ""); !strings.Contains(answer, `"id":"`+fmt.Sprint(letters)+`"`) {
				t.Errorf("%s: %.300s", path, answer)
			}
		})
	}
	all.Wait()
	growth := s.PeakRSS() - before
	t.Logf("memory grew by %d MiB", growth>>20)
	if growth > most {
		t.Errorf("memory grew by %d MiB", growth>>20)
	}
}
