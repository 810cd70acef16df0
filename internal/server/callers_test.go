package server

import (
	"fmt"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"

	"github.com/weirmq/weir/internal/relay"
)

// A relay asks its upstream who a caller is, and remembers of those that nobody knows no more than
// of others: a key may be as long as the head of a request.
func TestACallerWithALongKeyTakesNoRoom(t *testing.T) {
	var c callers
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	long := strings.Repeat("x", maxHeaderBytes/2)
	for i := range 1000 {
		c.key(relay.CallerOf(httptest.NewRequest("GET", fmt.Sprintf("/?token=%d%s", i, long), nil), true))
	}
	if took := int64(heap()) - int64(before); took > 4<<20 {
		t.Errorf("a thousand callers take %d bytes", took)
	}
	runtime.KeepAlive(&c)
}
