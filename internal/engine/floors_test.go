package engine

import (
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// floors reads the table of docs/ARCHITECTURE.md that says on which floor each
// file of the engine stands, the top one first.
func floors(t *testing.T) map[string]int {
	t.Helper()
	b, err := os.ReadFile("../../docs/ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, ok := strings.Cut(string(b), "| floor | files |\n|---|---|\n")
	table, _, end := strings.Cut(table, "\n\n")
	if !ok || !end {
		t.Fatal("docs/ARCHITECTURE.md has no table of floors")
	}
	floor := map[string]int{}
	for i, row := range strings.Split(table, "\n") {
		for _, m := range regexp.MustCompile("`(\\w+)`").FindAllStringSubmatch(row, -1) {
			floor[m[1]+".go"] = i
		}
	}
	return floor
}

// Calls go down. A room is told what happens through listener, an interface, so
// the kernel never calls one.
func TestCallsGoDownTheFloors(t *testing.T) {
	floor := floors(t)
	fset := token.NewFileSet()
	info := &types.Info{Uses: map[*ast.Ident]types.Object{}}
	pkg := check(t, fset, info)
	seen, told := map[string]bool{}, map[[2]string]bool{}
	for id, o := range info.Uses {
		from := filepath.Base(fset.Position(id.Pos()).Filename)
		if i, ok := floor[from]; !ok && !strings.HasPrefix(from, "flock_") && !seen[from] {
			t.Errorf("%s stands on no floor: give it one in docs/ARCHITECTURE.md", from)
		} else if f, ok := o.(*types.Func); ok && f.Pkg() == pkg {
			to := filepath.Base(fset.Position(f.Origin().Pos()).Filename)
			if j, ok := floor[to]; ok && i > j && !told[[2]string{from, to}] {
				told[[2]string{from, to}] = true
				t.Errorf("%s: %s calls up to %s of %s", fset.Position(id.Pos()), from, f.Name(), to)
			}
		}
		seen[from] = true
	}
	for name := range floor {
		if !seen[name] {
			t.Errorf("docs/ARCHITECTURE.md gives a floor to %s, which is gone", name)
		}
	}
}

// check type-checks the engine without its tests, with what it imports as the
// compiler has it.
func check(t *testing.T, fset *token.FileSet, info *types.Info) *types.Package {
	t.Helper()
	out, err := exec.Command("go", "list", "-export", "-deps", "-f", "{{.ImportPath}}\t{{.Export}}{{if not .DepOnly}}\t{{join .GoFiles \"\\t\"}}{{end}}", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	compiled := map[string]string{}
	var files []*ast.File
	for _, line := range strings.Split(strings.TrimSpace(string(out)), "\n") {
		fields := strings.Split(line, "\t")
		compiled[fields[0]] = fields[1]
		for _, name := range fields[2:] {
			f, err := parser.ParseFile(fset, name, nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			files = append(files, f)
		}
	}
	conf := types.Config{Importer: importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser, error) { return os.Open(compiled[path]) })}
	pkg, err := conf.Check("engine", fset, files, info)
	if err != nil {
		t.Fatal(err)
	}
	return pkg
}
