package engine

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// kernel are the files by which every topic changes, and what they stand on. The
// rooms above (push, routes, jobs and the verbs) call them; they are told what
// happens through listener and are not called by name.
var kernel = strings.Fields("commit.go registry.go create.go reserve.go evict.go damage.go reader.go clock.go errors.go turn.go guard.go ready.go")

func TestTheKernelCallsNoRoomByName(t *testing.T) {
	names, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	fset := token.NewFileSet()
	files := map[string]*ast.File{}
	above := map[string]string{} // methods of Engine and entry, and their files
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		if files[name], err = parser.ParseFile(fset, name, nil, parser.SkipObjectResolution); err != nil {
			t.Fatal(err)
		}
		for _, d := range files[name].Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || fn.Recv == nil || slices.Contains(kernel, name) {
				continue
			}
			if to, ok := fn.Recv.List[0].Type.(*ast.StarExpr); ok {
				if id, ok := to.X.(*ast.Ident); ok && (id.Name == "Engine" || id.Name == "entry") {
					above[fn.Name.Name] = name
				}
			}
		}
	}
	for _, name := range kernel {
		if files[name] == nil {
			t.Errorf("%s is gone: what is the kernel now?", name)
			continue
		}
		ast.Inspect(files[name], func(n ast.Node) bool {
			if sel, ok := n.(*ast.SelectorExpr); ok {
				// The engine is always e, an entry always t.
				if x, ok := sel.X.(*ast.Ident); ok && (x.Name == "e" || x.Name == "t") && above[sel.Sel.Name] != "" {
					t.Errorf("%s: %s of %s is called by name: a room is told through listener", fset.Position(sel.Pos()), sel.Sel.Name, above[sel.Sel.Name])
				}
			}
			return true
		})
	}
}
