package engine

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/weirmq/weir/internal/api"
)

// groupsOf finds the groups of a log file, but for those of its former life: their offsets, and where the last ends.
func groupsOf(file string, b []byte) (at []int, end int) {
	magic := []byte("\xf7weir\xb1G\n")
	var number uint32
	fmt.Sscanf(path.Base(file), "%d.wal", &number)
	for i := 64; i+48 <= len(b) && bytes.Equal(b[i:i+8], magic) && binary.LittleEndian.Uint32(b[i+32:]) == number; {
		at = append(at, i)
		i += 48 + int(binary.LittleEndian.Uint32(b[i+40:]))
		end = i
	}
	return at, end
}

// acknowledged makes a directory whose log has a group for nearly every call,
// and returns what every topic was told.
func acknowledged(t *testing.T) (image, world) {
	t.Helper()
	fs := vfs.NewMem()
	e, err := Open(bg, rotOptions(fs))
	if err != nil {
		t.Fatal(err)
	}
	w := world{}
	write := func(name string, n int) {
		for range n {
			d := fmt.Sprintf(`"%s %d"`, name, w[name].head+1)
			req := &api.WriteRequest{Records: []api.Record{{Data: []byte(d), HasTag: true, Tag: fmt.Append(nil, w[name].head+1)}}}
			if _, err := e.Write(bg, name, req); err != nil {
				t.Fatal(err)
			}
			w[name].append(d)
		}
	}
	create := func(name string, cfg api.Config) {
		put(t, e, name, cfg)
		w.create(name, cfg)
	}
	remove := func(name string, seqs ...uint64) {
		for _, n := range seqs {
			if _, err := e.DeleteRecords(bg, name, &api.DeleteRequest{Match: &api.Predicate{Value: fmt.Sprint(n)}}); err != nil {
				t.Fatal(err)
			}
			delete(w[name].live, n)
		}
	}
	create("sealed", configOf(api.Fsync))
	create("old", configOf(api.Disk))
	write("sealed", 3)
	write("old", 3)
	sealNow(t, e)
	create("log", configOf(api.Fsync))
	create("disk", configOf(api.Disk))
	create("capped", configOf(api.Fsync, func(c *api.Config) { c.CapRecords = 2 }))
	create("gone", configOf(api.Fsync))
	write("log", 4)
	write("gone", 1)
	write("disk", 3)
	remove("log", 2, 3)
	write("capped", 5)
	if _, err := e.DeleteTopic(bg, "gone", false); err != nil {
		t.Fatal(err)
	}
	create("gone", configOf(api.Fsync))
	write("gone", 2)
	write("sealed", 2)
	remove("sealed", 1, 4)
	write("old", 1)
	write("log", 1)
	write("disk", 1)
	write("sealed", 1)
	// Nobody reads a segment that the store holds, but until its file is used again it is there.
	eventually(t, "the file of the sealed segment is used again", func() bool {
		_, err := fs.Stat("/data/wal/0000000001.wal")
		return err != nil
	})
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	return imageOf(t, fs, "/data"), w
}

// judge compares a start behind marked damage with what was acknowledged: data
// under a number is what was written there, a number that has no data any more
// is announced, and no number is given out again.
func (m *modelTopic) judge(a *answer, exact bool) error {
	if a.state.HeadSeq < m.head {
		return fmt.Errorf("head went back from %d to %d", m.head, a.state.HeadSeq)
	}
	for n, data := range a.records {
		if m.all[n] != data {
			return fmt.Errorf("record %d is %q, want %q", n, data, m.all[n])
		}
		if a.gaps[n] {
			return fmt.Errorf("record %d is there and announced as lost", n)
		}
	}
	for n := range m.live {
		if _, ok := a.records[n]; !ok && !a.gaps[n] {
			return fmt.Errorf("record %d is missing and not announced", n)
		}
	}
	if exact {
		for n := m.head + 1; n <= min(a.state.HeadSeq, m.head+3); n++ {
			if !a.gaps[n] {
				return fmt.Errorf("the head jumped over %d and that is not announced", n)
			}
		}
	}
	if a.state.Count != uint64(len(a.records)) || a.state.Bytes != a.bytes {
		return fmt.Errorf("count %d bytes %d, but %d records of %d bytes can be read", a.state.Count, a.state.Bytes, len(a.records), a.bytes)
	}
	return nil
}

// brief is ask for a topic whose head may have jumped far.
func brief(e *Engine, name string) (*answer, error) {
	s, err := e.Topic(name, false)
	if err != nil {
		return nil, err
	}
	a := &answer{state: s, records: map[uint64]string{}, gaps: map[uint64]bool{}}
	for from := uint64(0); ; {
		res, err := e.Diff(bg, name, &api.DiffRequest{FromSeq: from, Limit: 100, MaxBatchBytes: 8 << 20}, func(r *api.Record) {
			a.records[r.Seq] = string(r.Data)
			a.bytes += uint64(r.Size())
		})
		if err != nil {
			return nil, err
		}
		if g := res.Tombstone; g != nil {
			for n := g.GapFrom; n <= min(g.GapTo, g.GapFrom+100); n++ {
				a.gaps[n] = true
			}
		}
		if res.CaughtUp() {
			break
		}
		from = res.NextFromSeq
	}
	a.text = fmt.Sprintf("%+v %v %v", s.TopicCounters, a.records, len(a.gaps))
	return a, nil
}

