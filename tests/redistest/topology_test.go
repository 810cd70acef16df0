package redistest

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

func TestClusterReplacesAMasterAndMovesASlot(t *testing.T) {
	c := StartCluster(t, 3, Options{})
	var addrs []string
	for _, s := range c.Nodes() {
		addrs = append(addrs, s.Addr())
	}
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs})
	defer client.Close()
	ctx := context.Background()
	if err := client.Set(ctx, "{orders}:k", "v", 0).Err(); err != nil {
		t.Fatal(err)
	}
	owner := c.Owner("orders", nil)
	if next := c.MoveSlot("orders"); next == owner {
		t.Error("the slot has not moved")
	} else {
		owner = next
	}
	if got, err := client.Get(ctx, "{orders}:k").Result(); got != "v" {
		t.Errorf("after the move: %q, %v", got, err)
	}
	begin := time.Now()
	owner.Kill()
	eventually(t, "new owner", func() error {
		client.ReloadState(ctx) // go-redis does so by itself every 10 s
		return client.Set(ctx, "{orders}:k", "w", 0).Err()
	})
	if now := c.Owner("orders", owner); now == owner {
		t.Error("the killed master is still the owner")
	}
	t.Logf("served again after %v", time.Since(begin))
}

func TestSentinelReplacesThePrimary(t *testing.T) {
	s := StartSentinel(t, Options{})
	begin := time.Now()
	s.Primary.Kill()
	next := s.AwaitFailover(s.Primary)
	t.Logf("all sentinels agree after %v", time.Since(begin))
	if err := next.Client().Set(context.Background(), "k", "v", 0).Err(); err != nil {
		t.Errorf("the new primary: %v", err)
	}
}
