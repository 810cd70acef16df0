package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weirmq/weir/internal/replica"
	"github.com/weirmq/weir/internal/replica/postgres"
	"github.com/weirmq/weir/tests/link"
	"github.com/weirmq/weir/tests/postgrestest"
)

// open returns the log that bears the test's name, by way of addr.
func open(t *testing.T, s *postgrestest.Server, addr string) *postgres.Log {
	t.Helper()
	return openAt(t, s.URL(addr))
}

// openAt is open in the database of a URL.
func openAt(t *testing.T, address string) *postgres.Log {
	t.Helper()
	u, err := url.Parse(address + "&log=" + url.QueryEscape(t.Name()))
	if err != nil {
		t.Fatal(err)
	}
	l, err := postgres.Open(t.Context(), u, postgres.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return l
}

func lead(t *testing.T, l *postgres.Log) replica.Lead {
	t.Helper()
	got, err := l.Lead(t.Context(), "node")
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// outcome is what stored was told.
type outcome struct {
	pos uint64
	err error
}

// start appends and returns where the outcome will be.
func start(t *testing.T, ctx context.Context, l *postgres.Log, data string) chan outcome {
	t.Helper()
	told := make(chan outcome, 1)
	if err := l.Append(ctx, []byte(data), func(pos uint64, err error) { told <- outcome{pos, err} }); err != nil {
		told <- outcome{0, err}
	}
	return told
}

func await(t *testing.T, told <-chan outcome) outcome {
	t.Helper()
	select {
	case o := <-told:
		return o
	case <-time.After(time.Minute):
		t.Fatal("nothing was said of an entry within a minute")
		panic("unreachable")
	}
}

func store(t *testing.T, l *postgres.Log, data string) uint64 {
	t.Helper()
	o := await(t, start(t, t.Context(), l, data))
	if o.err != nil {
		t.Fatal(o.err)
	}
	return o.pos
}

// read returns all entries but those that begin a term.
func read(t *testing.T, l *postgres.Log) (all []string) {
	t.Helper()
	for after := uint64(0); ; {
		e, err := l.Read(t.Context(), after)
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil || e.Pos <= after {
			t.Fatalf("behind %d: %+v, %v", after, e, err)
		}
		if len(e.Data) > 0 {
			all = append(all, string(e.Data))
		}
		after = e.Pos
	}
}

func direct(t *testing.T, s *postgrestest.Server) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), s.URL(s.Addr()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

// eventually waits until a query that returns a number returns want.
func eventually(t *testing.T, conn *pgx.Conn, want int, sql string, args ...any) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		var got int
		if err := conn.QueryRow(t.Context(), sql, args...).Scan(&got); err != nil {
			t.Fatal(err)
		}
		if got == want {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s %v is %d, want %d", sql, args, got, want)
		}
	}
}

func equal(t *testing.T, got, want []string) {
	t.Helper()
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("the log holds %d entries %.300q\nwant %d %.300q", len(got), got, len(want), want)
	}
}

func TestLog(t *testing.T) {
	s := postgrestest.Start(t, postgrestest.Options{})
	for name, f := range map[string]func(*testing.T, *postgrestest.Server){
		"entries of all sizes are read": entriesOfAllSizes,
		"an old leader is fenced":       oldLeader,
		"lost answers are asked for":    lostAnswers,
		"cuts lose and repeat nothing":  cuts,
		"leaders in turn":               leadersInTurn,
		"a context ends":                contextEnds,
		"trimmed":                       trimmed,
		"confirmed entries are gone":    confirmedEntriesAreGone,
		"a reader of lost entries":      readerOfLostEntries,
		"logs do not mix":               logsDoNotMix,
		"a leader looks":                looksForWhatIsThere,
		"a leader looks behind a base":  looksBehindABase,
		"a leader looks for all of it":  looksForAllBehindABase,
		"a leader looks for its tables": looksForItsTables,
	} {
		t.Run(name, func(t *testing.T) { t.Parallel(); f(t, s) })
	}
}

