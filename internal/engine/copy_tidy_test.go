package engine

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/internal/replica"
	"github.com/weirmq/weir/tests/bubble"
)

// agedFiles are files that have been there for days, unlike the bases.
type agedFiles struct{ shelfFiles }

func (a agedFiles) List(ctx context.Context, prefix string) ([]replica.File, error) {
	list, err := a.shelfFiles.List(ctx, prefix)
	for i := range list {
		if prefix == replica.BasePrefix {
			break
		}
		list[i].Changed = list[i].Changed.Add(-2 * objectGrace)
	}
	return list, err
}

// What is removed of a copy is what no base that stays needs.
func TestEveryBaseThatStaysIsWhole(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		const keep = time.Minute
		s := newShelf(time.Millisecond)
		e := s.openEngine(t, vfs.NewMem(), 0, func(o *Options) {
			o.SegmentBytes, o.Replica.Files, o.Replica.BaseEvery, o.Replica.Keep = 1<<20, agedFiles{shelfFiles{s}}, 10*time.Second, keep
		})
		put(t, e, "a", configOf(api.Fsync))
		big := `"` + strings.Repeat("x", 10<<10) + `"`
		for range 150 {
			if _, err := tryWrite(e, "a", big, big, big, big); err != nil {
				t.Fatal(err)
			}
			time.Sleep(2 * time.Second)
		}
		time.Sleep(30 * time.Second)
		list, err := shelfFiles{s}.List(bg, replica.BasePrefix)
		if err != nil || len(list) < 3 || len(list) > 10 {
			t.Fatalf("%d bases, %v", len(list), err)
		}
		named := map[string]bool{}
		for i, f := range list {
			b, err := replica.DecodeBase(f.Name, s.files[f.Name].b)
			if err != nil {
				t.Fatal(err)
			}
			if i == 0 && (time.Since(b.Taken) < keep || s.trimmed > b.After) {
				t.Errorf("the oldest base is %v old, of position %d, and the log is trimmed up to %d", time.Since(b.Taken), b.After, s.trimmed)
			}
			for _, part := range b.Files {
				named[part.Object] = true
				there, ok := s.files[part.Object]
				if sum := sha256.Sum256(there.b); !ok || hex.EncodeToString(sum[:]) != part.SHA256 {
					t.Errorf("%s, which is %s of %s, is there: %v, with %d bytes of %d", part.Object, part.Name, f.Name, ok, len(there.b), part.Size)
				}
			}
		}
		for _, prefix := range []string{tablePrefix, logPrefix} {
			files, err := shelfFiles{s}.List(bg, prefix)
			if err != nil || len(files) == 0 {
				t.Errorf("%d files below %s, %v", len(files), prefix, err)
			}
			for _, f := range files {
				if !named[f.Name] {
					t.Errorf("%s is left, and no base names it", f.Name)
				}
			}
		}
	})
}

// blindFiles are such files in a store that has once lost sight of its bases.
type blindFiles struct {
	agedFiles
	blind *atomic.Bool
}

func (b blindFiles) List(ctx context.Context, prefix string) ([]replica.File, error) {
	if prefix == replica.BasePrefix && b.blind.Load() {
		return nil, nil
	}
	return b.agedFiles.List(ctx, prefix)
}

// What no base needs is removed, so a list without the base that was just made must not count for one: it would
// say that all of the copy may go.
func TestNothingIsRemovedByAListThatLacksTheNewestBase(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		s, blind := newShelf(time.Millisecond), &atomic.Bool{}
		e := s.openEngine(t, vfs.NewMem(), 0, func(o *Options) {
			o.SegmentBytes, o.Replica.Files, o.Replica.BaseEvery, o.Replica.Keep = 1<<20, blindFiles{agedFiles{shelfFiles{s}}, blind}, 10*time.Second, time.Hour
		})
		put(t, e, "a", configOf(api.Fsync))
		big := `"` + strings.Repeat("x", 10<<10) + `"`
		for i := range 60 {
			blind.Store(i >= 30)
			if _, err := tryWrite(e, "a", big, big, big, big); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
		}
		list, err := shelfFiles{s}.List(bg, replica.BasePrefix)
		if err != nil || len(list) < 4 {
			t.Fatalf("%d bases, %v", len(list), err)
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, f := range list {
			b, err := replica.DecodeBase(f.Name, s.files[f.Name].b)
			if err != nil {
				t.Fatal(err)
			}
			for _, part := range b.Files {
				if _, there := s.files[part.Object]; !there {
					t.Errorf("%s, which %s needs, is removed", part.Object, f.Name)
				}
			}
		}
	})
}

