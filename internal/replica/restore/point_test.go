package restore

import (
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/internal/engine"
	"github.com/weirmq/weir/internal/op"
	"github.com/weirmq/weir/internal/replica"
	"github.com/weirmq/weir/internal/wal"
)

var points = flag.Int("points", 100, "points in time to restore")

// verb does one thing to the engine, chosen by chance.
func (l *leader) verb() {
	ctx := l.t.Context()
	topic := fmt.Sprintf("t%d", rand.IntN(4))
	queue := fmt.Sprintf("q%d", rand.IntN(2))
	var err error
	switch rand.IntN(12) {
	case 0:
		_, err = l.DeleteTopic(ctx, topic, false)
		l.put(topic)
	case 1:
		l.put(topic, func(c *api.Config) { c.CapRecords = 20 + rand.Uint64N(100) })
	case 2:
		st, serr := l.Topic(topic, false)
		if serr != nil {
			l.t.Fatal(serr)
		}
		_, err = l.DeleteRecords(ctx, topic, &api.DeleteRequest{HasBefore: true, BeforeSeq: st.HeadSeq / 2})
	case 3, 4:
		req := &api.SettleRequest{Node: "n"}
		_, err = l.Claim(ctx, queue, &api.ClaimRequest{Node: "n", Max: 5}, func(j *api.Job) { req.Seqs = append(req.Seqs, j.Seq) })
		if err == nil && len(req.Seqs) > 0 {
			_, err = l.Ack(ctx, queue, req)
		}
	case 5, 6:
		l.write(queue, 1+rand.IntN(10))
	default:
		l.write(topic, 1+rand.IntN(10))
	}
	if err != nil {
		l.t.Fatal(err)
	}
}

// TestAnyPointIsRestored compares restored directories with what clients could
// read when the log was there.
func TestAnyPointIsRestored(t *testing.T) {
	l := lead(t)
	for i := range 4 {
		l.put(fmt.Sprintf("t%d", i))
	}
	for i := range 2 {
		l.put(fmt.Sprintf("q%d", i), func(c *api.Config) { c.Type = api.TypeQueue })
	}
	l.ship()
	l.base()
	type moment struct {
		lsn    uint64
		at     time.Time
		digest string
	}
	var seen []moment
	for i := range 600 {
		l.verb()
		if i%100 == 99 {
			l.base()
		}
		if before := l.last; i%3 == 0 {
			if l.ship(); l.last > before {
				seen = append(seen, moment{l.last, time.UnixMilli(l.now), digest(t, l.Engine)})
			}
		}
	}
	l.ship()
	for range *points {
		m := seen[rand.IntN(len(seen))]
		p := Point{LSN: m.lsn}
		if rand.IntN(2) == 0 {
			p = Point{Time: m.at.Add(time.Duration(rand.IntN(500)) * time.Millisecond)}
		}
		e := l.restored(p)
		if got := digest(t, e); got != m.digest {
			t.Fatalf("at %+v (LSN %d):\n%.1500s\nwant:\n%.1500s", p, m.lsn, got, m.digest)
		}
		e.Close()
	}
}

