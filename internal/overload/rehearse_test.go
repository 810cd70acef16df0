package overload

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weirmq/weir"
	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/backend/backendtest"
	"github.com/weirmq/weir/tests/bubble"
)

// A rehearsal sees every message with its tier, says what each arm would have done, and
// stores nothing.
func TestARehearsalOnlyLooks(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		fake := backendtest.NewFake(backendtest.FakeOptions{})
		pending, lag := int64(20), int64(9000)
		fake.Pretend(&backend.Signal{Workers: &pending, Pending: pending, Lag: &lag})
		go func() {
			for i := range 100 {
				time.Sleep(10 * time.Millisecond)
				p := weir.Normal
				if i%4 == 0 {
					p = weir.Critical
				}
				if _, err := fake.Append(t.Context(), []weir.Message{{Priority: p, Data: []byte("x")}}); err != nil {
					t.Error(err)
				}
			}
		}()
		var arms []Arm
		for _, text := range []string{"off", "static", "static?queue_max_depth=20000", "proportional?lag_pause=8000&lag_warn=off"} {
			arm, err := ParseArm(text, Scenario{Deadline: time.Second})
			if err != nil {
				t.Fatal(err)
			}
			arms = append(arms, arm)
		}
		results, err := Rehearse(t.Context(), weir.New(fake.Again()), arms, 2*time.Second, 3*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		for i, want := range []string{"100 100 0 0", "100 0 100 0", "100 100 0 0", "100 0 0 100"} {
			r := results[i]
			got := fmt.Sprint(r.Offered, " ", r.Stored, " ", r.Refused[weir.QueueFull], " ", r.GaveUp)
			if got != want || r.Tiers["critical"][1] != 25 || r.Tiers["normal"][1] != 75 || len(r.Failures) > 0 {
				t.Errorf("%s: %s, want %s; %+v", r.Arm, got, want, r)
			}
		}
		if n := fake.Calls(backendtest.OpAppend); n != 100 {
			t.Errorf("%d appends, want the 100 of the live producer", n)
		}
		var table strings.Builder
		if err := RehearsalTable(&table, results); err != nil || !strings.Contains(table.String(), "critical") {
			t.Errorf("%v\n%s", err, &table)
		}
	})
}
