package oracle

import (
	"testing"
	"time"
)

// A worker may acknowledge what was written and claimed while its queue was made again, and
// which nobody else was shown before the crash.
func TestAnAckRemovesWhatWasWrittenAndClaimedBetweenTwoLives(t *testing.T) {
	id := BatchID{1, 1}
	var recs []Rec
	for i := range 3 {
		recs = append(recs, NewRec(uint64(i+1), 1, PayloadOf(id, i, 3)))
	}
	jobs := []Job{{Rec: recs[0], Lease: "a", Deadline: 1000, Deliveries: 1}, {Rec: recs[1], Lease: "b", Deadline: 1000, Deliveries: 1}}
	history := func(acked ...Item) []Event {
		cfg := &Config{Class: Fsync, Queue: true}
		return []Event{
			{Kind: Put, Topic: "q", Invoke: 1, Return: 2, Outcome: OK, Config: cfg},
			{Kind: Drop, Topic: "q", Invoke: 30, Return: 40, Outcome: OK},
			{Kind: Put, Topic: "q", Invoke: 41, Return: 60, Outcome: OK, Config: cfg},
			{Kind: Write, Topic: "q", Invoke: 35, Return: 55, Outcome: OK, Batch: id, Size: 3, First: 1, Last: 3, Head: 3},
			{Kind: Claim, Topic: "q", Invoke: 36, Return: 58, Outcome: OK, Node: "w", Max: 2, Jobs: jobs},
			{Kind: Ack, Topic: "q", Invoke: 61, Return: 70, Outcome: OK, Node: "w", Items: acked},
			{Kind: Crash, Invoke: 80, Return: 90, Outcome: OK},
			{Kind: Read, Topic: "q", Invoke: 100, Return: 110, Outcome: OK, Next: 3, Recs: recs[2:], Head: 3, Earliest: 3, Quiet: true},
			{Kind: State, Topic: "q", Invoke: 120, Return: 130, Outcome: OK, Head: 3, Earliest: 3, Count: 1, Bytes: uint64(recs[2].Bytes), Quiet: true},
		}
	}
	first, second := Item{Seq: 1, Lease: "a", Accepted: true}, Item{Seq: 2, Lease: "b", Accepted: true}
	if found := Check(history(first, second), time.Second); len(found) > 0 {
		t.Errorf("acknowledged: %v", found)
	}
	if found := Check(history(first), time.Second); len(found) == 0 {
		t.Error("a job that no worker acknowledged is gone, and nothing is said")
	}
}