func entriesOfAllSizes(t *testing.T, s *postgrestest.Server) {
	l := open(t, s, s.Addr())
	if term, err := l.Newest(t.Context()); err != nil || term != (replica.Term{}) {
		t.Fatalf("the newest term of a new log is %+v, %v", term, err)
	}
	begun := lead(t, l)
	if term, err := l.Newest(t.Context()); err != nil || term.Number != 1 || term.Node != "node" || begun.Term != 1 {
		t.Errorf("the newest term is %+v, %v, its leader was told %+v", term, err, begun)
	}
	var want []string
	for _, size := range []int{1, 300, 2000, 5000, 9 << 20, 3 << 20, 3 << 20, 1} {
		b := make([]byte, size)
		for i := range b {
			b[i] = byte(rand.Uint32())
		}
		want = append(want, string(b))
	}
	var told []chan outcome
	for _, data := range want {
		told = append(told, start(t, t.Context(), l, data))
	}
	for i, c := range told {
		if o := await(t, c); o.err != nil || o.pos != begun.End+1+uint64(i) {
			t.Errorf("entry %d: %+v", i, o)
		}
	}
	if got := read(t, open(t, s, s.Addr())); strings.Join(got, "") != strings.Join(want, "") || len(got) != len(want) {
		t.Errorf("%d entries were appended, %d others read", len(want), len(got))
	}
}

func oldLeader(t *testing.T, s *postgrestest.Server) {
	old, next := open(t, s, s.Addr()), open(t, s, s.Addr())
	first := lead(t, old)
	store(t, old, "a")
	second := lead(t, next)
	if second.Term != first.Term+1 || second.End <= first.End+1 {
		t.Errorf("after %+v and an entry came %+v", first, second)
	}
	for range 2 { // the first one finds it out
		if o := await(t, start(t, t.Context(), old, "b")); !errors.Is(o.err, replica.ErrFenced) {
			t.Errorf("an old leader's entry: %+v", o)
		}
	}
	store(t, next, "c")
	equal(t, read(t, old), []string{"a", "c"})
	lead(t, old)
	store(t, old, "d")
	equal(t, read(t, next), []string{"a", "c", "d"})
}

func lostAnswers(t *testing.T, s *postgrestest.Server) {
	proxy := link.NewProxy(t, s.Addr())
	l := open(t, s, proxy.Addr())
	lead(t, l)
	store(t, l, "a")
	proxy.Set(link.Fault{HoldDown: true})
	var told []chan outcome
	for _, data := range []string{"b", "c", "d"} {
		told = append(told, start(t, t.Context(), l, data))
	}
	eventually(t, direct(t, s), 5, `SELECT count(*) FROM weir_replica_log WHERE log = $1`, t.Name())
	proxy.Refuse()
	proxy.Heal()
	for i, c := range told {
		if o := await(t, c); o.err != nil || o.pos != uint64(i)+3 {
			t.Errorf("entry %d: %+v", i, o)
		}
	}
	store(t, l, "e")
	equal(t, read(t, l), []string{"a", "b", "c", "d", "e"})

	proxy.Set(link.Fault{HoldDown: true}) // and a leader that has been fenced meanwhile
	last := start(t, t.Context(), l, "f")
	eventually(t, direct(t, s), 7, `SELECT count(*) FROM weir_replica_log WHERE log = $1`, t.Name())
	other := open(t, s, s.Addr())
	lead(t, other)
	proxy.Refuse()
	proxy.Heal()
	if o := await(t, last); o.err != nil || o.pos != 7 {
		t.Errorf("an entry that was stored before another leader came: %+v", o)
	}
	if o := await(t, start(t, t.Context(), l, "g")); !errors.Is(o.err, replica.ErrFenced) {
		t.Errorf("the next one: %+v", o)
	}
	equal(t, read(t, other), []string{"a", "b", "c", "d", "e", "f"})
}

