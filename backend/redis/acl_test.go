package redis

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// The page has one line for each role, with exactly the commands that the code knows of.
func TestThePageHasTheLineOfEachRole(t *testing.T) {
	page, err := os.ReadFile("../../docs/REDIS.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range roles {
		want := "ACL SETUSER weir-" + r.name + " on >PASSWORD ~jobs ~{jobs}:*"
		for command := range strings.FieldsSeq(r.commands) {
			want += " +" + command
		}
		found := regexp.MustCompile(`(?m)^\s*ACL SETUSER weir-`+r.name+` .*$`).FindAllString(string(page), -1)
		if len(found) != 1 || strings.TrimSpace(found[0]) != want {
			t.Errorf("docs/REDIS.md has %q, want this line once:\n%s", found, want)
		}
	}
}