// spoiledFiles are such files in a store whose answers are spoiled on their way: each first one about a base.
type spoiledFiles struct {
	agedFiles
	spoil func(io.Reader) io.Reader
	asked map[string]int // tidy's
}

func (f spoiledFiles) Get(ctx context.Context, name string) (io.ReadCloser, error) {
	in, err := f.agedFiles.Get(ctx, name)
	if f.asked[name]++; err != nil || f.asked[name]%2 == 0 {
		return in, err
	}
	return io.NopCloser(f.spoil(in)), nil
}

// A base that seems to be damaged names nothing that stays.
func TestNothingIsRemovedByAnAnswerThatWasSpoiled(t *testing.T) {
	for what, spoil := range map[string]func(io.Reader) io.Reader{
		"cut off": func(in io.Reader) io.Reader {
			return io.MultiReader(io.LimitReader(in, 100), iotest.ErrReader(io.ErrUnexpectedEOF))
		},
		"another's": func(io.Reader) io.Reader { return strings.NewReader("<html>try again later</html>") },
	} {
		t.Run(what, func(t *testing.T) {
			bubble.Run(t, func(t *testing.T) {
				s := newShelf(time.Millisecond)
				e := s.openEngine(t, vfs.NewMem(), 0, func(o *Options) {
					o.Replica.Files, o.Replica.BaseEvery, o.Replica.Keep = spoiledFiles{agedFiles{shelfFiles{s}}, spoil, map[string]int{}}, 10*time.Second, time.Hour
				})
				put(t, e, "a", configOf(api.Fsync))
				for range 60 {
					if _, err := tryWrite(e, "a", "1"); err != nil {
						t.Fatal(err)
					}
					time.Sleep(time.Second)
				}
				if all := names(t, s, replica.BasePrefix); len(all) < 4 {
					t.Fatalf("there are only %v", all)
				}
				s.eachBaseIsWhole(t)
			})
		})
	}
}

// A table is in each base for as long as the server has it. One that was cut off in the copy, or removed, is put
// there again with the next base.
func TestATableThatTheCopyLacksComesBack(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		s := newShelf(time.Millisecond)
		e := s.openEngine(t, vfs.NewMem(), 0, func(o *Options) { o.SegmentBytes, o.Replica.BaseEvery = 1<<20, 10*time.Second })
		put(t, e, "a", configOf(api.Fsync))
		big := `"` + strings.Repeat("x", 10<<10) + `"`
		write := func() {
			t.Helper()
			for range 60 {
				if _, err := tryWrite(e, "a", big, big, big, big); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Second)
			}
		}
		write()
		tables := 0
		s.mu.Lock()
		for name, f := range s.files {
			if !strings.Contains(name, ".sst") {
				continue
			}
			if tables++; tables%2 == 0 {
				delete(s.files, name)
				continue
			}
			f.b = f.b[:len(f.b)-1]
			s.files[name] = f
		}
		s.mu.Unlock()
		if tables < 2 {
			t.Fatal("the copy has no tables")
		}
		write()
		list, err := shelfFiles{s}.List(bg, replica.BasePrefix)
		if err != nil {
			t.Fatal(err)
		}
		newest := list[len(list)-1].Name
		s.mu.Lock()
		defer s.mu.Unlock()
		b, err := replica.DecodeBase(newest, s.files[newest].b)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range b.Files {
			if sum := sha256.Sum256(s.files[f.Object].b); hex.EncodeToString(sum[:]) != f.SHA256 {
				t.Errorf("%s, which is %s, is not whole in the newest base", f.Object, f.Name)
			}
		}
	})
}

