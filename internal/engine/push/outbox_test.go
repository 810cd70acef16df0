package push

import (
	"maps"
	"testing"
)

func TestAnIDNamesEveryTopicAndComesBack(t *testing.T) {
	names, at := []string{"a", "b"}, []uint64{4, 0}
	id, _ := AppendID(nil, nil, 2, func(i int) (string, uint64) { return names[i], at[i] })
	if string(id) != "eyJhIjo0LCJiIjowfQ" {
		t.Fatalf("%s", id)
	}
	got, ok := ParseID(string(id))
	if !ok || !maps.Equal(got, map[string]uint64{"a": 4, "b": 0}) {
		t.Fatal(got, ok)
	}
}

func TestWhatIsNoIDIsNotUsed(t *testing.T) {
	for _, id := range []string{"", "!", "bnVsbA", "WzFd", "eyJhIjotMX0", "eyJhIjoxLjV9", "eyJhIjoiMSJ9", "eyJhIjox"} {
		if got, ok := ParseID(id); ok {
			t.Errorf("%q was read as %v", id, got)
		}
	}
}

func TestAnOutboxHoldsNoMoreThanItsBounds(t *testing.T) {
	o := newOutbox(&held{}, 3, 10)
	for i, c := range []struct {
		size  int
		taken bool
	}{{4, true}, {4, true}, {4, false}, {2, true}, {0, false}} {
		if o.offer(&sub{at: i}, &frame{body: make([]byte, c.size)}) != c.taken {
			t.Fatalf("frame %d of %d bytes: taken is not %v", i, c.size, c.taken)
		}
	}
	if o.relaxed() {
		t.Fatal("a full outbox has room")
	}
	for _, want := range []int{0, 1, 3} {
		if it, ok := o.take(); !ok || it.to.at != want {
			t.Fatalf("%d instead of %d", it.to.at, want)
		}
	}
	if _, ok := o.take(); ok || !o.relaxed() {
		t.Fatal("not empty")
	}
	if !o.offer(&sub{}, &frame{body: make([]byte, 100)}) {
		t.Fatal("an empty outbox refuses a frame above its bytes, which could never be sent")
	}
}