func cuts(t *testing.T, s *postgrestest.Server) {
	proxy := link.NewProxy(t, s.Addr())
	l := open(t, s, proxy.Addr())
	lead(t, l)
	var want []string
	var told []chan outcome
	faults := []link.Fault{{HoldDown: true}, {HoldUp: true}, {Slice: 100}, {}}
	for round := range 30 {
		proxy.Set(faults[round%len(faults)])
		for range 1 + rand.IntN(4) { // no more than may be under way
			want = append(want, fmt.Sprint(len(want), ".", strings.Repeat("x", rand.IntN(2000))))
			told = append(told, start(t, t.Context(), l, want[len(want)-1]))
		}
		if rand.IntN(2) == 0 {
			proxy.Reset()
		} else {
			proxy.Cut()
		}
		proxy.Heal()
		o := await(t, told[len(told)-1])
		told[len(told)-1] <- o
	}
	for i, c := range told {
		if o := await(t, c); o.err != nil || o.pos != uint64(i)+2 {
			t.Errorf("entry %d: %+v", i, o)
		}
	}
	equal(t, read(t, open(t, s, s.Addr())), want)
}

// leadersInTurn lets three servers lead again and again while they write. What was confirmed
// is there once, in the order of positions, and nothing else but what nobody was told about.
func leadersInTurn(t *testing.T, s *postgrestest.Server) {
	const rounds = 15
	var mu sync.Mutex
	at := map[uint64]string{}
	var all sync.WaitGroup
	for n := range 3 {
		l := open(t, s, s.Addr())
		all.Go(func() {
			for round := range rounds {
				if _, err := l.Lead(t.Context(), fmt.Sprint(n)); err != nil {
					t.Error(err)
					return
				}
				var waiting sync.WaitGroup
				for i := range 1 + rand.IntN(10) {
					data := fmt.Sprint(n, ".", round, ".", i)
					waiting.Add(1)
					err := l.Append(t.Context(), []byte(data), func(pos uint64, err error) {
						defer waiting.Done()
						if err != nil {
							if !errors.Is(err, replica.ErrFenced) {
								t.Error(err)
							}
							return
						}
						mu.Lock()
						defer mu.Unlock()
						if at[pos] != "" {
							t.Errorf("%s and %s are both at %d", at[pos], data, pos)
						}
						at[pos] = data
					})
					if err != nil {
						waiting.Done()
					}
				}
				waiting.Wait()
			}
		})
	}
	all.Wait()
	l := open(t, s, s.Addr())
	term := uint64(0)
	for after := uint64(0); ; {
		e, err := l.Read(t.Context(), after)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if e.Term < term {
			t.Errorf("term %d follows term %d", e.Term, term)
		}
		if want, confirmed := at[e.Pos]; confirmed && want != string(e.Data) {
			t.Errorf("at %d is %q, %q was confirmed", e.Pos, e.Data, want)
		}
		delete(at, e.Pos)
		after, term = e.Pos, e.Term
	}
	if len(at) > 0 {
		t.Errorf("confirmed and not there: %v", at)
	}
	if term != 3*rounds {
		t.Errorf("the last term is %d, want %d", term, 3*rounds)
	}
}

func contextEnds(t *testing.T, s *postgrestest.Server) {
	proxy := link.NewProxy(t, s.Addr())
	l := open(t, s, proxy.Addr())
	lead(t, l)
	store(t, l, "a")
	proxy.Set(link.Blackhole)
	ctx, cancel := context.WithCancel(t.Context())
	told := start(t, ctx, l, "b")
	behind := start(t, t.Context(), l, "c")
	cancel()
	for _, c := range []chan outcome{told, behind, start(t, t.Context(), l, "d")} {
		if o := await(t, c); !errors.Is(o.err, context.Canceled) {
			t.Errorf("after the end of a context: %+v", o)
		}
	}
	for what, f := range map[string]func() error{
		"Newest": func() error { _, err := l.Newest(ctx); return err },
		"Lead":   func() error { _, err := l.Lead(ctx, "node"); return err },
		"Read":   func() error { _, err := l.Read(ctx, 0); return err },
		"Trim":   func() error { return l.Trim(ctx, 1) },
	} {
		if err := f(); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", what, err)
		}
	}
	proxy.Heal()
	lead(t, l)
	store(t, l, "e")
	if got := read(t, l); got[0] != "a" || got[len(got)-1] != "e" {
		t.Errorf("the log holds %q", got)
	}
}

