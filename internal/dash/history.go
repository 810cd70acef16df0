package dash

import (
	"math"
	"time"
)

const (
	// Step is the time between two points of the history, and Points how many there are:
	// an hour.
	Step   = 5 * time.Second
	Points = int(time.Hour / Step)

	// maxStreams bounds the streams that have a history. One takes 7 × 720 × 4 bytes,
	// about 20 KB.
	maxStreams = 1000
)

// The series of a stream, and of the server.
var (
	streamSeries = []string{"lag", "pending", "signal", "oldest_age_ms", "in_per_second", "out_per_second", "refused_per_second"}
	serverSeries = []string{"pressure", "fsync_ms", "push_ms", "in_per_second", "out_per_second", "backlog", "connections"}
)

// ring holds the last hour of some series. What is not known is NaN.
type ring struct {
	values [][]float32 // by series
	slot   int64       // number of the newest step, counted from 1970
}

func newRing(series int) *ring {
	r := &ring{values: make([][]float32, series)}
	for i := range r.values {
		r.values[i] = make([]float32, Points)
		for j := range r.values[i] {
			r.values[i][j] = float32(math.NaN())
		}
	}
	return r
}

// put stores the values of a step; steps that were left out since the last are gaps.
func (r *ring) put(slot int64, values []float64) {
	if r.slot != 0 {
		for s := max(r.slot+1, slot-int64(Points)+1); s < slot; s++ {
			for i := range r.values {
				r.values[i][s%int64(Points)] = float32(math.NaN())
			}
		}
	}
	for i, v := range values {
		r.values[i][slot%int64(Points)] = float32(v)
	}
	r.slot = slot
}

// series returns one series up to slot, oldest first; nil where nothing is known.
func (r *ring) series(i int, slot int64) []*float32 {
	out := make([]*float32, Points)
	for j := range out {
		s := slot - int64(Points-1-j)
		if s > r.slot || s < 0 {
			continue
		}
		if v := r.values[i][s%int64(Points)]; v == v {
			out[j] = &v
		}
	}
	return out
}

// History is an hour of a stream or of the server, as the page gets it.
type History struct {
	EndMS  int64                 `json:"end_ms"` // the newest point
	StepMS int64                 `json:"step_ms"`
	Series map[string][]*float32 `json:"series"` // oldest first; null: not known
}

func (r *ring) history(names []string, slot int64, now time.Time) History {
	h := History{EndMS: slotOf(now) * Step.Milliseconds(), StepMS: Step.Milliseconds(), Series: make(map[string][]*float32, len(names))}
	for i, name := range names {
		h.Series[name] = r.series(i, slot)
	}
	return h
}

func slotOf(t time.Time) int64 { return t.UnixMilli() / Step.Milliseconds() }

// value is *p, NaN if it is not known.
func value[T int64 | float64](p *T) float64 {
	if p == nil {
		return math.NaN()
	}
	return float64(*p)
}
