// Package crash holds the tests that attack the built weir binary: kill -9 in a
// loop (program kill for long runs), power cuts (program cut, a module of its
// own) and histories of concurrent clients that must be linearizable.
package crash
