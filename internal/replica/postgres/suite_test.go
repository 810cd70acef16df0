package postgres_test

import (
	"net/url"
	"testing"

	"github.com/weirmq/weir/internal/replica"
	"github.com/weirmq/weir/internal/replica/postgres"
	"github.com/weirmq/weir/internal/replica/replicatest"
	"github.com/weirmq/weir/tests/postgrestest"
)

func TestLogInADatabase(t *testing.T) {
	t.Parallel()
	s := postgrestest.Start(t, postgrestest.Options{})
	replicatest.Run(t, replicatest.Harness{
		Keeps: 1,
		Log: func(t testing.TB, name string) replica.Log {
			u, err := url.Parse(s.URL(s.Addr()) + "&log=" + name)
			if err != nil {
				t.Fatal(err)
			}
			l, err := postgres.Open(t.Context(), u, postgres.Options{})
			if err != nil {
				t.Fatal(err)
			}
			return l
		},
	})
}
