package main

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/weirmq/weir/internal/keyfile"
)

// everyCommand calls do with each command that can be run and its words.
func everyCommand(do func(cmd *cobra.Command, words []string)) {
	root := newRoot()
	root.InitDefaultHelpCmd()
	var walk func(cmd *cobra.Command, words []string)
	walk = func(cmd *cobra.Command, words []string) {
		cmd.InitDefaultHelpFlag()
		do(cmd, words)
		for _, c := range cmd.Commands() {
			walk(c, append(words[:len(words):len(words)], c.Name()))
		}
	}
	walk(root, nil)
}

// good are arguments that a command takes, without a server behind them.
func good(cmd *cobra.Command) []string {
	args := []string{}
	for _, word := range strings.Fields(cmd.Use)[1:] {
		switch word {
		case "URL", "URL…":
			args = append(args, "http://127.0.0.1:1/x")
		case "DIR", "DIR|URL", "ID…", "NAME":
			args = append(args, "x")
		case "ADDRESS":
			args = append(args, "http://127.0.0.1:1")
		case "CMD":
			args = append(args, "true")
		}
	}
	return args
}

// A mistake in the command line of any command is one line that says where to read on, and
// exit code 2.
func TestMistakesAreToldAlikeByEveryCommand(t *testing.T) {
	wrong := func(words []string, args []string, want string) {
		t.Helper()
		line := append(words[:len(words):len(words)], args...)
		var out, errOut, told bytes.Buffer
		root := newRoot()
		root.SetArgs(line)
		root.SetOut(&out)
		root.SetErr(&errOut)
		cmd, err := root.ExecuteContextC(t.Context())
		if err == nil {
			t.Errorf("weir %s: no error\n%s%s", strings.Join(line, " "), &out, &errOut)
			return
		}
		tell(&told, cmd, err)
		if exitCode(err) != exitUsage || out.Len()+errOut.Len() > 0 || strings.Count(told.String(), "\n") != 1 ||
			!strings.HasPrefix(told.String(), "weir: ") || !strings.HasSuffix(told.String(), "; see `"+cmd.CommandPath()+" --help`\n") || !strings.Contains(told.String(), want) {
			t.Errorf("weir %s: exit code %d, %q\nwant one line with %q%s%s", strings.Join(line, " "), exitCode(err), told.String(), want, &out, &errOut)
		}
	}
	mistakes := 0
	everyCommand(func(cmd *cobra.Command, words []string) {
		wrong(words, append([]string{"--nonsense"}, good(cmd)...), "unknown flag: --nonsense")
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			mistakes++
			typo := f.Name[:len(f.Name)-1] + "~"
			wrong(words, append([]string{"--" + typo}, good(cmd)...), "did you mean --")
			if f.NoOptDefVal == "" {
				wrong(words, append(good(cmd), "--"+f.Name), "flag needs an argument: --"+f.Name)
			}
			if isText := f.Value.Set("no such thing") == nil; !isText {
				wrong(words, append([]string{"--" + f.Name + "=no such thing"}, good(cmd)...), "flag --"+f.Name+`: "no such thing" is not `)
			}
		})
		if args := good(cmd); len(args) > 0 {
			wrong(words, args[1:], cmd.UseLine())
		}
		if !strings.Contains(cmd.Use, "…") {
			optional := strings.Count(strings.TrimSuffix(cmd.Use, "[flags]"), "[")
			wrong(words, slices.Concat(good(cmd), slices.Repeat([]string{"one"}, optional), []string{"one", "more"}), "")
		}
		if strings.Contains(cmd.Use, "URL") {
			args := append([]string{"localhost:4000/orders"}, good(cmd)[min(1, len(good(cmd))):]...)
			wrong(words, args, "did you mean http://localhost:4000/orders?")
			args[0] = "[::1]:4000/orders"
			wrong(words, args, "did you mean http://[::1]:4000/orders?")
			args[0] = ""
			wrong(words, args, "the URL is empty")
			args[0] = "localhost:6379/0?stream=orders&group=g"
			wrong(words, args, "did you mean redis://localhost:6379/0?stream=orders&group=g?")
			for _, args[0] = range []string{"http://h:99999/x", "ftp://h/x", "http://u:p@127.0.0.1:1/x", "http://127.0.0.1:1/a?nope=1", "redis://h", "http://h%zz/x", "nonsense"} {
				if args[0] != "nonsense" || !strings.Contains(cmd.Use, "DIR|URL") { // a directory may be called so
					wrong(words, args, "")
				}
			}
		}
	})
	wrong([]string{"serve"}, []string{"--probe-auth", "false"}, "a switch takes its value after =, as in --json=false")
	wrong([]string{"tail"}, []string{"--json", "true", "http://127.0.0.1:1/x"}, "a switch takes its value after =, as in --json=false")
	wrong([]string{"dlq", "ls"}, []string{"--json", "true"}, "a switch takes its value after =, as in --json=false")
	wrong([]string{"work"}, []string{"--", "true"}, "weir work URL [flags] -- CMD [ARG…]; see")
	wrong([]string{"help"}, []string{"pubish"}, `there is no command "pubish", did you mean publish?`)
	wrong([]string{"help"}, []string{"dlq", "lss"}, `there is no command "lss", did you mean ls?`)
	wrong([]string{"completion"}, []string{"bsh"}, `there is no command "bsh", did you mean bash?`)
	if mistakes < 100 {
		t.Errorf("only %d flags were tried", mistakes)
	}
}

