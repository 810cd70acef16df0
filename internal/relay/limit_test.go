package relay_test

import (
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/tests/bubble"
)

// What came to the relay in one message goes to a listener in as many frames as it asked for.
func TestAListenerOfSmallFramesGetsAllOfALargeOne(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		p := newPlace(t, "")
		p.write("a", 1, 10, api.Fsync)
		status, answer := p.call("", "POST", "/v0/watch", `{"topics":{"a":{}},"limit":1}`)
		if status != http.StatusOK {
			t.Fatalf("%d %s", status, answer)
		}
		wid := strings.SplitN(answer[strings.Index(answer, `"wid_`)+1:], `"`, 2)[0]
		resp := p.do("", "GET", "/v0/watch/"+wid, "", "")
		var mu sync.Mutex
		var all []byte
		done := make(chan struct{})
		go func() {
			defer close(done)
			b := make([]byte, 4096)
			for {
				n, err := resp.Body.Read(b)
				mu.Lock()
				all = append(all, b[:n]...)
				mu.Unlock()
				if err != nil {
					return
				}
			}
		}()
		time.Sleep(time.Second)
		if status, answer := p.call("", "POST", "/v0/topics/a", `{"records":[{"data":1},{"data":2},{"data":3}]}`); status != http.StatusOK {
			t.Fatalf("%d %s", status, answer)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		mu.Lock()
		var got []string
		for _, part := range strings.Split(string(all), `"$seq":`)[1:] {
			got = append(got, part[:1])
		}
		mu.Unlock()
		if want := []string{"1", "2", "3", "4"}; !slices.Equal(got, want) {
			t.Errorf("records %v, want %v", got, want)
		}
		resp.Body.Close()
		<-done
	})
}