// hereFiles are files of a store whose log alone may be away.
type hereFiles struct{ shelfFiles }

func (h hereFiles) Put(_ context.Context, name string, _ int64, content io.Reader) error {
	b, err := io.ReadAll(content)
	if err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.files[name] = shelved{b, time.Now()}
	return nil
}

// A base has nothing that the log of the copy has not: whoever leads next goes on from there, and would find in the base
// what the one that it replaces had alone.
func TestABaseWaitsForTheLog(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		s := newShelf(time.Millisecond)
		fs := vfs.NewMem()
		e := s.openEngine(t, fs, 0)
		put(t, e, "a", configOf(api.Fsync))
		e.copier.testIdle(t)
		copied := e.log.Synced()
		e.Close()
		e = openOn(t, fs, "boot") // without a copy
		for range 10 {
			if _, err := tryWrite(e, "a", `"alone"`); err != nil {
				t.Fatal(err)
			}
		}
		e.Close()
		s.away.Store(true)
		s.openEngine(t, fs, copied, func(o *Options) { o.Replica.Files = hereFiles{shelfFiles{s}} })
		time.Sleep(time.Minute)
		s.lead()
		s.away.Store(false)
		time.Sleep(time.Minute)
		fs = vfs.NewMem()
		next := s.openEngine(t, fs, s.rebuild(t, fs, "/data"))
		if records, _, _, err := full(next, "a", 0); err != nil || len(records) > 0 {
			t.Errorf("the next leader has %q, %v; the log of the copy has nothing of it", records, err)
		}
	})
}

// What no base names may be of a base that another server is making: it stays for a day.
func TestAYoungFileOfACopyStays(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		s := newShelf(time.Millisecond)
		e := s.openEngine(t, vfs.NewMem(), 0, func(o *Options) {
			o.Replica.Every, o.Replica.BaseEvery, o.Replica.Keep = time.Minute, 10*time.Minute, time.Minute
		})
		put(t, e, "a", configOf(api.Fsync))
		e.copier.testIdle(t)
		const name = tablePrefix + "of-another"
		s.mu.Lock()
		s.files[name] = shelved{[]byte("x"), time.Now().Add(-20 * time.Hour)}
		s.mu.Unlock()
		there := func() bool { _, err := shelfFiles{s}.Get(bg, name); return err == nil }
		for hour := range 7 {
			if _, err := tryWrite(e, "a", "1"); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Hour)
			if hour < 2 && !there() {
				t.Fatalf("after %d hours it is gone", 20+hour+1)
			}
		}
		if there() {
			t.Error("it is there for ever")
		}
	})
}

// Going back by Keep needs the newest base from before. One over a gap is that only if this leader
// made it: nobody knows of another's whether it counts.
func TestTheOldestBaseThatStaysIsOneThatCounts(t *testing.T) {
	limit := time.Unix(1000, 0)
	before, after := replica.File{Changed: limit.Add(-time.Minute)}, replica.File{Changed: limit.Add(time.Minute)}
	c := &copier{r: Replica{Term: 3}}
	for what, test := range map[string]struct {
		all  []replica.Base
		list []replica.File
		want int
	}{
		"none is that old":     {[]replica.Base{{}, {}}, []replica.File{after, after}, 0},
		"the newest of these":  {[]replica.Base{{}, {}, {}}, []replica.File{before, before, after}, 1},
		"another's over a gap": {[]replica.Base{{}, {Gap: true, Term: 2}, {}}, []replica.File{before, before, after}, 0},
		"its own over a gap":   {[]replica.Base{{}, {Gap: true, Term: 3}, {}}, []replica.File{before, before, after}, 1},
		"a damaged one":        {[]replica.Base{{}, {Gap: true}, {}}, []replica.File{before, before, after}, 0},
	} {
		if got := c.oldestKept(test.all, test.list, limit); got != test.want {
			t.Errorf("%s: base %d stays, want %d", what, got, test.want)
		}
	}
}

