package cli

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/tests/redistest"
	"github.com/weirmq/weir/tests/weirtest"
)

// Entries that were trimmed before they were done are lost work: doctor says so
// and fails.
func TestDoctorFindsTrimmedWork(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Options{})
	c := server.Client()
	url := redisURL(server.Addr(), "jobs", "workers")
	command(t, c, "XGROUP", "CREATE", "jobs", "workers", "0", "MKSTREAM")
	for i := range 20 {
		command(t, c, "XADD", "jobs", "*", "data", i)
	}
	if out, stderr, code := weirtest.Run(t, nil, "doctor", url); code != 0 {
		t.Errorf("a stream without trouble: exit code %d, %s%s", code, out, stderr)
	}
	command(t, c, "XREADGROUP", "GROUP", "workers", "c", "COUNT", 10, "STREAMS", "jobs", ">")
	command(t, c, "XTRIM", "jobs", "MAXLEN", 5)
	out, _, code := weirtest.Run(t, nil, "doctor", url)
	if code != 1 || !strings.Contains(out, "error ") {
		t.Errorf("after a trim of pending entries: exit code %d\n%s", code, out)
	}
	out, _, code = weirtest.Run(t, nil, "doctor", "--json", url)
	var d struct {
		Stream   string
		Findings []backend.Finding
	}
	if err := json.Unmarshal([]byte(out), &d); err != nil || code != 1 || d.Stream != "jobs" || len(d.Findings) == 0 {
		t.Errorf("--json: exit code %d, %v, %s", code, err, out)
	}
	for _, f := range d.Findings {
		if f.Code == "" || f.Problem == "" || f.Advice == "" {
			t.Errorf("finding %+v", f)
		}
	}
	if _, stderr, code := weirtest.Run(t, nil, "doctor", redisURL("127.0.0.1:1", "jobs", "workers")); code != 1 || stderr == "" {
		t.Errorf("nobody there: exit code %d, %s", code, stderr)
	}
	if _, _, code := weirtest.Run(t, nil, "doctor"); code != 2 {
		t.Errorf("no URL: exit code %d", code)
	}
}

func TestDoctorOfAQueueOnAWeirServer(t *testing.T) {
	t.Parallel()
	url := weirtest.Start(t, weirtest.Options{}).URL + "/jobs"
	s := openStream(t, url)
	bury(t, s, 1, backend.ReasonPoison)
	out, stderr, code := weirtest.Run(t, nil, "doctor", url)
	if code != 0 || !strings.Contains(out, "weir dlq") {
		t.Errorf("a dead letter: exit code %d\n%s%s", code, out, stderr)
	}
}

// A server whose disk is full is named by the doctor of each of its topics, also of one from which nothing can be
// claimed, and of one that is not there because it could not be made.
func TestDoctorOfAServerThatRefusesWrites(t *testing.T) {
	srv := weirtest.Start(t, weirtest.Options{Env: []string{"WEIR_DISK_RESERVE=1000000000000000"}})
	put(t, srv, "jobs", `{"type":"queue"}`)
	put(t, srv, "events", `{"type":"log"}`)
	for _, topic := range []string{"jobs", "events", "absent"} {
		out, stderr, code := weirtest.Run(t, nil, "doctor", "--interval", "0", srv.URL+"/"+topic)
		if code != 1 || !strings.Contains(out, "error   writes_refused: the server refuses writes: the disk has") || !strings.Contains(out, "free space") {
			t.Errorf("a full disk, %s: exit code %d\n%s%s", topic, code, out, stderr)
		}
	}
}

// The commands that doctor attaches to what is wrong with a queue's configuration can be run
// as they are, and mend it.
func TestDoctorsCommandsMendAQueuesConfiguration(t *testing.T) {
	t.Parallel()
	srv := weirtest.Start(t, weirtest.Options{})
	for code, config := range map[string]string{
		"queue_ttl":                 `"ttl_ms":1000`,
		"queue_cap_evicts":          `"cap_records":10`,
		"limit_without_dead_letter": `"max_deliveries":3`,
		"no_idempotency":            `"idempotency_window_ms":0`,
		"not_durable":               `"durability":"memory"`,
		"leases_not_durable":        `"durability":"disk","leases_durable":false`,
	} {
		topic := strings.ReplaceAll(code, "_", "-")
		put(t, srv, topic, `{"type":"queue",`+config+`}`)
		command := func() string {
			out, _, _ := weirtest.Run(t, nil, "doctor", "--json", "--interval=0", srv.URL+"/"+topic)
			var d struct{ Findings []backend.Finding }
			if err := json.Unmarshal([]byte(out), &d); err != nil {
				t.Fatal(err, out)
			}
			for _, f := range d.Findings {
				if f.Code == code {
					return f.Command
				}
			}
			return ""
		}
		args := strings.Fields(strings.ReplaceAll(command(), "'", ""))
		if len(args) < 4 || args[2] != "set" {
			t.Errorf("%s: the command is %q", code, args)
			continue
		}
		must(t, append(args[1:], "--yes")...)
		if left := command(); left != "" {
			t.Errorf("%s is there after %q", code, args)
		}
	}
}
