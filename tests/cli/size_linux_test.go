package cli

import (
	"debug/elf"
	"strings"
	"testing"

	"github.com/weirmq/weir/tests/weirtest"
)

// A linker that meets text/template, which calls methods by their names, keeps every
// method of every type: a third more of a program.
func TestTheLinkerMayLeaveOutMethods(t *testing.T) {
	binary, err := elf.Open(weirtest.Binary(t))
	if err != nil {
		t.Fatal(err)
	}
	defer binary.Close()
	symbols, err := binary.Symbols()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range symbols {
		if strings.HasPrefix(s.Name, "text/template.(*state)") {
			t.Fatalf("weir holds %s: something uses templates", s.Name)
		}
	}
}
