package oracle

import (
	"fmt"
	"slices"
	"time"

	"github.com/weirmq/weir/tests/oracle/fake"
)

// sim writes the history of one client of the fake server, on a clock of its
// own: every operation takes 2 ms.
type sim struct {
	now    time.Time
	server *fake.Server
	log    []Event
	n      uint64
	cfg    Config // of the topic whose configuration changes
}

func newSim() *sim {
	s := &sim{now: time.UnixMilli(1_800_000_000_000)}
	s.server = fake.New(func() time.Time { return s.now })
	return s
}

// do runs one operation in the middle of its time.
func (s *sim) do(e Event, op func(e *Event)) *Event {
	e.Outcome = OK
	e.Invoke = s.now.UnixNano()
	s.now = s.now.Add(time.Millisecond)
	op(&e)
	s.now = s.now.Add(time.Millisecond)
	e.Return = s.now.UnixNano()
	s.now = s.now.Add(time.Microsecond) // the next one is sent after this answer
	s.log = append(s.log, e)
	return &s.log[len(s.log)-1]
}

func (s *sim) put(name string, c Config) {
	s.do(Event{Kind: Put, Topic: name, Config: &c}, func(*Event) {
		fc := fake.Config{Type: "log", Durability: c.Class, CapRecords: c.CapRecords, LeaseMS: int64(c.LeaseMS),
			MaxDeliveries: c.MaxDeliveries, LeasesDurable: c.LeasesDurable, CapBytes: c.CapBytes, TTLMS: c.TTLMS}
		if c.Queue {
			fc.Type = "queue"
		}
		if c.Reject {
			fc.Discard = "reject"
		}
		if c.DeadLetter != "" {
			fc.DeadLetter = &c.DeadLetter
		}
		s.server.Put(name, fc)
	})
}

func (s *sim) write(name string, size int) *Event {
	s.n++
	return s.writeBatch(name, BatchID{1, s.n}, size, "")
}

func (s *sim) writeBatch(name string, id BatchID, size int, key string) *Event {
	return s.writeLater(name, id, key, make([]int64, size))
}

// writeLater writes a record for each delay, in ms.
func (s *sim) writeLater(name string, id BatchID, key string, delays []int64) *Event {
	size := len(delays)
	recs := make([]fake.Record, size)
	for i := range recs {
		p := PayloadOf(id, i, size)
		recs[i] = fake.Record{Data: p.Data, Meta: p.Meta, Delay: delays[i]}
		if p.Tag != "" {
			recs[i].Tag = &p.Tag
		}
		if p.Node != "" {
			recs[i].Node = &p.Node
		}
	}
	return s.do(Event{Kind: Write, Topic: name, Batch: id, Size: size, Key: key, Delays: delays}, func(e *Event) {
		var ok bool
		e.First, e.Last, e.Head, e.Deduped, ok = s.server.Write(name, key, recs)
		if !ok {
			e.Outcome = Fail
		}
	})
}

func (s *sim) deleteBefore(name string, before uint64) {
	s.do(Event{Kind: Delete, Topic: name, Before: before}, func(e *Event) {
		s.server.Delete(name, before, nil)
		e.Head, _, _, _ = s.server.State(name)
	})
}

// drop deletes a topic.
func (s *sim) drop(name string) {
	s.do(Event{Kind: Drop, Topic: name}, func(*Event) { s.server.Drop(name) })
}

// route makes a router.
func (s *sim) route(r Router) {
	s.do(Event{Kind: Route, Router: &r}, func(*Event) {
		f := fake.Router{Name: r.Name, Source: r.Source, Dest: r.Dest, PreserveNode: !r.DropNode}
		if r.Tag != "" {
			f.Filter = []string{"tag", "Eq", r.Tag}
		}
		if r.ExactlyOnce {
			f.Guarantee = "exactly_once"
		}
		s.server.PutRouter(f)
	})
}

// backup takes a backup while two topics are written, and reads it.
func (s *sim) backup(names ...string) {
	e := Event{Kind: Backup, Outcome: OK, Invoke: s.now.UnixNano()}
	s.write("f", 2)
	s.write("d", 2)
	copied := s.server.Copy()
	s.write("f", 3)
	e.Return = s.now.UnixNano()
	reader := &sim{now: s.now, server: copied}
	reader.quiet(names...)
	e.Copy = reader.log
	s.log = append(s.log, e)
	s.now = s.now.Add(time.Microsecond)
}

func payload(r *fake.Record, node bool) Payload {
	p := Payload{Data: r.Data, Meta: r.Meta}
	if r.Tag != nil {
		p.Tag = *r.Tag
	}
	if r.Node != nil && node {
		p.Node = *r.Node
	}
	return p
}

