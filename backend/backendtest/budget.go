package backendtest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/weirmq/weir/backend"
)

func (s *suite) budgetCases() []testCase {
	_, keeps := s.offered.(backend.Budgeter)
	return only(keeps,
		testCase{"streams that share a budget never hold more, whoever reads when", func(f *fixture) {
			b := f.open().(backend.Budgeter)
			Budget(f.T, func(string) backend.Budgeter { return b }, f.stream)
		}},
		testCase{"what the producers of a budget count is added up", func(f *fixture) {
			one, two := f.open().(backend.Budgeter), f.open().(backend.Budgeter)
			for i, add := range [][]uint32{{1, 0, 2}, {0, 0, 3}} {
				sums, err := []backend.Budgeter{one, two}[i].TallyBudget(f.ctx(), f.stream, add)
				if want := []string{"[1 0 2]", "[1 0 5]"}[i]; err != nil || fmt.Sprint(sums) != want {
					f.Errorf("%v added: %v, %v, want %s", add, sums, err, want)
				}
			}
		}},
	)
}

// drawer is a producer as a budget sees it.
type drawer struct {
	stream       int
	left, flying int64 // of its share
	stage        int   // of a reading: 0 none, 1 it knows what is spent, 2 it has read
	req          backend.DrawRequest
}

// Budget lets producers of three streams read, draw and append in any order, so that
// readings are as old as can be, and checks after each step that all streams together
// hold no more than the budget, and at the end that each stream gets its even part.
func Budget(t *testing.T, keeper func(budget string) backend.Budgeter, name string) {
	t.Helper()
	for seed := range uint64(4) {
		name := fmt.Sprintf("%s-%d", name, seed)
		m := &budgetModel{T: t, b: keeper(name), name: name, limit: 90, random: rand.New(rand.NewPCG(seed, 7))}
		for i := range 7 {
			m.all = append(m.all, &drawer{stream: i % 3})
		}
		for range 600 {
			m.step(m.random.IntN(len(m.all)))
		}
		m.name += "-filled"
		m.b = keeper(m.name)
		m.fill()
	}
}

// BudgetCounts lets streams join a budget, be made again and be forgotten, and checks that the
// sum of what is finished grows by what is finished meanwhile alone. pass lets so much time
// pass that streams are forgotten.
func BudgetCounts(t *testing.T, b backend.Budgeter, name string, pass func()) {
	t.Helper()
	ctx, last := context.Background(), int64(-1)
	finish := func(stream string, finished, want int64) {
		t.Helper()
		spent, err := b.Spent(ctx, name, stream)
		if err != nil {
			t.Fatal(err)
		}
		all, _, err := b.Draw(ctx, backend.DrawRequest{
			RoomRequest: backend.RoomRequest{Limit: 100, Pause: -1, Lifetime: time.Minute}, Budget: name, Stream: stream, Producer: "of " + stream,
			Spent: spent, Signal: backend.Signal{Workers: new(int64), Lag: new(int64), Finished: &finished},
		})
		if err != nil || all.Finished == nil {
			t.Fatalf("%+v, %v", all, err)
		}
		if grew := *all.Finished - last; last >= 0 && grew != want {
			t.Errorf("%s has finished %d in all; the sum grew by %d, want %d", stream, finished, grew, want)
		}
		last = *all.Finished
	}
	finish("works", 500, 0)
	finish("works", 510, 10)
	finish("old", 1_000_000, 0)
	finish("old", 1_000_005, 5)
	finish("works", 517, 7)
	pass()
	finish("works", 519, 2)
	finish("old", 1_000_007, 0)
	finish("old", 1_000_008, 1)
	finish("works", 520, 1)
	finish("old", 0, -1) // made again: what it had finished is gone
	finish("old", 3, 3)
}

type budgetModel struct {
	*testing.T
	b      backend.Budgeter
	name   string
	limit  int64
	random *rand.Rand
	all    []*drawer
	depth  [3]int64
}

func (m *budgetModel) step(i int) {
	d := m.all[i]
	switch n := m.random.IntN(10); {
	case n < 5:
		m.read(i, int64(m.random.IntN(8)))
	case n < 7 && d.left > 0:
		n := 1 + m.random.Int64N(d.left)
		d.left, d.flying = d.left-n, d.flying+n
	case n < 9:
		m.depth[d.stream] += d.flying
		d.flying = 0
	default:
		at := m.random.IntN(3)
		m.depth[at] -= m.random.Int64N(m.depth[at] + 1)
	}
	if sum := m.depth[0] + m.depth[1] + m.depth[2]; sum > m.limit {
		m.Fatalf("the streams hold %v, %d in total; the budget is %d", m.depth, sum, m.limit)
	}
}

// read goes one step further in a reading.
func (m *budgetModel) read(i int, want int64) {
	m.Helper()
	d := m.all[i]
	var err error
	switch d.stage {
	case 0:
		kept := min(d.left, 2)
		d.left = kept
		d.req = backend.DrawRequest{
			RoomRequest: backend.RoomRequest{Limit: m.limit, Pause: -1, Need: 1, Want: want, Kept: kept + d.flying, Lifetime: time.Minute},
			Budget:      m.name, Stream: fmt.Sprintf("stream %d", d.stream), Producer: fmt.Sprintf("producer-%d", i),
		}
		d.req.Spent, err = m.b.Spent(context.Background(), m.name, d.req.Stream)
	case 1:
		n := m.depth[d.stream]
		d.req.Signal = backend.Signal{Pending: n / 3, Delayed: n / 4, Lag: new(int64), Workers: new(int64), Finished: new(int64), XLen: n}
		*d.req.Signal.Lag = n - n/3 - n/4
	case 2:
		var room backend.Room
		var all backend.Signal
		all, room, err = m.b.Draw(context.Background(), d.req)
		if err == nil && (room.Err != nil || room.Given < 0 || all.Lag == nil || all.Workers == nil || all.Finished == nil || all.XLen != all.Pending+*all.Lag+all.Delayed) {
			m.Fatalf("%+v drew %+v, %+v", d.req, room, all)
		}
		d.left += room.Given
	}
	if err != nil {
		m.Fatal(err)
	}
	d.stage = (d.stage + 1) % 3
}

// fill lets the first stream take all there is, and then the others want their part,
// while the workers go on.
func (m *budgetModel) fill() {
	m.Helper()
	for _, d := range m.all {
		d.left, d.flying, d.stage = 0, 0, 0
	}
	m.depth = [3]int64{}
	round := func(streams int) {
		for i, d := range m.all {
			if d.stream < streams {
				for range 3 {
					m.read(i, 100)
				}
				m.depth[d.stream] += d.left
				d.left = 0
			}
		}
	}
	for range 20 {
		round(1)
	}
	if m.depth[0] < m.limit*9/10 {
		m.Errorf("a stream alone came to %d of %d", m.depth[0], m.limit)
	}
	for range 60 {
		fullest := 0
		for i, n := range m.depth {
			if n > m.depth[fullest] {
				fullest = i
			}
		}
		m.depth[fullest] -= min(m.depth[fullest], 3)
		round(3)
	}
	for i, n := range m.depth {
		if n < m.limit/3*8/10 {
			m.Errorf("stream %d holds %d of %d: %v", i, n, m.limit, m.depth)
		}
	}
	if sum := m.depth[0] + m.depth[1] + m.depth[2]; sum > m.limit {
		m.Fatalf("the streams hold %v, %d in total; the budget is %d", m.depth, sum, m.limit)
	}
}
