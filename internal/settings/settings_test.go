package settings

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
)

func environment(pairs ...string) func(string) (string, bool) {
	m := map[string]string{}
	for _, p := range pairs {
		name, text, _ := strings.Cut(p, "=")
		m[name] = text
	}
	return func(name string) (string, bool) {
		text, ok := m[name]
		return text, ok
	}
}

func write(t *testing.T, text string) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "weir.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// single is a command that has only one setting.
const single Command = 1 << 63

// only makes s the only setting of a command, besides --config.
func only(t *testing.T, s *Setting) {
	t.Helper()
	all := table
	one, file := *s, Setting{name: "config", in: single, places: byFlag | byEnv, kind: name("file")}
	one.in |= single
	table = []*Setting{&file, &one}
	t.Cleanup(func() { table = all })
}

// sources are the ways to write a setting: each returns where errors say that it
// was written, and the source.
var sources = []struct {
	name  string
	place place
	write func(t *testing.T, s *Setting, text string) (where string, src Source, err error)
}{
	{"flag", byFlag, func(t *testing.T, s *Setting, text string) (string, Source, error) {
		set := pflag.NewFlagSet("test", pflag.ContinueOnError)
		AddFlags(set, single)
		err := set.Parse([]string{"--" + s.name + "=" + text})
		return fmt.Sprintf("invalid argument %q for %q flag", text, shown(s)), Source{Flags: set, Lookup: environment()}, err
	}},
	{"variable", byEnv, func(t *testing.T, s *Setting, text string) (string, Source, error) {
		return "environment variable " + s.variable(), Source{Lookup: environment(s.variable() + "=" + text)}, nil
	}},
	{"file", byFile, func(t *testing.T, s *Setting, text string) (string, Source, error) {
		path := write(t, fmt.Sprintf("# a comment\n%s: %q\n", s.key(), text))
		return fmt.Sprintf("config file %s, line 2, key %s", path, s.key()), Source{File: path, Lookup: environment()}, nil
	}},
}

// shown is a flag as pflag's errors name it.
func shown(s *Setting) string {
	if s.short != "" {
		return "-" + s.short + ", --" + s.name
	}
	return "--" + s.name
}

// sample is a text of a kind with its value, and what is wrong in it.
type sample struct {
	text  string
	value any
	wrong []string // invalid, out of range, with blanks, without its unit
}

func samples(s *Setting) sample {
	integers := []string{"many", "1.5", "1e3", "0x10", "-2", "99999999999999999999", " 7", "7 ", "7s"}
	switch {
	case s.name == "stall-after":
		return sample{"0s", time.Duration(0), []string{"30", "-1s", "1ms", "25h", " 30s", "long"}}
	case s.kind.typ == "duration" && s.name != "ack-linger":
		return sample{"2s", 2 * time.Second, []string{"2", "-1s", "2 s", " 2s", "soon", "1e9"}}
	case s.kind.typ == "duration":
		return sample{"off", time.Duration(-1), []string{"0", "2", "2s", "-1ms", "soon"}}
	case s.kind.typ == "bytes" && s.name == "disk-reserve":
		return sample{"0", int64(-1), []string{"-1", "1.5GiB", "MiB", "10MB", "99999999999TiB", "16777217TiB", "half", "64MiB "}}
	case s.kind.typ == "bytes":
		return sample{"2KiB", int64(2048), []string{"-1", "1.5GiB", "MiB", "10MB", "9000TiB", "16777217TiB", "half", "64MiB "}}
	case s.kind.typ == "bool":
		return sample{"yes", true, []string{"2", "maybe", " true", "true "}}
	case s.kind.typ == "share":
		return sample{"0.5", 0.5, []string{"80", "0", "-0.1", "half", "NaN", "0.5 ", "50%"}}
	case s.kind.typ == "seconds":
		return sample{"0.25", 250 * time.Millisecond, []string{"0", "-1", "61", "2m", "NaN", "0.1 ", "long"}}
	case s.kind.typ == "rate" || s.kind.typ == "load" || s.kind.typ == "deadlines":
		return sample{"0.5", 0.5, []string{"-1", "1e7", "Inf", "NaN", "fast", "1/s"}}
	case s.kind.typ == "port":
		return sample{"7", int64(7), append(integers, "65536", "http")}
	case s.name == "lag-warn" || s.name == "lag-pause":
		return sample{"off", int64(-1), append(integers, "0")}
	case s.name == "priority":
		return sample{"-7", int64(-7), []string{"many", "1.5", "1e3", "99999999999", " 7", "OFF"}}
	case s.name == "host":
		return sample{"::1", "::1", []string{"a:b", "1.2.3.4:", "1.2.3.4:99999", "a:1:2"}}
	case s.name == "metrics":
		return sample{":9466", ":9466", []string{"abc", "99999", "host", "host:", "a:b:c", "1.2.3.4:http", " 1"}}
	case s.name == "api-key-env":
		return sample{"_key2", "_key2", []string{"2key", "a-b", "a=b", "any text"}}
	case s.kind.typ == "list":
		return sample{" a, b,,", []string{"a", "b"}, nil}
	case strings.HasPrefix(s.kind.valid, "a whole number"):
		return sample{"7", int64(7), integers}
	case strings.Contains(s.kind.valid, " or ") && !strings.HasPrefix(s.kind.valid, "a "):
		words := strings.FieldsFunc(s.kind.valid, func(r rune) bool { return r == ' ' || r == ',' })
		last := words[len(words)-1]
		return sample{last, last, []string{"nonsense", last + " ", strings.ToUpper(last)}}
	}
	return sample{"any text", "any text", nil}
}

