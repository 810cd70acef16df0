package engine

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirmq/weir/internal/api"
)

// Whoever recovers around a call into the engine, as net/http does, does not
// keep a process alive in which a lock is held for ever.
func TestAPanicInsideAVerbEndsTheProcess(t *testing.T) {
	if dir := os.Getenv("WEIR_TEST_PANIC_IN"); dir != "" {
		panicInAVerb(t, dir, os.Getenv("WEIR_TEST_PANIC_OF"))
		return
	}
	for _, verb := range []string{"Write", "PutTopic", "Claim", "Topics", "Stream"} {
		t.Run(verb, func(t *testing.T) {
			dir := t.TempDir()
			cmd := exec.Command(os.Args[0], "-test.run=^TestAPanicInsideAVerbEndsTheProcess$", "-test.timeout=60s")
			cmd.Env = append(os.Environ(), "WEIR_TEST_PANIC_IN="+dir, "WEIR_TEST_PANIC_OF="+verb)
			var out bytes.Buffer
			cmd.Stdout, cmd.Stderr = &out, &out
			err := cmd.Run()
			if cmd.ProcessState == nil {
				t.Fatal(err)
			}
			text := out.String()
			if code := cmd.ProcessState.ExitCode(); code != 2 || !strings.Contains(text, "the clock has stopped") ||
				!strings.Contains(text, "engine.(*Engine).clock") || strings.Contains(text, "still alive") {
				t.Fatalf("the process ends with %d and says:\n%s", code, text)
			}
			sameRecords(t, open(t, dir), "q", []string{"1", "2"})
		})
	}
}

func panicInAVerb(t *testing.T, dir, verb string) {
	var broken atomic.Bool
	e := open(t, dir, func(o *Options) {
		o.Now = func() time.Time {
			if broken.Load() {
				panic("the clock has stopped")
			}
			return time.Now()
		}
	})
	put(t, e, "q", configOf(api.Disk, queueConfig))
	write(t, e, "q", "1", "2")
	s := openStream(t, e, newSession(t, e, api.WatchTopic{Topic: "q"}), "")
	broken.Store(true)
	func() {
		defer func() { recover() }()
		switch verb {
		case "Write":
			tryWrite(e, "q", "3")
		case "PutTopic":
			e.PutTopic(bg, "q", configOf(api.Disk, queueConfig))
		case "Claim":
			e.Claim(bg, "q", &api.ClaimRequest{Node: "n", Max: 1}, func(*api.Job) {})
		case "Topics":
			e.Topics("", "", 10, true, nil)
		case "Stream":
			s.Next(bg, nil)
		}
	}()
	os.Stdout.WriteString("still alive\n")
	os.Exit(0)
}

// Every way into the engine is guarded, but for those that only hand something
// out.
func TestEveryWayIntoTheEngineIsGuarded(t *testing.T) {
	harmless := []string{"Drain", "Draining", "DroppedSlow", "Ready", "Heartbeat", "Ended", "Unproved", "WaitBoundsMS", "OfMachine"}
	names, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	guarded := 0
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range file.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || !fn.Name.IsExported() || slices.Contains(harmless, fn.Name.Name) || !ownedByTheEngine(fn) {
				continue
			}
			if !beginsWithGuard(fn) {
				t.Errorf("%s does not begin with defer guard()", fn.Name.Name)
			}
			guarded++
		}
	}
	if guarded < 30 {
		t.Errorf("only %d ways into the engine were found", guarded)
	}
}

// ownedByTheEngine reports whether the function is one of the package itself, or
// a method of what the engine hands out.
func ownedByTheEngine(fn *ast.FuncDecl) bool {
	if fn.Recv == nil {
		return true
	}
	p, ok := fn.Recv.List[0].Type.(*ast.StarExpr)
	if !ok {
		return false
	}
	id, ok := p.X.(*ast.Ident)
	return ok && id.IsExported()
}

func beginsWithGuard(fn *ast.FuncDecl) bool {
	if len(fn.Body.List) == 0 {
		return false
	}
	d, ok := fn.Body.List[0].(*ast.DeferStmt)
	if !ok {
		return false
	}
	id, ok := d.Call.Fun.(*ast.Ident)
	return ok && id.Name == "guard"
}