func trimmed(t *testing.T, s *postgrestest.Server) {
	l, other := open(t, s, s.Addr()), open(t, s, s.Addr())
	lead(t, l)
	for i := range 250 {
		start(t, t.Context(), l, fmt.Sprint(i))
	}
	end := store(t, l, "last")
	if err := other.Trim(t.Context(), end-3); err != nil {
		t.Fatal(err)
	}
	if _, err := other.Read(t.Context(), 1); !errors.Is(err, replica.ErrTrimmed) {
		t.Errorf("a place that was trimmed: %v", err)
	}
	if e, err := other.Read(t.Context(), end-3); err != nil || e.Pos != end-2 {
		t.Errorf("what was not trimmed: %+v, %v", e, err)
	}
	if err := other.Trim(t.Context(), end+100); err != nil {
		t.Fatal(err)
	}
	if pos := store(t, l, "more"); pos != end+1 {
		t.Errorf("after everything was trimmed the next entry is at %d, want %d", pos, end+1)
	}
	if begun := lead(t, other); begun.End != end+2 {
		t.Errorf("the next leader begins at %+v, want %d", begun, end+2)
	}
}

// A standby of PostgreSQL that took over without what its primary had confirmed.
func confirmedEntriesAreGone(t *testing.T, s *postgrestest.Server) {
	l := open(t, s, s.Addr())
	lead(t, l)
	store(t, l, "a")
	end := store(t, l, "b")
	if _, err := direct(t, s).Exec(t.Context(), `DELETE FROM weir_replica_log WHERE log = $1 AND pos = $2`, t.Name(), end); err != nil {
		t.Fatal(err)
	}
	if o := await(t, start(t, t.Context(), l, "c")); !errors.Is(o.err, replica.ErrLost) {
		t.Errorf("behind an entry that is gone: %+v", o)
	}
	equal(t, read(t, l), []string{"a"})
}

// A reader that has read what such a standby lacks is told so once another leads: what that one
// wrote in its place must not be missed.
func readerOfLostEntries(t *testing.T, s *postgrestest.Server) {
	old, next, reader := open(t, s, s.Addr()), open(t, s, s.Addr()), open(t, s, s.Addr())
	lead(t, old)
	store(t, old, "a")
	store(t, old, "b")
	end := store(t, old, "c")
	equal(t, read(t, reader), []string{"a", "b", "c"})
	if _, err := direct(t, s).Exec(t.Context(), `DELETE FROM weir_replica_log WHERE log = $1 AND pos > 2`, t.Name()); err != nil {
		t.Fatal(err)
	}
	if e, err := reader.Read(t.Context(), end); !errors.Is(err, io.EOF) {
		t.Errorf("behind lost entries, while nobody leads anew: %+v, %v", e, err)
	}
	lead(t, next)
	for _, data := range []string{"d", "e"} {
		if e, err := reader.Read(t.Context(), end); !errors.Is(err, replica.ErrTrimmed) {
			t.Errorf("in front of %s, behind lost entries: %+v, %v", data, e, err)
		}
		store(t, next, data)
	}
	if e, err := reader.Read(t.Context(), end); !errors.Is(err, replica.ErrTrimmed) {
		t.Errorf("where another's entry is by now: %+v, %v", e, err)
	}
	equal(t, read(t, reader), []string{"a", "d", "e"})
}

func logsDoNotMix(t *testing.T, s *postgrestest.Server) {
	l := open(t, s, s.Addr())
	t.Run("other", func(t *testing.T) {
		other := open(t, s, s.Addr())
		lead(t, other)
		store(t, other, "theirs")
	})
	if term, err := l.Newest(t.Context()); err != nil || term.Number != 0 {
		t.Errorf("the newest term is %+v, %v", term, err)
	}
	equal(t, read(t, l), nil)
}

func TestACrashOfTheDatabaseLosesNothing(t *testing.T) {
	t.Parallel()
	s := postgrestest.Start(t, postgrestest.Options{})
	l := open(t, s, s.Addr())
	lead(t, l)
	store(t, l, "first")
	want := []string{"first"}
	var told []chan outcome
	var writer sync.WaitGroup
	writer.Go(func() {
		for i := range 100 {
			want = append(want, fmt.Sprint(i))
			told = append(told, start(t, t.Context(), l, want[len(want)-1]))
		}
	})
	s.Kill()
	s.Restart()
	writer.Wait()
	for _, c := range told {
		if o := await(t, c); o.err != nil {
			t.Errorf("%+v", o)
		}
	}
	equal(t, read(t, l), want)
}

