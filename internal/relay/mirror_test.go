package relay

import (
	"runtime"
	"testing"

	"github.com/weirmq/weir/internal/api"
)

// A buffer that is full stays so for as long as the topic is written: what a message costs then is
// what it brings, not what is there.
func TestFullBufferIsNotCopiedForEachMessage(t *testing.T) {
	const buffer, messages, most = 1 << 20, 2000, 100 << 20
	m := newMirror(&Relay{opt: Options{BufferBytes: buffer}}, "a")
	at, data := uint64(0), make([]byte, 100)
	add := func() {
		at++
		m.add([]item{{last: at, rec: api.Record{Seq: at, Data: data}}}, at, false)
	}
	for m.from == 0 {
		add()
	}
	reader := m.items
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range messages {
		add()
	}
	runtime.ReadMemStats(&after)
	if took := after.TotalAlloc - before.TotalAlloc; took > most {
		t.Errorf("%d messages to a buffer of %d bytes take %d bytes of memory", messages, buffer, took)
	}
	sum := int64(0)
	for i := range m.items {
		sum += m.items[i].size()
		if want := m.from + 1 + uint64(i); m.items[i].last != want {
			t.Fatalf("item %d is number %d, want %d", i, m.items[i].last, want)
		}
	}
	if sum != m.bytes || sum > buffer || sum+m.items[0].size() <= buffer || m.items[len(m.items)-1].last != at {
		t.Errorf("it holds %d bytes up to %d, and counts %d; want nearly %d up to %d", sum, m.items[len(m.items)-1].last, m.bytes, buffer, at)
	}
	if m.left > buffer/8 {
		t.Errorf("%d bytes in front of it are still in memory", m.left)
	}
	for i := range reader {
		if want := reader[0].last + uint64(i); reader[i].last != want {
			t.Fatalf("item %d of an earlier reader has become number %d, want %d", i, reader[i].last, want)
		}
	}
}
