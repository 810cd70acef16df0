package redis_test

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/backend/backendtest"
	"github.com/weirmq/weir/tests/redistest"
)

// Everything that the suite asks of a backend can be had with the lines of docs/REDIS.md:
// a command or a key that they lack ends in the server's log of refusals.
func TestConformanceOfTheUsersOfThePage(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/REDIS.md")
	if err != nil {
		t.Fatal(err)
	}
	commands := regexp.MustCompile(` \+\S+`)
	var rules []any
	for _, line := range regexp.MustCompile(`(?m)^ACL SETUSER weir-.*$`).FindAllString(string(page), -1) {
		for _, rule := range commands.FindAllString(line, -1) {
			rules = append(rules, strings.TrimSpace(rule))
		}
	}
	versions := redistest.Versions()
	for _, version := range []string{redistest.System, versions[len(versions)-1]} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			s := redistest.Start(t, redistest.Options{Version: version})
			admin := s.Client()
			open := func(t testing.TB, stream, group string) backend.Backend {
				keys := []any{"ACL", "SETUSER", "weir", "on", ">sesame", "~" + stream, "~{" + stream + "}:*", "~weir:budget:*"}
				if strings.Contains(stream, "{") {
					keys[6] = "~" + stream + ":*"
				}
				if err := admin.Do(t.Context(), append(keys, rules...)...).Err(); err != nil {
					t.Fatal(err)
				}
				return openOn(t, fmt.Sprintf("redis://weir:sesame@%s/0?stream=%s&group=%s", s.Addr(), url.QueryEscape(stream), url.QueryEscape(group)))
			}
			h := harness("users of redis "+version, "")
			h.OpenGroup = open
			h.Open = func(t testing.TB, stream string) backend.Backend { return open(t, stream, "weir") }
			backendtest.Run(t, h)
			refused, err := admin.Do(t.Context(), "ACL", "LOG").Slice()
			if err != nil || len(refused) > 0 {
				t.Errorf("refused on the way: %v, %v", refused, err)
			}
		})
	}
}

// A producer may count its requests with all processes: shed_scope=stream.
func TestTheProducerOfThePageCountsInTheWindowOfAll(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/REDIS.md")
	if err != nil {
		t.Fatal(err)
	}
	s := redistest.Start(t, redistest.Options{})
	rule := []any{}
	for word := range strings.FieldsSeq(regexp.MustCompile(`(?m)^ACL SETUSER weir-producer .*$`).FindString(string(page))) {
		rule = append(rule, word)
	}
	if err := s.Client().Do(t.Context(), rule...).Err(); err != nil {
		t.Fatal(err)
	}
	b := open(t, "weir-producer:PASSWORD@"+s.Addr(), "stream=jobs")
	if given, _, err := b.Window(t.Context(), 10, 1, time.Minute); err != nil || given != 1 {
		t.Errorf("%d, %v", given, err)
	}
}

// A user that is gone, or has another password, may do nothing: that has the name which a missing
// permission has, and ends with the user's return.
func TestAUserThatIsGoneIsForbiddenToWork(t *testing.T) {
	t.Parallel()
	addr, s := startServer(t)
	admin := s.Client()
	user := func(password string) {
		t.Helper()
		if err := admin.Do(t.Context(), "ACL", "SETUSER", "ann", "reset", "on", ">"+password, "~*", "&*", "+@all").Err(); err != nil {
			t.Fatal(err)
		}
	}
	user("sesame")
	b := openOn(t, "redis://ann:sesame@"+addr+"/0?stream=jobs")
	publish(t, b, 1)
	if err := admin.Do(t.Context(), "ACL", "DELUSER", "ann").Err(); err != nil {
		t.Fatal(err)
	}
	refused := func(when string) {
		t.Helper()
		for what, call := range map[string]func() error{
			"append": func() error {
				_, err := b.Append(t.Context(), []backend.Message{{Data: []byte("x")}})
				return err
			},
			"stats": func() error {
				_, err := b.Stats(t.Context())
				return err
			},
			"claim": func() error {
				_, err := b.Claim(t.Context(), backend.ClaimRequest{Consumer: "c", Max: 1, ReclaimAfter: time.Minute})
				return err
			},
		} {
			err := call()
			for try := 0; backend.Retryable(err) && try < 10; try++ { // the server closes the user's connections
				err = call()
			}
			if !errors.Is(err, backend.ErrForbidden) || backend.Retryable(err) {
				t.Errorf("%s: %s: %v", when, what, err)
			}
		}
	}
	refused("the user is gone")
	user("another")
	refused("the password is another one")
	user("sesame")
	publish(t, b, 1)
	got := 0
	wait(t, "both messages come", func() bool {
		got += len(claim(t, b, backend.ClaimRequest{Consumer: "c", Max: 5, ReclaimAfter: time.Minute}).Deliveries)
		return got == 2
	})
}
