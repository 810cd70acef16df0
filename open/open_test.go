package open_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/weirmq/weir"
	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/open"
)

func TestOpenKnowsTheBackendByItsScheme(t *testing.T) {
	for raw, kind := range map[string]string{
		"mem://open-test":                             "embedded",
		"file://" + t.TempDir() + "?topic=a":          "embedded",
		"http://:key@127.0.0.1:1/orders":              "http",
		"https://127.0.0.1:1/orders":                  "http",
		"http://127.0.0.1:1/orders?group=weir":        "http",
		"mem://open-test?shards=3":                    "embedded",
		"file://" + t.TempDir() + "?topic=a&shards=2": "embedded",
	} {
		s, err := open.URL(t.Context(), raw)
		if err != nil {
			t.Errorf("%s: %v", raw, err)
			continue
		}
		if s.Info().Kind != kind || s.Info().Group != "weir" {
			t.Errorf("%s: %+v", raw, s.Info())
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestOpenNamesWhatIsWrongAndNoSecret(t *testing.T) {
	for raw, want := range map[string]string{
		"redis://:pw-secret/word@h:6379/0":            "percent-encoding",
		"redis://u:pw-secret@h:port":                  "percent-encoding",
		"http://:pw-secret %@h/x":                     "percent-encoding",
		"amqp://u:pw-secret@h/q":                      `unknown URL scheme "amqp"; known: mem, file, redis, rediss, kafka, kafkas, http, https`,
		"kafka://u:pw-secret@h/q/r":                   "kafka URL: topic \"q/r\"",
		"kafka://u:pw/secret@h/q":                     "invalid URL",
		"kafka://u:1/pw-secret@h/q":                   "percent-encoding",
		"kafka://:pw-secret@h/q":                      "no user name",
		"kafkas://pw-secret@h/q":                      "no password",
		"orders":                                      "the URL has no scheme",
		"127.0.0.1:4000/orders":                       "the URL has no scheme",
		"localhost:4000/orders":                       "the URL has no scheme",
		"pw-secret@h:4000/orders":                     "the URL has no scheme",
		"":                                            "the URL is empty",
		"http://u:pw-secret@h/x":                      "stand alone",
		"mem://a?stream=pw-secret":                    `unknown key "stream"`,
		"mem://a?shards=0":                            "from 1 to 64",
		"mem://a?shards=65":                           "from 1 to 64",
		"mem://a?shards=2&shards=3":                   "given once",
		"mem://a?shards=2&x=pw-secret":                `unknown key "x"`,
		"mem://?shards=2":                             "names a stream",
		"kafka://h/x?shards=2":                        "has partitions instead",
		"http://h:1/?shards=2":                        "names a stream",
		"redis://h/0?shards=2":                        "names a stream",
		"redis://u:p?w@h/0?stream=x&shards=pw-secret": "percent-encoding",
		"redis://u:pw-secret@127.0.0.1:1/0?stream=x&nope=pw-secret": "nope",
		"redis://u:pw-secret@127.0.0.1:1/0?stream=x":                "",
	} {
		s, err := open.URL(t.Context(), raw)
		if err == nil {
			s.Close()
			t.Errorf("%q was opened", raw)
		} else if !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "pw-secret") {
			t.Errorf("%q: %v, want %q", raw, err, want)
		}
	}
}

func TestAStreamInMemoryWorksFromEndToEnd(t *testing.T) {
	s, err := open.URL(t.Context(), "mem://end-to-end")
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := s.Backend().Append(t.Context(), []weir.Message{{Data: []byte("x")}}); err != nil {
		t.Fatal(err)
	}
	got, err := s.Backend().Claim(context.Background(), backend.ClaimRequest{Consumer: "w", Max: 1, ReclaimAfter: time.Minute})
	if err != nil || len(got.Deliveries) != 1 || string(got.Deliveries[0].Data) != "x" {
		t.Errorf("%+v, %v", got, err)
	}
}