// A base that cannot be read does not keep what is in front of it, and itself, for ever.
func TestADamagedBaseGoesWithTheOldOnes(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		const keep = 65 * time.Second
		s := newShelf(time.Millisecond)
		e := s.openEngine(t, vfs.NewMem(), 0, func(o *Options) { o.Replica.BaseEvery, o.Replica.Keep = 10*time.Second, keep })
		put(t, e, "a", configOf(api.Fsync))
		write := func(each func()) {
			for range 300 {
				tryWrite(e, "a", "1")
				time.Sleep(time.Second)
				each()
			}
		}
		bases := func() []replica.File {
			files, err := shelfFiles{s}.List(bg, replica.BasePrefix)
			if err != nil {
				t.Fatal(err)
			}
			return files
		}
		write(func() {})
		damaged := bases()[2].Name
		s.mu.Lock()
		s.files[damaged] = shelved{[]byte("{"), s.files[damaged].at}
		s.mu.Unlock()
		write(func() { // it stands for no moment, so an older one stays
			all := slices.DeleteFunc(bases(), func(f replica.File) bool { return f.Name == damaged })
			if age := time.Since(all[0].Changed); age < keep {
				t.Fatalf("the oldest base that is whole is %v old, of %v that can be gone back", age, keep)
			}
		})
		if left := bases(); len(left) > 10 || left[0].Name <= damaged {
			t.Errorf("there are %d bases from %s on, of which %s is damaged", len(left), left[0].Name, damaged)
		}
	})
}

// By a clock that is years ahead every base but the newest is older than Keep.
func TestAClockThatIsAheadTakesNothingFromACopy(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		s := newShelf(time.Millisecond)
		var ahead atomic.Int64 // ns
		e := s.openEngine(t, vfs.NewMem(), 0, func(o *Options) {
			o.Now = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
			o.Replica.BaseEvery, o.Replica.Keep = 10*time.Second, time.Hour
		})
		put(t, e, "a", configOf(api.Fsync))
		bases := func() []string {
			if _, err := tryWrite(e, "a", "1"); err != nil {
				t.Fatal(err)
			}
			time.Sleep(20 * time.Second)
			return names(t, s, replica.BasePrefix)
		}
		var before []string
		for len(before) < 3 {
			before = bases()
		}
		ahead.Store(int64(10 * 365 * 24 * time.Hour))
		for range 3 {
			bases()
		}
		if after := bases(); len(after) <= len(before) || !slices.Contains(after, before[0]) || s.trimmed > 0 {
			t.Errorf("of the bases %v are left, of %v before, and the log is trimmed up to %d", after, before, s.trimmed)
		}
	})
}

