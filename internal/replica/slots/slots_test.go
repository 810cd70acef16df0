package slots_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirmq/weir/internal/replica"
	"github.com/weirmq/weir/internal/replica/dir"
	"github.com/weirmq/weir/internal/replica/slots"
	"github.com/weirmq/weir/tests/bubble"
)

func openDir(t *testing.T, root string) *slots.Log {
	t.Helper()
	store, err := dir.Open(root)
	if err != nil {
		t.Fatal(err)
	}
	log := slots.New(store, slots.Options{Grace: time.Nanosecond, Keep: 8, Trouble: func(err error) { t.Log("trouble:", err) }})
	t.Cleanup(func() { log.Close() })
	return log
}

// add appends entries and waits for them.
func add(ctx context.Context, log *slots.Log, datas ...string) (last uint64, failed error) {
	done := make(chan error, len(datas))
	for _, d := range datas {
		if err := log.Append(ctx, []byte(d), func(pos uint64, err error) { last = max(last, pos); done <- err }); err != nil {
			done <- err
		}
	}
	for range datas {
		failed = errors.Join(failed, <-done)
	}
	return last, failed
}

// contents returns what can be read.
func contents(ctx context.Context, t *testing.T, log *slots.Log, after uint64) (all []string) {
	t.Helper()
	for {
		e, err := log.Read(ctx, after)
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		after, all = e.Pos, append(all, fmt.Sprintf("%d:%s", e.Term, e.Data))
	}
}

func TestOneLeaderAfterTheOther(t *testing.T) {
	ctx, root := t.Context(), t.TempDir()
	a, b := openDir(t, root), openDir(t, root)
	if _, err := a.Lead(ctx, "a"); err != nil {
		t.Fatal(err)
	}
	if _, err := add(ctx, a, "1", "2", "3", "4", "5", "6"); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Lead(ctx, "b"); err != nil {
		t.Fatal(err)
	}
	if _, err := add(ctx, a, "void", "void"); !errors.Is(err, replica.ErrFenced) {
		t.Errorf("the old leader is told %v", err)
	}
	late, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	for range 3 * replica.Window { // it is told each time, at once
		if _, err := add(late, a, "void"); !errors.Is(err, replica.ErrFenced) {
			t.Fatalf("later the old leader is told %v", err)
		}
	}
	if _, err := add(ctx, b, "7", "8"); err != nil {
		t.Error(err)
	}
	if got, want := fmt.Sprint(contents(ctx, t, openDir(t, root), 0)), "[1: 1:1 1:2 1:3 1:4 1:5 1:6 2: 2:7 2:8]"; got != want {
		t.Errorf("read %s, want %s", got, want)
	}
}

