package open_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/weirmq/weir/open"
)

// docOf returns the comment of a function in a file of Go.
func docOf(t *testing.T, file, name string) string {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range parsed.Decls {
		if f, is := d.(*ast.FuncDecl); is && f.Recv == nil && f.Name.Name == name {
			return f.Doc.Text()
		}
	}
	t.Fatalf("%s has no %s", file, name)
	return ""
}

// Whoever reads what Open takes, or the page of the backend, learns of every key that a URL may have.
func TestEveryKeyOfAURLIsExplained(t *testing.T) {
	page := func(name string) string {
		text, err := os.ReadFile("../docs/" + name)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	all := docOf(t, "open.go", "URL")
	for raw, texts := range map[string]map[string]string{
		"mem://a?no=1":              {"embedded.Open": docOf(t, "../backend/embedded/embedded.go", "Open")},
		"file:./a?topic=a&no=1":     {"embedded.Open": docOf(t, "../backend/embedded/embedded.go", "Open")},
		"http://h:1/a?no=1":         {"remote.Open": docOf(t, "../backend/remote/remote.go", "Open")},
		"redis://h/0?stream=a&no=1": {"redis.Open": docOf(t, "../backend/redis/redis.go", "Open"), "REDIS.md": page("REDIS.md")},
		"kafka://h/a?no=1":          {"kafka.Open": docOf(t, "../backend/kafka/kafka.go", "Open"), "KAFKA.md": page("KAFKA.md")},
	} {
		_, err := open.URL(t.Context(), raw)
		if err == nil {
			t.Fatalf("%s was opened", raw)
		}
		_, list, ok := strings.Cut(err.Error(), "known: ")
		keys := strings.Split(list, ", ")
		if !ok || !slices.Contains(keys, "group") {
			t.Fatalf("%s: %v", raw, err)
		}
		for where, text := range texts {
			for _, key := range keys {
				explained := regexp.MustCompile(`\b` + key + `(,|;|=| \(| and )`) // of a comment
				if strings.HasSuffix(where, ".md") {
					explained = regexp.MustCompile("[?&`]" + key + "[=`]")
				}
				if !explained.MatchString(text) && !(key == "shards" && explained.MatchString(all)) {
					t.Errorf("%s does not say what %s= in the URL means", where, key)
				}
			}
		}
	}
}