// An entry counts when the standby has it, too, even if the database shows it before; so does a term.
func TestASynchronousStandbyIsWaitedFor(t *testing.T) {
	t.Parallel()
	s := postgrestest.Start(t, postgrestest.Options{Settings: map[string]string{"synchronous_standby_names": "receiver"}})
	endReceiver := s.Receiver()
	l := open(t, s, s.Addr())
	if got := l.Warnings(); len(got) != 0 {
		t.Errorf("with a synchronous standby it warns: %q", got)
	}
	lead(t, l)
	store(t, l, "a")
	endReceiver()
	conn := direct(t, s)
	const waiting = `SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'`
	breakOff := func() { // the wait for the standby
		t.Helper()
		eventually(t, conn, 1, waiting)
		var pid int
		if err := conn.QueryRow(t.Context(), `SELECT pid FROM pg_stat_activity WHERE wait_event = 'SyncRep'`).Scan(&pid); err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Exec(t.Context(), `SELECT pg_cancel_backend($1)`, pid); err != nil {
			t.Fatal(err)
		}
		eventually(t, conn, 0, waiting+` AND pid = $1`, pid)
	}
	told := start(t, t.Context(), l, "b")
	breakOff()
	eventually(t, conn, 3, `SELECT count(*) FROM weir_replica_log`) // PostgreSQL shows it now
	breakOff()                                                      // of the question
	eventually(t, conn, 1, waiting)                                 // the next one
	select {
	case o := <-told:
		t.Fatalf("an entry that no standby has: %+v", o)
	default:
	}
	endReceiver = s.Receiver()
	if o := await(t, told); o.err != nil || o.pos != 3 {
		t.Errorf("once there is a standby: %+v", o)
	}
	endReceiver()
	var led replica.Lead
	next := make(chan outcome, 1)
	go func() {
		var err error
		led, err = l.Lead(t.Context(), "node")
		next <- outcome{led.End, err}
	}()
	breakOff()
	eventually(t, conn, 1, waiting)
	select {
	case o := <-next:
		t.Fatalf("a term that no standby has: %+v", o)
	default:
	}
	s.Receiver()
	if o := await(t, next); o.err != nil || led.Term != 2 {
		t.Errorf("once there is a standby: %+v, %v", led, o.err)
	}
	equal(t, read(t, l), []string{"a", "b"})
}

// An administrator ends all sessions, as a restart of the database does: what is asked then is asked again.
func TestEndedSessionsAreOpenedAgain(t *testing.T) {
	t.Parallel()
	s := postgrestest.Start(t, postgrestest.Options{})
	l, conn := open(t, s, s.Addr()), direct(t, s)
	begun := lead(t, l)
	for range 5 {
		if _, err := conn.Exec(t.Context(), `SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE application_name = 'weir'`); err != nil {
			t.Fatal(err)
		}
		if term, err := l.Newest(t.Context()); err != nil || term.Number != begun.Term {
			t.Errorf("who leads, when the sessions had been ended: %+v, %v", term, err)
		}
	}
	store(t, l, "a")
}

// Of several hosts the log is where the one is that takes writes.
func TestTheHostThatTakesWritesIsUsed(t *testing.T) {
	t.Parallel()
	reads := postgrestest.Start(t, postgrestest.Options{Settings: map[string]string{"default_transaction_read_only": "on"}})
	writes := postgrestest.Start(t, postgrestest.Options{})
	l := open(t, writes, reads.Addr()+","+writes.Addr())
	lead(t, l)
	store(t, l, "a")
	equal(t, read(t, open(t, writes, writes.Addr())), []string{"a"})
}

