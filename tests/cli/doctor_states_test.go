package cli

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/tests/redistest"
	"github.com/weirmq/weir/tests/weirtest"
)

// diagnosis is what doctor --json prints, as far as tests look.
type diagnosis struct {
	RoundTripMS *float64          `json:"round_trip_ms"`
	Pressure    *sampleLine       `json:"pressure"`
	Findings    []backend.Finding `json:"findings"`
}

func (d *diagnosis) codes() (codes []string) {
	for _, f := range d.Findings {
		codes = append(codes, f.Code)
	}
	return codes
}

// diagnose runs doctor and returns what it printed and its exit code.
func diagnose(t *testing.T, url string, args ...string) (d diagnosis, code int) {
	t.Helper()
	out, stderr, code := weirtest.Run(t, nil, append([]string{"doctor", "--json", "--interval=50ms", url}, args...)...)
	if err := json.Unmarshal([]byte(out), &d); err != nil {
		t.Fatalf("exit code %d, %v: %s%s", code, err, out, stderr)
	}
	return d, code
}

// ward is a server of some version with what a state does to its stream "jobs".
type ward struct {
	t *testing.T
	c *redis.Client
	s *redistest.Server
}

// do runs commands, one in a line.
func (w ward) do(lines ...string) {
	w.t.Helper()
	for _, line := range lines {
		var args []any
		for word := range strings.FieldsSeq(line) {
			args = append(args, word)
		}
		command(w.t, w.c, args...)
	}
}

// add stores n entries that are as old as age says, maxLen of them at most (0: all).
func (w ward) add(n int, age time.Duration, maxLen int) {
	w.t.Helper()
	ms := time.Now().Add(-age).UnixMilli()
	const script = `for i = 1, ARGV[1] do
	local id = ARGV[2] .. '-' .. i
	if tonumber(ARGV[3]) > 0 then redis.call('XADD', 'jobs', 'MAXLEN', ARGV[3], id, 'data', i)
	else redis.call('XADD', 'jobs', id, 'data', i) end
end`
	if err := w.c.Eval(w.t.Context(), script, nil, n, ms, maxLen).Err(); err != nil && err != redis.Nil {
		w.t.Fatal(err)
	}
}

const (
	newGroup = "XGROUP CREATE jobs workers 0 MKSTREAM"
	readFive = "XREADGROUP GROUP workers c COUNT 5 STREAMS jobs >"
	readAll  = "XREADGROUP GROUP workers c COUNT 100000 STREAMS jobs >"
)

// ackAll acknowledges what is pending.
func (w ward) ackAll() {
	w.t.Helper()
	for _, p := range command(w.t, w.c, "XPENDING", "jobs", "workers", "-", "+", 1000).([]any) {
		command(w.t, w.c, "XACK", "jobs", "workers", p.([]any)[0])
	}
}

