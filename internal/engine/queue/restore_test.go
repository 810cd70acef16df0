package queue

import "testing"

// A lease that was given back, taken again and then ended leaves its number
// among the returned ones twice after a restart.
func TestRestoredJobIsHandedOutOnce(t *testing.T) {
	q := New()
	q.Restore(1, "", 7, 0, 1)
	q.Restore(1, "w", 8, 100, 2)
	q.Expire(101)
	m := newModel()
	m.live[1], m.head = true, 1
	picks, _ := q.Claim(nil, nil, &Claim{Node: "w", Max: 10, Deadline: 200, FirstID: 9, Head: 1, Live: 1, Records: m})
	if len(picks) != 1 || picks[0].Seq != 1 || picks[0].Deliveries != 3 {
		t.Fatalf("%+v", picks)
	}
}
