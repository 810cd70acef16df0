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

// The length that a trim keeps is of the stream as a whole, and never none.
func TestATrimOfShardsKeepsItsLengthAtMost(t *testing.T) {
	t.Parallel()
	b := openURL(t, redistest.Start(t, redistest.Options{}).URL()+"?shards=3&stream=jobs")
	defer b.Close()
	for range 60 { // one by one they come to all shards
		if _, err := b.Append(t.Context(), []backend.Message{{Data: []byte("x")}}); err != nil {
			t.Fatal(err)
		}
	}
	for keep, want := range map[int64]int64{10: 12, 1: 3} {
		if _, err := b.(backend.Trimmer).Trim(t.Context(), backend.TrimRequest{MaxLen: keep}); err != nil {
			t.Fatal(err)
		}
		if s, err := b.Stats(t.Context()); err != nil || s.XLen > want {
			t.Errorf("%d messages are left of those that %d were to be of, %v", s.XLen, keep, err)
		}
	}
}

func openURL(t testing.TB, url string) backend.Backend {
	t.Helper()
	s, err := open.URL(t.Context(), strings.Replace(url, "??", "?", 1))
	if err != nil {
		t.Fatal(err)
	}
	return s.Backend()
}
