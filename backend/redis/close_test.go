package redis_test

import (
	"errors"
	"testing"
	"time"

	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/tests/redistest"
)

// A claim and a read that begin while their handle is closed end with it, and say so.
func TestCloseMeetsClaimsAndReadsThatBegin(t *testing.T) {
	s := redistest.Start(t, redistest.Options{})
	publish(t, open(t, s.Addr(), "stream=jobs"), 1)
	for range 200 {
		b := openOn(t, s.URL()+"?stream=jobs&group=other")
		ended := make(chan error, 2)
		go func() {
			_, err := b.Claim(t.Context(), backend.ClaimRequest{Consumer: "c", Max: 1, Block: time.Minute, ReclaimAfter: time.Minute})
			ended <- err
		}()
		go func() {
			_, err := b.Read(t.Context(), backend.ReadRequest{After: backend.CursorEnd, Max: 1, Block: time.Minute})
			ended <- err
		}()
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := <-ended; err != nil && !errors.Is(err, backend.ErrClosed) {
				t.Fatal(err)
			}
		}
	}
}
