package redis_test

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/tests/redistest"
)

// rulesOf returns what the line of a role in docs/REDIS.md permits.
func rulesOf(t *testing.T, role string) []any {
	t.Helper()
	page, err := os.ReadFile("../../docs/REDIS.md")
	if err != nil {
		t.Fatal(err)
	}
	line := regexp.MustCompile(`(?m)^ACL SETUSER weir-` + role + ` .*$`).FindString(string(page))
	var rules []any
	for _, rule := range regexp.MustCompile(` \+\S+`).FindAllString(line, -1) {
		rules = append(rules, strings.TrimSpace(rule))
	}
	return rules
}

// user makes a user u of the stream jobs.
func user(t *testing.T, s *redistest.Server, rules ...any) {
	t.Helper()
	all := append([]any{"ACL", "SETUSER", "u", "on", ">sesame", "~jobs", "~{jobs}:*"}, rules...)
	if err := s.Client().Do(t.Context(), all...).Err(); err != nil {
		t.Fatal(err)
	}
}

// Who may not remove a dead letter does not send it back either: it would be sent again.
func TestALetterThatMayNotBeRemovedIsNotSentBack(t *testing.T) {
	onEveryServer(t, func(t *testing.T, s *redistest.Server) {
		if isOldest(t) {
			t.Skip("it has no users")
		}
		b := open(t, s.Addr(), "stream=jobs")
		publish(t, b, 1)
		d := claim(t, b, backend.ClaimRequest{Max: 1}).Deliveries[0]
		if err := b.DeadLetter(t.Context(), d, "", backend.Cause{Reason: backend.ReasonPoison}); err != nil {
			t.Fatal(err)
		}
		user(t, s, rulesOf(t, "worker")...)
		worker := openOn(t, fmt.Sprintf("redis://u:sesame@%s/0?stream=jobs", s.Addr()))
		letters, err := worker.List(t.Context(), "", "", 10)
		if err != nil || len(letters) != 1 {
			t.Fatal(letters, err)
		}
		before := s.Client().XLen(t.Context(), "jobs").Val()
		err = worker.Redrive(t.Context(), "", letters[0])
		if !errors.Is(err, backend.ErrForbidden) {
			t.Errorf("%v", err)
		}
		if after := s.Client().XLen(t.Context(), "jobs").Val(); after != before {
			t.Errorf("%d entries before, %d after a redrive that was refused", before, after)
		}
	})
}

// A message whose key may not be remembered is refused, and so not stored.
func TestAKeyedMessageThatIsRefusedIsNotStored(t *testing.T) {
	onEveryServer(t, func(t *testing.T, s *redistest.Server) {
		if isOldest(t) {
			t.Skip("it has no users")
		}
		var rules []any
		for _, rule := range rulesOf(t, "producer") {
			if rule != "+set" {
				rules = append(rules, rule)
			}
		}
		user(t, s, rules...)
		b := openOn(t, fmt.Sprintf("redis://u:sesame@%s/0?stream=jobs", s.Addr()))
		_, err := b.Append(t.Context(), []backend.Message{{Data: []byte("x"), IdempotencyKey: "k"}})
		if !errors.Is(err, backend.ErrForbidden) {
			t.Errorf("%v", err)
		}
		if n := s.Client().XLen(t.Context(), "jobs").Val(); n != 0 {
			t.Errorf("append with a key: %d entries of a message that was refused (%v)", n, err)
		}
		_, err = b.AppendAt(t.Context(), "lines", 0, []backend.Message{{Data: []byte("x")}})
		if n := s.Client().XLen(t.Context(), "jobs").Val(); err == nil || n != 0 {
			t.Errorf("append at: %d entries (%v)", n, err)
		}
		_, err = b.Append(t.Context(), []backend.Message{{Data: []byte("x"), IdempotencyKey: "k", Delay: time.Minute}})
		if n := s.Client().ZCard(t.Context(), "{jobs}:later").Val(); err == nil || n != 0 {
			t.Errorf("delayed: %d entries (%v)", n, err)
		}
	})
}

// Who may not note that weir made the stream stores its first message nevertheless, and once.
func TestTheFirstMessageIsStoredOnceWithoutHSET(t *testing.T) {
	onEveryServer(t, func(t *testing.T, s *redistest.Server) {
		if isOldest(t) {
			t.Skip("it has no users")
		}
		user(t, s, "+@stream", "+eval", "+evalsha", "+info", "+ping")
		b := openOn(t, fmt.Sprintf("redis://u:sesame@%s/0?stream=jobs", s.Addr()))
		publish(t, b, 2)
		if n := s.Client().XLen(t.Context(), "jobs").Val(); n != 2 {
			t.Errorf("%d entries, 2 were published", n)
		}
	})
}
