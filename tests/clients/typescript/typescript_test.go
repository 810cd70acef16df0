package typescript

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirmq/weir/tests/weirtest"
)

// The tests of the package itself, run by Node on the installed package and a real server.
func TestThePackagePassesItsTests(t *testing.T) {
	t.Parallel()
	in := program(t)
	srv := weirtest.Start(t, weirtest.Options{})
	tests, err := filepath.Glob(filepath.Join(in.app, "test", "*.test.js"))
	if err != nil || len(tests) < 6 {
		t.Fatalf("the tests are %v, %v", tests, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute) // Node waits for a test as long as it takes
	defer cancel()
	cmd := exec.CommandContext(ctx, "node", append([]string{"--test"}, tests...)...)
	cmd.Dir = in.app
	cmd.Env = append(os.Environ(), "WEIR_URL="+srv.URL)
	cmd.WaitDelay = time.Second // for the processes that it has started
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	passed := regexp.MustCompile(`(?m)^. pass (\d+)$`).FindSubmatch(out)
	if passed == nil || string(passed[1]) == "0" || !regexp.MustCompile(`(?m)^. (skipped|todo) 0$`).Match(out) {
		t.Fatalf("no test has run, or one was left out:\n%s", out)
	}
	t.Logf("%s tests passed in Node", passed[1])
}

// Programs in TypeScript see the types, and what is wrong does not compile.
func TestThePackageHasTypes(t *testing.T) {
	t.Parallel()
	in := program(t)
	if err := os.WriteFile(filepath.Join(in.app, "tsconfig.json"), []byte(`{"compilerOptions":{"noEmit":true,"strict":true,
		"target":"es2022","lib":["es2022","dom"],"types":[],"module":"nodenext","skipLibCheck":false},"files":["test/types.ts"]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := command(in.app, "node", in.tsc); err != nil {
		t.Error(err)
	}
}

// The types are those of the API's document: npm run openapi changes nothing.
func TestTheTypesAreThoseOfTheDocument(t *testing.T) {
	t.Parallel()
	in := program(t)
	document, err := filepath.Abs("../../../internal/server/openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	made := filepath.Join(t.TempDir(), "openapi.ts")
	if _, err := command(in.build, "node", "scripts/openapi.mjs", document, made); err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile(made)
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(filepath.Join(source, "src", "openapi.ts"))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Error("clients/typescript/src/openapi.ts is not of this document: npm run openapi, in clients/typescript, makes it anew")
	}
}

// The tarball has what a program needs and nothing else, and the package depends on nothing.
func TestThePackageIsSmallAndStandsAlone(t *testing.T) {
	t.Parallel()
	in := program(t)
	allowed := regexp.MustCompile(`^package/(package\.json|README\.md|LICENSE|dist/\w+\.(js|d\.ts)|examples/\w+\.js)$`)
	for _, name := range in.files {
		if !allowed.MatchString(name) {
			t.Errorf("the tarball has %s", name)
		}
	}
	for _, name := range []string{"package/dist/index.js", "package/LICENSE"} {
		if !slices.Contains(in.files, name) {
			t.Errorf("the tarball has no %s: %v", name, in.files)
		}
	}
	packages, err := os.ReadDir(filepath.Join(in.app, "node_modules"))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range packages {
		if !strings.HasPrefix(p.Name(), ".") && p.Name() != "@weirmq" {
			t.Errorf("%s came with it", p.Name())
		}
	}
	lock, err := os.ReadFile(filepath.Join(source, "package-lock.json"))
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(lock), "resolved") {
		t.Error("the lock file names a registry")
	}
	built, err := filepath.Glob(filepath.Join(in.app, "node_modules", "@weirmq", "client", "dist", "*.js"))
	if err != nil || len(built) == 0 {
		t.Fatalf("built: %v, %v", built, err)
	}
	for _, file := range built {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`(?m)(?:from|import) "([^"]+)"`).FindAllSubmatch(text, -1) {
			if !strings.HasPrefix(string(m[1]), "./") {
				t.Errorf("%s imports %s, which a browser does not have", filepath.Base(file), m[1])
			}
		}
	}
}

// The page of the package keeps what it promises: its quick start runs, and the tests that it
// names as proofs exist.
func TestTheReadmeIsTrue(t *testing.T) {
	t.Parallel()
	in := program(t)
	text, err := os.ReadFile(filepath.Join(source, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	start := regexp.MustCompile("(?s)```js\n(.*?)```").FindSubmatch(text)
	if start == nil {
		t.Fatal("there is no quick start")
	}
	if n := strings.Count(string(start[1]), "\n"); n > 12 {
		t.Errorf("the quick start has %d lines", n)
	}
	srv := weirtest.Start(t, weirtest.Options{})
	file := filepath.Join(in.app, "quickstart.js")
	if err := os.WriteFile(file, []byte(strings.ReplaceAll(string(start[1]), "http://127.0.0.1:4000", srv.URL)), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := command(in.app, "node", file)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out, "ada@example.org") {
		t.Errorf("the quick start prints %q", out)
	}
	named := 0
	for _, m := range regexp.MustCompile("(?m)^\\|.*\\| `test/(\\w+\\.test\\.js)`: (.*) \\|$").FindAllSubmatch(text, -1) {
		tests, err := os.ReadFile(filepath.Join(source, "test", string(m[1])))
		if err != nil {
			t.Fatal(err)
		}
		for name := range strings.SplitSeq(string(m[2]), "; ") {
			named++
			if !strings.Contains(string(tests), "test("+quote(name)+",") {
				t.Errorf("the page names a test %q of %s, which is gone", name, m[1])
			}
		}
	}
	if named < 15 {
		t.Errorf("the page names %d tests", named)
	}
}

func quote(s string) string {
	text, _ := json.Marshal(s) // a string always has JSON
	return string(text)
}