// doctorStates are streams as they are met, and what doctor says of them.
var doctorStates = []struct {
	name string
	make func(w ward)
	args []string
	// want are codes with their severity, in this order among what is found; none
	// stands for a stream without any trouble.
	want  []string
	not   []string
	code  int
	since int // the first version of Redis that can tell
}{
	{name: "all done", make: func(w ward) { w.do(newGroup); w.add(5, 0, 0); w.do(readAll); w.ackAll() }},
	{name: "done and removed", make: func(w ward) {
		w.do(newGroup)
		w.add(5, 0, 0)
		w.do(readAll)
		w.ackAll()
		for _, e := range w.c.XRange(w.t.Context(), "jobs", "-", "+").Val() {
			w.do("XDEL jobs " + e.ID)
		}
	}, want: []string{"info removed_by_others"}, since: 7},
	{name: "20,000 nobody has taken for ten minutes", make: func(w ward) { w.do(newGroup); w.add(20_000, 10*time.Minute, 0) },
		want: []string{"warning no_workers", "error age_over_objective"}, not: []string{"pending_old"}, code: 1},
	{name: "the same, as it should be", make: func(w ward) { w.do(newGroup); w.add(20_000, 10*time.Minute, 0) },
		args: []string{"--wait-slo=1h"}, not: []string{"age_over_objective"}},
	{name: "taken a minute ago and not finished", make: func(w ward) { w.do(newGroup); w.add(5, time.Minute, 0); w.do(readFive) },
		want: []string{"warning pending_old", "warning age_over_objective"}, not: []string{"lag_rising", "stuck_pending"}},
	{name: "the same where a warning is too much", make: func(w ward) { w.do(newGroup); w.add(5, time.Minute, 0); w.do(readFive) },
		args: []string{"--fail-on=warning"}, want: []string{"warning pending_old"}, code: 1},
	{name: "cut off before anybody read", make: func(w ward) { w.do(newGroup); w.add(100, 0, 10) },
		want: []string{"error trimmed_unread"}, code: 1, since: 7},
	{name: "cut off behind what was read", make: func(w ward) { w.do(newGroup); w.add(5, time.Second, 0); w.do(readFive); w.ackAll(); w.add(100, 0, 10) },
		want: []string{"error trimmed_unread"}, code: 1, since: 7},
	{name: "cut off and read on", make: func(w ward) { w.do(newGroup); w.add(100, 0, 10); w.do(readAll); w.ackAll() },
		want: []string{"warning cut_by_others"}, not: []string{"removed_by_others"}, since: 7},
	{name: "another group had read it", make: func(w ward) {
		w.do("XGROUP CREATE jobs first 0 MKSTREAM")
		w.add(100, 0, 0) // more than are done while this machine stands still
		w.do("XREADGROUP GROUP first c COUNT 20 NOACK STREAMS jobs >", "XTRIM jobs MAXLEN 5", newGroup)
	}, want: []string{"warning begins_behind"}, not: []string{"trimmed_unread"}, since: 7},
	{name: "cut off while pending", make: func(w ward) { w.do(newGroup); w.add(10, 0, 0); w.do(readFive, "XTRIM jobs MAXLEN 3") },
		want: []string{"error trimmed_unacked"}, code: 1},
	{name: "deleted unread", make: func(w ward) {
		w.do(newGroup)
		w.add(5, 0, 0)
		w.do("XREADGROUP GROUP workers c COUNT 1 STREAMS jobs >")
		w.do("XDEL jobs " + w.c.XRange(w.t.Context(), "jobs", "-", "+").Val()[2].ID)
	}, want: []string{"error trimmed_unread", "warning lag_unknown"}, code: 1, since: 7},
	{name: "stored entries near MAXLEN", make: func(w ward) { w.do(newGroup); w.add(95, 0, 0); w.do(readAll); w.ackAll() },
		args: []string{"--maxlen=100"}, want: []string{"warning maxlen_near"}},
	{name: "far from MAXLEN", make: func(w ward) { w.do(newGroup); w.add(80, 0, 0); w.do(readAll); w.ackAll() },
		args: []string{"--maxlen=100"}},
	{name: "work near MAXLEN", make: func(w ward) { w.do(newGroup); w.add(95, 0, 0) },
		args: []string{"--maxlen=100"}, want: []string{"warning no_workers", "error maxlen_near"}, code: 1},
	{name: "memory near its limit", make: func(w ward) {
		w.do(newGroup)
		w.limit(1.05)
	}, want: []string{"warning memory_full"}},
	{name: "memory used up", make: func(w ward) { w.do(newGroup); w.limit(0.9) }, want: []string{"error memory_full"}, code: 1},
	{name: "several at once", make: func(w ward) {
		w.do(newGroup)
		w.add(50, 10*time.Minute, 0)
		w.do(readFive)
		entries := w.c.XRange(w.t.Context(), "jobs", "-", "+").Val()
		w.do("XDEL jobs "+entries[0].ID, "XDEL jobs "+entries[20].ID, "XADD {jobs}:dlq * data x")
		w.limit(1.05)
	}, args: []string{"--maxlen=50"}, code: 1, since: 7, want: []string{
		"error trimmed_unacked", "error trimmed_unread", "warning no_workers", "warning pending_old", "error age_over_objective",
		"warning lag_unknown", "error maxlen_near", "info dead_letters", "warning memory_full",
	}},
}

// limit sets maxmemory to a multiple of what is used, which is enough not to change much.
func (w ward) limit(times float64) {
	w.t.Helper()
	w.do("SETRANGE pad 20000000 x")
	var used float64
	for line := range strings.Lines(command(w.t, w.c, "INFO", "memory").(string)) {
		_, _ = fmt.Sscanf(line, "used_memory:%g", &used) // other lines are not it
	}
	w.do(fmt.Sprintf("CONFIG SET maxmemory %.0f", used*times))
}