// Each setting, in each place where it can be written: a valid text comes to the same
// value, and a wrong one to an error that says where it is, repeats it and says what is valid.
func TestEverySettingInEveryPlace(t *testing.T) {
	tried := 0
	for _, s := range table {
		if s.name == "config" {
			continue // the file is there, or the error is that it is not
		}
		t.Run(s.name, func(t *testing.T) {
			only(t, s)
			want := samples(s)
			for _, place := range sources {
				if s.places&place.place == 0 {
					continue
				}
				load := func(text string) (any, string, error) {
					tried++
					where, src, err := place.write(t, s, text)
					var got any
					src.Command = single
					if err == nil {
						_, err = Load(src, Fields{s.name: &got})
					}
					return got, where, err
				}
				if got, _, err := load(want.text); err != nil || !reflect.DeepEqual(got, want.value) {
					t.Errorf("%s %q: %#v, %v; want %#v", place.name, want.text, got, err, want.value)
				}
				for _, text := range want.wrong {
					_, where, err := load(text)
					if said := fmt.Sprintf("%s: %q is not %s", where, text, s.kind.valid); err == nil || err.Error() != said {
						t.Errorf("%s %q: got\n%v, want\n%s", place.name, text, err, said)
					}
				}
				checkEmpty(t, s, place.name, load)
			}
		})
	}
	if tried < 1000 {
		t.Errorf("only %d cases were tried", tried)
	}
}

// checkEmpty: an empty variable is absent, and elsewhere an empty text is only right for text.
func checkEmpty(t *testing.T, s *Setting, source string, load func(string) (any, string, error)) {
	got, where, err := load("")
	_, valid := s.kind.parse("")
	switch {
	case source == "variable":
		deft, _ := s.kind.parse(s.deft)
		if s.deft == "" || s.ofLibrary() {
			deft = nil
		}
		if err != nil || !reflect.DeepEqual(got, deft) {
			t.Errorf("empty variable: %#v, %v; want the default %#v", got, err, deft)
		}
	case valid != (err == nil):
		t.Errorf("%s empty: %#v, %v", source, got, err)
	case err != nil && err.Error() != fmt.Sprintf(`%s: "" is not %s`, where, s.kind.valid):
		t.Errorf("%s empty: %v", source, err)
	}
}

// A script whose variable is not set gives a flag an empty text. That must not run a server
// without what the flag is for, such as its copy.
func TestNoFlagTakesAnEmptyText(t *testing.T) {
	for _, s := range table {
		_, taken := s.kind.parse("")
		if s.places&byFlag == 0 || !taken || s.kind.typ == list.typ { // an empty list allows nobody
			continue
		}
		if s.name != "dead-letter" || s.in&(TopicCreate|TopicSet) == 0 { // there empty is none, which a topic may have
			t.Errorf("--%s takes an empty text", s.name)
		}
	}
}

// A flag beats the environment, which beats the file, which beats the default; what is
// beaten need not be right, except in the file.
func TestWhichPlaceCounts(t *testing.T) {
	set := pflag.NewFlagSet("test", pflag.ContinueOnError)
	AddFlags(set, Work)
	if err := set.Parse([]string{"--batch=4"}); err != nil {
		t.Fatal(err)
	}
	src := Source{Command: Work, Flags: set, Lookup: environment("WEIR_BATCH=many", "WEIR_BLOCK=3s", "WEIR_CONFIG="+
		write(t, "batch: 1\nblock: 1s\nretry_base: 2s\nguard: off\n"))}
	c, _, err := LoadConfigs(src, workFields())
	if err != nil || c.Pool.Batch != 4 || c.Pool.Block != 3*time.Second || c.Pool.RetryBase != 2*time.Second || c.Pool.RetryMax != 0 {
		t.Errorf("%+v, %v", c.Pool, err)
	}
	src.File = write(t, "batch: many\n")
	if _, _, err := LoadConfigs(src, workFields()); err == nil || !strings.Contains(err.Error(), `line 1, key batch: "many" is not`) {
		t.Errorf("a wrong value that a flag beats: %v", err)
	}
}

