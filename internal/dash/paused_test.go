package dash

import "testing"

// A paused stream is said to be paused, and not that it has no workers.
func TestAPausedStreamIsNotCalledDeserted(t *testing.T) {
	n := int64(3)
	s := Stream{ID: "q", Kind: "queue", Lag: &n}
	for paused, want := range map[bool]string{
		true:  "It is paused: its workers are given nothing.",
		false: "3 messages wait and no worker asks for work.",
	} {
		s.Paused = paused
		if got := streamFindings(&s, Config{}); len(got) != 1 || got[0].What != want {
			t.Errorf("paused %v: %+v, want %s", paused, got, want)
		}
	}
}
