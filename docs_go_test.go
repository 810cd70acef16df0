package weir_test

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// known are the packages that Go in the documents may use; a fragment imports
// those that it names.
var known = map[string]string{
	"backend": module + "/backend", "config": module + "/config", "context": "context", "errors": "errors", "fmt": "fmt", "goredis": "github.com/redis/go-redis/v9",
	"http": "net/http", "io": "io", "log": "log", "open": module + "/open", "prometheus": "github.com/prometheus/client_golang/prometheus",
	"kafka": module + "/backend/kafka", "kgo": "github.com/twmb/franz-go/pkg/kgo", "oauth": "github.com/twmb/franz-go/pkg/sasl/oauth",
	"redis": module + "/backend/redis", "slog": "log/slog", "telemetry": module + "/telemetry", "time": "time", "trace": "go.opentelemetry.io/otel/trace", "tracing": module + "/telemetry/tracing", "url": "net/url", "weir": module,
}

// given are what a fragment may use without declaring it.
const given = "ctx context.Context, s *weir.Stream, body []byte, handle weir.Handler, registry prometheus.Registerer, token func(context.Context) (oauth.Auth, error), provider trace.TracerProvider, letters *weir.DeadLetters"

// declares tells functions that a page quotes of a file of the tree, which the compiler and
// the tests see there.
var declares = regexp.MustCompile(`(?m)^func `)

// goBlocks returns the Go in the documents, but what they quote, and in the package comments,
// by where it begins.
func goBlocks(t *testing.T) map[string]string {
	t.Helper()
	blocks := map[string]string{}
	fenced := regexp.MustCompile("(?ms)^ *```go\n(.*?)^ *```$")
	for name, text := range texts(t, ".md") {
		for _, m := range fenced.FindAllStringSubmatchIndex(text, -1) {
			at := fmt.Sprintf("%s:%d", name, 1+strings.Count(text[:m[2]], "\n"))
			if block := text[m[2]:m[3]]; strings.HasPrefix(block, "package ") || !declares.MatchString(block) {
				blocks[at] = block
			}
		}
	}
	for _, s := range sources(t) {
		if s.test() || s.file.Name.Name == "main" || strings.HasPrefix(s.dir(), "internal") || strings.HasPrefix(s.dir(), "tests") {
			continue
		}
		for _, paragraph := range strings.Split(s.file.Doc.Text(), "\n\n") {
			if strings.HasPrefix(paragraph, "\t") && strings.Contains(paragraph, " := ") {
				blocks[s.path] = paragraph
			}
		}
	}
	return blocks
}

// program makes a file of a block: a program is one already, a fragment becomes
// the body of a function.
func program(block string) (string, error) {
	if strings.HasPrefix(strings.TrimSpace(block), "package ") {
		return block, nil
	}
	body := "package p\nfunc _(" + given + ") {\n" + block
	file, err := parser.ParseFile(token.NewFileSet(), "", body+"\n}", parser.SkipObjectResolution)
	if err != nil {
		return "", err
	}
	imports, unused := map[string]bool{}, ""
	ast.Inspect(file, func(n ast.Node) bool {
		if sel, ok := n.(*ast.SelectorExpr); ok {
			if x, ok := sel.X.(*ast.Ident); ok && known[x.Name] != "" {
				imports[x.Name] = true
			}
		}
		return true
	})
	for _, st := range file.Decls[0].(*ast.FuncDecl).Body.List {
		if assign, ok := st.(*ast.AssignStmt); ok && assign.Tok == token.DEFINE {
			for _, name := range assign.Lhs {
				unused += "\n_ = " + name.(*ast.Ident).Name
			}
		}
	}
	head := ""
	for _, name := range slices.Sorted(maps.Keys(imports)) {
		head += fmt.Sprintf("import %s %q\n", name, known[name])
	}
	return strings.Replace(body, "\n", "\n"+head, 1) + unused + "\n}\n", nil
}

// Whoever copies an example gets something that compiles.
func TestGoInTheDocumentsCompiles(t *testing.T) {
	root, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	scratch := t.TempDir()
	overlay := struct{ Replace map[string]string }{map[string]string{}}
	names, blocks := map[string]string{}, goBlocks(t)
	if len(blocks) < 3 {
		t.Fatalf("found %d blocks of Go: the search misses them", len(blocks))
	}
	args := []string{"build", "-overlay", filepath.Join(scratch, "overlay.json")}
	for i, at := range slices.Sorted(maps.Keys(blocks)) {
		text, err := program(blocks[at])
		if err != nil {
			t.Errorf("%s: %v", at, err)
			continue
		}
		folder := fmt.Sprintf("docs/go%d", i)
		file := filepath.Join(scratch, fmt.Sprintf("%d.go", i))
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		overlay.Replace[filepath.Join(root, folder, "block.go")] = file
		names[folder+"/"] = at
		args = append(args, "./"+folder)
	}
	data, err := json.Marshal(overlay)
	if err == nil {
		err = os.WriteFile(filepath.Join(scratch, "overlay.json"), data, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("go", args...).CombinedOutput(); err != nil {
		said := string(out)
		for folder, at := range names {
			said = strings.ReplaceAll(said, folder, at+" in ")
		}
		t.Errorf("%v\n%s", err, said)
	}
}

// What a page shows of a test is word for word in one that runs.
func TestWhatPagesQuoteIsInTheTree(t *testing.T) {
	code, found := texts(t, ".go"), 0
	for name, text := range texts(t, ".md") {
		for _, m := range regexp.MustCompile("(?ms)^```go\n(.*?)^```$").FindAllStringSubmatch(text, -1) {
			if strings.HasPrefix(m[1], "package ") || !declares.MatchString(m[1]) {
				continue
			}
			found++
			if !slices.ContainsFunc(slices.Collect(maps.Values(code)), func(file string) bool { return strings.Contains(file, m[1]) }) {
				t.Errorf("%s quotes what is in no file:\n%s", name, m[1])
			}
		}
	}
	if found < 5 {
		t.Errorf("found %d quotations: the search misses them", found)
	}
}

// A page that has a program, and tells whoever runs it to set variables, has one that reads them:
// only package config does.
func TestProgramsOfPagesReadTheVariablesThatTheirPagesSet(t *testing.T) {
	pages := texts(t, ".md")
	_, table, _ := strings.Cut(pages["docs/SETTINGS.md"], "\n## Producers and workers\n")
	table, _, _ = strings.Cut(table, "\n## ")
	var variables []string
	for _, m := range regexp.MustCompile("(?m)^\\| `[a-z_]+` \\| `([A-Z_]+)` \\|").FindAllStringSubmatch(table, -1) {
		variables = append(variables, m[1])
	}
	if !slices.Contains(variables, "WEIR_GUARD") || !slices.Contains(variables, "QUEUE_MAX_DEPTH") {
		t.Fatalf("the table of settings has the variables %v", variables)
	}
	made := regexp.MustCompile("(?ms)^ *```go\n[^`]*weir\\.New(Producer|Pool)\\(")
	for name, text := range pages {
		if name == "CHANGELOG.md" || !made.MatchString(text) || strings.Contains(text, "config.Load") {
			continue
		}
		says := slices.DeleteFunc(slices.Clone(variables), func(v string) bool { return !regexp.MustCompile(`\b` + v + `\b`).MatchString(text) })
		if len(says) > 0 {
			t.Errorf("%s says %v, and its program does not read them", name, says)
		}
	}
}
