package shard_test

import (
	"strings"
	"testing"
	"time"

	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/backend/backendtest"
	"github.com/weirmq/weir/open"
	"github.com/weirmq/weir/tests/redistest"
)

func TestConformanceInMemory(t *testing.T) {
	t.Parallel()
	backendtest.Run(t, backendtest.Harness{
		Name: "mem, 3 shards", KeepsErrors: true, Unordered: true, CountsItself: true, ReclaimAfter: time.Second,
		Open: func(t testing.TB, stream string) backend.Backend {
			return openURL(t, "mem://"+stream+"?shards=3")
		},
	})
}

func TestConformanceOnRedis(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, redistest.Options{})
	on := func(t testing.TB, address, stream string) backend.Backend {
		return openURL(t, address+"?shards=3&stream="+stream)
	}
	behind := func(t testing.TB, addr, stream string) backend.Backend {
		return on(t, "redis://"+addr+"/0", stream)
	}
	backendtest.Run(t, backendtest.Harness{
		Name: "redis, 3 shards", KeepsErrors: true, Unordered: true, ReclaimAfter: 300 * time.Millisecond,
		Open: func(t testing.TB, stream string) backend.Backend { return on(t, s.URL(), stream) },
		OpenGroup: func(t testing.TB, stream, group string) backend.Backend {
			return openURL(t, s.URL()+"?shards=3&stream="+stream+"&group="+group)
		},
		Faulty:      backendtest.Through(s.Addr(), behind, backendtest.HoldDown),
		Clogged:     backendtest.Through(s.Addr(), behind, backendtest.HoldUp),
		Unreachable: backendtest.Through(s.Addr(), behind, backendtest.Refuse),
	})
}

func openURL(t testing.TB, url string) backend.Backend {
	t.Helper()
	s, err := open.URL(t.Context(), strings.Replace(url, "??", "?", 1))
	if err != nil {
		t.Fatal(err)
	}
	return s.Backend()
}
