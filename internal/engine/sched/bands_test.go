package sched

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// bases are priorities in the middle of each band.
var bases = [Bands]int{-500, 100, 300, 600, 900}

// backlog fills each of the bands with n topics.
func (r *room) backlog(n int, bands ...int) {
	for _, b := range bands {
		for range n {
			r.mark(newTopic(fmt.Sprint("B", b), bases[b]))
		}
	}
}

// round visits n topics that are marked again at once, and returns their bands.
func (r *room) round(n int) (bands []int) {
	for range n {
		tp, _ := r.visit()
		if tp == nil {
			r.Fatal("the worker is idle with topics waiting")
		}
		bands = append(bands, slices.Index(bases[:], tp.base))
		r.mark(tp)
	}
	return bands
}

func count(bands []int) (n [Bands]int) {
	for _, b := range bands {
		n[b]++
	}
	return n
}

func TestFiveBandsShareEverySixteenVisits(t *testing.T) {
	r := newRoom(t)
	r.backlog(100, 0, 1, 2, 3, 4)
	visits := r.round(1600)
	for i := range len(visits) - 15 {
		if n := count(visits[i : i+16]); n != [Bands]int{1, 1, 2, 4, 8} {
			t.Fatalf("visits %d to %d: %v of B0 to B4", i, i+15, n)
		}
	}
}

func TestTwoBandsShareByTheirWeights(t *testing.T) {
	for high := range Bands {
		for low := range high {
			r := newRoom(t)
			r.backlog(100, low, high)
			sum := weights[low] + weights[high]
			visits := r.round(sum * 20)
			for i := range len(visits) - sum + 1 {
				if n := count(visits[i : i+sum]); n[low] != weights[low] || n[high] != weights[high] {
					t.Fatalf("B%d and B%d: %v in %d visits", high, low, n, sum)
				}
			}
		}
	}
}

func TestAnEmptyBandSavesNothingUp(t *testing.T) {
	r := newRoom(t)
	r.backlog(100, 0, 1, 2, 3)
	r.round(800) // a hundred rounds
	r.backlog(100, 4)
	row := 0
	for _, b := range r.round(200) {
		if row++; b != top {
			row = 0
		}
		if row > 8 {
			t.Fatal("more than 8 visits of B4 in a row")
		}
	}
}

func TestABandThatEmptiedDuringItsTurnSavesNothingUp(t *testing.T) {
	r := newRoom(t)
	r.backlog(3, 4)
	r.backlog(100, 1)
	r.expect("B4", "B4", "B4", "B1")
	r.backlog(100, 4)
	want := append(slices.Repeat([]string{"B4"}, 8), "B1", "B4")
	r.expect(want...)
}

func TestEveryBandGetsItsShareWhateverIsBacklogged(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		r := newRoom(t)
		backlogged := rapid.SliceOfNDistinct(rapid.IntRange(0, top), 1, Bands, rapid.ID[int]).Draw(rt, "bands")
		r.backlog(rapid.IntRange(1, 20).Draw(rt, "topics"), backlogged...)
		// Other bands have something now and then, and that shifts the round.
		for range rapid.IntRange(0, 20).Draw(rt, "before") {
			if extra := rapid.IntRange(0, top).Draw(rt, "extra"); !slices.Contains(backlogged, extra) {
				r.backlog(1, extra)
			}
			if tp, _ := r.visit(); slices.Contains(backlogged, slices.Index(bases[:], tp.base)) {
				r.mark(tp)
			}
		}
		others := func() (n int) {
			for b, ready := range r.Stats().Ready {
				if !slices.Contains(backlogged, b) {
					n += ready
				}
			}
			return n
		}
		for others() > 0 {
			if tp, _ := r.visit(); slices.Contains(backlogged, slices.Index(bases[:], tp.base)) {
				r.mark(tp)
			}
		}
		sum := 0
		for _, b := range backlogged {
			sum += weights[b]
		}
		r.round(sum)
		n := count(r.round(sum))
		for _, b := range backlogged {
			if n[b] != weights[b] {
				rt.Fatalf("bands %v: B%d has %d of %d visits", backlogged, b, n[b], sum)
			}
		}
	})
}
