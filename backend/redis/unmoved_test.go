package redis_test

import (
	"errors"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/tests/stall"
)

// immovable opens a handle whose user may move what is due only while it is allowed to.
func immovable(t *testing.T) (b backend.Backend, admin *redis.Client, allow func(bool)) {
	t.Helper()
	addr, s := startServer(t)
	admin = s.Client()
	set := func(rules ...any) {
		t.Helper()
		if err := admin.Do(t.Context(), append([]any{"ACL", "SETUSER", "w"}, rules...)...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	set("on", ">sesame", "~*", "+@all")
	own := openOn(t, "redis://w:sesame@"+addr+"/0?stream=jobs")
	t.Cleanup(func() { _ = own.Close() })
	return own, admin, func(may bool) {
		if may {
			set("+zrangebyscore")
		} else {
			set("-zrangebyscore")
		}
	}
}

// comes waits until claims hand out the message that was kept back and say nothing more of it.
func comes(t *testing.T, b backend.Backend, data string) {
	t.Helper()
	begun, stalled, seen := time.Now(), stall.Watch(), false
	wait(t, "the message comes", func() bool {
		got, err := b.Claim(t.Context(), backend.ClaimRequest{Consumer: "c", Max: 1, Block: 100 * time.Millisecond, ReclaimAfter: time.Minute})
		for _, d := range got.Deliveries {
			seen = seen || string(d.Data) == data
		}
		return seen && err == nil && got.Failed == nil
	})
	if late := time.Since(begun); late > 10*time.Second+stalled() {
		t.Errorf("it came %s after it could be moved again", late)
	}
}

// A stream that is never empty has no claim to spare for the error.
func TestARefusalToMoveIsSaidThoughOtherMessagesCome(t *testing.T) {
	t.Parallel()
	b, _, allow := immovable(t)
	claim(t, b, backend.ClaimRequest{Max: 1})
	publish(t, b, 50)
	allow(false)
	appendAll(t, b, numbers(1, time.Millisecond))
	for n := range 40 {
		switch got := claim(t, b, backend.ClaimRequest{Max: 1}); {
		case len(got.Deliveries) != 1:
			t.Fatalf("claim %d: %+v", n, got)
		case errors.Is(got.Failed, backend.ErrForbidden):
			allow(true)
			comes(t, b, "0")
			return
		}
		time.Sleep(time.Millisecond)
	}
	t.Error("40 claims say nothing of the message that cannot be moved")
}

// While claims wait it is the watch that moves, and that is refused.
func TestARefusalToMoveIsSaidThoughNoClaimMetIt(t *testing.T) {
	t.Parallel()
	b, admin, allow := immovable(t)
	for early := 1; early > 0; { // on a slow machine
		appendAll(t, b, numbers(1, 500*time.Millisecond))
		early = len(claim(t, b, backend.ClaimRequest{Max: 1, Block: 50 * time.Millisecond}).Deliveries) // begins the watch
	}
	allow(false)
	req := backend.ClaimRequest{Consumer: "c", Max: 1, Block: time.Second, ReclaimAfter: time.Minute}
	begun := time.Now()
	for {
		got, err := b.Claim(t.Context(), req)
		if errors.Is(got.Failed, backend.ErrForbidden) || errors.Is(err, backend.ErrForbidden) {
			break
		}
		if time.Since(begun) > 15*time.Second {
			t.Fatalf("nothing is said of the message that cannot be moved: %+v, %v", got, err)
		}
	}
	before := calls(t, admin, "xreadgroup")
	for range 5 {
		_, _ = b.Claim(t.Context(), req)
	}
	if n := calls(t, admin, "xreadgroup") - before; n > 30 {
		t.Errorf("5 claims that wait for a second read %d times", n)
	}
	allow(true)
	comes(t, b, "0")
}

// calls returns how often a server has run a command.
func calls(t *testing.T, c *redis.Client, command string) int {
	t.Helper()
	info, err := c.Info(t.Context(), "commandstats").Result()
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile("cmdstat_" + command + ":calls=([0-9]+)").FindStringSubmatch(info)
	if m == nil {
		return 0
	}
	n, _ := strconv.Atoi(m[1])
	return n
}
