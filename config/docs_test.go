package config

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// The page of settings holds the table as it is; on a mismatch the test prints what
// belongs there.
func TestThePageOfSettingsIsComplete(t *testing.T) {
	page, err := os.ReadFile("../docs/SETTINGS.md")
	if err != nil {
		t.Fatal(err)
	}
	var rows strings.Builder
	for _, s := range table {
		flag := "`--" + s.flag() + "`"
		if s.part == Kafka {
			flag = "–"
		}
		deft := s.deft
		if deft == "" {
			deft = "–"
		}
		fmt.Fprintf(&rows, "| `%s` | `%s` | %s | %s | %s |\n", s.key, s.variable(), flag, deft, s.help)
	}
	if !strings.Contains(string(page), rows.String()) {
		t.Errorf("docs/SETTINGS.md does not hold these rows:\n%s", rows.String())
	}
}
