package engine

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/internal/op"
	"github.com/weirmq/weir/internal/wal"
)

// littleLife has operations of many kinds. It ends with a sealed
// segment that holds the most of them, whose operations it returns; the store
// does not take it in before the caller lets go of sealing.
func littleLife(t *testing.T, s *scene) (segment wal.SegmentInfo, ops []wal.Op) {
	t.Helper()
	e := s.e
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	lease := &api.ClaimRequest{Node: "w", Max: 3, HasLease: true, LeaseMS: 3600_000}
	claim := func() {
		_, err := e.Claim(bg, "jobs", lease, func(*api.Job) {})
		must(err)
	}
	router := func(name, from, to string) {
		_, err := e.PutRouter(bg, name, api.RouterConfig{Source: from, Dest: to, Guarantee: api.ExactlyOnce})
		must(err)
	}
	put(t, e, "old", configOf(api.Disk))
	put(t, e, "early", configOf(api.Fsync))
	put(t, e, "ended", configOf(api.Disk))
	put(t, e, "was", configOf(api.Disk))
	router("gone", "old", "was")
	write(t, e, "ended", `"e1"`, `"e2"`)
	write(t, e, "early", `"y1"`, `"y2"`, `"y3"`)
	sealNow(t, e)

	put(t, e, "log", configOf(api.Fsync))
	put(t, e, "letters", configOf(api.Disk))
	put(t, e, "jobs", configOf(api.Disk, func(c *api.Config) {
		c.Type, c.LeasesDurable, c.MaxDeliveries = api.TypeQueue, true, 1
		c.DeadLetter, c.HasDeadLetter = "letters", true
	}))
	put(t, e, "capped", configOf(api.Disk, func(c *api.Config) { c.CapRecords = 3 }))
	put(t, e, "air", configOf(api.Ephemeral))
	put(t, e, "late", configOf(api.Disk))
	put(t, e, "copies", configOf(api.Disk))
	router("r", "log", "copies")
	for n := range 4 {
		write(t, e, "log", fmt.Sprintf(`"l%d"`, n), fmt.Sprintf(`"m%d"`, n))
		write(t, e, "jobs", fmt.Sprintf(`"j%d"`, n), fmt.Sprintf(`"k%d"`, n))
		write(t, e, "capped", fmt.Sprintf(`"c%d"`, n))
		write(t, e, "air", `"a"`)
	}
	mustFull(t, e, "copies")
	claim()
	ack(t, e, "jobs", "w", 1)
	_, err := e.Nack(bg, "jobs", &api.SettleRequest{Node: "w", Seqs: []uint64{2}})
	must(err)
	claim() // buries 2
	_, err = e.DeleteRecords(bg, "early", &api.DeleteRequest{HasBefore: true, BeforeSeq: 2})
	must(err)
	must(func() error {
		_, err := e.DeleteRecords(bg, "log", &api.DeleteRequest{HasBefore: true, BeforeSeq: 2})
		return err
	}())
	write(t, e, "late", `"x1"`)
	_, err = e.DeleteTopic(bg, "ended", false)
	must(err)
	_, err = e.DeleteRouter(bg, "gone")
	must(err)
	put(t, e, "old", configOf(api.Fsync, func(c *api.Config) { c.CapRecords = 77 }))
	write(t, e, "log", `"last"`)
	mustFull(t, e, "copies")

	e.sealing.Lock()
	must(e.log.Rotate())
	// What follows is behind the damage.
	write(t, e, "late", `"x2"`)
	_, err = e.DeleteTopic(bg, "late", false)
	must(err)
	write(t, e, "capped", `"c5"`)
	ack(t, e, "jobs", "w", 4)
	segment, ok := e.log.OldestSealed()
	if !ok {
		t.Fatal("there is no sealed segment")
	}
	must(e.log.Scan(segment.Number, func(o wal.Op) error {
		o.Payload = clone(o.Payload)
		ops = append(ops, o)
		return nil
	}))
	return segment, ops
}

// sight is what a client sees of a topic.
type sight struct {
	records map[uint64]bool
	lost    map[uint64]bool
	state   string
	count   uint64
	bytes   uint64
	head    uint64
}

func (s *scene) sights() map[string]sight {
	s.t.Helper()
	all := map[string]sight{}
	for _, name := range s.e.reg.names() {
		if name == "air" {
			continue // what it has ends with the server
		}
		v := sight{}
		v.records, v.lost = s.told(name)
		st := stateOf(s.t, s.e, name)
		v.count, v.bytes, v.head = st.Count, st.Bytes, st.HeadSeq
		v.state = fmt.Sprintf("%+v jobs %+v", st.Config, st.Queue)
		all[name] = v
	}
	var routers []string
	for _, r := range s.e.routes.sorted() {
		st := r.state()
		routers = append(routers, fmt.Sprint(st.Router, st.Config.Source, st.Config.Dest, st.Config.Guarantee, st.ForwardedTotal))
	}
	all["routers"] = sight{state: strings.Join(routers, "\n")}
	return all
}