// TestPointInsideAGroupIsRestored restores between operations that the log wrote
// at once, and compares with the operations up to there.
func TestPointInsideAGroupIsRestored(t *testing.T) {
	l := lead(t)
	const topics = 16
	for i := range topics {
		l.put(fmt.Sprintf("t%02d", i))
	}
	l.ship()
	l.base()
	begin, want := l.last, map[uint64]string{}
	done := make(chan struct{})
	for i := range topics {
		go func() {
			for j := range 40 {
				req := &api.WriteRequest{Records: []api.Record{{Data: fmt.Appendf(nil, `"%d of %d"`, j, i)}}}
				if _, err := l.Write(t.Context(), fmt.Sprintf("t%02d", i), req); err != nil {
					t.Error(err)
				}
			}
			done <- struct{}{}
		}()
	}
	for range topics {
		<-done
	}
	l.ship()
	heads := make([]int, topics)
	look, _, err := wal.Look(wal.Options{FS: l.fs, Dir: "/data/wal"}, begin, func(o wal.Op) error {
		r, p := op.NewReader(o.Payload), op.Part{}
		for r.Next(&p) {
			if p.Kind == op.KindAppend {
				heads[p.Topic-1] += int(p.N)
			}
		}
		want[o.LSN] = fmt.Sprint(heads)
		return r.Err()
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := look.Close(); err != nil {
		t.Fatal(err)
	}
	for range max(20, *points/5) {
		lsn := begin + 1 + rand.Uint64N(l.last-begin)
		e := l.restored(Point{LSN: lsn})
		got := make([]int, topics)
		for i := range topics {
			got[i] = l.whole(e, i)
		}
		if fmt.Sprint(got) != want[lsn] {
			t.Fatalf("at LSN %d the topics hold %v, want %s", lsn, got, want[lsn])
		}
		e.Close()
	}
}

// whole returns how many records a topic has; each must be the one that was
// written there.
func (l *leader) whole(e *engine.Engine, topic int) int {
	n := 0
	_, err := e.Peek(l.t.Context(), fmt.Sprintf("t%02d", topic), &api.DiffRequest{Limit: 1000, MaxBatchBytes: 1 << 30}, func(r *api.Record) {
		if want := fmt.Sprintf(`"%d of %d"`, n, topic); string(r.Data) != want {
			l.t.Errorf("record %d of topic %d is %s, want %s", n, topic, r.Data, want)
		}
		n++
	})
	if err != nil {
		l.t.Fatal(err)
	}
	return n
}

func TestPointOutsideTheCopyIsRefused(t *testing.T) {
	l := lead(t)
	l.put("a")
	l.write("a", 3)
	l.ship()
	l.base()
	l.write("a", 3)
	l.ship()
	for p, want := range map[Point]string{
		{LSN: 1}:                   "the copy begins at LSN",
		{LSN: l.last + 1}:          "the copy ends at LSN",
		{Time: time.UnixMilli(10)}: "the copy begins at LSN",
	} {
		if _, err := l.to.copy().Plan(t.Context(), p); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", p, err, want)
		}
	}
	if _, err := (&shelf{}).copy().Plan(t.Context(), Point{}); err != ErrEmpty {
		t.Errorf("an empty copy: %v", err)
	}
}

// TestDamagedCopyIsNamed damages each object of a copy in turn: either what is
// restored is right, or the error names the object.
func TestDamagedCopyIsNamed(t *testing.T) {
	l := lead(t)
	l.put("a")
	l.write("a", 3)
	l.ship()
	l.base()
	for range 3 {
		l.write("a", 3)
		l.ship()
	}
	build := func() error {
		plan, err := l.to.copy().Plan(t.Context(), Point{})
		if err != nil {
			return err
		}
		return l.to.copy().Build(t.Context(), plan, vfs.NewMem(), "/new")
	}
	for name, whole := range maps.Clone(l.to.files) {
		if len(whole) == 0 {
			continue
		}
		l.to.files[name] = append(append([]byte{}, whole[:len(whole)/2]...), whole[len(whole)/2+1:]...)
		if err := build(); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s cut: %v", name, err)
		}
		delete(l.to.files, name)
		if err := build(); err == nil || !strings.Contains(err.Error(), name) && err != ErrEmpty {
			t.Errorf("%s missing: %v", name, err)
		}
		l.to.files[name] = whole
	}
	behind := len(l.to.entries) - 2
	e := &l.to.entries[behind]
	whole := e.Data
	for i := range whole {
		e.Data = append([]byte{}, whole...)
		e.Data[i] ^= 4
		var bad *DamagedError
		err := build()
		if !asDamaged(err, &bad) || bad.After != e.Pos-1 {
			t.Fatalf("byte %d of an entry changed: %v", i, err)
		}
		if i == 0 {
			plan, err := l.to.copy().Plan(t.Context(), Point{LSN: bad.LSN})
			if err != nil || plan.Until != bad.After {
				t.Errorf("what the error offers: %+v, %v", plan, err)
			}
		}
	}
	e.Data = whole
	l.to.entries = append(l.to.entries[:behind], l.to.entries[behind+1:]...)
	var bad *DamagedError
	if err := build(); !asDamaged(err, &bad) {
		t.Errorf("an entry is missing: %v", err)
	}
}

