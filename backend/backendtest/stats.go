package backendtest

import (
	"errors"
	"slices"
	"time"

	"github.com/weirmq/weir/backend"
)

func (s *suite) statsCases() []testCase {
	cases := []testCase{
		{"the info names stream, group and durability", infoIsWhole},
		{"the numbers follow every step of the work", statsFollow},
		{"the oldest age is that of work left", ageFollows},
	}
	if _, can := s.offered.(backend.Signaler); can {
		cases = append(cases, testCase{"the workers' signal is what they count, for its time", signalExpires},
			testCase{"the signal's numbers are those of the stats", signalAgrees})
	}
	if !s.h.CreatesStream {
		cases = append(cases, testCase{"a stream that is not there yet reads as empty", streamMissing})
	}
	if s.h.OpenGroup != nil {
		cases = append(cases, testCase{"a group that is not there yet has all before it", groupMissing})
	}
	return cases
}

func infoIsWhole(f *fixture) {
	info := f.open().Info()
	known := map[string]bool{"fsync": true, "disk": true, "memory": true, "ephemeral": true}
	if info.Kind == "" || info.Stream != f.stream || info.Group != "weir" || info.DeadLetter == "" || !known[info.Durability] || info.Server == "" {
		f.Errorf("info of stream %s is %+v", f.stream, info)
	}
}

func statsFollow(f *fixture) {
	b, other := f.open(), f.open()
	f.nothing(b, request("a", 1), "the stream is new")
	check := func(step string, pending, lag int64) {
		f.Helper()
		stats := f.statsWhen(other, func(s backend.Stats) bool { return s.Pending == pending && value(s.Lag) == lag })
		unknown, waiting := f.h.NoLag && lag > 0, stats.Behind
		if !unknown {
			waiting = value(stats.Lag)
		}
		if stats.Pending != pending || unknown != (stats.Lag == nil) || waiting != lag {
			f.Errorf("%s: pending %d, lag %s, behind %d; want %d and %d", step, stats.Pending, number(stats.Lag), stats.Behind, pending, lag)
		}
		if stats.XLen < pending+lag {
			f.Errorf("%s: %d entries are stored, %d have work left", step, stats.XLen, pending+lag)
		}
		if off := time.Since(stats.At); off < -5*time.Second || off > f.prompt() {
			f.Errorf("%s: read just now at %s", step, stats.At)
		}
	}
	check("nothing appended", 0, 0)
	f.publish(b, numbered(0, 10)...)
	check("10 appended", 0, 10)
	got := f.claim(b, "a", 6)
	check("6 claimed", 6, 4)
	f.ack(b, got[:4]...)
	check("4 acked", 2, 4)
	if err := b.DeadLetter(f.ctx(), got[4], "", backend.Cause{Reason: backend.ReasonPoison}); err != nil {
		f.Fatal(err)
	}
	check("1 dead", 1, 4)
	stats := f.stats(other)
	if stats.DeadLetters != nil && *stats.DeadLetters != 1 || stats.Workers != nil && *stats.Workers < 1 {
		f.Errorf("one dead letter, one worker: %s and %s", number(stats.DeadLetters), number(stats.Workers))
	}
	f.ack(b, got[5])
	f.ack(b, f.claim(b, "a", 4)...)
	check("all acked", 0, 0)
}

func ageFollows(f *fixture) {
	const age = 300 * time.Millisecond
	b := f.open()
	f.nothing(b, request("a", 1), "the stream is new")
	check := func(step string, since time.Time, sources ...backend.AgeSource) {
		f.Helper()
		stats := f.stats(b)
		known := false
		for _, source := range sources {
			known = known || stats.OldestSource == source
		}
		low, high := time.Duration(0), time.Duration(0)
		if !since.IsZero() {
			high = time.Since(since) + 100*time.Millisecond
			low = min(age, high) - 100*time.Millisecond
		}
		if !known || stats.OldestAge < low || stats.OldestAge > high {
			f.Errorf("%s: age %s from %q, want %s to %s from one of %q", step, stats.OldestAge, stats.OldestSource, low, high, sources)
		}
	}
	check("no work", time.Time{}, backend.AgeNone)
	start := time.Now()
	f.publish(b, numbered(0, 1)...)
	time.Sleep(age)
	f.publish(b, numbered(1, 2)...)
	check("two waiting", start, backend.AgeBacklog, backend.AgeBacklogID)
	d := f.claim(b, "a", 1)[0]
	taken := []backend.AgeSource{backend.AgePending, backend.AgePendingID}
	if f.h.Unordered { // it may be the other one
		taken = append(taken, backend.AgeBacklog, backend.AgeBacklogID)
	}
	check("the oldest taken", start, taken...)
	f.ack(b, d)
	f.ack(b, f.claim(b, "a", 1)...)
	check("all done", time.Time{}, backend.AgeNone)
}

