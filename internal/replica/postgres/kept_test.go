package postgres_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/weirmq/weir/internal/replica"
	"github.com/weirmq/weir/tests/postgrestest"
)

func change(t *testing.T, conn *pgx.Conn, sql string) {
	t.Helper()
	if _, err := conn.Exec(t.Context(), sql); err != nil {
		t.Fatal(err)
	}
}

// looksForWhatIsThere is a leader beneath which somebody changes the tables, as by a backup that is played
// back. It is told when it looks, though it appends nothing, and by its next entry; and whether another server leads.
func looksForWhatIsThere(t *testing.T, s *postgrestest.Server) {
	conn := direct(t, s)
	for name, c := range map[string]struct {
		sql          string
		lost, fenced bool
	}{
		"nothing":            {`SELECT '%s'`, false, false},
		"the last entry":     {`DELETE FROM weir_replica_log WHERE log = '%[1]s' AND pos = 4`, true, true},
		"everything":         {`DELETE FROM weir_replica_log WHERE log = '%[1]s'; DELETE FROM weir_replica_terms WHERE log = '%[1]s'`, true, true},
		"its term":           {`UPDATE weir_replica_terms SET term = 0 WHERE log = '%[1]s'`, true, true},
		"its lead":           {`UPDATE weir_replica_terms SET term = 2 WHERE log = '%[1]s'`, false, true},
		"its lead, in place": {`UPDATE weir_replica_terms SET asked = asked + 1 WHERE log = '%[1]s'`, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			l := open(t, s, s.Addr())
			lead(t, l)
			for _, data := range []string{"a", "b", "c"} {
				store(t, l, data)
			}
			change(t, conn, fmt.Sprintf(c.sql, t.Name()))
			told := func(how string, err error) {
				t.Helper()
				if errors.Is(err, replica.ErrLost) != c.lost || errors.Is(err, replica.ErrFenced) != c.fenced || !c.fenced && err != nil {
					t.Errorf("%s: %v", how, err)
				}
			}
			told("a look", l.Kept(t.Context(), 1))
			told("an entry", await(t, start(t, t.Context(), l, "d")).err)
			told("a look behind it", l.Kept(t.Context(), 1))
		})
	}
}

// What goes on behind a base may be gone, though the leader goes on.
func looksBehindABase(t *testing.T, s *postgrestest.Server) {
	l := open(t, s, s.Addr())
	if err := l.Kept(t.Context(), 1); err != nil {
		t.Errorf("who does not lead: %v", err)
	}
	lead(t, l)
	for _, data := range []string{"a", "b", "c"} {
		store(t, l, data)
	}
	change(t, direct(t, s), fmt.Sprintf(`DELETE FROM weir_replica_log WHERE log = '%s' AND pos < 4`, t.Name()))
	for from, gone := range map[uint64]bool{0: false, 1: true, 2: true, 3: false, 4: false} {
		if err := l.Kept(t.Context(), from); errors.Is(err, replica.ErrDamaged) != gone || !gone && err != nil {
			t.Errorf("behind position %d: %v", from, err)
		}
	}
	store(t, l, "d")
}

// What was removed in the middle a restore would not get past, while the leader goes on behind it.
func looksForAllBehindABase(t *testing.T, s *postgrestest.Server) {
	l := open(t, s, s.Addr())
	lead(t, l)
	for _, data := range []string{"a", "b", "c", "d"} {
		store(t, l, data)
	}
	change(t, direct(t, s), fmt.Sprintf(`DELETE FROM weir_replica_log WHERE log = '%s' AND pos = 3`, t.Name()))
	store(t, l, "e")
	for from, gone := range map[uint64]bool{0: false, 1: true, 2: true, 3: false, 6: false} {
		if err := l.Kept(t.Context(), from); errors.Is(err, replica.ErrDamaged) != gone || !gone && err != nil {
			t.Errorf("behind position %d: %v", from, err)
		}
	}
}

// A table that is dropped is as lost as what was in it.
func looksForItsTables(t *testing.T, s *postgrestest.Server) {
	conn := direct(t, s)
	change(t, conn, `CREATE SCHEMA dropped`)
	l := openAt(t, s.URL(s.Addr())+"&search_path=dropped")
	lead(t, l)
	store(t, l, "a")
	change(t, conn, `DROP TABLE dropped.weir_replica_log`)
	if err := l.Kept(t.Context(), 0); !errors.Is(err, replica.ErrLost) {
		t.Errorf("a look: %v", err)
	}
	if o := await(t, start(t, t.Context(), l, "b")); !errors.Is(o.err, replica.ErrLost) {
		t.Errorf("an entry: %+v", o)
	}
}
