package kafka

import (
	"cmp"
	"errors"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// lanes are the ways of records to the producer, by topic.
//
// The client joins records to batches as large as it takes the topic's max.message.bytes to be. Where that is
// less, because it was lowered or the user may not look at it, brokers refuse the batch, and each of its records as
// too large. So what was not alone on its way goes once more, with less beside it.
type lanes struct {
	mu  sync.Mutex // held for no call
	all map[string]*lane
	// waiting is how many bytes wait in all of them: they count for buffer_memory.
	waiting atomic.Int64
}

// lane is one topic's.
type lane struct {
	room    int // how many bytes may be on their way together; 0: any number
	bytes   int // on their way
	records int // on their way
	numbers int64
	sent    int64
	queue   []*ride // while there is a limit to the room, by number
	moving  bool    // somebody takes from the queue
}

// ride is a record on its way.
type ride struct {
	b      *Backend
	lane   *lane
	record *kgo.Record
	size   int
	tell   func(*kgo.Record, error)
	number int64 // in the order of the lane, whatever the try
	room   int   // of the lane when it was sent
	alone  int64 // how many had been sent by then, with it; 0: others were on their way
}

// ride passes a record to the producer, or makes it wait for those before it. tell is called once.
func (b *Backend) ride(r *kgo.Record, size int, tell func(*kgo.Record, error)) {
	l := &b.lanes
	l.mu.Lock()
	at := l.all[r.Topic]
	if at == nil {
		if l.all == nil {
			l.all = map[string]*lane{}
		}
		at = &lane{}
		l.all[r.Topic] = at
	}
	at.numbers++
	way := &ride{b: b, lane: at, record: r, size: size, tell: tell, number: at.numbers}
	if at.room > 0 {
		l.wait(way)
		move := at.begin()
		l.mu.Unlock()
		if move {
			b.move(at)
		}
		return
	}
	at.start(way)
	l.mu.Unlock()
	b.client.TryProduce(b.closing, r, way.land)
}

// wait puts a record into the queue of its lane, before those that were sent after it. The lock is held.
func (l *lanes) wait(way *ride) {
	at := way.lane
	i, _ := slices.BinarySearchFunc(at.queue, way.number, func(q *ride, n int64) int { return cmp.Compare(q.number, n) })
	at.queue = slices.Insert(at.queue, i, way)
	l.waiting.Add(int64(way.size))
}

// start notes that a record is on its way. The lock is held.
func (at *lane) start(way *ride) {
	at.sent++
	way.alone = 0
	if at.records == 0 {
		way.alone = at.sent
	}
	way.room = at.room
	at.records++
	at.bytes += way.size
}

// begin reports whether the caller is to take from the queue. The lock is held.
func (at *lane) begin() bool {
	if at.moving || len(at.queue) == 0 {
		return false
	}
	at.moving = true
	return true
}

// move sends what waits in a lane as far as there is room, on a goroutine of its own: what calls it may be the
// producer, for which the producer does not wait.
func (b *Backend) move(at *lane) {
	if b.spawn(func() {
		for way := b.lanes.next(at); way != nil; way = b.lanes.next(at) {
			b.client.TryProduce(b.closing, way.record, way.land)
		}
	}) {
		return
	}
	b.lanes.mu.Lock()
	left := at.queue
	at.queue, at.moving = nil, false
	for _, way := range left {
		b.lanes.waiting.Add(-int64(way.size))
	}
	b.lanes.mu.Unlock()
	for _, way := range left {
		way.tell(way.record, kgo.ErrClientClosed)
	}
}

// next takes the next record that has room; nil: whoever makes room begins anew.
func (l *lanes) next(at *lane) *ride {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(at.queue) == 0 || at.records > 0 && at.bytes+at.queue[0].size > at.room {
		at.moving = false
		return nil
	}
	way := at.queue[0]
	at.queue[0], at.queue = nil, at.queue[1:]
	l.waiting.Add(-int64(way.size))
	at.start(way)
	return way
}

// land takes the answer.
func (way *ride) land(r *kgo.Record, err error) {
	b, at := way.b, way.lane
	refused := errors.Is(err, kerr.MessageTooLarge) || errors.Is(err, kerr.RecordListTooLarge)
	known := 0
	if refused {
		known = int(b.batchBytes(r.Topic))
	}
	b.lanes.mu.Lock()
	at.records--
	at.bytes -= way.size
	again := refused && way.size < known && (way.alone == 0 || way.alone != at.sent)
	if again {
		if half := max(1, cmp.Or(way.room, known)/2); at.room == 0 || half < at.room {
			at.room = half
		}
		b.lanes.wait(way)
	}
	move := at.begin()
	b.lanes.mu.Unlock()
	if !again {
		way.tell(r, err)
	}
	if move {
		b.move(at)
	}
}
