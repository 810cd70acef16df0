package cli

import (
	"net/http"
	"strings"
	"testing"

	"github.com/weirmq/weir/tests/redistest"
	"github.com/weirmq/weir/tests/weirtest"
)

// One worker is busy with the first message for longer than the others are worth; those
// without a deadline, and the first itself, are done.
func TestMessagesExpireOnEveryBackend(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, url := range map[string]string{
		"redis": redisURL(redistest.Start(t, redistest.Options{}).Addr(), "jobs", "weir"),
		"http":  weirtest.Start(t, weirtest.Options{}).URL + "/jobs",
		"file":  "file://" + dir + "/data?topic=jobs",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			begun := t.TempDir() + "/begun"
			publish(t, url, "slow", "--deadline=1m")
			publish(t, url, "late", "--deadline=400ms")
			publish(t, url, "patient")
			slow := `d=$(cat); if [ "$d" = slow ]; then echo >` + begun + `; sleep 1; fi; echo "did $d"`
			out, _, code := weirtest.Run(t, nil, "work", url, "--workers=1", "--until-empty=200ms", "--json", "--", "sh", "-c", slow)
			if !strings.Contains(out, "did slow\n") || !strings.Contains(out, "did patient\n") || strings.Contains(out, "did late") {
				t.Errorf("output\n%s", out)
			}
			if !strings.Contains(out, `"acked":2,"nacked":0,`) || !strings.Contains(out, `"lost":0,"returned":0,"dead":0,"expired":1,"dead_letters":1}`) || code != 3 {
				t.Errorf("code %d, summary\n%s", code, out)
			}
			letters := lettersOf(t, url, "--reason=expired")
			if len(letters) != 1 || letters[0]["data"] != "late" || letters[0]["attempts"] != 0.0 {
				t.Fatalf("letters %v", letters)
			}
			if h := letters[0]["headers"].(map[string]any); h["weir-deadline"] == nil {
				t.Errorf("the letter's headers are %v", h)
			}
			must(t, "dlq", "redrive", "--delay=0", url)
			if out := must(t, "work", url, "--until-empty=200ms", "--", "sh", "-c", `echo "did $(cat) $WEIR_HEADER_WEIR_DEADLINE."`); !strings.Contains(out, "did late .\n") {
				t.Errorf("sent back: %s", out)
			}
			publish(t, url, "later", "--deadline=1ms")
			if out := must(t, "work", url, "--until-empty=200ms", "--expired=drop", "--json", "--", "cat"); !strings.Contains(out, `"acked":0`) || !strings.Contains(out, `"expired":1,"dead_letters":0}`) {
				t.Errorf("dropped: %s", out)
			}
			if letters := lettersOf(t, url); len(letters) != 0 {
				t.Errorf("letters %v", letters)
			}
		})
	}
}

func publish(t *testing.T, url, line string, flags ...string) {
	t.Helper()
	must(t, append([]string{"publish", url, writeLines(t, []string{line})}, flags...)...)
}

// A member of meta that any client can write is the deadline that a handler sees.
func TestADeadlineWrittenOverHTTPIsTheDeliverys(t *testing.T) {
	t.Parallel()
	url := weirtest.Start(t, weirtest.Options{}).URL
	must(t, "publish", url+"/jobs", writeLines(t, []string{"first"})) // creates the queue
	body := `{"records":[{"data":"x","meta":{"weir-deadline":"4102444800000"}}]}`
	res, err := http.Post(url+"/v0/topics/jobs", "application/json", strings.NewReader(body))
	if err != nil || res.StatusCode != 200 {
		t.Fatal(res, err)
	}
	res.Body.Close()
	got := take(t, openStream(t, url+"/jobs"), 2)
	if !got[0].Deadline.IsZero() || got[1].Deadline.UnixMilli() != 4102444800000 {
		t.Errorf("deadlines %s and %s", got[0].Deadline, got[1].Deadline)
	}
}