func (s *sim) claim(name string, n int) []Job {
	e := s.do(Event{Kind: Claim, Topic: name, Node: "w", Max: n}, func(e *Event) {
		for _, c := range s.server.Claim(name, "w", n, 0) {
			e.Jobs = append(e.Jobs, Job{NewRec(c.Seq, c.TS, payload(&c.Record, false)), c.Lease, c.Deadline, c.Deliveries})
		}
	})
	return e.Jobs
}

func (s *sim) settle(kind Kind, name string, jobs ...Job) *Event {
	e := Event{Kind: kind, Topic: name, Node: "w"}
	var seqs []uint64
	var ids []string
	for _, j := range jobs {
		e.Items = append(e.Items, Item{Seq: j.Seq, Lease: j.Lease})
		seqs, ids = append(seqs, j.Seq), append(ids, j.Lease)
	}
	return s.do(e, func(e *Event) {
		skipped, deadline := s.server.Settle(string(kind), name, "w", seqs, ids, 0, 200)
		for i := range e.Items {
			e.Items[i].Accepted = !slices.Contains(skipped, e.Items[i].Seq)
			e.Items[i].Deadline = deadline
		}
	})
}

func (s *sim) crash(power bool) {
	s.do(Event{Kind: Crash, Power: power}, func(*Event) { s.server.Crash(power) })
}

func (s *sim) read(name string, from uint64, limit int, quiet bool) *Event {
	return s.do(Event{Kind: Read, Topic: name, From: from, Quiet: quiet}, func(e *Event) {
		recs, next, head, earliest, gapTo, reason, _ := s.server.Diff(name, from, limit)
		e.Next, e.Head, e.Earliest = next, head, earliest
		for i := range recs {
			e.Recs = append(e.Recs, shownRec(&recs[i]))
		}
		if gapTo > 0 {
			e.Tomb = &Tomb{from + 1, gapTo, reason}
		}
	})
}

func shownRec(r *fake.Record) Rec {
	if from, seq, ok := fake.DeadLetterSource(r); ok {
		return NewDeadLetter(r.Seq, r.TS, payload(r, true), from, seq)
	}
	if plain, router, source, seq, ok := StripMark(r.Meta); ok {
		p := payload(r, true)
		p.Meta = plain
		return NewCopy(r.Seq, r.TS, p, len(r.Data)+len(r.Meta), router, source, seq)
	}
	return NewRec(r.Seq, r.TS, payload(r, true))
}

// quiet reads topics completely, and their states.
func (s *sim) quiet(names ...string) {
	for _, name := range names {
		for from := uint64(0); ; {
			e := s.read(name, from, 7, true)
			if e.Next == e.Head {
				break
			}
			from = e.Next
		}
		s.do(Event{Kind: State, Topic: name, Quiet: true}, func(e *Event) {
			e.Head, e.Earliest, e.Count, e.Bytes = s.server.State(name)
			if name == "cfg" {
				c := s.cfg
				e.Config = &c
			}
		})
	}
}

var simTopics = []string{"f", "d", "m", "e", "cap", "rej", "q", "q.dlq", "src", "copies", "some", "cfg", "again", "cls", "later", "later-kept", "later-memory"}

