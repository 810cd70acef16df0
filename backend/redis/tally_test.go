package redis_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/tests/redistest"
)

func TestTheCountersOfProducersExpire(t *testing.T) {
	addr, s := startServer(t)
	b := open(t, addr, "stream=jobs")
	if _, _, err := b.Tally(t.Context(), []uint32{1, 2}); err != nil {
		t.Fatal(err)
	}
	if left := s.Client().PTTL(t.Context(), "{jobs}:offered:weir").Val(); left < 59*time.Minute || left > time.Hour {
		t.Errorf("the counters expire after %s", left)
	}
}

// A user who may not count is told which key, and the server is not asked each time.
func TestTallyThatIsNotPermitted(t *testing.T) {
	s := redistest.Start(t, redistest.Options{})
	if err := s.Client().Do(t.Context(), "ACL", "SETUSER", "shop", "on", ">pw", "~jobs", "~{jobs}:*", "+@all", "-bitfield").Err(); err != nil {
		t.Fatal(err)
	}
	b := openOn(t, fmt.Sprintf("redis://shop:pw@%s/0?stream=jobs", s.Addr()))
	for range 3 {
		if got, _, err := b.Tally(t.Context(), []uint32{1}); !errors.Is(err, backend.ErrForbidden) {
			t.Errorf("%v, %v, want ErrForbidden", got, err)
		}
	}
	refused, err := s.Client().Do(t.Context(), "ACL", "LOG").Slice()
	if err != nil || len(refused) != 1 || !strings.Contains(fmt.Sprint(refused[0]), "count 1 ") && !strings.Contains(fmt.Sprint(refused[0]), "count:1") {
		t.Errorf("refused %v, %v, want once", refused, err)
	}
}
