package redis_test

import (
	"context"
	"net"
	"regexp"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/backend/redis"
	"github.com/weirmq/weir/tests/stall"
)

// anew is a connection to a server that begins each wait again and again.
type anew struct{ net.Conn }

var block = regexp.MustCompile(`\$5\r\nBLOCK\r\n\$\d+\r\n\d+\r\n`)

func (c anew) Write(sent []byte) (int, error) {
	if _, err := c.Conn.Write(block.ReplaceAll(sent, []byte("$$5\r\nBLOCK\r\n$$6\r\n600000\r\n"))); err != nil {
		return 0, err
	}
	return len(sent), nil
}

// Redis 7.2.0 to 7.2.4 begins the wait of a reader anew when another one has got the
// message (redis/redis#12998). Where many wait none of them would come back in time.
func TestAClaimWaitsNoLongerThoughTheServerBeginsItsWaitAnew(t *testing.T) {
	addr, _ := startServer(t)
	client := goredis.NewClient(&goredis.Options{Addr: addr, Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
		return anew{conn}, err
	}})
	b := lend(t, client, redis.Options{Stream: "jobs"})
	t.Cleanup(func() { _ = b.Close() })
	for range 3 {
		start, stalled := time.Now(), stall.Watch()
		claim(t, b, backend.ClaimRequest{Max: 1, Block: 50 * time.Millisecond})
		if took := time.Since(start); took > 2*time.Second+stalled() {
			t.Fatalf("an empty claim that waits 50 ms took %s", took)
		}
	}
	publish(t, b, 1)
	if got := claim(t, b, backend.ClaimRequest{Max: 1}); len(got.Deliveries) != 1 || got.Deliveries[0].Attempt != 1 {
		t.Fatalf("then the message is not claimed: %+v", got)
	}
}