// Each command reads its settings from the environment and names a wrong one.
func TestWrongVariablesAreToldAlikeByEveryCommand(t *testing.T) {
	for name, want := range map[string]string{"WEIR_JSON": "true or false", "WEIR_DURABILITY": "ephemeral, memory, disk or fsync", "WEIR_PORT": "a whole number from 0 to 65535", "WEIR_METRICS": "host:port, :port or port, and the port from 0 to 65535"} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(name, "nonsense")
			everyCommand(func(cmd *cobra.Command, words []string) {
				flag := strings.ToLower(strings.TrimPrefix(name, "WEIR_"))
				if f := cmd.Flags().Lookup(flag); f == nil || f.Value.Type() == "file" || cmd.CommandPath() == "weir topic set" && flag == "durability" {
					// the --json of bench is a file, and no variable changes a topic that is there
					return
				}
				res := runWeir(t, "", append(words, good(cmd)...)...)
				if said := "environment variable " + name + `: "nonsense" is not ` + want; res.err == nil || res.err.Error() != said || exitCode(res.err) != exitUsage {
					t.Errorf("weir %v: %v, want %s", words, res.err, said)
				}
			})
		})
	}
}

func TestFlagsThatExcludeEachOther(t *testing.T) {
	for line, want := range map[string]string{
		"tail http://127.0.0.1:1/x --from 0 --last 3":                   "--from and --last exclude each other",
		"bench overload --against http://127.0.0.1:1/x --picture a.svg": "--against and --picture exclude each other",
		"bench overload --against http://127.0.0.1:1/x http://h/y":      "no further URL",
		"bench overload --against localhost:6379/x":                     "did you mean http://localhost:6379/x?",
		"dlq redrive http://127.0.0.1:1/x --follow --dry-run":           "--follow and --dry-run exclude each other",
		"sample --metrics :0 --count 3 http://127.0.0.1:1/x":            "--count is for printed samples",
		"sample --metrics :0 --every 2m http://127.0.0.1:1/x":           "--every 2m0s is too long for --metrics",
		"serve --upstream=": `flag --upstream: "" is not a URL: it is empty`,
		"serve --replica= --port 0 --data-dir /nowhere/a":               `flag --replica: "" is not a URL: it is empty`,
		"serve --upstream redis://h/x":                                  `unknown URL scheme "redis"`,
		"serve --upstream http://:secret@127.0.0.1:1":                   "set WEIR_UPSTREAM_KEY",
		"serve --upstream http://one,two:4000":                          "in front of one address",
		"serve --upstream http://127.0.0.1:1 --replica file:///tmp":     "--standby belong to its upstream",
		"serve --upstream http://127.0.0.1:1 --standby":                 "--standby belong to its upstream",
		"serve --upstream http://127.0.0.1:1 --replica-sync":            "--standby belong to its upstream",
		"serve --replica-sync --port 0 --data-dir /dev/null/a":          "need the copy that --replica names",
		"backup --keep 24h http://127.0.0.1:1 x":                        "flag --keep is for backups that are made again and again; add --every",
		"backup --metrics :0 http://127.0.0.1:1 x":                      "add --every",
		"restore file:///nosuch a --data-dir b":                         "named twice",
		"restore /nosuch a --at 2026-11-30T12:00:00Z":                   "--at and --dry-run are for a copy",
		"restore /nosuch a --dry-run":                                   "--at and --dry-run are for a copy",
		"restore file:///nosuch a --at=":                                `flag --at: "" is not a point: it is empty`,
		"serve --standby --port 0 --data-dir /dev/null/a":               "need the copy that --replica names",
		"publish --type log file:///tmp/x?topic=a":                      "--type log",
		"dlq purge http://127.0.0.1:1/x":                                "add --yes",
		"topic purge http://127.0.0.1:1/x":                              "purge is final and there is no terminal to ask on: add --yes, or --dry-run",
		"topic rm http://127.0.0.1:1/x":                                 "rm is final",
		"topic truncate --keep 1 http://127.0.0.1:1/x":                  "truncate is final",
		"router rm http://127.0.0.1:1/x":                                "rm is final",
		"topic truncate --yes http://127.0.0.1:1/x":                     "--before SEQ or --keep RECORDS",
		"topic truncate --before 2 --keep 3 http://127.0.0.1:1/x":       "one of them",
		"topic set http://127.0.0.1:1/x":                                "name what to change",
		"topic set redis://127.0.0.1:1/0?stream=x --ttl 1h":             `unknown URL scheme "redis"; known: http, https`,
		"topic ls http://127.0.0.1:1/x":                                 "works on a whole server",
		"topic info http://127.0.0.1:1":                                 "the URL names no topic",
		"router create http://127.0.0.1:1/x --source a":                 "--dest is missing",
		"router create http://127.0.0.1:1/,x --source a --dest b":       "no router can be named",
		"webhook rm http://127.0.0.1:1/x":                               "rm is final",
		"webhook create http://127.0.0.1:1/x --topic a":                 "--to is missing",
		"webhook create http://127.0.0.1:1/x --topic a --to b --rate x": "flag --rate",
		"webhook info http://127.0.0.1:1":                               "the URL names no webhook",
		"webhook info http://127.0.0.1:1/,x":                            "is not the name of a webhook",
		"sample --enqueue-field=a http://127.0.0.1:1/x":                 "--enqueue-field is for Redis",
		"sample http://127.0.0.1:1/x http://127.0.0.1:1/y":              "accepts at most 1 arg",
		"publish --metrics a:b:c http://127.0.0.1:1/x":                  "flag --metrics",
		"tail http://127.0.0.1:1/x --from nothing":                      "--from",
		"tail redis://127.0.0.1:1/0?stream=x --from a-1":                `--from "a-1" is not the ID of an entry, such as 1771090569852-0; 0 is everything`,
		"tail kafka://127.0.0.1:1/x --from 12":                          `--from "12" is not PARTITION:OFFSET`,
		"tail file:///tmp/nowhere?topic=x --from 1-0":                   `--from "1-0" is not a seq, which is a number`,
		"key new a/b --keys-file /tmp/nowhere/keys.json":                `the name "a/b" is not`,
		"key new a --keys-file /tmp/nowhere/keys.json --prefixes=":      `flag --prefixes: "" is not a list: it is empty`,
		"key new a --keys-file /tmp/nowhere/keys.json --prefixes=,":     `flag --prefixes: "," is not a list: it is empty`,
		"dlq purge http://127.0.0.1:1/x --yes --reason=":                `flag --reason: "" is not max_deliveries, poison or expired`,
		"dlq ls http://127.0.0.1:1/x --reason max-deliveries":           `flag --reason: "max-deliveries" is not max_deliveries, poison or expired`,
		"dlq purge http://127.0.0.1:1/x --yes --error=":                 `flag --error: "" is not a text: it is empty`,
		"tail http://127.0.0.1:1/x?shards=4":                            "name it, such as orders.0",
		"tail redis://127.0.0.1:1/0?stream=x&shards=4":                  "name it, such as orders.0",
		"doctor redis://127.0.0.1:1/0?stream=x&shads=4":                 "key, shards",
		"doctor http://127.0.0.1:1/x?shads=4":                           "key, shards",
		"publish file:///tmp/x?topic=a&shads=4":                         "durability, shards",
		"serve --allowed-hosts https://weir.example --port 0":           `setting allowed_hosts: "https://weir.example" is no host`,
		"dash http://127.0.0.1:1/x --allowed-hosts weir.example,*":      `setting allowed_hosts: "*" is no host`,
		"serve --webhook-allow-private 10.0.0.0/8,10.1.1.1/8":           `webhook_allow_private: "10.1.1.1/8" is not a range`,
		"serve --replica file:./copy --port 0 --data-dir /nowhere/a":    "--replica: the file URL of the copy cannot be read",
		"serve --replica file:///a#1 --port 0 --data-dir /nowhere/a":    "write it as %23",
		"serve --replica s3://abc/a#1 --port 0 --data-dir /nowhere/a":   "write it as %23",
		"serve --replica s3://b --port 0 --data-dir /nowhere/a":         "--replica: no bucket can be named",
		"serve --host 0.0.0.0 --port 0 --data-dir /nowhere/at/all":      "refusing to listen",
	} {
		res := runWeir(t, "", strings.Fields(line)...)
		if res.err == nil || exitCode(res.err) != exitUsage || !strings.Contains(res.err.Error(), want) {
			t.Errorf("weir %s: %v, want %s and exit code 2", line, res.err, want)
		}
	}
}

