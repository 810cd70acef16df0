package backendtest

import (
	"fmt"
	"time"

	"github.com/weirmq/weir/backend"
)

func (s *suite) readCases() []testCase {
	_, reads := s.offered.(backend.Reader)
	_, trims := s.offered.(backend.Trimmer)
	cases := only(reads, []testCase{
		{"a reader sees every record in order, claimed or not", onReader(readAll)},
		{"a reader goes on from any record", onReader(readFromRecord)},
		{"a reader at the end wakes for the next record", onReader(readAtEnd)},
		{"a read of nothing waits its block", onReader(readBlocks)},
	}...)
	cases = append(cases, only(reads && trims, testCase{"a reader is told what was removed before it came", onReader(readGap)})...)
	return append(cases, only(trims, testCase{"trimming leaves what is not acknowledged", trimSafely})...)
}

// onReader runs a case with a handle that can be followed.
func onReader(do func(*fixture, backend.Backend, backend.Reader)) func(*fixture) {
	return func(f *fixture) {
		b := f.open()
		do(f, b, b.(backend.Reader))
	}
}

// follow reads n records behind a cursor in pages of 4.
func (f *fixture) follow(r backend.Reader, after string, n int) (all []backend.Record, next string) {
	f.Helper()
	for start := time.Now(); len(all) < n; {
		got, err := r.Read(f.ctx(), backend.ReadRequest{After: after, Max: 4})
		if err != nil || len(got.Records) > 4 || got.Gap != nil {
			f.Fatalf("read of 4 after %q: %d records, gap %+v, %v", after, len(got.Records), got.Gap, err)
		}
		if time.Since(start) > patience {
			f.Fatalf("read %d of %d records", len(all), n)
		}
		all, after = append(all, got.Records...), got.Next
	}
	return all, after
}

func readAll(f *fixture, b backend.Backend, r backend.Reader) {
	ids := f.publish(b, numbered(0, 10)...)
	ids = append(ids, f.publish(b, backend.Message{Data: []byte{0xff}, Headers: map[string]string{"k": "v"}})...)
	f.claim(f.open(), "a", 3)
	got, next := f.follow(r, backend.CursorStart, 11)
	for i, record := range got {
		if i < 10 && string(record.Data) != fmt.Sprintf("message %d", i) || record.ID != ids[i] {
			f.Fatalf("record %d is %q with ID %s, want ID %s", i, record.Data, record.ID, ids[i])
		}
		if age := time.Since(record.At); !record.At.IsZero() && (age < -5*time.Second || age > time.Minute) {
			f.Errorf("stored just now, at says %s", record.At)
		}
	}
	if got[10].Headers["k"] != "v" || string(got[10].Data) != "\xff" {
		f.Errorf("the last record is %+v", got[10])
	}
	if more, err := r.Read(f.ctx(), backend.ReadRequest{After: next, Max: 4}); err != nil || len(more.Records) > 0 || more.Next != next {
		f.Errorf("behind the last record: %+v, %v", more, err)
	}
}

func readFromRecord(f *fixture, b backend.Backend, r backend.Reader) {
	ids := f.publish(b, numbered(0, 6)...)
	got, _ := f.follow(r, ids[2], 3)
	if got[0].ID != ids[3] || len(got) != 3 {
		f.Errorf("after %s came %+v", ids[2], got)
	}
}

func readAtEnd(f *fixture, b backend.Backend, r backend.Reader) {
	f.publish(b, numbered(0, 3)...)
	at, err := r.Read(f.ctx(), backend.ReadRequest{After: backend.CursorEnd, Max: 4})
	if err != nil || len(at.Records) > 0 || at.Next == "" {
		f.Fatalf("at the end: %+v, %v", at, err)
	}
	appended := make(chan struct{})
	time.AfterFunc(100*time.Millisecond, func() {
		defer close(appended)
		if _, err := b.Append(f.ctx(), numbered(3, 4)); err != nil {
			f.Errorf("append: %v", err)
		}
	})
	defer func() { <-appended }() // the reader may see it before the writer is told
	start := time.Now()
	next, err := f.open().(backend.Reader).Read(f.ctx(), backend.ReadRequest{After: at.Next, Max: 4, Block: 10 * time.Second})
	if err != nil || len(next.Records) != 1 || string(next.Records[0].Data) != "message 3" || time.Since(start) > f.prompt() {
		f.Errorf("after %s: %+v, %v", time.Since(start), next, err)
	}
}

func readBlocks(f *fixture, b backend.Backend, r backend.Reader) {
	f.publish(b, numbered(0, 1)...)
	start := time.Now()
	got, err := r.Read(f.ctx(), backend.ReadRequest{After: backend.CursorEnd, Max: 4, Block: 300 * time.Millisecond})
	if took := time.Since(start); err != nil || len(got.Records) > 0 || took < 250*time.Millisecond || took > f.prompt() {
		f.Errorf("after %s: %+v, %v", took, got, err)
	}
}

func readGap(f *fixture, b backend.Backend, r backend.Reader) {
	trimmer := b.(backend.Trimmer)
	ids := f.publish(b, numbered(0, 10)...)
	f.claim(b, "a", 1) // the group is there and has not acknowledged anything
	trimmed, err := trimmer.Trim(f.ctx(), backend.TrimRequest{MaxLen: 4})
	if err != nil || trimmed.Removed != 6 || trimmed.Dropped != 6 {
		f.Fatalf("trim to 4 of 10, none acknowledged: %+v, %v", trimmed, err)
	}
	got, err := r.Read(f.ctx(), backend.ReadRequest{After: ids[1], Max: 10})
	if err != nil || len(got.Records) != 4 || got.Records[0].ID != ids[6] || got.Gap == nil {
		f.Fatalf("records 6 to 9 and a gap are left: %+v, %v", got, err)
	}
	if got.Gap.Missed != nil && *got.Gap.Missed != 4 {
		f.Errorf("records 2 to 5 are gone, the gap says %d", *got.Gap.Missed)
	}
	if again, err := r.Read(f.ctx(), backend.ReadRequest{After: ids[6], Max: 10}); err != nil || again.Gap != nil || len(again.Records) != 3 {
		f.Errorf("nothing is missing behind record 6: %+v, %v", again, err)
	}
}

func trimSafely(f *fixture) {
	b := f.open()
	trimmer := b.(backend.Trimmer)
	f.publish(b, numbered(0, 10)...)
	got := f.claim(b, "a", 6)
	f.ack(b, got[:3]...)
	f.ack(b, got[4])
	trimmed, err := trimmer.Trim(f.ctx(), backend.TrimRequest{})
	if err != nil || trimmed.Dropped != 0 || trimmed.Removed > 4 {
		f.Errorf("4 of 10 are acknowledged, the trim: %+v, %v", trimmed, err)
	}
	stats := f.stats(b)
	if stats.XLen != 10-trimmed.Removed || stats.Pending != 2 || stats.Lag != nil && *stats.Lag != 4 {
		f.Errorf("after %+v: %+v, lag %s", trimmed, stats, number(stats.Lag))
	}
	f.ack(b, got[3], got[5])
	f.ack(b, f.claim(b, "a", 4)...)
	f.done(b)
}
