package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weirmq/weir/tests/certtest"
	"github.com/weirmq/weir/tests/redistest"
	"github.com/weirmq/weir/tests/weirtest"
)

// judged is what the tests look at in the JSON of weir bench overload.
type judged struct {
	Results []struct {
		Arm, Backend                     string
		Offered, Stored                  int
		Accepted, Lost, Doubles, Overrun int
		Samples                          []struct{ Waiting int }
		Goals                            map[string]struct{ Judged, Met bool }
		Processes                        []struct{ Offered, Stored int }
		Disturbance                      *struct{ From, To float64 }
	}
}

// On every backend each arm has a stream of its own, on which nothing is lost and
// nothing done twice; the named one is not touched.
func TestBenchOverloadOnServers(t *testing.T) {
	redis := redistest.Start(t, redistest.Options{})
	srv := weirtest.Start(t, weirtest.Options{})
	for kind, url := range map[string]string{
		"redis": redisURL(redis.Addr(), "bench", "crew"), "http": srv.URL + "/bench", "embedded": "file://" + t.TempDir() + "?topic=bench",
	} {
		report := filepath.Join(t.TempDir(), "report.json")
		stdout, stderr, code := weirtest.Run(t, nil, "bench", "overload", "--json", report, "--load", "3", "--phases", "1,3,2",
			"--together", "--deadline", "300ms", "--service", "20ms", "--workers", "5", "--producers", "2", "--arms", "off,static,proportional", url)
		if code != 0 && !strings.Contains(stdout, "does not count") { // which a busy machine may cause
			t.Fatalf("%s: exit code %d\n%s%s", kind, code, stdout, stderr)
		}
		text, err := os.ReadFile(report)
		var all judged
		if err == nil {
			err = json.Unmarshal(text, &all)
		}
		if err != nil || len(all.Results) != 3 {
			t.Fatalf("%s: %v, %.300s", kind, err, text)
		}
		for _, r := range all.Results {
			if r.Backend != kind || r.Lost != 0 || r.Doubles != 0 || r.Overrun != 0 || r.Stored == 0 || r.Accepted < r.Stored || r.Offered < r.Stored || len(r.Samples) < 20 || !r.Goals["lost"].Met {
				t.Errorf("%s: %+v\n%s", kind, r, stdout)
			}
		}
	}
	c := redis.Client()
	streams := command(t, c, "KEYS", "bench-*").([]any)
	if len(streams) != 3 {
		t.Errorf("streams on Redis: %v", streams)
	}
	for _, name := range streams {
		if n := command(t, c, "XLEN", name); n != int64(0) {
			t.Errorf("%v is left with %v entries", name, n)
		}
	}
	if keys := command(t, c, "EXISTS", "bench"); keys != int64(0) {
		t.Errorf("the stream bench exists: %v", keys)
	}
}

// The callers may be in processes of their own, and the command ends Redis's standstill
// itself; nothing is lost on the way to the judge.
func TestBenchOverloadInSeveralProcesses(t *testing.T) {
	redis := redistest.Start(t, redistest.Options{})
	srv := weirtest.Start(t, weirtest.Options{Env: []string{"WEIR_API_KEYS=secret-secret-secret"}})
	for _, c := range []struct {
		url, variant string
		more         []string
	}{
		{redisURL(redis.Addr(), "bench", "crew"), "paused", []string{"--disturbance=1"}},
		{srv.URL + "/bench", "greedy", nil},
	} {
		report := filepath.Join(t.TempDir(), "report.json")
		stdout, stderr, code := weirtest.Run(t, []string{"WEIR_API_KEY=secret-secret-secret"}, append([]string{"bench", "overload", "--json", report, "--load", "2", "--phases", "1,4,2",
			"--deadline", "300ms", "--service", "20ms", "--workers", "5", "--processes", "2", "--variant", c.variant, "--arms", "off", c.url}, c.more...)...)
		if code != 0 && !strings.Contains(stdout, "does not count") { // which a busy machine may cause
			t.Fatalf("%s: exit code %d\n%s%s", c.variant, code, stdout, stderr)
		}
		text, err := os.ReadFile(report)
		var all judged
		if err == nil {
			err = json.Unmarshal(text, &all)
		}
		if err != nil || len(all.Results) != 1 || len(all.Results[0].Processes) != 2 {
			t.Fatalf("%s: %v, %.300s", c.variant, err, text)
		}
		r := all.Results[0]
		p, q := r.Processes[0], r.Processes[1]
		if p.Offered+q.Offered != r.Offered || p.Stored+q.Stored != r.Stored || p.Stored == 0 || q.Stored == 0 || r.Lost != 0 || r.Doubles != 0 {
			t.Errorf("%s: %+v\n%s", c.variant, r, stdout)
		}
		if (r.Disturbance != nil) != (c.variant == "paused") {
			t.Errorf("%s: disturbance %+v", c.variant, r.Disturbance)
		}
	}
}