func TestDoctorSaysWhatStatesOfStreamsMean(t *testing.T) {
	t.Parallel()
	for _, version := range redistest.Versions() {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			s := redistest.Start(t, redistest.Options{Version: version, Args: []string{"--appendonly", "yes", "--appendfsync", "always"}})
			url := redisURL(s.Addr(), "jobs", "workers")
			old := strings.HasPrefix(version, "5.") || strings.HasPrefix(version, "6.")
			for _, state := range doctorStates {
				w := ward{t, s.Client(), s}
				w.do("CONFIG SET maxmemory 0", "FLUSHALL")
				state.make(w)
				d, code := diagnose(t, url, state.args...)
				if old && state.since > 6 {
					continue // it must not fail, more cannot be asked
				}
				checkState(t, state.name, &d, state.want, state.not)
				if code != state.code {
					t.Errorf("%s: exit code %d, want %d: %v", state.name, code, state.code, d.codes())
				}
				runCommands(t, state.name, &d)
			}
		})
	}
}

// checkState compares what was found with what was to be, leaving out what an old
// server cannot do.
func checkState(t *testing.T, name string, d *diagnosis, want, not []string) {
	t.Helper()
	var have []string
	for _, f := range d.Findings {
		// An old server cannot tell the lag, and on a busy machine round trips are slow.
		if f.Code != "lag_unsupported" && f.Code != "slow_round_trip" {
			have = append(have, f.Severity+" "+f.Code)
		}
		if f.Problem == "" || f.Advice == "" || f.Command == "" || slices.Contains(not, f.Code) {
			t.Errorf("%s: finding %+v", name, f)
		}
	}
	if len(want)+len(not) == 0 && len(have) > 0 {
		t.Errorf("%s: found %v", name, have)
	}
	left := have
	for _, w := range want {
		i := slices.Index(left, w)
		if i < 0 {
			t.Errorf("%s: found %q; %s is missing or at the wrong place", name, have, w)
			return
		}
		left = left[i+1:]
	}
	if d.RoundTripMS == nil || *d.RoundTripMS <= 0 || d.Pressure == nil {
		t.Errorf("%s: round trip %v, pressure %v", name, d.RoundTripMS, d.Pressure)
	}
}

// runCommands runs the commands that doctor advises and that only look.
func runCommands(t *testing.T, name string, d *diagnosis) {
	t.Helper()
	for _, f := range d.Findings {
		if !strings.HasPrefix(f.Command, "redis-cli ") || strings.Contains(f.Command, "CONFIG SET") {
			continue
		}
		out, err := exec.CommandContext(t.Context(), "sh", "-c", f.Command).CombinedOutput()
		if err != nil || strings.Contains(string(out), "ERR ") || strings.Contains(string(out), "(error)") {
			t.Errorf("%s: %s advises %s: %v, %s", name, f.Code, f.Command, err, out)
		}
	}
}

// Old messages and producers that are faster than the workers: the lag rises. The
// traffic of workers that keep up does not.
func TestDoctorSeesALagThatRises(t *testing.T) {
	t.Parallel()
	for _, version := range redistest.Versions() {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			s := redistest.Start(t, redistest.Options{Version: version})
			w := ward{t, s.Client(), s}
			url := redisURL(s.Addr(), "jobs", "workers")
			w.do(newGroup)
			w.add(50, 20*time.Second, 0)
			done := make(chan struct{})
			stop := make(chan struct{})
			go func() {
				defer close(done)
				for {
					select {
					case <-stop:
						return
					case <-time.After(2 * time.Millisecond):
						_ = w.c.XAdd(t.Context(), &redis.XAddArgs{Stream: "jobs", Values: []string{"data", "x"}}).Err()
					}
				}
			}()
			eventually(t, "a lag that rises, while messages come and nobody takes any", func() bool {
				d, code := diagnose(t, url, "--interval=200ms")
				return slices.Contains(d.codes(), "lag_rising") && code == 0
			})
			close(stop)
			<-done
			if d, _ := diagnose(t, url, "--interval=200ms"); slices.Contains(d.codes(), "lag_rising") {
				t.Errorf("while nothing happens: %v", d.codes())
			}
		})
	}
}

