package queue

import (
	"slices"
	"testing"
)

// deadQueue is n jobs that were delivered once and given back.
func deadQueue(n uint64) *model {
	m := newModel()
	m.head = n
	for seq := uint64(1); seq <= n; seq++ {
		m.live[seq] = true
		m.q.Restore(seq, "", seq, 0, 1)
	}
	return m
}

func (m *model) claimDead(limit uint64, most int) (picks, dead []uint64) {
	p, d := m.q.Claim(nil, nil, &Claim{Node: "w", Max: 1, Deadline: 1 << 40, Limit: limit, Dead: most, FirstID: 99, Head: m.head, Live: uint64(len(m.live)), Records: m})
	return pickSeqs(p), pickSeqs(d)
}

// A claim takes as many dead jobs as it wants, and is not kept from the job behind them.
func TestAClaimTakesSomeOfTheDeadJobs(t *testing.T) {
	m := deadQueue(10)
	m.head, m.live[11] = 11, true
	if picks, dead := m.claimDead(1, 3); !slices.Equal(picks, []uint64{11}) || !slices.Equal(dead, []uint64{1, 2, 3}) {
		t.Fatal(picks, dead)
	}
	if picks, dead := m.claimDead(1, 0); len(picks) > 0 || len(dead) > 0 {
		t.Fatal(picks, dead)
	}
	delete(m.live, 4)
	m.q.Forget(4)
	m.q.Abort(1)
	if picks, dead := m.claimDead(1, 100); len(picks) > 0 || !slices.Equal(dead, []uint64{5, 6, 7, 8, 9, 10, 1}) {
		t.Fatal(picks, dead)
	}
}

// Jobs that were found dead are not once the limit is another.
func TestAJobIsDeadByTheLimitThatHolds(t *testing.T) {
	for _, limit := range []uint64{0, 2} {
		m := deadQueue(3)
		m.claimDead(1, 0)
		if picks, dead := m.claimDead(limit, 3); !slices.Equal(picks, []uint64{1}) || len(dead) > 0 {
			t.Fatal(limit, picks, dead)
		}
		if picks, dead := m.claimDead(1, 3); len(picks) > 0 || !slices.Equal(dead, []uint64{2, 3}) {
			t.Fatal(limit, picks, dead)
		}
	}
}
