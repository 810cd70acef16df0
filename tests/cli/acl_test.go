package cli

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/weirmq/weir/tests/redistest"
	"github.com/weirmq/weir/tests/weirtest"
)

// aclUsers makes the users of docs/REDIS.md and returns the URL of each.
func aclUsers(t *testing.T, s *redistest.Server, admin *redis.Client) map[string]string {
	t.Helper()
	page, err := os.ReadFile("../../docs/REDIS.md")
	if err != nil {
		t.Fatal(err)
	}
	lines := regexp.MustCompile(`(?m)^ACL SETUSER weir-(\w+) .*$`).FindAllStringSubmatch(string(page), -1)
	if len(lines) != 3 {
		t.Fatalf("docs/REDIS.md has %d lines ACL SETUSER weir-…, want 3", len(lines))
	}
	urls := map[string]string{}
	for _, line := range append(lines, []string{"ACL SETUSER weir-writer on >PASSWORD ~jobs +xadd", "writer"}) {
		var args []any
		for word := range strings.FieldsSeq(strings.Replace(line[0], "PASSWORD", "sesame", 1)) {
			args = append(args, word)
		}
		command(t, admin, args...)
		urls[line[1]] = fmt.Sprintf("redis://weir-%s:sesame@%s/0?stream=jobs", line[1], s.Addr())
	}
	return urls
}

// denials are the commands that the server has refused, as it remembers them.
func denials(t *testing.T, admin *redis.Client) (list []string) {
	t.Helper()
	for _, entry := range command(t, admin, "ACL", "LOG").([]any) {
		fields := entry.([]any)
		list = append(list, fmt.Sprint(fields[3], " ", fields[5], " ", fields[7], " ", fields[9]))
	}
	return list
}

func onServersWithUsers(t *testing.T, test func(t *testing.T, s *redistest.Server)) {
	for _, version := range redistest.Versions() {
		if version != "5.0.6" {
			t.Run(version, func(t *testing.T) {
				t.Parallel()
				test(t, redistest.Start(t, redistest.Options{Version: version}))
			})
		}
	}
}

// Each command works for the user that docs/REDIS.md makes for it, without asking for
// anything that the user may not have.
func TestTheUsersOfThePageMayDoWhatTheyAreFor(t *testing.T) {
	t.Parallel()
	onServersWithUsers(t, func(t *testing.T, s *redistest.Server) {
		admin := s.Client()
		urls := aclUsers(t, s, admin)
		quiet := func(args ...string) string {
			t.Helper()
			out, stderr, code := weirtest.Run(t, nil, args...)
			if (code != 0 && args[0] != "doctor" && (args[0] != "work" || code != 3)) || strings.Contains(out+stderr, "permi") || strings.Contains(out+stderr, "may not") {
				t.Errorf("weir %s: code %d\n%s%s", strings.Join(args, " "), code, out, stderr)
			}
			return out
		}
		quiet("publish", urls["producer"], writeLines(t, []string{"good", "bad", "bad"}))
		quiet("publish", "--at-least-once", urls["producer"], writeLines(t, []string{"good"}))
		work := []string{"work", urls["worker"], "--until-empty", "300ms", "--max-deliveries", "2", "--retry-base", "10ms",
			"--trim-every", "50ms", "--", "sh", "-c", `[ "$(cat)" = good ]`}
		quiet(work...)
		quiet("sample", urls["operator"])
		quiet("doctor", urls["operator"])
		quiet("tail", urls["operator"], "--no-follow", "--from", "0")
		if out := quiet("dlq", "ls", urls["operator"]); strings.Count(out, "max_deliveries") != 2 {
			t.Errorf("dlq ls: %s", out)
		}
		quiet("dlq", "redrive", "--delay", "0", "--yes", urls["operator"])
		quiet(work...)
		quiet("dlq", "purge", "--yes", urls["operator"])
		if n := command(t, admin, "XLEN", "{jobs}:dlq"); n != int64(0) {
			t.Errorf("%v letters after a purge", n)
		}
		if refused := denials(t, admin); len(refused) > 0 {
			t.Errorf("refused on the way: %q", refused)
		}
	})
}