// A standby that takes over may lack the newest term as well, whose number another one then gets: its entries are not
// those of the first, which adds nothing to them, and of who has read that one's.
func TestATermThatTheDatabaseHasLostIsAnothers(t *testing.T) {
	t.Parallel()
	primary, standby := postgrestest.Start(t, postgrestest.Options{}), postgrestest.Start(t, postgrestest.Options{})
	next := open(t, standby, standby.Addr())
	both := primary.Addr() + "," + standby.Addr()
	l, reader := open(t, primary, both), open(t, primary, both)
	first := lead(t, l)
	store(t, l, "a")
	end := store(t, l, "b")
	equal(t, read(t, reader), []string{"a", "b"})
	primary.Kill()
	if second := lead(t, next); second.Term != first.Term {
		t.Fatalf("the terms are %d and %d: this test shows nothing", first.Term, second.Term)
	}
	want := []string{"c", "d", "e"}
	for _, data := range want {
		store(t, next, data)
	}
	if e, err := reader.Read(t.Context(), end); !errors.Is(err, replica.ErrTrimmed) {
		t.Errorf("behind lost entries, whose places have others of the same term: %+v, %v", e, err)
	}
	if o := await(t, start(t, t.Context(), l, "f")); !errors.Is(o.err, replica.ErrFenced) {
		t.Errorf("an entry of a term that another has: %+v", o)
	}
	store(t, next, "g")
	equal(t, read(t, next), append(want, "g"))
}

func TestWhatTheDatabaseMayLoseIsSaid(t *testing.T) {
	t.Parallel()
	s := postgrestest.Start(t, postgrestest.Options{Settings: map[string]string{"synchronous_commit": "off"}})
	l := open(t, s, s.Addr())
	if got := strings.Join(l.Warnings(), "\n"); !strings.Contains(got, "synchronous_standby_names") {
		t.Errorf("without a synchronous standby it warns %q", got)
	}
	lead(t, l)
	store(t, l, "a")
	s.Kill() // what is confirmed is on the disk, whatever the default of the database is
	opened, told := opensWhileAway(t, s)
	if err := await(t, told).err; !strings.Contains(err.Error(), "refused") {
		t.Errorf("of a database that is away it is said: %v", err)
	}
	s.Restart()
	if err := await(t, opened).err; err != nil {
		t.Errorf("opened while the database was away: %v", err)
	}
	equal(t, read(t, l), []string{"a"})

	s.Set("fsync", "off")
	s.Restart()
	u, _ := url.Parse(s.URL(s.Addr()))
	if l, err := postgres.Open(t.Context(), u, postgres.Options{}); err == nil || !strings.Contains(err.Error(), "fsync=on") {
		t.Errorf("with fsync=off: %v, %v", l, err)
	}
}

// opensWhileAway opens a log in a database that does not answer. It returns where the outcome will be, and what is
// tried again.
func opensWhileAway(t *testing.T, s *postgrestest.Server) (opened, told chan outcome) {
	t.Helper()
	u, err := url.Parse(s.URL(s.Addr()))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := postgres.Open(t.Context(), u, postgres.Options{ReadOnly: true}); err == nil {
		t.Error("a log that is only read was opened without its database")
	}
	opened, told = make(chan outcome, 1), make(chan outcome, 100)
	go func() {
		l, err := postgres.Open(t.Context(), u, postgres.Options{Trouble: func(err error) {
			select {
			case told <- outcome{err: err}:
			default:
			}
		}})
		if err == nil {
			err = l.Close()
		}
		opened <- outcome{err: err}
	}()
	return opened, told
}

func TestErrorsDoNotTellThePassword(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"postgres://weir:sesame@127.0.0.1:1/db?connect_timeout=1",
		"postgres://weir:sesame@127.0.0.1:1/db?sslmode=nonsense",
		"postgres://weir:sesame@127.0.0.1:1/db?log=",
		"postgres://weir:sesame@127.0.0.1:99999/db",
		"postgres://weir@127.0.0.1:1/db?password=sesame&sslmode=nonsense",
	} {
		u, err := url.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		l, err := postgres.Open(t.Context(), u, postgres.Options{ReadOnly: true})
		if err == nil {
			_ = l.Close()
			t.Fatalf("%s was opened", text)
		}
		if strings.Contains(err.Error(), "sesame") || len(err.Error()) > 400 {
			t.Errorf("%s: %v", text, err)
		}
	}
}

var _ replica.Log = (*postgres.Log)(nil)
