package redis

import (
	"testing"
	"time"

	"github.com/weirmq/weir/backend"
)

// A lease that ended by time alone does not hold a new group back for ever.
func TestProgressDropsWhatEndedByTime(t *testing.T) {
	var p progress
	start := time.Now()
	p.took(&backend.Delivery{Lease: backend.Lease{ID: "5-0", Since: start}}, &backend.Delivery{Lease: backend.Lease{ID: "9-0", Since: start}})
	p.extended("9-0")
	p.finished("7-0")
	p.expire(start.Add(heldLeases*time.Second), time.Second)
	if got, _ := p.position(); got != "4-18446744073709551615" {
		t.Errorf("held ones are dropped: %s", got)
	}
	p.expire(start.Add((heldLeases+2)*time.Second), time.Second)
	if got, seen := p.position(); got != "7-0" || seen != "9-0" || len(p.mu.held) != 0 {
		t.Errorf("%s, %d are held", got, len(p.mu.held))
	}
}