// --at 0 is no state to restore.
func TestACopyThatIsDamagedFromItsFirstEntryOffersNothing(t *testing.T) {
	l := lead(t)
	l.base()
	l.put("a")
	l.ship()
	l.to.entries[len(l.to.entries)-1].Data[0] ^= 4
	_, err := l.to.copy().Plan(t.Context(), Point{})
	var bad *DamagedError
	if !asDamaged(err, &bad) || bad.LSN != 0 || strings.Contains(err.Error(), "--at") {
		t.Errorf("%v", err)
	}
}

func asDamaged(err error, bad **DamagedError) bool { return errors.As(err, bad) }

// TestTheOldestPointIsRestored restores the state of a base itself.
func TestTheOldestPointIsRestored(t *testing.T) {
	l := lead(t)
	l.put("a")
	l.write("a", 3)
	l.ship()
	l.base()
	want, lsn, at := digest(t, l.Engine), l.last, l.now
	l.write("a", 3)
	l.ship()
	for _, p := range []Point{{LSN: lsn}, {Time: time.UnixMilli(at)}} {
		if got := digest(t, l.restored(p)); got != want {
			t.Errorf("at %+v: %s, want %s", p, got, want)
		}
	}
}

// TestATermThatBeginsIsNoMoment restores a time in front of what was shipped before another leader
// began, whose first entry tells no time.
func TestATermThatBeginsIsNoMoment(t *testing.T) {
	l := shipped(t)
	want, at := digest(t, l.Engine), time.UnixMilli(l.now)
	l.write("a", 3)
	l.ship()
	if _, err := l.to.copy().Log.Lead(t.Context(), "next"); err != nil {
		t.Fatal(err)
	}
	if got := digest(t, l.restored(Point{Time: at})); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// TestATimeInFrontOfWhatIsMissingIsRestored goes back to a time behind which the copy lacks a part of the
// log that a newer base covers, or has a damaged entry.
func TestATimeInFrontOfWhatIsMissingIsRestored(t *testing.T) {
	for _, what := range []string{"a gap", "damage"} {
		l := shipped(t)
		want, at := digest(t, l.Engine), time.UnixMilli(l.now)
		l.write("a", 3)
		l.ship()
		seen := time.UnixMilli(l.now)
		l.write("a", 4)
		l.ship()
		if what == "damage" {
			l.to.entries[len(l.to.entries)-1].Data[0] ^= 4
			l.base()
		} else {
			l.to.lose(1)
			l.pos--
			l.base()
			l.append(replica.Group{Term: 1, Last: l.gap().LSN, TimeMS: l.now})
		}
		l.write("a", 5)
		l.ship()
		for range 2 { // up to the last moment in front of it
			if got := digest(t, l.restored(Point{Time: at})); got != want {
				t.Errorf("in front of %s: %s, want %s", what, got, want)
			}
			at = seen.Add(-time.Millisecond)
		}
		var bad *DamagedError
		if _, err := l.to.copy().Plan(t.Context(), Point{Time: seen.Add(100 * time.Millisecond)}); !errors.As(err, &bad) {
			t.Errorf("a time inside of %s: %v", what, err)
		}
		plan, err := l.to.copy().Plan(t.Context(), Point{Time: at})
		if err != nil || plan.NewestLSN != l.last || !plan.Newest.Equal(time.UnixMilli(l.now)) {
			t.Errorf("behind %s the copy goes on to LSN %d; it is said to end at %+v, %v", what, l.last, plan, err)
		}
	}
}
