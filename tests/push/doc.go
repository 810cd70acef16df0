// Package push holds the tests that load the built weir binary with streams: a
// reader that stalls beside others, and more work than the machine can do
// (programs slow and saturation for long runs).
package push
