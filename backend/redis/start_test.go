package redis_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/weirmq/weir"
	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/tests/redistest"
)

func TestAMisspeltGroupDoesNotHandleTheHistoryAgain(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, redistest.Options{})
	publish(t, open(t, s.Addr(), "stream=jobs&group=billing"), 3)
	claim := func(query string) (backend.Claimed, error) {
		b := open(t, s.Addr(), "stream=jobs&"+query)
		return b.Claim(t.Context(), backend.ClaimRequest{Consumer: "c", Max: 10, ReclaimAfter: time.Minute})
	}
	if got, err := claim("group=billing"); err != nil || len(got.Deliveries) != 3 {
		t.Fatalf("%d, %v: a new group begins at the first entry", len(got.Deliveries), err)
	}
	_, err := claim("group=biling&create=never")
	if !errors.Is(err, backend.ErrGroupNotFound) || backend.Retryable(err) || !strings.Contains(err.Error(), `"biling"`) {
		t.Errorf("create=never: %v", err)
	}
	if groups := s.Client().XInfoGroups(t.Context(), "jobs").Val(); len(groups) != 1 {
		t.Errorf("groups %+v", groups)
	}
	if got, err := claim("group=mail&start=$"); err != nil || len(got.Deliveries) != 0 {
		t.Errorf("start=$: %d, %v", len(got.Deliveries), err)
	}
	publish(t, open(t, s.Addr(), "stream=jobs"), 1)
	if got, err := claim("group=mail&start=$"); err != nil || len(got.Deliveries) != 1 {
		t.Errorf("start=$, and one published since: %d, %v", len(got.Deliveries), err)
	}
	pool, err := weir.NewPool(weir.New(open(t, s.Addr(), "stream=jobs&group=biling&create=never")), func(context.Context, *weir.Delivery) error { return nil }, weir.PoolConfig{})
	if err != nil {
		t.Fatal(err)
	}
	if err := pool.Run(t.Context()); !errors.Is(err, weir.ErrGroupNotFound) {
		t.Errorf("a pool with create=never ended with %v", err)
	}
}