func signalExpires(f *fixture) {
	b, other := f.open(), f.open()
	workers := b.(backend.Signaler)
	f.publish(b, numbered(0, 5)...)
	f.claim(b, "a", 3)
	producer := other.(backend.Signaler)
	if f.h.CountsItself {
		if got, err := producer.Signal(f.ctx(), 100); err != nil || got.Workers == nil || *got.Workers != 3 || !got.Counted {
			f.Errorf("3 are held, the server's count is %s (%t), %v", number(got.Workers), got.Counted, err)
		}
		return
	}
	if got, err := producer.Signal(f.ctx(), 100); err != nil || got.Workers != nil || got.Counted {
		f.Fatalf("no worker has published, the signal is %s (%t), %v", number(got.Workers), got.Counted, err)
	}
	// Its time begins somewhere in the call, which a busy server may take long to answer.
	asked := time.Now()
	if err := workers.PublishSignal(f.ctx(), time.Second); err != nil {
		f.Fatal(err)
	}
	answered := time.Now()
	got, err := producer.Signal(f.ctx(), 100)
	if took := time.Since(asked); took < time.Second && (err != nil || got.Workers == nil || *got.Workers != 3) {
		f.Errorf("3 are held, the workers' signal is %s, %v", number(got.Workers), err)
	}
	for got.Workers != nil {
		if got, err = producer.Signal(f.ctx(), 100); err != nil {
			f.Fatal(err)
		}
		if took := time.Since(answered); took > time.Second+f.prompt() {
			f.Fatalf("a signal for a second is there after %s", took)
		}
		time.Sleep(20 * time.Millisecond)
	}
	if took := time.Since(asked); took < 900*time.Millisecond {
		f.Errorf("a signal for a second was gone after %s", took)
	}
}

func signalAgrees(f *fixture) {
	b := f.open()
	s := b.(backend.Signaler)
	f.publish(b, numbered(0, 5)...)
	f.claim(b, "a", 2)
	stats := f.statsWhen(b, func(s backend.Stats) bool { return s.Pending == 2 })
	got, err := s.Signal(f.ctx(), 100)
	if err != nil || got.Pending != stats.Pending || got.XLen != stats.XLen || number(got.Lag) != number(stats.Lag) || got.Pending != 2 {
		f.Errorf("signal %+v (lag %s), %v; stats %+v (lag %s)", got, number(got.Lag), err, stats, number(stats.Lag))
	}
}

func streamMissing(f *fixture) {
	b := f.open()
	for range 2 { // reading it creates nothing
		s, err := b.Stats(f.ctx())
		if err != nil || !errors.Is(s.Missing, backend.ErrStreamNotFound) || s.At.IsZero() {
			f.Errorf("stats of a stream that is not there yet: %+v, %v", s, err)
		}
		if s.XLen != 0 || s.Pending != 0 || s.Lag == nil || *s.Lag != 0 || s.OldestSource != backend.AgeNone || s.OldestAge != 0 {
			f.Errorf("a stream that is not there yet is not empty: %+v, lag %s", s, number(s.Lag))
		}
	}
	f.finds(b, "stream_missing")
	f.publish(b, numbered(0, 1)...)
	f.claim(b, "first", 1)
	if s := f.statsWhen(b, func(s backend.Stats) bool { return s.Pending == 1 }); s.Missing != nil {
		f.Errorf("published and claimed, and yet: %v", s.Missing)
	}
}

// finds checks that the doctor, if there is one, says what is missing, and that it is why the
// stream cannot be read.
func (f *fixture) finds(b backend.Backend, code string) {
	f.Helper()
	doctor, can := b.(backend.Doctor)
	if !can {
		return
	}
	found, err := doctor.Examine(f.ctx())
	if err != nil || !slices.ContainsFunc(found, func(found backend.Finding) bool { return found.Code == code && found.Concern == backend.OfStream }) {
		f.Errorf("the doctor finds %+v, %v, and no %s", found, err, code)
	}
}

func groupMissing(f *fixture) {
	f.publish(f.open(), numbered(0, 3)...)
	b := f.h.OpenGroup(f, f.stream, "nobody")
	defer b.Close()
	for range 2 { // reading it creates nothing
		s, err := b.Stats(f.ctx())
		if err != nil || !errors.Is(s.Missing, backend.ErrGroupNotFound) {
			f.Errorf("stats of a group that is not there yet: %+v, %v", s, err)
		}
		if s.XLen != 3 || s.Pending != 0 || s.Lag == nil || *s.Lag != 3 || s.PendingUnknown {
			f.Errorf("3 messages wait for a group that is not there yet: %+v, lag %s", s, number(s.Lag))
		}
		if s.OldestSource == backend.AgeNone || s.OldestSource == backend.AgeUnknown || s.OldestAge < 0 || s.OldestAge > time.Minute {
			f.Errorf("the age of what waits for it: %s, %s", s.OldestAge, s.OldestSource)
		}
	}
	f.finds(b, "group_missing")
	if got := f.claim(b, "first", 3); len(got) != 3 {
		f.Errorf("the first worker found %d of the 3", len(got))
	}
}
