package queue_test

import (
	"testing"
	"time"

	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/backend/backendtest"
)

// short is a lease that a busy machine keeps while it should.
const short = time.Second

// A queue in memory ends with its last handle, so each is held open for the
// length of the test.
func TestConformanceInMemory(t *testing.T) {
	t.Parallel()
	h := &host{t: t, kind: "mem"}
	backendtest.Run(t, backendtest.Harness{
		Name: "mem", KeepsErrors: true, CountsItself: true, ReclaimAfter: short,
		Open: func(t testing.TB, stream string) backend.Backend { return h.openFor(t, stream) },
	})
}

func TestConformanceInADirectory(t *testing.T) {
	t.Parallel()
	h := &host{t: t, kind: "file", dir: t.TempDir()}
	backendtest.Run(t, backendtest.Harness{
		Name: "file", KeepsErrors: true, CountsItself: true, ReclaimAfter: short,
		Open: func(t testing.TB, stream string) backend.Backend { return h.openFor(t, stream) },
	})
}

func TestConformanceOverHTTP(t *testing.T) {
	t.Setenv("WEIR_TEST_PRESSURE", "0") // a busy machine is not what is tested
	h := &host{t: t, kind: "http"}
	h.serve("")
	behind := func(t testing.TB, addr, stream string) backend.Backend {
		far := &host{kind: "http", addr: addr}
		return far.openFor(t, stream)
	}
	backendtest.Run(t, backendtest.Harness{
		Name: "http", KeepsErrors: true, CountsItself: true, ReclaimAfter: short,
		Open:        func(t testing.TB, stream string) backend.Backend { return h.openFor(t, stream) },
		Faulty:      backendtest.Through(h.addr, behind, backendtest.HoldDown),
		Clogged:     backendtest.Through(h.addr, behind, backendtest.HoldUp),
		Unreachable: backendtest.Through(h.addr, behind, backendtest.Refuse),
	})
}

// openFor opens a queue that the caller closes.
func (h *host) openFor(t testing.TB, name string) backend.Backend {
	t.Helper()
	b, err := openURL(t.Context(), h.url(name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}
