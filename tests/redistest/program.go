package redistest

import (
	"fmt"
	"os"
)

// Scope is a TB for a program: it owns a directory and what has to be ended.
type Scope struct {
	name, dir string
	cleanups  []func()
	failed    bool
}

// fatal is what Fatalf panics with.
type fatal struct{ error }

// Program runs do with a scope and ends what do started. The scope's directory is removed
// unless do says that it is to be kept. A Fatalf of the scope is an error.
func Program(name string, do func(s *Scope) (keep bool, err error)) (err error) {
	s := &Scope{name: name}
	if s.dir, err = os.MkdirTemp("", "weir-"+name+"-*"); err != nil {
		return err
	}
	keep := true
	defer func() {
		if v := recover(); v != nil {
			f, ok := v.(fatal)
			if !ok {
				panic(v)
			}
			err = f.error
		}
		s.failed = err != nil
		s.end(keep)
	}()
	keep, err = do(s)
	return err
}

// Dir is the scope's directory.
func (s *Scope) Dir() string { return s.dir }

// Helper does nothing.
func (s *Scope) Helper() {}

// Failed reports whether the program has failed.
func (s *Scope) Failed() bool { return s.failed }

// Cleanup has f called at the end.
func (s *Scope) Cleanup(f func()) { s.cleanups = append(s.cleanups, f) }

// Logf prints to standard error.
func (s *Scope) Logf(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }

// Fatalf ends the program's part in the goroutine that Program was called in.
func (s *Scope) Fatalf(format string, args ...any) { panic(fatal{fmt.Errorf(format, args...)}) }

// TempDir returns a new directory in the scope's own.
func (s *Scope) TempDir() string {
	dir, err := os.MkdirTemp(s.dir, "*")
	if err != nil {
		s.Fatalf("%v", err)
	}
	return dir
}

// end ends what was started, the last first.
func (s *Scope) end(keep bool) {
	for i := len(s.cleanups) - 1; i >= 0; i-- {
		s.cleanups[i]()
	}
	if keep {
		fmt.Println("kept:", s.dir)
		return
	}
	if err := os.RemoveAll(s.dir); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", s.name, err)
	}
}