// A copy of which nobody writes anything lasts for as long as its newest base does. A base that is removed, or
// one of its files, comes back.
func TestABaseThatIsRemovedComesBack(t *testing.T) {
	for what, gone := range map[string]string{"its list": replica.BasePrefix, "a table": tablePrefix, "a piece of the log": logPrefix} {
		bubble.Run(t, func(t *testing.T) {
			s := newShelf(time.Millisecond)
			e := s.openEngine(t, vfs.NewMem(), 0)
			put(t, e, "a", configOf(api.Fsync))
			for range 3 {
				if _, err := tryWrite(e, "a", `1`); err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(time.Hour) // there are no more bases, since nothing is written
			if lsn := s.rebuild(t, vfs.NewMem(), "/data"); lsn == 0 {
				t.Fatal("the copy holds nothing")
			}
			bases := len(names(t, s, replica.BasePrefix))
			s.mu.Lock()
			for name := range s.files {
				if strings.HasPrefix(name, gone) {
					delete(s.files, name)
				}
			}
			s.mu.Unlock()
			time.Sleep(2 * keptLook)
			fs := vfs.NewMem()
			s.rebuild(t, fs, "/data")
			if held, err := Verify(bg, optionsOn(fs, "again"), 0); err != nil || held.Records != 3 {
				t.Errorf("without %s the copy has %d records, %v", what, held.Records, err)
			}
			if n := len(names(t, s, replica.BasePrefix)); n > bases+1 {
				t.Errorf("without %s: %d bases, there were %d", what, n, bases)
			}
			time.Sleep(time.Hour)
			if n := len(names(t, s, replica.BasePrefix)); n > bases+1 {
				t.Errorf("without %s, an hour later: %d bases, there were %d", what, n, bases)
			}
		})
	}
}

// unlistedFiles are files of a store that does not answer what it has.
type unlistedFiles struct {
	shelfFiles
	fails *atomic.Bool
}

func (f unlistedFiles) List(ctx context.Context, prefix string) ([]replica.File, error) {
	if f.fails.Load() {
		return nil, errors.New("the store is away")
	}
	return f.shelfFiles.List(ctx, prefix)
}

// Of a store that does not answer nobody knows what it lacks, and a base costs as much as the data directory.
func TestAStoreThatDoesNotAnswerNeedsNoBase(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		s, fails := newShelf(time.Millisecond), &atomic.Bool{}
		e := s.openEngine(t, vfs.NewMem(), 0, func(o *Options) { o.Replica.Files = unlistedFiles{shelfFiles{s}, fails} })
		put(t, e, "a", configOf(api.Fsync))
		if _, err := tryWrite(e, "a", `1`); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		before := names(t, s, replica.BasePrefix)
		fails.Store(true)
		time.Sleep(2 * keptLook)
		age := e.Metrics().Replica.BaseAge
		fails.Store(false)
		time.Sleep(2 * keptLook)
		if after := names(t, s, replica.BasePrefix); !slices.Equal(after, before) || age < 40*time.Minute {
			t.Errorf("the bases are %v, were %v; the newest was of %v ago meanwhile", after, before, age)
		}
	})
}

// looked is a log that tells its leader, who looks, of what somebody has removed of it.
type looked struct {
	*shelfLog
	found atomic.Pointer[error]
	from  atomic.Uint64
}

func (l *looked) Kept(_ context.Context, from uint64) error {
	l.from.Store(from)
	if err := l.found.Load(); err != nil {
		return *err
	}
	return nil
}

// A copy of which entries were removed, while nothing is written, gets another base, behind an entry that is
// there; the server of one that is lost ends.
func TestALeaderThatWritesNothingLooksForTheCopysLog(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		s := newShelf(time.Millisecond)
		log := &looked{}
		var fenced atomic.Pointer[error]
		e := s.openEngine(t, vfs.NewMem(), 0, func(o *Options) {
			log.shelfLog = o.Replica.Log.(*shelfLog)
			o.Replica.Log = log
			o.Replica.Fenced = func(err error) { fenced.Store(&err) }
		})
		put(t, e, "a", configOf(api.Fsync))
		if _, err := tryWrite(e, "a", `1`); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		before := names(t, s, replica.BasePrefix)
		newest := replica.BaseAfter(before[len(before)-1])
		if from := log.from.Load(); from != newest {
			t.Errorf("it looks behind position %d, and the newest base is of %d", from, newest)
		}
		end, err := s.End(bg)
		if err != nil {
			t.Fatal(err)
		}
		gone := fmt.Errorf("%w: somebody has removed it", replica.ErrDamaged)
		log.found.Store(&gone)
		time.Sleep(keptLook + time.Second)
		log.found.Store(nil)
		time.Sleep(time.Hour)
		if after := names(t, s, replica.BasePrefix); len(after) != len(before)+1 || replica.BaseAfter(after[len(before)]) <= end {
			t.Errorf("the bases are %v, were %v, and the log ended at %d", after, before, end)
		}
		if err := fenced.Load(); err != nil {
			t.Errorf("it ends: %v", *err)
		}
		lost := replica.Lost("it")
		log.found.Store(&lost)
		time.Sleep(2 * keptLook)
		if err := fenced.Load(); err == nil || !errors.Is(*err, replica.ErrLost) {
			t.Errorf("who has lost the log is told %v", err)
		}
	})
}

