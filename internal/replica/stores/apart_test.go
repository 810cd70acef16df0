package stores_test

import (
	"net/url"
	"strings"
	"testing"

	"github.com/weirmq/weir/internal/replica/stores"
	"github.com/weirmq/weir/tests/postgrestest"
)

func TestACopyInPostgreSQLHasItsBasesElsewhere(t *testing.T) {
	t.Parallel()
	s := postgrestest.Start(t, postgrestest.Options{})
	address := s.URL(s.Addr()) + "&base=" + url.QueryEscape("file://"+t.TempDir())
	if log, _, err := stores.Open(t.Context(), address, stores.Options{ReadOnly: true}); err == nil {
		_ = log.Close()
		t.Error("a copy that is not there was opened to be looked at")
	}
	log, files, err := stores.Open(t.Context(), address, stores.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	defer files.Close()
	if _, err := log.Lead(t.Context(), "node"); err != nil {
		t.Error(err)
	}
	if err := files.Put(t.Context(), "base/1", 1, strings.NewReader("x")); err != nil {
		t.Error(err)
	}
	looker, _, err := stores.Open(t.Context(), address, stores.Options{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer looker.Close()
	if term, err := looker.Newest(t.Context()); err != nil || term.Node != "node" {
		t.Errorf("the newest term is %+v, %v", term, err)
	}
}

func TestACopyThatCannotBeOpenedSaysWhy(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]string{
		"postgres://weir:sesame@127.0.0.1:1/db":                                            "base=",
		"postgres://weir:sesame@127.0.0.1:1/db?base=nonsense:///x":                         "base:",
		"postgres://weir:sesame@127.0.0.1:1/db?sslmode=disable&base=file://" + t.TempDir(): "refused",
		"kafka://weir:sesame@127.0.0.1:1/topic?base=file://" + t.TempDir() + "&acks=1":     "known: base, sasl",
		"mysql://weir:sesame@127.0.0.1:1/db":                                               "postgres://",
	} {
		log, _, err := stores.Open(t.Context(), address, stores.Options{ReadOnly: true}) // others wait for a store that does not answer
		if err == nil {
			_ = log.Close()
			t.Errorf("%s was opened", address)
			continue
		}
		if !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "sesame") {
			t.Errorf("%s: %v; want %q in it, and no password", address, err, want)
		}
	}
}
