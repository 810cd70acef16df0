package redis_test

import (
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/backend/backendtest"
	"github.com/weirmq/weir/backend/redis"
	"github.com/weirmq/weir/tests/redistest"
)

func TestConformance(t *testing.T) {
	t.Parallel()
	for _, version := range redistest.Versions() {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			s := redistest.Start(t, redistest.Options{Version: version})
			h := harness("redis "+version, s.URL()+"?")
			h.NoLag = hasNoLag(version)
			open := func(t testing.TB, addr, stream string) backend.Backend {
				return openOn(t, "redis://"+addr+"/0?stream="+stream)
			}
			h.Faulty = backendtest.Through(s.Addr(), open, backendtest.HoldDown)
			h.Clogged = backendtest.Through(s.Addr(), open, backendtest.HoldUp)
			h.Unreachable = backendtest.Through(s.Addr(), open, backendtest.Refuse)
			backendtest.Run(t, h)
		})
	}
}

// hasNoLag reports whether a version says nothing of the lag.
func hasNoLag(version string) bool { return version[0] < '7' && version != redistest.System }

func TestConformanceOfACluster(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 0, redistest.Options{})
	u, _ := url.Parse(c.URL() + "?stream=jobs&signal=pressure")
	if _, err := redis.Open(t.Context(), u); err == nil || !strings.Contains(err.Error(), "slot") {
		t.Errorf("a signal in another slot: %v", err)
	}
	backendtest.Run(t, harness("a redis cluster", c.Masters[0].URL()+"?")) // its others are found
}

func TestConformanceBehindSentinels(t *testing.T) {
	t.Parallel()
	backendtest.Run(t, harness("redis behind sentinels", redistest.StartSentinel(t, redistest.Options{Steady: true}).URL()+"&"))
}

func harness(name, prefix string) backendtest.Harness {
	return backendtest.Harness{
		Name: name,
		Open: func(t testing.TB, stream string) backend.Backend {
			return openOn(t, prefix+"stream="+stream)
		},
		OpenGroup: func(t testing.TB, stream, group string) backend.Backend {
			return openOn(t, prefix+"stream="+stream+"&group="+group)
		},
		ReclaimAfter: 300 * time.Millisecond,
		KeepsErrors:  true,
	}
}

func openOn(t testing.TB, rawURL string) *redis.Backend {
	t.Helper()
	u, err := url.Parse(rawURL)
	if err != nil {
		t.Fatal(err)
	}
	b, err := redis.Open(t.Context(), u)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
