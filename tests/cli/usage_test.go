package cli

import (
	"strings"
	"testing"

	"github.com/weirmq/weir/tests/weirtest"
)

// Whatever is wrong with a command line, the answer is one line that says so and
// where to read on, and the exit code is 2.
func TestWrongCommandLinesAreToldInOneLine(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		"publsh http://127.0.0.1:1/x":                  `there is no command "publsh", did you mean publish?; see ` + "`weir --help`",
		"dlq lss":                                      `there is no command "lss", did you mean ls?`,
		"publish --bach 3 http://127.0.0.1:1/x":        "unknown flag: --bach, did you mean --batch?; see `weir publish --help`",
		"tail --form 0 http://127.0.0.1:1/x":           "did you mean --from?; see `weir tail --help`",
		"work --lag-tll 1s http://127.0.0.1:1/x":       "unknown flag: --lag-tll, did you mean --lag-ttl?; see `weir work --help`",
		"publish localhost:4000/orders":                `"localhost:4000/orders" is not a URL, did you mean http://localhost:4000/orders?`,
		"sample 127.0.0.1:4000/orders":                 "did you mean http://127.0.0.1:4000/orders?",
		"publish localhost/orders":                     "did you mean http://localhost:4000/orders?",
		"topic create --max-deliveries 5 http://h/a":   "--max-deliveries is for queues and the topic would be a log: add --type queue",
		"topic create --dead-letter d http://h/a":      "--dead-letter is for queues",
		"doctor amqp://h/orders":                       `unknown URL scheme "amqp"`,
		"publish":                                      "the URL is missing: weir publish URL",
		"topic ls":                                     "WEIR_URL or a context (weir context set) may say it",
		"backup dir":                                   "the URL is missing: weir backup URL DIR",
		"tail a/b":                                     `"a/b" is not a URL, nor a name, which has letters`,
		"topic create ./a":                             `"./a" is not a URL, nor a name`,
		"replica ls ./a":                               `the URL of the copy has no scheme; expected file:///path`,
		"dash --listen 4040 http://h":                  `flag --listen: "4040" is not a host or host:port`,
		"work http://127.0.0.1:1/x":                    "CMD is missing: weir work URL",
		"publish --batch 0 http://127.0.0.1:1/x":       `flag --batch: "0" is not a whole number from 1 to 10000`,
		"publish --lag-pause much http://127.0.0.1:1/": `"much" is not a whole number`,
		"key new":                         "NAME is missing: weir key new NAME",
		"context set a":                   "ADDRESS is missing: weir context set NAME ADDRESS",
		"repair":                          "DIR is missing: weir repair DIR",
		"restore":                         "DIR|URL is missing: weir restore",
		"restore a b c":                   "3 arguments, at most 2: weir restore",
		"topic create --ttl 7 http://h/a": `flag --ttl: "7" is not a duration of at least 0s, with a unit as in 500ms, 10m or 90d`,
		"serve --replica nowhere":         "--replica: the URL of the copy has no scheme",
		"serve now":                       `unknown command "now"`,
		"version now":                     `unknown command "now"`,
	} {
		stdout, stderr, code := weirtest.Run(t, nil, strings.Fields(line)...)
		if code != 2 || stdout != "" || strings.Count(stderr, "\n") != 1 || !strings.HasPrefix(stderr, "weir: ") ||
			!strings.Contains(stderr, want) || !strings.Contains(stderr, "--help`") {
			t.Errorf("weir %s: exit code %d\n%s%swant one line with %q and code 2", line, code, stdout, stderr, want)
		}
	}
	for line, want := range map[string]string{
		"http://127.0.0.1:1 publish":    "weir: WEIR_URL names no topic; expected http://",
		"http://127.0.0.1:1 topic info": "weir: WEIR_URL names no topic; expected http://",
		"http://127.0.0.1:1/x topic ls": "weir: WEIR_URL has a path; this command works on a whole server",
		"http://127.0.0.1:1/x tail y":   `weir: WEIR_URL has a name already, so "y" cannot be a name on it`,
	} {
		words := strings.Fields(line)
		if _, stderr, code := weirtest.Run(t, []string{"WEIR_URL=" + words[0]}, words[1:]...); code != 2 || !strings.HasPrefix(stderr, want) {
			t.Errorf("weir %s: exit code %d\n%swant %q and code 2", line, code, stderr, want)
		}
	}
	if stdout, stderr, code := weirtest.Run(t, nil, "version"); code != 0 || !strings.HasPrefix(stdout, "weir ") || !strings.Contains(stdout, "data format ") || stderr != "" {
		t.Errorf("weir version: exit code %d, %q, %q", code, stdout, stderr)
	}
}
