package postgrestest_test

import (
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/weirmq/weir/tests/postgrestest"
)

func TestAServerComesBackWithItsData(t *testing.T) {
	t.Parallel()
	s := postgrestest.Start(t, postgrestest.Options{})
	s.Exec("CREATE TABLE t (n int); INSERT INTO t VALUES (7)")
	s.Kill()
	s.Restart()
	conn, err := pgx.Connect(t.Context(), s.URL(s.Addr()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	var n int
	if err := conn.QueryRow(t.Context(), "SELECT n FROM t").Scan(&n); err != nil || n != 7 {
		t.Errorf("after a kill there is %d, %v; want 7", n, err)
	}
}
