package engine

import (
	"fmt"
	"runtime/debug"
)

// guard ends the process if the verb that defers it panics, with the panic and
// its stack as Go prints them and exit code 2. The caller must not go on: a
// lock may stay held for ever and what it guards may be half changed, but
// net/http, and any caller that recovers, would answer the next request. The
// log makes the end safe: everything acknowledged is there at the next start.
// The engine's own goroutines need no guard, since nobody recovers there.
func guard() {
	v := recover()
	if v == nil {
		return
	}
	end := fmt.Sprintf("the engine panicked, so the process ends: %v\n\n%s", v, debug.Stack())
	go func() { panic(end) }() // on a goroutine of its own nobody can recover it
	select {}
}
