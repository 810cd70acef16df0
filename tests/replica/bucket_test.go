package replica

import (
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirmq/weir/internal/replica/replicatest"
	"github.com/weirmq/weir/tests/s3test"
)

func TestMain(m *testing.M) {
	os.Setenv("AWS_ACCESS_KEY_ID", "test")
	os.Setenv("AWS_SECRET_ACCESS_KEY", "test")
	code := m.Run()
	s3test.Clean()
	os.Exit(code)
}

// slow is how long a slow call to the store takes.
const slow = 5 * time.Second

// bucket is a store whose calls suffer faults while there is a storm. It notes how
// long each entry of the log took.
type bucket struct {
	URL    string
	proxy  *s3test.Proxy
	storm  atomic.Bool
	faults atomic.Int64

	mu    sync.Mutex
	began map[string]time.Time     // entries that are not stored, by name
	took  map[string]time.Duration // those that are
}

func newBucket(t *testing.T) *bucket {
	b := &bucket{proxy: s3test.Start(t).Proxy(t)}
	b.forget()
	front := httptest.NewServer(b)
	t.Cleanup(front.Close)
	t.Cleanup(front.CloseClientConnections)
	b.URL = s3test.URL(front.Listener.Addr().String(), "copy")
	return b
}

// forget begins to note anew.
func (b *bucket) forget() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.began, b.took = map[string]time.Time{}, map[string]time.Duration{}
}

// ServeHTTP lets some of the calls suffer a fault.
func (b *bucket) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if b.storm.Load() && rand.IntN(6) == 0 {
		b.plant(r.Method)
	}
	if r.Method != http.MethodPut || !strings.Contains(r.URL.Path, "/log/") {
		b.proxy.ServeHTTP(w, r)
		return
	}
	b.mu.Lock()
	if _, known := b.began[r.URL.Path]; !known {
		b.began[r.URL.Path] = time.Now()
	}
	b.mu.Unlock()
	told := &status{ResponseWriter: w}
	b.proxy.ServeHTTP(told, r)
	if told.code != http.StatusOK && told.code != http.StatusPreconditionFailed {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if began, ok := b.began[r.URL.Path]; ok {
		b.took[r.URL.Path] = time.Since(began)
		delete(b.began, r.URL.Path)
	}
}

// plant plans a fault for the next call; one in four of them is slow.
func (b *bucket) plant(method string) {
	b.faults.Add(1)
	if method == http.MethodGet {
		b.proxy.TearGets.Store(1)
		return
	}
	switch rand.IntN(8) {
	case 0:
		b.proxy.TearPuts.Store(1)
	case 1:
		b.proxy.Inject(replicatest.LoseAnswer, 1)
	case 2:
		b.proxy.Inject(replicatest.LoseCall, 1)
	case 3, 4, 5: // 503 and 409 in turn
		b.proxy.Inject(replicatest.Busy, 1+rand.IntN(3))
	default:
		time.AfterFunc(slow, b.proxy.Inject(replicatest.Hold, 1))
	}
}

// longest is the longest time that an entry took to be stored, or was not stored by now.
func (b *bucket) longest() (d time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, took := range b.took {
		d = max(d, took)
	}
	for _, began := range b.began {
		d = max(d, time.Since(began))
	}
	return d
}

// status notes the status of an answer.
type status struct {
	http.ResponseWriter
	code int
}

func (s *status) WriteHeader(code int) {
	s.code = code
	s.ResponseWriter.WriteHeader(code)
}