// told reads which numbers of a topic hold a record, and which a tombstone covers.
func (s *scene) told(topic string) (records, lost map[uint64]bool) {
	s.t.Helper()
	records, lost = map[uint64]bool{}, map[uint64]bool{}
	live, gaps := mustFull(s.t, s.e, topic)
	for _, r := range live {
		var n uint64
		fmt.Sscanf(r, "%d=", &n)
		records[n] = true
	}
	for _, g := range gaps {
		var from, to uint64
		fmt.Sscanf(g, "%d-%d ", &from, &to)
		for ; from <= to; from++ {
			lost[from] = true
		}
	}
	return records, lost
}

// appendsOf are the numbers that an operation gives, by topic.
func (s *scene) appendsOf(o wal.Op) map[string]map[uint64]bool {
	all := map[string]map[uint64]bool{}
	var p op.Part
	for r := op.NewReader(o.Payload); r.Next(&p); {
		if t := s.e.reg.id(p.Topic); t != nil && p.Kind == op.KindAppend {
			all[t.Name] = map[uint64]bool{}
			for n := p.First; n < p.First+p.N; n++ {
				all[t.Name][n] = true
			}
		}
	}
	return all
}

func kindsOf(o wal.Op) (kinds []op.Kind) {
	var p op.Part
	for r := op.NewReader(o.Payload); r.Next(&p); {
		kinds = append(kinds, p.Kind)
	}
	return kinds
}

// Whatever operation of a sealed segment is damaged, and wherever: the segment
// moves to the store, nothing but the records in it is missing, those are
// announced, and a start finds the same.
func TestASegmentWithAnyDamagedOperationIsSealed(t *testing.T) {
	_, ops := func() (wal.SegmentInfo, []wal.Op) {
		s := newScene(t, "wal")
		defer s.e.sealing.Unlock()
		return littleLife(t, s)
	}()
	seen := map[op.Kind]bool{}
	for _, o := range ops {
		for _, k := range kindsOf(o) {
			seen[k] = true
		}
	}
	for k := op.KindCreate; k <= op.KindCursor; k++ {
		switch k {
		case op.KindEvict, op.KindLose, op.KindSkip, op.KindCounters:
		default:
			if !seen[k] {
				t.Errorf("no operation of kind %d", k)
			}
		}
	}
	for i := range ops {
		// The payload, the length, the header of the operation's group.
		for n, where := range []int64{0, -16, -16 - 40} {
			if (3*i+n)%sweepShare != 0 {
				continue
			}
			t.Run(fmt.Sprintf("operation %d %v at %d", i, kindsOf(ops[i]), where), func(t *testing.T) {
				t.Parallel()
				sealsOver(t, i, where)
			})
		}
	}
}

func sealsOver(t *testing.T, i int, where int64) {
	s := newScene(t, "wal")
	segment, ops := littleLife(t, s)
	if i >= len(ops) {
		s.e.sealing.Unlock()
		return // a reservation that was larger this time
	}
	file := fmt.Sprintf("/data/wal/%010d.wal", segment.Number)
	at := int64(ops[i].Pos.Offset) + where
	before, appends, hit := s.sights(), map[string]map[uint64]bool{}, false
	for _, o := range ops {
		if from := int64(o.Pos.Offset); at >= from-16 && at < from+int64(o.Pos.Len) {
			hit, appends = true, s.appendsOf(o)
		}
	}
	s.flipAt(file, at, imageOf(t, s.fs, "/data/wal")[file][at])
	s.e.sealing.Unlock()
	if err := s.e.seal(segment); err != nil {
		t.Fatal(err)
	}
	after := s.sights()
	for name, was := range before {
		now := after[name]
		if now.state != was.state || now.head != was.head {
			if name != "jobs" || len(appends[name]) == 0 {
				t.Fatalf("%s was\n%s, head %d, and is\n%s, head %d", name, was.state, was.head, now.state, now.head)
			}
		}
		for n := range was.records {
			if now.records[n] == (appends[name][n]) || now.lost[n] != appends[name][n] {
				t.Fatalf("number %d of %s: read %v, lost %v; damaged %v", n, name, now.records[n], now.lost[n], appends[name])
			}
		}
		if now.count != uint64(len(now.records)) || len(appends[name]) == 0 && now.bytes != was.bytes {
			t.Fatalf("%s counts %d records of %d bytes, was %d bytes, and has %d", name, now.count, now.bytes, was.bytes, len(now.records))
		}
	}
	if n, all := s.log.lines("ERROR"); n > 2 || hit != (n > 0) {
		t.Fatalf("%d error lines:\n%s", n, all)
	}
	if ranges, _ := s.e.damage.totals(); hit != (ranges > 0) {
		t.Fatalf("the damage is counted with %d ranges", ranges)
	}
	for range 2 {
		s.reopen()
		again := s.sights()
		if a, b := slices.Sorted(maps.Keys(after)), slices.Sorted(maps.Keys(again)); !slices.Equal(a, b) {
			t.Fatalf("topics %v, after a start %v", a, b)
		}
		for name, was := range after {
			now := again[name]
			if now.state != was.state || now.head != was.head || now.count != was.count || now.bytes != was.bytes || !maps.Equal(now.records, was.records) {
				t.Fatalf("%s was %+v\nand is after a start %+v", name, was, now)
			}
			for n := range was.lost {
				if !now.lost[n] {
					t.Fatalf("the loss of number %d of %s is forgotten", n, name)
				}
			}
		}
		sealNow(t, s.e)
	}
	if _, err := tryWrite(s.e, "log", `"goes on"`); err != nil {
		t.Fatal(err)
	}
}