func judgeAll(e *Engine, w world, report string) (map[string]*answer, error) {
	all := map[string]*answer{}
	found := map[string]bool{}
	for _, s := range e.Topics("", "", 1000, false, nil).Topics {
		a, err := brief(e, s.Topic)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", s.Topic, err)
		}
		all[s.Topic] = a
		m := w[s.Topic]
		if m == nil {
			if !strings.Contains(report, fmt.Sprintf("%q", s.Topic)) {
				return nil, fmt.Errorf("topic %s came from nowhere, and the report does not name it: %s", s.Topic, report)
			}
			if m = w.behind(a); m == nil {
				return nil, fmt.Errorf("topic %s holds what nobody wrote: %v", s.Topic, a.records)
			}
		}
		if err := m.judge(a, true); err != nil {
			return nil, fmt.Errorf("%s: %w", s.Topic, err)
		}
		for name, o := range w {
			if o == m {
				found[name] = true
			}
		}
	}
	for name, m := range w {
		if !found[name] && m.head > 0 && !strings.Contains(report, "are lost") {
			return nil, fmt.Errorf("topic %s is missing", name)
		}
	}
	return all, nil
}

// behind finds the topic that a recovered one once was.
func (w world) behind(a *answer) *modelTopic {
	for _, m := range w {
		for n, data := range a.records {
			if m.all[n] == data {
				return m
			}
			break
		}
	}
	if len(a.records) == 0 {
		return &modelTopic{}
	}
	return nil
}

// startsOver starts a marked directory several times, writes to it, seals it,
// and judges all of it each time.
func startsOver(fs vfs.FS, w world, report string) error {
	w = w.clone()
	var before map[string]*answer
	for life := range 3 {
		e, err := Open(bg, rotOptions(fs))
		if err != nil {
			return fmt.Errorf("start %d: %w", life, err)
		}
		got, err := judgeAll(e, w, report)
		if err != nil {
			e.Close()
			return fmt.Errorf("start %d: %w", life, err)
		}
		for name, b := range before {
			if g := got[name]; g == nil || g.text != b.text {
				e.Close()
				return fmt.Errorf("start %d answers otherwise for %s: %v, before %s", life, name, g, b.text)
			}
		}
		before = got
		if life == 1 {
			for name, m := range w {
				if got[name] == nil {
					continue
				}
				d := fmt.Sprintf(`"new in %s"`, name)
				res, err := tryWrite(e, name, d)
				if err != nil {
					e.Close()
					return err
				}
				if res.FirstSeq <= m.head {
					e.Close()
					return fmt.Errorf("topic %s gave out number %d again", name, res.FirstSeq)
				}
				m.head, m.all[res.FirstSeq], m.live[res.FirstSeq] = res.FirstSeq, d, true
				if m.cfg.CapRecords > 0 {
					clear(m.live) // what its cap takes is announced; judged by count
				}
			}
			if err := e.log.Rotate(); err != nil {
				return err
			}
			for seg, ok := e.log.OldestSealed(); ok; seg, ok = e.log.OldestSealed() {
				if err := e.seal(seg); err != nil {
					return err
				}
			}
			if before, err = judgeAll(e, w, report); err != nil {
				e.Close()
				return fmt.Errorf("once sealed: %w", err)
			}
		}
		if err := e.Close(); err != nil {
			return err
		}
	}
	return nil
}

// Damage at every group, marked and gone behind: nothing differs silently from
// what was acknowledged.
func TestMarkedDamageAtEveryGroupIsNeverSilent(t *testing.T) {
	im, w := acknowledged(t)
	n, recovered := 0, 0
	for file, b := range im {
		if path.Ext(file) != ".wal" {
			continue
		}
		at, end := groupsOf(file, b)
		for i, from := range at {
			to := append(slices.Clone(at), end)[i+1]
			for _, place := range []int{from + 9, from + 48 + 20} { // in its header, in an operation
				if place >= to {
					continue
				}
				c := bytes.Clone(b)
				c[place] ^= 4
				fs, err := im.with(file, c)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := Open(bg, rotOptions(fs)); err == nil {
					t.Errorf("%s at %d: the start takes no notice", file, place)
					continue
				}
				var report strings.Builder
				if k, err := Repair(bg, rotOptions(fs), true, &report); k == 0 || err != nil {
					t.Errorf("%s at %d: repair: %d, %v", file, place, k, err)
					continue
				}
				if err := startsOver(fs, w, report.String()); err != nil {
					t.Errorf("%s, group %d at %d: %v\n%s", file, i, from, err, report.String())
				}
				n++
				recovered += strings.Count(report.String(), "comes back as")
			}
		}
	}
	t.Logf("%d damages, %d topics recovered", n, recovered)
	if n < 40 || recovered == 0 {
		t.Error("the damages did not meet what they should")
	}
}
