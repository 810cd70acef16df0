package cli

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirmq/weir/tests/weirtest"
)

// What cannot be printed has not been said: the exit code of a command whose output goes to a
// full disk is 1, and standard error says why.
func TestOutputOnAFullDiskIsAFailure(t *testing.T) {
	t.Parallel()
	srv := weirtest.Start(t, weirtest.Options{})
	jobs := srv.URL + "/jobs"
	bury(t, openStream(t, jobs), 1, "poison")
	dir := t.TempDir()
	keys, backup, data := filepath.Join(dir, "keys.json"), filepath.Join(dir, "backup"), filepath.Join(dir, "data")
	env := []string{"XDG_CONFIG_HOME=" + dir, "WEIR_URL="}
	weirtest.Must(t, "key", "new", "one", "--keys-file", keys)
	weirtest.Must(t, "backup", srv.URL, backup)
	weirtest.Must(t, "restore", backup, data)
	weirtest.Run(t, env, "context", "set", "prod", srv.URL)
	weirtest.Must(t, "publish", srv.URL+"/log", "--type", "log", writeLines(t, []string{"a", "b"}))
	for _, line := range []string{
		"", "help", "help publish", "--help", "serve --help", "dlq", "topic rm -h", "completion bash", "version", "--version",
		"sample " + jobs, "doctor " + jobs, "doctor --json " + jobs, "top --count 1 " + srv.URL, "queue pause " + jobs, "queue resume --json " + jobs,
		"topic ls " + srv.URL, "topic info " + jobs, "topic info --json " + jobs, "topic create " + srv.URL + "/new", "topic set --ttl 1h --yes " + srv.URL + "/log",
		"router ls " + srv.URL, "webhook ls " + srv.URL, "dlq ls " + jobs, "dlq show " + jobs + " 1", "dlq redrive --dry-run " + jobs, "dlq purge --dry-run " + jobs,
		"tail --from 0 --no-follow " + srv.URL + "/log", "publish " + jobs + " " + writeLines(t, []string{"c"}), "work --json --until-empty 10ms " + srv.URL + "/none -- true",
		"key ls --keys-file " + keys, "backup verify " + backup, "repair " + data, "context ls", "context ls --json",
	} {
		full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		var said strings.Builder
		cmd := exec.CommandContext(t.Context(), weirtest.Binary(t), strings.Fields(line)...)
		cmd.Env = append(os.Environ(), env...)
		cmd.Stdout, cmd.Stderr = full, &said
		_ = cmd.Run() // its exit code says so
		full.Close()
		if cmd.ProcessState.ExitCode() != 1 || !strings.Contains(said.String(), "no space left on device") {
			t.Errorf("weir %s: exit code %d\n%s", line, cmd.ProcessState.ExitCode(), said.String())
		}
	}
}