func TestUnknownVariablesAreWarnedAboutOnce(t *testing.T) {
	t.Setenv("WEIR_LAG_WRAN", "5")
	f := newFakeServer(t)
	f.add("in", "1")
	for _, args := range [][]string{
		{"publish", f.URL + "/in"}, {"work", f.URL + "/in", "--until-empty", "10ms", "--block", "10ms", "--", "true"},
		{"tail", f.URL + "/in", "--no-follow"}, {"repair", t.TempDir()},
	} {
		res := runWeir(t, "a", args...)
		if strings.Count(res.stderr, "unknown environment variable WEIR_LAG_WRAN, did you mean WEIR_LAG_WARN?") != 1 {
			t.Errorf("weir %v: %v, %q", args, res.err, res.stderr)
		}
	}
}

// The help of a command that moves messages names each kind of stream that it takes.
func TestTheHelpNamesEveryKindOfStream(t *testing.T) {
	for _, name := range []string{"publish", "work", "tail"} {
		help := runWeir(t, "", "help", name).stdout
		for _, scheme := range []string{"http[s]://", "redis[s]://", "kafka[s]://", "file://"} {
			if !strings.Contains(help, scheme) {
				t.Errorf("weir help %s says nothing of %s", name, scheme)
			}
		}
	}
}

