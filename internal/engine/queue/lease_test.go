package queue

import (
	"slices"
	"testing"
)

// some is a queue of n records and a claim of all of them by "w" until the deadline.
func some(n uint64, deadline int64) (*Queue, []Pick, func(node string, deadline int64) []uint64) {
	m := newModel()
	for m.head < n {
		m.head++
		m.live[m.head] = true
	}
	id := uint64(1)
	claim := func(node string, deadline int64) []Pick {
		picks, _ := m.q.Claim(nil, nil, &Claim{Node: node, Max: 10, Deadline: deadline, FirstID: id, Head: n, Live: n, Records: m})
		id += uint64(len(picks))
		return picks
	}
	return m.q, claim("w", deadline), func(node string, deadline int64) []uint64 { return pickSeqs(claim(node, deadline)) }
}

// Of jobs that were claimed together some may be extended: they are nobody else's when the
// lease of the others ends.
func TestAnExtendedJobOutlivesTheLeaseOfItsClaim(t *testing.T) {
	q, _, claim := some(3, 100)
	q.Extend(nil, nil, []uint64{2}, nil, "w", 200)
	q.Expire(101)
	if got := claim("other", 150); !slices.Equal(got, []uint64{1, 3}) || q.InFlight() != 3 || q.Counts().Expired != 2 {
		t.Errorf("another worker gets %v, %d are in flight, %+v", got, q.InFlight(), q.Counts())
	}
	q.Expire(201)
	if got := claim("third", 300); !slices.Equal(got, []uint64{1, 2, 3}) {
		t.Errorf("after all leases %v can be claimed", got)
	}
}

// A failed extend takes back what it did, and not what a later one did.
func TestAFailedExtendLeavesALaterOneAlone(t *testing.T) {
	q, picks, claim := some(1, 100)
	for _, deadline := range []int64{200, 300} {
		q.Extend(nil, nil, []uint64{1}, nil, "w", deadline)
	}
	q.Unextend(1, picks[0].ID, 200, 100)
	if q.Expire(250); len(claim("other", 400)) > 0 {
		t.Error("another worker gets a job that is extended until 300")
	}
	q.Unextend(1, picks[0].ID, 300, 240)
	if q.Expire(250); len(claim("other", 400)) != 1 {
		t.Error("the lease that could not be logged goes on")
	}
}

// Jobs that leave a queue without an ack are not finished.
func TestWhatIsDeletedUnderALeaseIsNotFinished(t *testing.T) {
	q, _, _ := some(3, 100)
	q.Settle(1, "w", 0)
	q.Forget(1)
	q.ForgetRange(2, 3)
	if n := q.Finished(); n != 1 || q.InFlight() != 0 {
		t.Errorf("%d jobs are finished, want the one that was acknowledged; %d are in flight", n, q.InFlight())
	}
}

// The first job of a queue comes back, too, when the delete that a claim passed it over for has failed.
func TestTheFirstJobComesBackAfterAFailedDelete(t *testing.T) {
	m := newModel()
	m.head, m.live[2] = 2, true
	claim := func() []uint64 {
		picks, _ := m.q.Claim(nil, nil, &Claim{Node: "w", Max: 2, Deadline: 100, FirstID: 1, Head: 2, Live: 2, Records: m})
		return pickSeqs(picks)
	}
	if got := claim(); !slices.Equal(got, []uint64{2}) {
		t.Fatal(got)
	}
	m.live[1] = true
	m.q.Rewind(1)
	if got := claim(); !slices.Equal(got, []uint64{1}) {
		t.Errorf("%v can be claimed once the delete has failed, want job 1", got)
	}
}