// What a drain has given back is no worker's: nothing is stuck.
func TestDoctorAfterACleanDrain(t *testing.T) {
	t.Parallel()
	for _, version := range redistest.Versions() {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			s := redistest.Start(t, redistest.Options{Version: version, Args: []string{"--appendonly", "yes", "--appendfsync", "always"}})
			w := ward{t, s.Client(), s}
			url := redisURL(s.Addr(), "jobs", "workers")
			w.do(newGroup)
			w.add(10, 0, 0)
			dir := t.TempDir()
			end := filepath.Join(dir, "end")
			p := run(t, "work", "--workers=2", "--batch=8", url, "--", "sh", "-c", "touch "+dir+"/begun.$$; until [ -e "+end+" ]; do sleep 0.05; done")
			eventually(t, "both workers have begun, and one more message is taken", func() bool {
				begun, err := filepath.Glob(dir + "/begun.*")
				return err == nil && len(begun) == 2 && command(t, w.c, "XPENDING", "jobs", "workers").([]any)[0].(int64) == 3
			})
			p.Signal(syscall.SIGTERM)
			eventually(t, "the one ahead is given back", func() bool {
				d, _ := diagnose(t, url)
				return slices.Contains(d.codes(), "given_back")
			})
			if err := os.WriteFile(end, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			p.Succeed()
			if left := command(t, w.c, "XPENDING", "jobs", "workers").([]any)[0].(int64); left != 1 {
				t.Fatalf("%d messages are pending after the drain, want the one given back", left)
			}
			d, code := diagnose(t, url)
			codes := d.codes()
			if code != 0 || slices.Contains(codes, "stuck_pending") || slices.Contains(codes, "dead_consumers_hold") || !slices.Contains(codes, "given_back") {
				t.Errorf("exit code %d, %v", code, codes)
			}
		})
	}
}

func TestDoctorSeesASlowRoundTrip(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, redistest.Options{})
	w := ward{t, s.Client(), s}
	w.do(newGroup)
	proxy := redistest.NewProxy(t, s.Addr())
	proxy.Set(redistest.Fault{Latency: 15 * time.Millisecond})
	d, code := diagnose(t, redisURL(proxy.Addr(), "jobs", "workers"))
	if d.RoundTripMS == nil || *d.RoundTripMS < 30 || !slices.Contains(d.codes(), "slow_round_trip") || code != 0 {
		t.Errorf("over a link of 30 ms there and back: exit code %d, round trip %v, %v", code, d.RoundTripMS, d.codes())
	}
}

func TestDoctorReadsItsSettings(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, redistest.Options{})
	w := ward{t, s.Client(), s}
	w.do(newGroup)
	w.add(10, 0, 0)
	url := redisURL(s.Addr(), "jobs", "workers")
	for _, k := range []struct {
		env  []string
		args []string
		code int
		said string
	}{
		{[]string{"JOB_STREAM_MAXLEN=10"}, nil, 1, "maxlen_near"},
		{[]string{"WEIR_MAXLEN=10"}, nil, 1, "maxlen_near"},
		{[]string{"JOB_STREAM_MAXLEN=10"}, []string{"--maxlen=1000"}, 0, "found"},
		{[]string{"JOB_STREAM_MAXLEN=many"}, nil, 2, "JOB_STREAM_MAXLEN"},
		{nil, []string{"--maxlen=-1"}, 2, "--maxlen"},
		{nil, []string{"--wait-slo=-1s"}, 2, "--wait-slo"},
		{nil, []string{"--interval=1h"}, 2, "--interval"},
		{nil, []string{"--fail-on=bad"}, 2, "--fail-on"},
	} {
		out, stderr, code := weirtest.Run(t, k.env, append([]string{"doctor", "--interval=0", url}, k.args...)...)
		if code != k.code || !strings.Contains(out+stderr, k.said) {
			t.Errorf("%v %v: exit code %d, %s%s", k.env, k.args, code, out, stderr)
		}
	}
	secret := strings.Replace(url, "redis://", "redis://:s3cret@", 1)
	w.do("CONFIG SET requirepass s3cret")
	if out, stderr, code := weirtest.Run(t, nil, "doctor", "--interval=0", secret); code != 0 || strings.Contains(out+stderr, "s3cret") {
		t.Errorf("exit code %d; does it tell the password? %s%s", code, out, stderr)
	}
}