// A Redis that is reached with certificates is made to stand still with them, too.
func TestBenchOverloadHaltsARedisWithTLS(t *testing.T) {
	certs := certtest.New(t)
	_, addr := redistest.StartTLS(t, certs.File("server.pem"), certs.File("server.key"), certs.File("ca.pem"))
	report := filepath.Join(t.TempDir(), "report.json")
	stdout, stderr, code := weirtest.Run(t, []string{"WEIR_CA=" + certs.File("ca.pem")}, "bench", "overload", "--json", report, "--load", "1", "--phases", "1,4,2",
		"--deadline", "300ms", "--service", "20ms", "--workers", "5", "--variant", "paused", "--disturbance=1", "--arms", "off",
		"rediss://"+addr+"/0?stream=bench&cert="+certs.File("client.pem")+"&key="+certs.File("client.key"))
	if code != 0 && !strings.Contains(stdout, "does not count") { // which a busy machine may cause
		t.Fatalf("exit code %d\n%s%s", code, stdout, stderr)
	}
	text, err := os.ReadFile(report)
	var all judged
	if err == nil {
		err = json.Unmarshal(text, &all)
	}
	if err != nil || len(all.Results) != 1 || all.Results[0].Disturbance == nil {
		t.Errorf("%v, %.300s\n%s", err, text, stdout)
	}
}

// A rehearsal beside a live stream sees what is published there and adds nothing.
func TestBenchOverloadAgainstALiveStream(t *testing.T) {
	s := redistest.Start(t, redistest.Options{})
	c := s.Client()
	command(t, c, "XGROUP", "CREATE", "orders", "crew", "0", "MKSTREAM")
	report := filepath.Join(t.TempDir(), "report.json")
	p := run(t, "bench", "overload", "--against", redisURL(s.Addr(), "orders", "crew"), "--length", "2s",
		"--arms", "off,static?queue_max_depth=10", "--json", report)
	added := int64(0)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for p.Running() {
		<-tick.C
		command(t, c, "XADD", "orders", "*", "data", "x", "weir-priority", "high")
		added++
	}
	p.Succeed()
	text, err := os.ReadFile(report)
	var arms []struct {
		Arm             string
		Offered, Stored int
		Refused         map[string]int
		Tiers           map[string][2]int
	}
	if err == nil {
		err = json.Unmarshal(text, &arms)
	}
	if err != nil || len(arms) != 2 {
		t.Fatalf("%v, %.300s", err, text)
	}
	for _, a := range arms {
		if a.Offered == 0 || a.Tiers["high"][1] != a.Offered {
			t.Errorf("%+v", a)
		}
	}
	if arms[0].Stored != arms[0].Offered || arms[1].Refused["queue_full"] == 0 {
		t.Errorf("%+v", arms)
	}
	if n := command(t, c, "XLEN", "orders"); n != added {
		t.Errorf("%v entries, %d were added", n, added)
	}
	if keys := command(t, c, "DBSIZE"); keys != int64(1) {
		t.Errorf("%v keys: %v", keys, command(t, c, "KEYS", "*"))
	}
}
