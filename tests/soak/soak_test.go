package main

import (
	"strings"
	"testing"
	"time"

	"github.com/weirmq/weir/tests/redistest"
)

func tiny(on string) options {
	return options{on: on, length: 2 * time.Second, behind: 5000, load: 5, workers: 5, service: 20 * time.Millisecond, deadline: 500 * time.Millisecond, seed: 1}
}

// A short run is a flood in which nothing is lost, there or beside it.
func TestAFloodLosesNothing(t *testing.T) {
	for _, on := range []string{onRedis, onEmbedded} {
		err := redistest.Program("soak", func(s *redistest.Scope) (bool, error) { return false, run(t.Context(), s, tiny(on)) })
		if err != nil {
			t.Errorf("%s: %v", on, err)
		}
	}
}

// What is lost is found, and so is a run that was no flood.
func TestALossIsFound(t *testing.T) {
	err := redistest.Program("soak", func(s *redistest.Scope) (bool, error) {
		p, err := newPlace(t.Context(), s, tiny(onEmbedded))
		if err != nil {
			return false, err
		}
		defer p.close()
		if err := p.fill(t.Context(), 10); err != nil {
			return false, err
		}
		f := newFlood(tiny(onEmbedded), p)
		for i := range 3 {
			f.mark(f.stored, i)
		}
		f.mark(f.done, 1)
		p.added.Add(2)
		return false, f.verdict(t.Context())
	})
	for _, want := range []string{"2 messages are lost", "no flood", "10 messages wait beside it, of which there should be 12"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
