package settings

import (
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestTheFileMayBeJSON(t *testing.T) {
	got, _, err := LoadConfigs(Source{Command: Library, Lookup: environment(), File: write(t,
		`{"lag_warn": 9, "queue_backpressure_threshold": 0.5, "queue_load_shedding_enabled": false, "retry_max": "1h", "queue_max_depth": 1e3}`)}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if p := got.Producer; p.LagWarn != 9 || p.BackpressureThreshold != 0.5 || !p.DisableLoadShedding || p.MaxDepth != 1000 || got.Pool.RetryMax != time.Hour {
		t.Errorf("got %+v", got)
	}
}

// A value means what it means in the environment, if it means anything there: 010 is ten, and
// a name may be 007.
func TestValuesOfTheFileMeanWhatVariablesMean(t *testing.T) {
	got, _, err := LoadConfigs(Source{Command: Library, Lookup: environment(), File: write(t,
		"lag_warn: 010\nqueue_max_depth: 0x100\nlag_pause: &many 1_000\nconsumer: 007\nbudget: 1e3\nbudget_max_depth: *many\n")}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if p := got.Producer; p.LagWarn != 10 || p.MaxDepth != 256 || p.LagPause != 1000 || got.Pool.Consumer != "007" || p.Budget != "1e3" || p.BudgetMaxDepth != 1000 {
		t.Errorf("got %+v", got)
	}
}

func TestFilesWithoutSettings(t *testing.T) {
	for _, text := range []string{"", "# nothing\n", "---\n", "{}", "null\n"} {
		if _, _, err := LoadConfigs(Source{Command: Library, Lookup: environment(), File: write(t, text)}, nil); err != nil {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestErrorsNameTheLineAndTheFix(t *testing.T) {
	for name, c := range map[string]struct{ file, want string }{
		"unknown key":   {"batch: 2\nlag_wran: 5\n", `weir.yaml, line 2: unknown key "lag_wran", did you mean lag_warn?`},
		"nothing like":  {"colour: red\n", `line 1: unknown key "colour"`},
		"of a call":     {"json: true\n", `line 1: unknown key "json"`},
		"a map":         {"guard:\n  mode: off\n", "line 1, key guard: a list or a map is not a value"},
		"a list":        {"batch: [1, 2]\n", "line 1, key batch: a list or a map is not a value"},
		"no value":      {"batch:\n", "line 1, key batch: there is no value"},
		"not YAML":      {"a: b: c\n", "weir.yaml, line 1: neither YAML nor JSON: mapping values"},
		"not YAML, 2":   {"batch: 1\na: b: c\n", "weir.yaml, line 2: neither YAML nor JSON: mapping values"},
		"a tab":         {"\tbatch: 1\n", "weir.yaml, line 1: neither YAML nor JSON: a tab indents; use spaces"},
		"a later tab":   {"guard: off\nbatch: 1\n \tblock: 1s\n", "weir.yaml, line 3: neither YAML nor JSON: a tab indents"},
		"not a text":    {"\x00\x01\x02", "weir.yaml is neither YAML nor JSON: control characters"},
		"out of order":  {"lag_warn: 300\n", "line 1, key lag_warn: lag_warn 300 is above lag_pause 200, so it would never be reached: lower it, or set it to off"},
		"retries":       {"retry_max: 1ms\n", "retry_max 1ms is less than retry_base 1s"},
		"no keys":       {"- batch\n", "line 1: write settings as key: value"},
		"twice":         {"batch: 1\nbatch: 2\n", "line 2, key batch: already set in line 1"},
		"half a number": {"batch: 1.5\n", `line 1, key batch: "1.5" is not a whole number from 1 to 1000`},
		"no number":     {"lag_warn: .nan\n", `key lag_warn: ".nan" is not a whole number`},
		"no unit":       {"block: 5\n", `"5" is not a duration from 10ms to 30s, with a unit as in 500ms, 2s or 10m`},
		"a zero":        {"lag_warn: 0\n", `"0" is not a whole number from 1 to 1099511627776, or "off"`},
		"unknown mode":  {"guard: lenient\n", `"lenient" is not static, proportional, adaptive, off or shadow`},
		"two documents": {"batch: 1\n---\nblock: 1s\n", "weir.yaml, line 3: another document begins; write all settings as one"},
		"two objects":   {`{"batch": 1}` + "\n" + `{"block": "1s"}`, "weir.yaml, line 1: neither YAML nor JSON"},
		"an object, …":  {`{"batch": 1} block`, "weir.yaml, line 1: neither YAML nor JSON"},
		"behind ...":    {"batch: 1\n...\na: b: c\n", "weir.yaml, line 2: neither YAML nor JSON"},
		"too large":     {"# " + strings.Repeat("x", maxFileBytes), "larger than 1048576 bytes"},
	} {
		_, _, err := LoadConfigs(Source{Command: Library, Lookup: environment(), File: write(t, c.file)}, nil)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v\nwant %s", name, err, c.want)
		}
	}
}

func TestAFileThatIsNamedHasToBeThere(t *testing.T) {
	_, _, err := LoadConfigs(Source{Command: Library, Lookup: environment("WEIR_CONFIG=" + filepath.Join(t.TempDir(), "gone.yaml"))}, nil)
	if err == nil || !strings.Contains(err.Error(), "gone.yaml") {
		t.Errorf("got %v", err)
	}
}

// A command reads its own settings: what stands beside them for another command, or
// has the same name there, is not its business.
func TestSettingsOfOtherCommandsAreLeftAlone(t *testing.T) {
	f := Fields{}
	for _, s := range of(Publish) {
		if s.used() && !s.ofLibrary() {
			f[s.name] = new(any)
		}
	}
	var batch int
	f["batch"] = &batch
	c, _, err := LoadConfigs(Source{Command: Publish, Lookup: environment("WEIR_RETRY_MAX=1ms", "WEIR_PORT=many"),
		File: write(t, "workers: many\nbatch: 3\nlag_pause: 5\nmax_topics: -1\n")}, f)
	if err != nil || c.Producer.LagPause != 5 || batch != 500 {
		t.Errorf("%+v, batch %d, %v", c, batch, err)
	}
}