// To zsh, a comment behind a command is more arguments, and an address with a question mark in it a
// pattern that no file matches.
func TestExamplesOfTheHelpCanBePasted(t *testing.T) {
	quoted := regexp.MustCompile(`'[^']*'`)
	everyCommand(func(cmd *cobra.Command, _ []string) {
		if bare := quoted.ReplaceAllString(cmd.Example, ""); strings.ContainsAny(bare, "#?") {
			t.Errorf("%s: %s", cmd.CommandPath(), cmd.Example)
		}
	})
}

func TestTheVersionHasTwoFlags(t *testing.T) {
	want := runWeir(t, "", "version").stdout
	for _, flag := range []string{"--version", "-v"} {
		if res := runWeir(t, "", flag); res.err != nil || res.stdout != want || !strings.HasPrefix(want, "weir ") {
			t.Errorf("weir %s: %v, %q; want %q", flag, res.err, res.stdout, want)
		}
	}
}

// Of one thing nobody is told in the plural: what is counted is said by countOf.
func TestOneOfAThingIsSaidInTheSingular(t *testing.T) {
	for n, want := range map[int]string{0: "0 records", 1: "1 record", 2: "2 records"} {
		if got := countOf(n, "record"); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if got := countOf(2, "log entry"); got != "2 log entries" {
		t.Error(got)
	}
	counted := regexp.MustCompile(`%d (?:[a-z]+ )?(?:records|messages|letters|topics|streams|routers|files|entries|places|groups|bases|tables|times|waits|keys|were)\b`)
	files, err := filepath.Glob("*.go")
	if err != nil || len(files) < 50 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if found := counted.FindAllString(string(text), -1); len(found) > 0 && !strings.HasSuffix(file, "_test.go") {
			t.Errorf("%s says %q", file, found)
		}
	}
}