// What Kubernetes makes of a service that is called weir is no setting, and a port counts for nothing
// beside a host that names one.
func TestAPortThatIsNotMeantDoesNotCount(t *testing.T) {
	for port, env := range map[string][]string{
		"4000": {"WEIR_PORT=tcp://10.0.0.1:4000"},
		"5000": {"WEIR_PORT=5000", "WEIR_HOST=::1"},
		"":     {"WEIR_PORT=5000", "WEIR_HOST=127.0.0.1:6000"},
	} {
		fields := Fields{}
		for _, s := range of(Serve) {
			if s.used() {
				fields[s.name] = new(any)
			}
		}
		v, err := Load(Source{Command: Serve, Lookup: environment(env...)}, fields)
		if got := *fields["port"].(*any); err != nil || v.Given("port") != (port == "5000") || port != "" && fmt.Sprint(got) != port {
			t.Errorf("%v: port %v, given %v, %v", env, got, v.Given("port"), err)
		}
	}
}

// workFields are the settings of weir work that are not the library's.
func workFields() Fields {
	f := Fields{}
	for _, s := range of(Work) {
		if s.used() && !s.ofLibrary() {
			f[s.name] = new(any)
		}
	}
	return f
}

// Two rows of one command never share a name, and rows that share a variable agree about
// where it can be written.
func TestNamesAreUnique(t *testing.T) {
	for c := Serve; c <= SampleRedis; c <<= 1 {
		seen := map[string]bool{}
		for _, s := range of(c) {
			for _, name := range append(s.variables(), "--"+s.name) {
				if seen[name] {
					t.Errorf("command %b has two settings called %s", c, name)
				}
				seen[name] = true
			}
		}
		if len(seen) == 0 {
			t.Errorf("command %b has no settings", c)
		}
	}
	for _, s := range table {
		if s.in == 0 || s.places == 0 || s.help == "" || s.kind.parse == nil {
			t.Errorf("%s is not complete", s.name)
		}
		if _, err := s.kind.read(s.deft); s.deft != "" && err != nil {
			t.Errorf("%s: its default: %v", s.name, err)
		}
	}
}

func TestAFieldThatIsForgottenIsAMistakeInTheCode(t *testing.T) {
	for _, f := range []Fields{{}, {"mark": new(bool), "marc": new(bool)}} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%v was taken", f)
				}
			}()
			_, _ = Load(Source{Command: Repair, Lookup: environment()}, f)
		}()
	}
}

func TestWhatHasChangedIsToldWithoutText(t *testing.T) {
	f := Fields{}
	for _, s := range of(Serve) {
		if s.used() {
			f[s.name] = new(any)
		}
	}
	v, err := Load(Source{Command: Serve, Lookup: environment("WEIR_API_KEYS=secret", "WEIR_MAX_TOPICS=7", "WEIR_PROBE_AUTH=0",
		"WEIR_MAX_CLAIM=1000", "WEIR_DISK_RESERVE=1GiB", "WEIR_MAX_BODY_BYTES=67108864", "WEIR_PORT=0", "WEIR_LOG_LEVEL=debug")}, f)
	want := []string{"WEIR_PORT=0", "WEIR_DISK_RESERVE=1GiB", "WEIR_MAX_TOPICS=7"}
	if err != nil || !reflect.DeepEqual(v.Changed(), want) {
		t.Errorf("%v, %v; want %v", v.Changed(), err, want)
	}
}

func TestWhatNeedsARestartIsNamed(t *testing.T) {
	load := func(text string) *Values {
		f := Fields{}
		for _, s := range of(Serve) {
			if s.used() {
				f[s.name] = new(any)
			}
		}
		v, err := Load(Source{Command: Serve, Lookup: environment(), File: write(t, text)}, f)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	before, level, port := load("port: 1\n"), load("port: 1\nlog_level: debug\n"), load("max_limit: 5\nlog_level: debug\n")
	if got := before.NeedRestart(level); len(got) > 0 || before.Equal(level) {
		t.Errorf("of the level: %v", got)
	}
	if got := before.NeedRestart(port); !reflect.DeepEqual(got, []string{"port", "max_limit"}) || !port.Equal(port) {
		t.Errorf("of port and limit: %v", got)
	}
}

func TestDurationsInDays(t *testing.T) {
	for text, want := range map[string]time.Duration{"7d": 7 * 24 * time.Hour, "-1d": -24 * time.Hour, "106751d": 106751 * 24 * time.Hour, "36h": 36 * time.Hour} {
		if d, err := ParseDuration(text); d != want || err != nil {
			t.Errorf("%s is %v, %v; want %v", text, d, err, want)
		}
	}
	// As nanoseconds, some of these would wrap around to a plausible duration.
	for _, text := range []string{"106752d", "-106752d", "-213503d", "99999999999d", "1.5d", "d", "7", ""} {
		if d, err := ParseDuration(text); err == nil {
			t.Errorf("%q is %v", text, d)
		}
	}
}