// The guide for a live stream begins with a look at it, and names the user that may.
func TestTheUserThatTheGuideNamesMayLook(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/guides/from-redis.md")
	if err != nil {
		t.Fatal(err)
	}
	_, look, _ := strings.Cut(string(page), "**1. Look.**")
	look, _, _ = strings.Cut(look, "**2. ")
	user := regexp.MustCompile("`weir-([a-z]+)`").FindStringSubmatch(look)
	commands := regexp.MustCompile(`(?m)^weir (\w+) '`).FindAllStringSubmatch(look, -1)
	if user == nil || len(commands) != 2 {
		t.Fatalf("the step names the user %q and has the commands %q", user, commands)
	}
	onServersWithUsers(t, func(t *testing.T, s *redistest.Server) {
		admin := s.Client()
		urls := aclUsers(t, s, admin)
		must(t, "publish", urls["producer"], writeLines(t, []string{"a"}))
		for _, c := range commands {
			if out, stderr, code := weirtest.Run(t, nil, c[1], urls[user[1]]); code != 0 {
				t.Errorf("weir %s: code %d\n%s%s", c[1], code, out, stderr)
			}
		}
		if refused := denials(t, admin); len(refused) > 0 {
			t.Errorf("refused on the way: %q", refused)
		}
	})
}

// What a user may not do is refused by the server, and weir says which command is
// missing and which line has it.
func TestWhatAUserMayNotDoIsSaidInWords(t *testing.T) {
	t.Parallel()
	onServersWithUsers(t, func(t *testing.T, s *redistest.Server) {
		admin := s.Client()
		urls := aclUsers(t, s, admin)
		must(t, "publish", urls["producer"], writeLines(t, []string{"a"}))
		letter := command(t, admin, "XADD", "{jobs}:dlq", "*", "data", "x").(string)
		for _, c := range []struct {
			user, missing, who string
			args               []string
		}{
			{"producer", "[A-Z]+", "worker", []string{"work", "URL", "--until-empty", "100ms", "--", "true"}},
			{"producer", "XDEL", "operator", []string{"dlq", "purge", "--yes", "URL"}},
			{"producer", "[A-Z]+", "(worker|operator)", []string{"doctor", "URL"}},
			{"worker", "XDEL", "operator", []string{"dlq", "purge", "--yes", "URL"}},
			{"worker", "XDEL", "operator", []string{"dlq", "redrive", "--delay", "0", "--yes", "URL"}},
			{"operator", "XAUTOCLAIM", "worker", []string{"work", "URL", "--until-empty", "100ms", "--", "true"}},
			{"writer", "EVALSHA", "producer", []string{"publish", "URL", writeLines(t, []string{"b"})}},
		} {
			for i, arg := range c.args {
				if arg == "URL" {
					c.args[i] = urls[c.user]
				}
			}
			_, stderr, code := weirtest.Run(t, nil, c.args...)
			want := fmt.Sprintf("user %q may not run %s; a weir-%s needs it", "weir-"+c.user, c.missing, c.who)
			if code != 1 || !regexp.MustCompile(want).MatchString(stderr) || luaPlace.MatchString(stderr) {
				t.Errorf("%s as %s: code %d, %s; want %s", c.args[0], c.user, code, stderr, want)
			}
		}
		if n := command(t, admin, "XRANGE", "{jobs}:dlq", letter, letter).([]any); len(n) != 1 {
			t.Error("the letter is gone")
		}
		for user := range urls {
			c := redis.NewClient(&redis.Options{Addr: s.Addr(), Username: "weir-" + user, Password: "sesame", Protocol: 2, DisableIdentity: true})
			for _, args := range [][]any{{"FLUSHALL"}, {"CONFIG", "SET", "maxmemory", "1"}, {"SHUTDOWN"}, {"XADD", "other", "*", "a", "b"}} {
				if err := c.Do(t.Context(), args...).Err(); err == nil || !strings.Contains(err.Error(), "NOPERM") {
					t.Errorf("%v as %s: %v", args, user, err)
				}
			}
			_ = c.Close()
		}
	})
}

// A user that may only write publishes, and is told once that nothing is guarded.
func TestAUserThatMayOnlyWritePublishesWithoutAWarning(t *testing.T) {
	t.Parallel()
	onServersWithUsers(t, func(t *testing.T, s *redistest.Server) {
		admin := s.Client()
		url := aclUsers(t, s, admin)["writer"]
		lines := make([]string, 2000)
		for i := range lines {
			lines[i] = fmt.Sprint(i)
		}
		_, stderr, code := weirtest.Run(t, nil, "publish", "--at-least-once", "--queue-load-shedding-enabled=false", "--batch", "10", url, writeLines(t, lines))
		if code != 0 || strings.Contains(stderr, "WARN") || strings.Count(stderr, "without a guard") != 1 || !strings.Contains(stderr, "a weir-producer needs it") {
			t.Errorf("code %d, %s", code, stderr)
		}
		if n := command(t, admin, "XLEN", "jobs"); n != int64(len(lines)) {
			t.Errorf("%v of %d are stored", n, len(lines))
		}
	})
}