// full is a standard output on a full disk.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, syscall.ENOSPC }

// A command whose result cannot be printed does not end as if it had been.
func TestAResultThatCannotBePrintedIsAnError(t *testing.T) {
	f := newFakeServer(t)
	f.add("in", "1")
	keys := filepath.Join(t.TempDir(), "keys.json")
	for _, args := range [][]string{
		{"publish", f.URL + "/in"}, {"publish", "--json", f.URL + "/in"},
		{"work", "--json", "--until-empty", "10ms", "--block", "10ms", f.URL + "/in", "--", "true"},
		{"key", "new", "ops", "--keys-file", keys},
	} {
		root := newRoot()
		root.SetArgs(args)
		root.SetIn(strings.NewReader("a"))
		root.SetOut(full{})
		root.SetErr(io.Discard)
		if err := root.ExecuteContext(t.Context()); !errors.Is(err, syscall.ENOSPC) || exitCode(err) != exitFailed {
			t.Errorf("weir %v: %v", args, err)
		}
	}
	if left, err := keyfile.Read(keys); err != nil || len(left) > 0 {
		t.Errorf("a key that nobody has seen is kept: %v, %v", left, err)
	}
}

// The table of commands that a newcomer reads has each of them.
func TestThePageOfCommandsHasThemAll(t *testing.T) {
	page, err := os.ReadFile("../../docs/COMMANDS.md")
	if err != nil {
		t.Fatal(err)
	}
	everyCommand(func(cmd *cobra.Command, words []string) {
		if len(words) == 0 || cmd.Hidden || slices.Contains([]string{"help", "completion", "version"}, words[0]) {
			return
		}
		if group := words[0] == "bench"; group && len(words) == 1 || !group && len(words) > 1 {
			return // of bench each is named, of others the group
		}
		if name := "`" + strings.Join(words, " "); !strings.Contains(string(page), name+"`") && !strings.Contains(string(page), name+" ") {
			t.Errorf("docs/COMMANDS.md says nothing of weir %s", strings.Join(words, " "))
		}
	})
}

// A file that can never be written is a mistake of the command line, told before anything is begun.
func TestAFileThatCannotBePutThereIsAUsageError(t *testing.T) {
	dir := t.TempDir()
	input := writeLines(t, "a")
	link := filepath.Join(dir, "link")
	if err := os.Symlink(filepath.Join(dir, "absent", "file"), link); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		filepath.Join(dir, "absent", "file"): "no such file or directory",
		dir:                                  "no regular file",
		"/dev/null":                          "no regular file",
		filepath.Join(input, "file"):         "not a directory",
		link:                                 "no such file or directory",
	} {
		data := filepath.Join(dir, "data")
		for flag, args := range map[string][]string{
			"--resume: ":    {"publish", "--resume", path, "file://" + data + "?topic=in", input},
			"--port-file: ": {"serve", "--port", "0", "--data-dir", data, "--port-file", path},
		} {
			res := runWeir(t, "", args...)
			if exitCode(res.err) != exitUsage || !strings.HasPrefix(res.err.Error(), flag) || !strings.Contains(res.err.Error(), want) {
				t.Errorf("%v: %v, want %q", args, res.err, want)
			}
			if _, err := os.Stat(data); err == nil {
				t.Errorf("%v began", args)
			}
		}
	}
}
