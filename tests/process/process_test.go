package process

import "testing"

// Two servers that start at once never get the same port, though neither listens yet.
func TestNoPortIsGivenTwice(t *testing.T) {
	const gap = 10_000
	seen := map[int]bool{}
	for range 500 {
		port, err := FreePort(gap)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range []int{port, port + gap} {
			if seen[p] {
				t.Fatalf("port %d was given twice", p)
			}
			seen[p] = true
		}
	}
}