// story is a history with everything in it: two crashes, a power cut, every
// class, caps, deletes, repeats and all that can happen to a job.
func story() []Event {
	s := newSim()
	s.put("f", Config{Class: Fsync})
	s.put("d", Config{Class: Disk})
	s.put("m", Config{Class: Memory})
	s.put("e", Config{Class: Ephemeral})
	s.put("cap", Config{Class: Fsync, CapRecords: 9})
	s.put("rej", Config{Queue: true, Class: Fsync, CapRecords: 8, Reject: true})
	s.put("q.dlq", Config{Class: Fsync})
	s.put("q", Config{Queue: true, Class: Fsync, MaxDeliveries: 2, DeadLetter: "q.dlq", LeaseMS: 100})
	s.put("src", Config{Class: Disk})
	s.write("src", 3)
	s.put("cls", Config{Class: Fsync})
	s.write("cls", 3)
	s.put("cls", Config{Class: Memory})
	s.write("cls", 3)
	s.put("gone", Config{Class: Fsync})
	s.write("gone", 2)
	s.drop("gone")
	s.put("later", Config{Queue: true, Class: Disk, LeaseMS: 100})
	s.put("later-kept", Config{Queue: true, Class: Fsync, LeasesDurable: true, LeaseMS: 100})
	s.put("later-memory", Config{Queue: true, Class: Memory, LeaseMS: 100})
	s.put("copies", Config{Class: Disk})
	s.put("some", Config{Class: Fsync})
	s.route(Router{Name: "all", Source: "src", Dest: "copies", ExactlyOnce: true})
	s.route(Router{Name: "few", Source: "src", Dest: "some", Tag: "t1", DropNode: true})
	for round := range 3 {
		s.life(round)
		s.change(round)
		for range 4 {
			s.write("src", 5)
			for _, name := range []string{"f", "d", "m", "e", "cap", "rej"} {
				s.write(name, 3)
				s.read(name, 0, 100, false)
			}
		}
		s.write("q", 8)
		s.n++
		id, key := BatchID{1, s.n}, fmt.Sprint("k", round)
		s.writeBatch("f", id, 2, key)
		s.writeBatch("f", id, 2, key)
		s.deleteBefore("f", uint64(5*(round+1)))
		s.jobs()
		for _, name := range simTopics[len(simTopics)-3:] {
			s.later(name, round)
		}
		s.n++
		lost := s.writeBatch("d", BatchID{1, s.n}, 4, "")
		lost.Outcome, lost.First, lost.Last, lost.Head = Unknown, 0, 0, 0
		s.backup(simTopics...)
		s.crash(round == 1)
		s.quiet(simTopics...)
		s.do(Event{Kind: State, Topic: "gone", Quiet: true}, func(e *Event) { e.Outcome, e.Note = Fail, "404 topic_not_found" })
		s.now = s.now.Add(3 * time.Second)
	}
	return s.log
}

// life deletes a queue and makes it again; what was written before the deletion
// is written again with its key.
func (s *sim) life(round int) {
	c := Config{Queue: true, Class: Fsync, LeaseMS: 1000}
	if round > 0 {
		s.drop("again")
	}
	s.put("again", c)
	s.n++
	id := BatchID{1, s.n}
	s.writeBatch("again", id, 3, "key")
	s.claim("again", 2)
	s.drop("again")
	s.put("again", c)
	s.writeBatch("again", id, 3, "key")
	s.write("again", 3)
	s.settle(Ack, "again", s.claim("again", 2)...)
}

// change tightens and loosens what a topic may hold.
func (s *sim) change(round int) {
	for _, c := range []Config{
		{Class: Fsync}, {Class: Fsync, CapRecords: uint64(20 - round)}, {Class: Disk, CapBytes: 3000},
		{Class: Fsync, CapRecords: 12}, {Class: Fsync, TTLMS: 20},
	} {
		s.cfg = c
		s.put("cfg", c)
		for range 6 {
			s.write("cfg", 3)
		}
		s.now = s.now.Add(30 * time.Millisecond)
		s.read("cfg", 0, 100, false)
		s.do(Event{Kind: State, Topic: "cfg"}, func(e *Event) { e.Head, e.Earliest, e.Count, e.Bytes = s.server.State("cfg") })
	}
	s.cfg = Config{Class: Fsync, CapRecords: 10}
	s.put("cfg", s.cfg)
	s.write("cfg", 3)
}

// jobs takes jobs of q through every path, and refills rej.
func (s *sim) jobs() {
	jobs := s.claim("q", 6)
	s.settle(Ack, "q", jobs[0], jobs[1])
	s.settle(Ack, "q", jobs[0]) // again: skipped
	s.settle(Extend, "q", jobs[2])
	s.settle(Ack, "q", jobs[2])
	s.settle(Nack, "q", jobs[3])
	s.now = s.now.Add(110 * time.Millisecond) // 4 and 5 run out
	again := s.claim("q", 6)
	s.settle(Ack, "q", jobs[4]) // a lease that was superseded: skipped
	s.settle(Ack, "q", again[1])
	s.now = s.now.Add(110 * time.Millisecond)
	s.claim("q", 6) // moves what was delivered twice
	r := s.claim("rej", 2)
	s.settle(Ack, "rej", r...)
	s.write("rej", 2)
	s.write("rej", 3)
}

// later writes records with delays, with a key and again, and claims until a moment before the
// crash: what waits longer is claimed behind it.
func (s *sim) later(name string, round int) {
	s.settle(Ack, name, s.claim(name, 10)...) // due since the last round
	s.n++
	id, key := BatchID{1, s.n}, fmt.Sprint(name, round)
	for range 2 {
		s.writeLater(name, id, key, []int64{0, 30, 5000, 200, 200_000})
		s.settle(Ack, name, s.claim(name, 10)...)
		s.now = s.now.Add(60 * time.Millisecond)
	}
	for range 2 {
		s.settle(Ack, name, s.claim(name, 10)...)
		s.now = s.now.Add(200 * time.Millisecond)
	}
}
