package main

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// summary is what a run reached and found.
type summary struct {
	options
	server          string
	disturbed, took time.Duration
	stalled         time.Duration // of disturbed, the machine stood still

	published        int
	unknown, refused int64
	kills, outages   int
	slow             time.Duration

	unstored    int // never stored, as their publishes said or left open
	unsaid      int // stored, and their publishes left it open
	done, lost  int
	dead        int // letters
	deadByKills int // of them, messages that a handler could have done
	doneUnsaid  int // of them, handled by processes that were killed before the ack
	unseen      int // deliveries that count and that no journal knows
	duplicates  int // runs of good messages behind the first
	repeats     map[string]int

	violated   int
	violations []string // the first ones
}

func (s *summary) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "chaos: seed %d, %s: %d processes of %d workers on %s, limit %d, lease %s\n",
		s.seed, s.disturbed.Round(time.Second), s.processes, s.workers, s.server, s.limit, s.reclaimAfter)
	fmt.Fprintf(&b, "  %d kills of a process, %d of Redis, link slow for %s; all settled %s after the start\n",
		s.kills, s.outages, s.slow.Round(time.Second), s.took.Round(100*time.Millisecond))
	fmt.Fprintf(&b, "  %d published (%d answers unknown, %d refused: each sent again if it has a key): %d done, %d dead, %d lost\n",
		s.published, s.unknown, s.refused, s.done, s.dead, s.lost)
	fmt.Fprintf(&b, "  of those published once: %d not stored, %d stored with an unknown outcome\n", s.unstored, s.unsaid)
	fmt.Fprintf(&b, "  dead letters: %d of good messages, by kills alone (%d of them handled, and killed before the ack); %d deliveries that counted were seen by nobody\n",
		s.deadByKills, s.doneUnsaid, s.unseen)
	fmt.Fprintf(&b, "  %d runs of good messages were repeats; all repeats: %d %s, %d %s, %d %s, %d %s, %d %s, %d unexplained\n",
		s.duplicates,
		s.repeats[whyAtWork], whyAtWork, s.repeats[whyBefore], whyBefore, s.repeats[whyOutage], whyOutage,
		s.repeats[whyStood], whyStood, s.repeats[whyFailed], whyFailed, s.repeats[whyNothing])
	fmt.Fprintf(&b, "  violations: %d", s.violated)
	return b.String()
}

// broken is an error if the run found something.
func (s *summary) broken() error {
	if s.violated == 0 {
		return nil
	}
	return fmt.Errorf("%d violations", s.violated)
}

// reached is an error if the run did too little to have tried anything.
func (s *summary) reached(o options) error {
	var missing []string
	want := func(what string, got, least int) {
		if got < least {
			missing = append(missing, fmt.Sprintf("%d %s, want %d", got, what, least))
		}
	}
	moved := max(0, o.duration-s.stalled)
	want("kills", s.kills, int(moved/o.killEvery)/2)
	want("kills of Redis", s.outages, int(moved/o.redisEvery)/2)
	want("messages", s.published, int(moved.Seconds())*o.rate/4)
	want("runs of killed processes repeated", s.repeats[whyAtWork], 1)
	want("dead letters", s.dead, 1)
	if len(missing) == 0 {
		return nil
	}
	return errors.New("too little happened: " + strings.Join(missing, "; "))
}
