package settings

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

// The page of settings holds the table as it is; on a mismatch the test prints what
// belongs there.
func TestThePageOfSettingsIsComplete(t *testing.T) {
	page, err := os.ReadFile("../../docs/SETTINGS.md")
	if err != nil {
		t.Fatal(err)
	}
	var library, serve, calls, env strings.Builder
	for _, s := range table {
		switch {
		case strings.HasPrefix(s.name, "test-"):
		case s.in&Library != 0 && s.places&byFile != 0:
			fmt.Fprintf(&library, "| %s | %s | %s | %s | %s | %s |\n", s.keyCell(), s.variableCell(), s.flagCell(), s.defaultCell(), s.reloadCell(), s.help)
		case s.in&Serve != 0 && s.places&byFile != 0 || s.name == "api-keys":
			fmt.Fprintf(&serve, "| %s | %s | %s | %s | %s | %s |\n", s.keyCell(), s.variableCell(), s.flagCell(), s.defaultCell(), s.reloadCell(), s.help)
		case s.in == SampleRedis:
			fmt.Fprintf(&env, "| %s | %s | %s |\n", s.variableCell(), s.defaultCell(), s.help)
		default:
			fmt.Fprintf(&calls, "| %s | %s | %s | %s | %s |\n", s.flagCell(), s.variableCell(), s.commands(), s.defaultCell(), s.help)
		}
	}
	for _, rows := range []string{library.String(), serve.String(), calls.String(), env.String()} {
		if !strings.Contains(string(page)+"\n", "|---|\n"+rows+"\n") {
			t.Errorf("docs/SETTINGS.md has no table of exactly these rows:\n%s", rows)
		}
	}
}

// Who looks for metrics finds every command that serves some.
func TestThePageOfMetricsHasEveryCommandThatServesThem(t *testing.T) {
	page, err := os.ReadFile("../../docs/METRICS.md")
	if err != nil {
		t.Fatal(err)
	}
	served, _, _ := strings.Cut(string(page), "\nThree rules ")
	i := slices.IndexFunc(table, func(s *Setting) bool { return s.name == "metrics" })
	for command := range strings.SplitSeq(table[i].commands(), ", ") {
		if !strings.Contains(served, "`weir "+command) {
			t.Errorf("docs/METRICS.md does not say what weir %s --metrics serves", command)
		}
	}
}

func code(text string) string {
	if text == "" {
		return "–"
	}
	return "`" + text + "`"
}

func (s *Setting) keyCell() string {
	if s.places&byFile == 0 {
		return "–"
	}
	return code(s.key())
}

func (s *Setting) flagCell() string {
	if s.places&byFlag == 0 {
		return "–"
	}
	return code("--" + s.name)
}

func (s *Setting) variableCell() string {
	names := s.variables()
	for i := range names {
		names[i] = code(names[i])
	}
	if len(names) == 0 {
		return "–"
	}
	return strings.Join(names, ", ")
}

func (s *Setting) defaultCell() string {
	if s.deft == "" {
		return "–"
	}
	return s.deft
}

func (s *Setting) reloadCell() string {
	if s.reloads {
		return "yes"
	}
	return "–"
}

// commands are those that have the setting.
func (s *Setting) commands() string {
	var names []string
	for _, c := range []struct {
		of   Command
		name string
	}{
		{Serve, "serve"}, {Publish, "publish"}, {Work, "work"}, {Tail, "tail"}, {Sample, "sample"}, {Doctor, "doctor"},
		{letters, "dlq"}, {List, "dlq ls"}, {Show, "dlq show"}, {Redrive, "dlq redrive"}, {Purge, "dlq purge"},
		{Backup, "backup"}, {Verify, "backup verify"}, {Restore, "restore"}, {Repair, "repair"}, {Replica, "replica"},
		{Overload, "bench overload"}, {BenchLoad, "bench load"}, {Dash, "dash"}, {Bundle, "debug bundle"}, {Top, "top"}, {Queue, "queue"}, {NewKey, "key new"}, {Keys, "key ls, key revoke"},
		{topics, "topic"}, {Topics, "topic ls"}, {TopicInfo, "topic info"}, {TopicCreate, "topic create"}, {TopicSet, "topic set"},
		{TopicRemove, "topic rm"}, {TopicPurge, "topic purge"}, {TopicTruncate, "topic truncate"},
		{routers, "router"}, {Routers, "router ls"}, {RouterCreate, "router create"}, {RouterRemove, "router rm"},
		{hooks, "webhook"}, {Webhooks, "webhook ls"}, {WebhookInfo, "webhook info"}, {WebhookCreate, "webhook create"}, {WebhookRemove, "webhook rm"},
		{Health, "health"}, {Contexts, "context ls, context use, context rm"}, {ContextSet, "context set"},
	} {
		covered := slices.ContainsFunc([]Command{letters, topics, routers, hooks}, func(all Command) bool {
			return s.in&all == all && c.of&all == c.of && c.of != all
		})
		if s.in&c.of == c.of && !covered {
			names = append(names, c.name)
		}
	}
	return strings.Join(names, ", ")
}
