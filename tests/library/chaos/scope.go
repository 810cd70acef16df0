package main

import (
	"fmt"
	"os"
)

// scope is what a test is to redistest, for a program: it owns the directory and
// what has to be ended. Fatalf panics with a fatal, which run recovers.
type scope struct {
	dir      string
	cleanups []func()
	failed   bool
}

type fatal struct{ error }

func newScope() (*scope, error) {
	dir, err := os.MkdirTemp("", "weir-chaos-*")
	return &scope{dir: dir}, err
}

func (s *scope) Helper()          {}
func (s *scope) Failed() bool     { return s.failed }
func (s *scope) Cleanup(f func()) { s.cleanups = append(s.cleanups, f) }

func (s *scope) Logf(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }

func (s *scope) Fatalf(format string, args ...any) { panic(fatal{fmt.Errorf(format, args...)}) }

func (s *scope) TempDir() string {
	dir, err := os.MkdirTemp(s.dir, "*")
	if err != nil {
		s.Fatalf("%v", err)
	}
	return dir
}

// end ends what was started, the last first, and removes the directory unless it
// is to be kept.
func (s *scope) end(keep bool) {
	for i := len(s.cleanups) - 1; i >= 0; i-- {
		s.cleanups[i]()
	}
	if keep {
		fmt.Println("kept:", s.dir)
		return
	}
	if err := os.RemoveAll(s.dir); err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
	}
}
