package redis_test

import (
	"errors"
	"fmt"
	"sync"
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

// What is published while a handle is closed whose claims wait is given to somebody who works on it:
// to one of these claims, or to the next that is made. Who has left holds nothing, unless the server's
// answer took longer than a claim waits for it: then others take it over after ReclaimAfter.
func TestNothingIsGivenToWhoHasLeft(t *testing.T) {
	const patience = 30 * time.Millisecond // unblockFor
	for _, version := range redistest.Versions() {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			s := redistest.Start(t, redistest.Options{Version: version})
			for round := range 30 {
				stream := fmt.Sprintf("?stream=jobs%d", round)
				leaving, stays := openOn(t, s.URL()+stream), openOn(t, s.URL()+stream)
				received := make(chan int, 8)
				var claims sync.WaitGroup
				for n := range cap(received) {
					claims.Go(func() {
						got, err := leaving.Claim(t.Context(), backend.ClaimRequest{Consumer: fmt.Sprint(n), Max: 1, Block: time.Minute, ReclaimAfter: time.Hour})
						if err != nil && !errors.Is(err, backend.ErrClosed) {
							t.Error(err)
						}
						received <- len(got.Deliveries)
					})
				}
				time.Sleep(5 * time.Millisecond)
				var closing time.Duration
				claims.Go(func() {
					began := time.Now()
					if err := leaving.Close(); err != nil {
						t.Error(err)
					}
					closing = time.Since(began)
				})
				time.Sleep(time.Duration(round%10) * 200 * time.Microsecond)
				publish(t, stays, 1)
				claims.Wait()
				sum := 0
				for range cap(received) {
					sum += <-received
				}
				got, err := stays.Claim(t.Context(), backend.ClaimRequest{Consumer: "stays", Max: 1, Block: 100 * time.Millisecond, ReclaimAfter: time.Hour})
				if err != nil {
					t.Fatal(err)
				}
				if sum += len(got.Deliveries); sum == 0 && closing >= patience {
					sum = int(s.Client().XPending(t.Context(), fmt.Sprintf("jobs%d", round), "weir").Val().Count)
				}
				if sum != 1 {
					t.Fatalf("round %d: the message was received %d times; the close took %v", round, sum, closing)
				}
				_ = stays.Close()
			}
		})
	}
}