// A store that has lost its log, but not its bases, takes the next base without as many signs of life as the log
// had entries; who has been replaced removes none of them.
func TestABaseFarAheadOfTheLogIsNoWait(t *testing.T) {
	for what, replaced := range map[string]bool{"of the leader": false, "of one that was replaced": true} {
		bubble.Run(t, func(t *testing.T) {
			s := newShelf(time.Millisecond)
			ahead := replica.BaseName(20_000)
			if err := (shelfFiles{s}).Put(bg, ahead, 2, strings.NewReader("{}")); err != nil {
				t.Fatal(err)
			}
			e := s.openEngine(t, vfs.NewMem(), 0)
			if replaced {
				s.lead()
			} else {
				put(t, e, "a", configOf(api.Fsync))
				if _, err := tryWrite(e, "a", `1`); err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(time.Minute)
			switch there := slices.Contains(names(t, s, replica.BasePrefix), ahead); {
			case there != replaced:
				t.Errorf("%s: the base that is ahead is there: %t", what, there)
			case replaced:
				return
			}
			if n, err := s.End(bg); err != nil || n > 100 {
				t.Errorf("%s: %d entries for one write and a base", what, n)
			}
			fs := vfs.NewMem()
			s.rebuild(t, fs, "/data")
			if held, err := Verify(bg, optionsOn(fs, "again"), 0); err != nil || held.Records != 1 {
				t.Errorf("%s: the copy has %d records, %v", what, held.Records, err)
			}
		})
	}
}

func names(t *testing.T, s *shelf, prefix string) (all []string) {
	t.Helper()
	files, err := shelfFiles{s}.List(bg, prefix)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		all = append(all, f.Name)
	}
	return all
}

// tablesRefused is a store that takes no table for now.
type tablesRefused struct {
	shelfFiles
	refuses atomic.Bool
	refused atomic.Int32
}

func (f *tablesRefused) Put(ctx context.Context, name string, size int64, content io.Reader) error {
	if f.refuses.Load() && strings.HasPrefix(name, tablePrefix) {
		f.refused.Add(1)
		return replica.ErrRefused
	}
	return f.shelfFiles.Put(ctx, name, size, content)
}

// A base that fails is tried again every few seconds, for as long as that takes: each time all of the
// log would stay in the store for a day, and be paid for.
func TestABaseThatFailsLeavesNoLogBehind(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		s := newShelf(time.Millisecond)
		files := &tablesRefused{shelfFiles: shelfFiles{s}}
		e := s.openEngine(t, vfs.NewMem(), 0, func(o *Options) {
			o.SegmentBytes, o.Replica.Files, o.Replica.BaseEvery = 1<<20, files, 10*time.Second
		})
		put(t, e, "a", configOf(api.Fsync))
		e.copier.testIdle(t)
		files.refuses.Store(true)
		var before []string
		big := `"` + strings.Repeat("x", 10<<10) + `"`
		for files.refused.Load() < 20 {
			if _, err := tryWrite(e, "a", big); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
			if files.refused.Load() == 0 {
				before = names(t, s, logPrefix)
			}
		}
		if left := names(t, s, logPrefix); len(left) > len(before)+3 { // another attempt may be under way
			t.Errorf("%d attempts have left %d objects: %v", files.refused.Load(), len(left), left)
		}
		files.refuses.Store(false)
		e.copier.testIdle(t)
		for at := e.copier.baseAt.Load(); e.copier.baseAt.Load() == at; {
			time.Sleep(time.Second)
		}
		e.Close()
		s.eachBaseIsWhole(t)
	})
}

// eachBaseIsWhole looks for the files of all bases.
func (s *shelf) eachBaseIsWhole(t *testing.T) {
	t.Helper()
	for _, name := range names(t, s, replica.BasePrefix) {
		b, err := replica.DecodeBase(name, s.files[name].b)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range b.Files {
			if got, there := s.files[f.Object]; !there || int64(len(got.b)) != f.Size {
				t.Errorf("%s lacks %s", name, f.Object)
			}
		}
	}
}
