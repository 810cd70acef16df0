package oracle

import (
	"strings"
	"testing"
	"time"
)

// A restored server goes on copying, if the backup has the router. One that was
// deleted while the backup was taken may be in it or not.
func TestTheCopiesThatABackupOwesEndWithTheRouter(t *testing.T) {
	router := &Router{Name: "r", Source: "a", Dest: "b"}
	id := BatchID{1, 1}
	var recs []Rec
	size := uint64(0)
	for i := range 3 {
		recs = append(recs, NewRec(uint64(i+1), 25, PayloadOf(id, i, 3)))
		size += uint64(recs[i].Bytes)
	}
	history := func(unroute int64) []Event {
		return []Event{
			{Kind: Put, Topic: "a", Invoke: 1, Return: 2, Outcome: OK, Config: &Config{Class: Fsync}},
			{Kind: Put, Topic: "b", Invoke: 3, Return: 4, Outcome: OK, Config: &Config{Class: Fsync}},
			{Kind: Route, Invoke: 5, Return: 6, Outcome: OK, Router: router},
			{Kind: Write, Topic: "a", Invoke: 20, Return: 30, Outcome: OK, Batch: id, Size: 3, First: 1, Last: 3, Head: 3},
			{Kind: Unroute, Invoke: unroute, Return: unroute + 5, Outcome: OK, Router: router},
			{Kind: Backup, Invoke: 40, Return: 60, Outcome: OK, Copy: []Event{
				{Kind: Read, Topic: "a", Outcome: OK, Next: 3, Recs: recs, Head: 3, Earliest: 1, Quiet: true},
				{Kind: State, Topic: "a", Outcome: OK, Head: 3, Earliest: 1, Count: 3, Bytes: size, Quiet: true},
				{Kind: Read, Topic: "b", Outcome: OK, Earliest: 1, Quiet: true},
				{Kind: State, Topic: "b", Outcome: OK, Earliest: 1, Quiet: true},
			}},
		}
	}
	if found := Check(history(50), time.Second); len(found) > 0 {
		t.Errorf("deleted during the backup: %v", found)
	}
	if found := Check(history(70), time.Second); len(found) != 1 || !strings.Contains(found[0].String(), "is not copied there") {
		t.Errorf("deleted behind the backup: %v, want the copies that are missing", found)
	}
}

// A record whose write was not answered, and which only a backup shows, may have been removed by a
// delete after that.
func TestADeleteRemovesWhatOnlyABackupHasShown(t *testing.T) {
	id := BatchID{1, 1}
	rec := NewRec(1, 25, PayloadOf(id, 0, 1))
	history := func(before uint64) []Event {
		return []Event{
			{Kind: Put, Topic: "a", Invoke: 1, Return: 2, Outcome: OK, Config: &Config{Class: Fsync}},
			{Kind: Write, Topic: "a", Invoke: 10, Return: 20, Outcome: Unknown, Batch: id, Size: 1},
			{Kind: Backup, Invoke: 30, Return: 40, Outcome: OK, Copy: []Event{
				{Kind: Read, Topic: "a", Outcome: OK, Next: 1, Recs: []Rec{rec}, Head: 1, Earliest: 1, Quiet: true},
				{Kind: State, Topic: "a", Outcome: OK, Head: 1, Earliest: 1, Count: 1, Bytes: uint64(rec.Bytes), Quiet: true},
			}},
			{Kind: Delete, Topic: "a", Invoke: 50, Return: 60, Outcome: OK, Before: before},
			{Kind: Backup, Invoke: 70, Return: 80, Outcome: OK, Copy: []Event{
				{Kind: Read, Topic: "a", Outcome: OK, Next: 1, Head: 1, Earliest: 2, Quiet: true},
				{Kind: State, Topic: "a", Outcome: OK, Head: 1, Earliest: 2, Quiet: true},
			}},
		}
	}
	if found := Check(history(2), time.Second); len(found) > 0 {
		t.Errorf("removed by the delete: %v", found)
	}
	if found := Check(history(1), time.Second); len(found) == 0 {
		t.Error("a record that no delete removed is gone, and nothing is said")
	}
}
