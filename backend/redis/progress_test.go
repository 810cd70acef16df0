package redis

import (
	"fmt"
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

// A claim may take again what was given back before whoever gave it back has heard so, and
// holds it then: what nobody here holds is given back by the next recovery, and would run twice.
func TestProgressKeepsWhatWasTakenAgain(t *testing.T) {
	start := time.Now()
	for name, note := range map[string]func(p *progress, since time.Time){
		"given back": func(p *progress, since time.Time) { p.gaveBack("5-0", since) },
		"lost":       func(p *progress, since time.Time) { p.forgot("5-0", since) },
	} {
		var p progress
		p.took(&backend.Delivery{Lease: backend.Lease{ID: "5-0", Since: start}})
		p.took(&backend.Delivery{Lease: backend.Lease{ID: "5-0", Since: start.Add(time.Millisecond)}})
		if note(&p, start); !p.holds("5-0") {
			t.Errorf("%s: the later delivery is forgotten with the earlier one", name)
		}
		if note(&p, start.Add(time.Millisecond)); p.holds("5-0") {
			t.Errorf("%s: it is still held", name)
		}
	}
}

// What was given back is not done, however much was given back since.
func TestProgressKeepsWhatWasGivenBackLongAgo(t *testing.T) {
	var p progress
	since := time.Now()
	p.gaveBack("5-0", since)
	for i := range maxReturned {
		p.gaveBack(fmt.Sprintf("%d-0", 100+i), since)
	}
	p.finished("1000000-0")
	if got, _ := p.position(); got != "4-18446744073709551615" {
		t.Errorf("a new group would begin behind %s", got)
	}
}