// TestATrimKeepsUpWithTheLeader trims once for more entries than are removed in one go.
func TestATrimKeepsUpWithTheLeader(t *testing.T) {
	for keep, stay := range map[int]int{8: 8, 0: 1000} {
		objects := &memory{all: map[string][]byte{}}
		log := slots.New(objects, slots.Options{Grace: time.Nanosecond, Keep: keep})
		defer log.Close()
		if _, err := log.Lead(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
		all := stay + 1700
		last, err := add(t.Context(), log, make([]string, all)...)
		if err != nil {
			t.Fatal(err)
		}
		if err := log.Trim(t.Context(), last); err != nil {
			t.Fatal(err)
		}
		left, err := objects.ListAfter(t.Context(), "log/", "", 10_000)
		if err != nil || len(left) < stay || len(left) > stay+2*replica.Window {
			t.Errorf("%d of %d entries are left, and %d are to stay: %v", len(left), all, stay, err)
		}
	}
}

// TestACopyThatManyHaveLed, as one whose server is started each day for years.
func TestACopyThatManyHaveLed(t *testing.T) {
	const many = 2500
	objects := &memory{all: map[string][]byte{}}
	for term := range many {
		objects.all[fmt.Sprintf("term/%010d", term+1)] = []byte(`{"node":"before"}`)
	}
	log := slots.New(objects, slots.Options{})
	defer log.Close()
	if newest, err := log.Newest(t.Context()); err != nil || newest.Number != many {
		t.Errorf("the newest term is %+v, %v", newest, err)
	}
	if lead, err := log.Lead(t.Context(), "a"); err != nil || lead.Term != many+1 {
		t.Errorf("led %+v, %v", lead, err)
	}
	if all, err := log.Terms(t.Context()); err != nil || len(all) != many+1 {
		t.Errorf("%d terms, %v", len(all), err)
	}
}

// overtaken is objects to which others have written between an answer and the next listing.
type overtaken struct {
	slots.Objects
	write func()
}

func (o *overtaken) ListAfter(ctx context.Context, prefix, after string, most int) ([]replica.File, error) {
	if o.write != nil && prefix == "log/" {
		o.write()
		o.write = nil
	}
	return o.Objects.ListAfter(ctx, prefix, after, most)
}

// What was not there a moment ago is not lost if it is there now: a reader that takes it for lost would
// say that a whole copy is damaged.
func TestAnEntryThatHasJustComeIsNotLost(t *testing.T) {
	objects := &overtaken{Objects: &memory{all: map[string][]byte{}}}
	log, reader := slots.New(objects.Objects, slots.Options{}), slots.New(objects, slots.Options{})
	defer log.Close()
	defer reader.Close()
	lead, err := log.Lead(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	objects.write = func() {
		if _, err := add(t.Context(), log, make([]string, 3*replica.Window)...); err != nil {
			t.Error(err)
		}
	}
	if _, err := reader.Read(t.Context(), lead.End); !errors.Is(err, io.EOF) {
		t.Errorf("the reader is told %v", err)
	}
	if objects.write != nil {
		t.Error("nothing was written meanwhile")
	}
	if got := contents(t.Context(), t, reader, lead.End); len(got) != 3*replica.Window {
		t.Errorf("then it reads %q", got)
	}
}

// A copy may be trimmed for years: what says so stays one object.
func TestTrimsLeaveOneObject(t *testing.T) {
	objects := &memory{all: map[string][]byte{}}
	log := slots.New(objects, slots.Options{Grace: time.Nanosecond, Keep: 8})
	defer log.Close()
	if _, err := log.Lead(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	for range 5 {
		last, err := add(t.Context(), log, make([]string, 20)...)
		if err == nil {
			err = log.Trim(t.Context(), last)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	left, err := objects.ListAfter(t.Context(), "trim/", "", 100)
	if err != nil || len(left) != 1 {
		t.Errorf("%d trim objects are left, %v", len(left), err)
	}
}

// dated is objects that know when each was created.
type dated struct {
	slots.Objects
	mu sync.Mutex
	at map[string]time.Time
}

func (d *dated) Create(ctx context.Context, name string, data []byte) error {
	d.mu.Lock()
	d.at[name] = time.Now()
	d.mu.Unlock()
	return d.Objects.Create(ctx, name, data)
}

func (d *dated) ListAfter(ctx context.Context, prefix, after string, most int) ([]replica.File, error) {
	files, err := d.Objects.ListAfter(ctx, prefix, after, most)
	d.mu.Lock()
	defer d.mu.Unlock()
	for i := range files {
		files[i].Changed = d.at[files[i].Name]
	}
	return files, err
}

// What is younger than the grace stays, whatever is asked for: a leader that was asleep may
// not know yet that another has led.
func TestATrimLeavesWhatIsYoung(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		objects := &dated{Objects: &memory{all: map[string][]byte{}}, at: map[string]time.Time{}}
		log := slots.New(objects, slots.Options{Grace: time.Hour, Keep: 8})
		defer log.Close()
		if _, err := log.Lead(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
		if _, err := add(t.Context(), log, make([]string, 30)...); err != nil {
			t.Fatal(err)
		}
		time.Sleep(50 * time.Minute)
		last, err := add(t.Context(), log, make([]string, 30)...)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct {
			wait time.Duration
			left int
		}{{0, 61}, {20 * time.Minute, 30}, {time.Hour, 8}} {
			time.Sleep(c.wait)
			if err := log.Trim(t.Context(), last); err != nil {
				t.Fatal(err)
			}
			left, err := objects.ListAfter(t.Context(), "log/", "", 100)
			if err != nil || len(left) < c.left || len(left) > c.left+replica.Window {
				t.Errorf("%v later %d entries are left, want %d: %v", c.wait, len(left), c.left, err)
			}
		}
	})
}

// undeletable is objects that may not be removed.
type undeletable struct{ slots.Objects }

func (undeletable) Delete(context.Context, string) error { return replica.ErrRefused }

func TestATrimThatMayRemoveNothingSaysSo(t *testing.T) {
	objects := &memory{all: map[string][]byte{}}
	log, trimmer := slots.New(objects, slots.Options{}), slots.New(undeletable{objects}, slots.Options{Grace: time.Nanosecond, Keep: 8})
	defer log.Close()
	defer trimmer.Close()
	if _, err := log.Lead(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	last, err := add(t.Context(), log, make([]string, 30)...)
	if err != nil {
		t.Fatal(err)
	}
	if err := trimmer.Trim(t.Context(), last); !errors.Is(err, replica.ErrRefused) {
		t.Errorf("it is told %v", err)
	}
}

// A reader must not take the place of a lost object for the end of the log: a server that takes
// over would give numbers out again that are behind it.
func TestALostEntryIsNotTheEndOfTheLog(t *testing.T) {
	objects := &memory{all: map[string][]byte{}}
	log, reader := slots.New(objects, slots.Options{}), slots.New(objects, slots.Options{})
	defer log.Close()
	defer reader.Close()
	if _, err := log.Lead(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	last, err := add(t.Context(), log, make([]string, 20)...)
	if err != nil {
		t.Fatal(err)
	}
	lost := last - 2*replica.Window
	if err := objects.Delete(t.Context(), fmt.Sprintf("log/%020d", lost)); err != nil {
		t.Fatal(err)
	}
	for after := uint64(0); ; {
		e, err := reader.Read(t.Context(), after)
		if err == nil {
			after = e.Pos
			continue
		}
		if after != lost-1 || !errors.Is(err, replica.ErrDamaged) {
			t.Errorf("behind position %d of %d, where one is lost: %v", after, last, err)
		}
		break
	}
	if e, err := slots.New(objects, slots.Options{}).Read(t.Context(), lost); !errors.Is(err, replica.ErrDamaged) {
		t.Errorf("behind the lost one, as from a base that goes on there: %+v, %v", e, err)
	}
	if lead, err := slots.New(objects, slots.Options{}).Lead(t.Context(), "b"); !errors.Is(err, replica.ErrDamaged) {
		t.Errorf("led %+v, %v", lead, err)
	}
}

// A copy of a later version is left alone.
func TestACopyOfALaterFormatIsRefused(t *testing.T) {
	objects := &memory{all: map[string][]byte{"FORMAT": []byte(`{"format":2,"log_id":"x"}`)}}
	log := slots.New(objects, slots.Options{})
	defer log.Close()
	if _, err := log.Lead(t.Context(), "a"); err == nil || !strings.Contains(err.Error(), "newer weir") {
		t.Errorf("who wants to lead is told %v", err)
	}
	if _, err := slots.ReadFormat(t.Context(), objects); err == nil || !strings.Contains(err.Error(), "newer weir") {
		t.Errorf("who looks is told %v", err)
	}
}

func TestCopiesAreToldApart(t *testing.T) {
	var ids []string
	a, b := t.TempDir(), t.TempDir()
	for _, root := range []string{a, b, a} {
		log := openDir(t, root)
		if err := log.Probe(t.Context()); err != nil {
			t.Fatal(err)
		}
		id, err := log.ID(t.Context())
		if err != nil || id == "" {
			t.Errorf("it is %q, %v", id, err)
		}
		ids = append(ids, id)
	}
	if ids[0] == ids[1] || ids[0] != ids[2] {
		t.Errorf("two copies are %q", ids)
	}
	if id, err := openDir(t, t.TempDir()).ID(t.Context()); err != nil || id != "" {
		t.Errorf("where there is no copy is %q, %v", id, err)
	}
}

// hanging is objects that do not answer the first attempts to create one.
type hanging struct {
	slots.Objects
	left atomic.Int32
}

func (h *hanging) Create(ctx context.Context, name string, data []byte) error {
	if h.left.Add(-1) >= 0 {
		<-ctx.Done()
		return ctx.Err()
	}
	return h.Objects.Create(ctx, name, data)
}

// A call that is never answered is made again.
func TestACallThatHangsIsMadeAgain(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		objects := &hanging{Objects: &memory{all: map[string][]byte{}}}
		log := slots.New(objects, slots.Options{})
		defer log.Close()
		if _, err := log.Lead(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
		objects.left.Store(2)
		began := time.Now()
		if _, err := add(t.Context(), log, "entry"); err != nil || time.Since(began) > time.Minute {
			t.Errorf("after %v the leader is told %v", time.Since(began), err)
		}
	})
}

// refusing is objects that may not be listed for a while.
type refusing struct {
	slots.Objects
	refused atomic.Bool
}

func (r *refusing) ListAfter(ctx context.Context, prefix, after string, most int) ([]replica.File, error) {
	if r.refused.Load() {
		return nil, replica.ErrRefused
	}
	return r.Objects.ListAfter(ctx, prefix, after, most)
}

// TestALeaderThatMayNotListWaitsForTheRight takes the right to list away, and gives it back.
func TestALeaderThatMayNotListWaitsForTheRight(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		objects := &refusing{Objects: &memory{all: map[string][]byte{}}}
		log := slots.New(objects, slots.Options{})
		defer log.Close()
		if _, err := log.Lead(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute) // so that it has to look whether its place was trimmed
		objects.refused.Store(true)
		time.AfterFunc(time.Minute, func() { objects.refused.Store(false) })
		if _, err := add(t.Context(), log, "entry"); err != nil {
			t.Errorf("the leader is told %v", err)
		}
	})
}

// far is objects that take a while to be read.
type far struct{ slots.Objects }

func (f far) Get(ctx context.Context, name string) (io.ReadCloser, error) {
	time.Sleep(60 * time.Millisecond)
	return f.Objects.Get(ctx, name)
}

// TestAReaderKeepsUpWithALeaderThatHasSeveralUnderWay has a leader store an entry each 20 ms
// in a store that takes 60 ms to hand one out.
func TestAReaderKeepsUpWithALeaderThatHasSeveralUnderWay(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		objects := &memory{all: map[string][]byte{}}
		log, reader := slots.New(objects, slots.Options{}), slots.New(far{objects}, slots.Options{})
		defer log.Close()
		defer reader.Close()
		lead, err := log.Lead(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		read := make(chan uint64)
		go func() {
			after := uint64(0)
			for end := time.Now().Add(time.Minute); time.Now().Before(end); {
				e, err := reader.Read(t.Context(), after)
				switch {
				case errors.Is(err, io.EOF):
					time.Sleep(250 * time.Millisecond)
				case err != nil:
					t.Error(err)
				case e.Pos != lead.End && string(e.Data) != fmt.Sprint("entry ", e.Pos):
					t.Errorf("position %d holds %s", e.Pos, e.Data)
				default:
					after = e.Pos
				}
			}
			read <- after
		}()
		last := lead.End + replica.Window
		for range 3000 { // a minute
			last, err = add(t.Context(), log, fmt.Sprint("entry ", last))
			if err != nil {
				t.Fatal(err)
			}
			last++
			time.Sleep(20 * time.Millisecond)
		}
		if after := <-read; after+50 < last {
			t.Errorf("the reader is at %d when the log is at %d", after, last)
		}
	})
}

// TestADamagedTermKeepsNobodyFromLeading damages what says, for people, who leads.
func TestADamagedTermKeepsNobodyFromLeading(t *testing.T) {
	objects := &memory{all: map[string][]byte{}}
	log := slots.New(objects, slots.Options{})
	defer log.Close()
	if _, err := log.Lead(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	objects.all["term/0000000001"] = []byte("?")
	if newest, err := log.Newest(t.Context()); err != nil || newest.Number != 1 {
		t.Errorf("the newest term is %+v, %v", newest, err)
	}
	if lead, err := log.Lead(t.Context(), "b"); err != nil || lead.Term != 2 {
		t.Errorf("led %+v, %v", lead, err)
	}
	if _, err := log.Terms(t.Context()); !errors.Is(err, replica.ErrDamaged) {
		t.Errorf("who looks at all terms is told %v", err)
	}
}

// flipping is a store whose answers have one other bit when an entry is asked for the first time.
type flipping struct {
	slots.Objects
	mu    sync.Mutex
	asked map[string]bool
}

func (f *flipping) Get(ctx context.Context, name string) (io.ReadCloser, error) {
	in, err := f.Objects.Get(ctx, name)
	f.mu.Lock()
	defer f.mu.Unlock()
	if err != nil || f.asked[name] || !strings.HasPrefix(name, "log/") {
		return in, err
	}
	defer in.Close()
	f.asked[name] = true
	b, err := io.ReadAll(in)
	b[len(b)/2] ^= 4
	return io.NopCloser(bytes.NewReader(b)), err
}

// A restore, and a server without a directory, would end at an entry that only one answer has damaged.
func TestOneDamagedAnswerIsNoDamagedEntry(t *testing.T) {
	root := t.TempDir()
	leader := openDir(t, root)
	if _, err := leader.Lead(t.Context(), "node"); err != nil {
		t.Fatal(err)
	}
	if _, err := add(t.Context(), leader, "a", "b", "c"); err != nil {
		t.Fatal(err)
	}
	want := contents(t.Context(), t, leader, 0)
	store, err := dir.Open(root)
	if err != nil {
		t.Fatal(err)
	}
	reader := slots.New(&flipping{Objects: store, asked: map[string]bool{}}, slots.Options{})
	defer reader.Close()
	if got := contents(t.Context(), t, reader, 0); !slices.Equal(got, want) {
		t.Errorf("%q is read, want %q", got, want)
	}
}
