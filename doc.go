// Package weir is a stream queue that stays quick and loses nothing when there
// is more work than workers.
//
// A Stream is opened by a URL, on Redis Streams, on a weir server or in this
// process. A Producer publishes to it behind a guard, which slows down, waits and in the end
// refuses when the workers are behind. A Pool runs a handler for each message; every worker
// also takes over what crashed workers left, and what fails too often is moved to
// the dead letters.
package weir
